"""What is fuzzed: one function per way to read a file, which says what became of it.

Rules of this file: a target takes any bytes and returns a verdict; the promises that it checks
besides those of `reading.py` are about what is made of a file: its size, its place, its time and
memory in proportion to the file. A broken promise is an `AssertionError`.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import cordbundle as cb
from cordbundle.artifact import Artifact
from cordbundle.cli import main
from cordbundle.cli.extract import extract as extract_verb
from cordbundle.cli.inspect import inspect as inspect_verb
from cordbundle.cli.verify import verify as verify_verb
from cordbundle.errors import CordBundleError
from cordbundle.npz import read_npz
from cordbundle.safetensors import read_safetensors
from cordbundle.tags import tensor_data_paths
from cordbundle.weights import ptd_weights, serialize_weights, unique
from cordbundle.weights_check import check_weights
from tests.flatbuffer_samples import both
from tests.fuzz.reading import Verdict, answers, check_agreement, in_two_pieces, verdict
from tests.support import bytes_read, peak

__all__ = ["TARGETS", "Target", "memory_used"]

Target = Callable[[bytes], Verdict]

_CASES = 2  # cases, keys and methods that are extracted of one file
_EVERY = 32  # executions of a verb per one of the whole command line
_MEMORY = 16 << 20
_MEMORY_PER_BYTE = 64  # of objects in memory for one in the file: a table of 8 bytes can be 300
_runs = 0


def memory_used(target: Target, data: bytes) -> tuple[Verdict, int]:
    """Run a target and return how much memory it had allocated at once, in bytes.

    Raises:
        AssertionError: More than is in proportion to the size of the file.
    """
    found: list[Verdict] = []
    used = peak(lambda: found.append(target(data)))
    limit = _MEMORY + _MEMORY_PER_BYTE * len(data)
    assert used <= limit, f"takes {used} bytes of memory for {len(data)} bytes"
    return found[0], used


def open_(data: bytes) -> Verdict:
    """Open a file and read everything, twice, from memory that lies differently."""
    found = answers(data)
    assert found == answers(in_two_pieces(data)), "the same bytes give two answers"
    return "refused" if any("Error: " in answer for answer in found) else "sound"


def verify(data: bytes) -> Verdict:
    """Verify a file, and read everything of one that is sound."""
    found = verdict(data)
    if found == "sound":
        check_agreement(data)
    return found


def inspect(data: bytes) -> Verdict:
    """Show a file, as JSON and as text, and verify it, as the command line does."""
    with _file(data) as path, _silence() as out:
        before = bytes_read()
        try:
            inspect_verb(str(path), as_json=True)
            assert isinstance(json.loads(out.getvalue()), dict)
            inspect_verb(str(path), as_json=False)
            findings = verify_verb(str(path))
        except CordBundleError:
            findings = -1
        assert bytes_read() - before < 32 * len(data) + (64 << 10), "reads far more than there is"
        assert out.tell() < 64 * len(data) + (64 << 10), "prints far more than there is"
        if _is_turn():
            for words in (["inspect", str(path)], ["verify", str(path)]):
                assert main(words) in (0, 1)
    return "refused" if findings < 0 else "findings" if findings else "sound"


def extract(data: bytes) -> Verdict:
    """Extract the program, cases and named data of a file into a folder."""
    with _file(data) as path, _silence():
        folder = path.parent / "out"
        folder.mkdir()
        beside = sorted(os.listdir(path.parent))
        try:
            for words, limit in _extracts(data, folder):
                _extract(path, folder, words, limit)
            found = "sound"
        except CordBundleError:
            found = "refused"
        assert sorted(os.listdir(path.parent)) == beside, "something was written elsewhere"
        assert path.read_bytes() == data
    return found


def _extracts(data: bytes, folder: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield what can be extracted, and the largest size that it may have."""
    with cb.open(data) as file:
        blobs: Any = file if isinstance(file, cb.PtdFile) else file.named_data
        for path in _tag_paths(dict.fromkeys(blobs, cb.Cord()), folder):
            assert Path(path).parent == folder, "a key leads out of the folder"
        for key in list(blobs)[:_CASES]:
            yield {"named": (key, str(folder / "blob"))}, len(data)
        if not isinstance(file, cb.BundleFile):
            return
        if file.program:
            yield {"program": str(folder / "program.pte")}, len(data)
        for suite in file.suites[:_CASES]:
            cases = file.suite(suite.method_name).test_cases
            if cases:
                values = (*cases[0].inputs, *cases[0].expected_outputs)
                tensors = [value for value in values if isinstance(value, cb.TensorView)]
                assert all(tensor.nbytes <= len(data) for tensor in tensors)
                limit = sum(tensor.nbytes for tensor in tensors) + 1024 * (len(values) + 1)
                limit += 64 * sum(len(tensor.sizes) for tensor in tensors)
                for name in ("case.npz", "case.safetensors"):
                    yield {"case": (f"{suite.method_name}/0", str(folder / name))}, limit


def _tag_paths(files: dict[str, cb.Cord], folder: Path) -> list[str]:
    try:
        return list(tensor_data_paths(files, folder))
    except CordBundleError:
        return []


def _extract(path: Path, folder: Path, words: dict[str, Any], limit: int) -> None:
    (value,) = words.values()
    name = Path(value if isinstance(value, str) else value[1]).name
    try:
        extract_verb(str(path), **words)
    except cb.LayoutError:  # a type that the case file does not have
        assert os.listdir(folder) == []
        return
    assert os.listdir(folder) == [name], "another file than the one that was named"
    assert (folder / name).stat().st_size <= limit, "more comes out than is there"
    (folder / name).unlink()


def program(data: bytes) -> Verdict:
    """Decode the metadata of a file by columns and one by one; ask for a program's weights."""
    try:
        with cb.open(data) as file:
            end, root = file.metadata_end, _root(file)
            by_columns, one_by_one = both(file.cord[:end], root)
            if isinstance(file, cb.PteFile):
                check_weights(file, [])
    except CordBundleError:
        return "refused"
    assert repr(by_columns) == repr(one_by_one), "columns decode to something else"
    return "refused" if isinstance(by_columns, tuple) else "sound"


def _root(file: Artifact[Any]) -> type:
    return file.ROOT


def ptd(data: bytes) -> Verdict:
    """Load weights, and merge them into a new file that holds the same."""
    try:
        loaded = cb.load_ptd(data)
        merged = serialize_weights(unique(ptd_weights(cb.Cord(data), "weights")))["weights"]
        with cb.open(data) as file:
            is_sound = not file.verify()
    except CordBundleError:
        return "refused"
    assert len(merged) <= 4 * len(data) + 512 * (len(loaded) + 1), "merging amplifies"
    assert _findings(bytes(merged)) == [], "merging makes an unsound file"
    with cb.open(bytes(merged)) as again:
        assert isinstance(again, cb.PtdFile)
        assert sorted(loaded) == list(again)
        for key, blob in loaded.items():
            assert _bytes(again[key]) == _bytes(blob), f"merging changes {key!r}"
    return "sound" if is_sound else "findings"


def _bytes(blob: cb.TensorView | cb.Cord) -> bytes:
    return bytes(blob if isinstance(blob, cb.Cord) else blob.cord)


def rewrite(data: bytes) -> Verdict:
    """Take a file apart and put it together, edit a program, bundle it."""
    try:
        with cb.open(data) as file:
            cord = cb.rewrite(file).cord
            assert bytes(cord) == data, "an unchanged file changes"
            findings = file.verify()
            if isinstance(file, cb.PteFile):
                _edit(file, data)
                bundle = cb.bundle(data, [], alignment=16).cord
                assert len(bundle) < len(data) + 4096
                assert findings or not _findings(bytes(bundle)), "bundling makes an unsound file"
    except CordBundleError:
        return "refused"
    return "findings" if findings else "sound"


def _edit(file: cb.PteFile, data: bytes) -> None:
    """Edit a program in every way: one that is sound stays so, and none gets much larger."""
    edit = cb.PteEditor(file)
    edit.align_segments(64)
    edit.move_in({"new\x01": b"blob"})
    edit.move_out(list(file.named_data)[:1])
    edit.extract_delegates()
    made = edit.finish().cord
    count = len(file.segment_ranges) + 4 + sum(len(m.delegates) for m in file.methods.values())
    assert len(made) <= 3 * len(data) + 4096 + 128 * count, "rewriting amplifies"
    if not file.verify():
        assert not _findings(bytes(made)), "rewriting makes an unsound file"


def _findings(data: bytes) -> list[str]:
    """Return what is wrong with a file that we made."""
    try:
        with cb.open(data) as file:
            return [finding.what for finding in file.verify()]
    except CordBundleError as error:
        return [str(error)]


def safetensors(data: bytes) -> Verdict:
    """Read a safetensors file."""
    return _arrays(data, "case.safetensors", read_safetensors)


def npz(data: bytes) -> Verdict:
    """Read a NumPy archive."""
    return _arrays(data, "case.npz", read_npz)


def _arrays(data: bytes, name: str, read: Callable[[Path], dict[str, cb.TensorView]]) -> Verdict:
    with _file(data, name) as path:
        try:
            arrays = read(path)
        except CordBundleError:
            return "refused"
        for array in arrays.values():
            assert len(bytes(array.cord)) == array.nbytes
            assert len(array.strides) == len(array.sizes)
    return "sound"


TARGETS: dict[str, Target] = {
    "open": open_,
    "verify": verify,
    "inspect": inspect,
    "extract": extract,
    "program": program,
    "ptd": ptd,
    "rewrite": rewrite,
    "safetensors": safetensors,
    "npz": npz,
}


def _is_turn() -> bool:
    global _runs  # noqa: PLW0603  # a counter of the process
    _runs += 1
    return _runs % _EVERY == 0


@cache
def _folder() -> Path:
    """Return this process's folder, in memory where there is such a place."""
    memory = Path("/dev/shm")
    return Path(
        tempfile.mkdtemp(prefix="cordbundle-fuzz.", dir=memory if memory.is_dir() else None)
    )


@contextmanager
def _file(data: bytes, name: str = "file") -> Iterator[Path]:
    """Give a file with these bytes in a folder that is gone afterwards."""
    folder = _folder()
    folder.mkdir(exist_ok=True)
    try:
        path = folder / name
        path.write_bytes(data)
        yield path
    finally:
        shutil.rmtree(folder)


@contextmanager
def _silence() -> Iterator[io.StringIO]:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        yield out
