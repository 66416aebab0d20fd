"""A source that changes under a reader or a writer: an error, the old file, and never a signal."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle.cord import Cord
from cordbundle.errors import SourceChangedError
from tests.faults import litter, short_reads
from tests.support import floats, program, suite, tensor
from tests.test_source import run_child
from tests.test_writer import sharing_disk  # noqa: F401  (a fixture)
from tests.test_writer_faults import CHANGES, grow

MIB = 1 << 20


def transferred(folder: Path, way: str) -> Cord:
    """Return a Cord whose payload goes by this way to a target in the same folder."""
    source = folder / "source"
    source.write_bytes(os.urandom(MIB) * {"read": 6, "tandem": 20, "clone": 20}[way])
    return (Cord(bytes(8 * MIB)) if way == "clone" else Cord(b"head")) + Cord.from_file(source)


def check_found(folder: Path, way: str, change: Callable[[Path], None], moment: float) -> None:
    """Change the source when a part of the bytes is done, and expect the old file and no other."""
    target = folder / "target"
    target.write_bytes(b"old")
    cord, changed = transferred(folder, way), list[float]()

    def progress(done: int, total: int) -> None:
        if done >= moment * total and not changed:
            changed.append(done / total)
            change(folder / "source")

    with pytest.raises(SourceChangedError, match="changed after planning") as caught:
        cb.write(cord, target, progress=progress, durability="none")

    if 0 < moment < 1 and way != "tandem":  # where one thread may have written all by itself
        assert 0 < changed[0] < 1
    error = caught.value
    assert error.source == str(folder / "source")
    assert error.expected is not None
    assert error.actual is not None
    assert target.read_bytes() == b"old"
    assert litter(folder) == []


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("moment", [0.0, 0.4, 1.0], ids=["at first", "during", "before commit"])
@pytest.mark.parametrize("way", ["read", "tandem"])
def test_a_change_is_found_at_every_moment_of_a_copy(
    tmp_path: Path, way: str, change: Callable[[Path], None], moment: float
) -> None:
    check_found(tmp_path, way, change, moment)


@pytest.mark.parametrize("sharing_disk", ["xfs", "btrfs"], indirect=True)
def test_a_change_is_found_at_every_moment_of_a_clone(
    sharing_disk: Path,  # noqa: F811
) -> None:
    for change in CHANGES:
        for moment in (0.0, 0.25, 1.0):
            check_found(sharing_disk, "clone", change, moment)


@pytest.mark.parametrize("change", CHANGES)
def test_a_stream_is_given_no_byte_of_a_source_that_has_changed(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    cord = transferred(tmp_path, "read")
    change(tmp_path / "source")
    stream, file = io.BytesIO(), tmp_path / "file"

    with pytest.raises(SourceChangedError):
        cb.write(cord, stream)
    with file.open("wb", buffering=0) as raw, pytest.raises(SourceChangedError):
        cb.write(cord, raw)

    assert stream.getvalue() == file.read_bytes() == b""


# An empty file has no bytes that a chunk could refer to.


def moved_in(path: Path) -> Cord:
    """Return a program that a file was put into."""
    editor = cb.PteEditor(cb.open(program([])))
    editor.move_in({"k": path})
    return editor.finish().cord


EMPTY: dict[str, Callable[[Path], Cord]] = {
    "alone": Cord.from_file,
    "joined": lambda path: b"a" + Cord.from_file(path) + b"b",
    "sliced": lambda path: (Cord.from_file(path) + b"ab")[1:],
    "named data": lambda path: cb.bundle(program([]), [], named_data={"k": path, "l": b"x"}).cord,
    "shared": lambda path: cb.bundle(program([]), [], named_data={"k": b"", "l": path}).cord,
    "weights": lambda path: cb.serialize_ptd({"k": Cord.from_file(path), "l": b"x"}),
    "moved in": moved_in,
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_file_that_grows_after_planning_is_found(tmp_path: Path, name: str) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"")
    target.write_bytes(b"old")
    cord = EMPTY[name](source)
    grow(source)

    with pytest.raises(SourceChangedError, match="size changed"):
        cb.write(cord, target)
    assert target.read_bytes() == b"old"
    assert litter(tmp_path) == []


def test_an_empty_file_that_stays_empty_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"")
    sink = io.BytesIO()

    cb.write(b"a" + Cord.from_file(tmp_path / "source") + b"b", sink)

    assert sink.getvalue() == b"ab"


# A file server may give less than was asked for, and that is no end of the file.


@pytest.mark.parametrize("limit", [1, 1000, 65_537])
def test_short_reads_are_resumed(tmp_path: Path, limit: int) -> None:
    source = tmp_path / "source"
    data = os.urandom(limit * 20 + 7)
    source.write_bytes(data)
    cord = Cord.from_file(source)
    with short_reads(limit):
        cb.write(cord, tmp_path / "out", durability="none")
        assert bytes(cord) == data
        assert cord.find(data[-9:]) == len(data) - 9
        digest = cord.xxh3_128()

    assert (tmp_path / "out").read_bytes() == data
    assert digest == Cord(data).xxh3_128()


def test_a_server_that_gives_nothing_is_an_error_and_not_a_loop(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"data")
    cord = Cord.from_file(tmp_path / "source")
    with short_reads(0), pytest.raises(SourceChangedError, match="size changed"):
        bytes(cord)


# Never a signal: each operation in a process of its own, on a file that was cut under it.

TOUCHES = {
    "write": "cb.write(cord, 'out')",
    "write to an object": "cb.write(cord, io.BytesIO())",
    "digest": "cord.xxh3_128()",
    "verify": "file.verify()",
    "find": "cord.find(b'no such bytes')",
    "compare": "cord == cb.Cord(bytes(len(cord)))",
    "join": "bytes(cord)",
    "index": "cord[len(cord) - 1]",
    "read": "cord.open().read()",
    "copy out": "cord.readinto(bytearray(len(cord)))",
    "write_to_file": "cord.write_to_file(io.BytesIO())",
    "map": "list(cord.chunks())",
    "view": "view.data",
    "view that is mapped": "view.data",
    "numpy": "view.numpy()",
    "numpy of what is mapped": "view.numpy()",
    "bundle": "cb.bundle('m.pte', [suite([view])]).write('out')",
    "bundle what is mapped": "cb.bundle('m.pte', [suite([view])]).write('out')",
    "gather": "cb.bundle('t.pte', [suite([view])]).write('out')",
    "gather what is mapped": "cb.bundle('t.pte', [suite([view])]).write('out')",
    "extract": "main(['extract', 'm.bpte', '--program', 'out'])",
    "inspect": "main(['inspect', 'm.bpte'])",
    "verify command": "main(['verify', 'm.bpte'])",
    "program": "cb.write(file.program, 'out')",
    "edit": "cb.write(cb.PteEditor(cb.open(file.program)).finish().cord, 'out')",
}


def test_no_operation_on_a_truncated_source_ends_in_a_signal(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    sizes = (1024, 512)
    (tmp_path / "m.pte").write_bytes(program([tensor(sizes)]))
    (tmp_path / "t.pte").write_bytes(program([tensor(sizes, dim_order=(1, 0))]))
    case = cb.MethodTestCase([floats(sizes)])
    cb.bundle(tmp_path / "m.pte", [suite(case)]).write(tmp_path / "whole.bpte")

    done = run_child(
        f"""
        import io, os, shutil
        import cordbundle as cb
        from cordbundle.cli import main
        TOUCHES = {TOUCHES!r}

        def suite(inputs):
            return cb.MethodTestSuite("forward", [cb.MethodTestCase(inputs)])

        for name, code in TOUCHES.items():
            shutil.copy("whole.bpte", "m.bpte")
            file = cb.open("m.bpte")
            cord = file.cord
            view = file.suites[0].test_cases[0].inputs[0]
            if "mapped" in name:
                kept = view.data
            os.truncate("m.bpte", 100)
            try:
                result = eval(code)
                result = result if isinstance(result, (int, list)) else type(result).__name__
            except cb.CordBundleError as error:
                result = type(error).__name__
            except ImportError:  # the command line is an extra
                result = 1
            print(name, "|", result, flush=True)
        """,
        tmp_path,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    seen = dict(line.split(" | ") for line in done.stdout.splitlines() if " | " in line)
    assert list(seen) == list(TOUCHES)
    commands = {"extract", "inspect", "verify command"}
    for name, result in seen.items():
        wanted = {"1"} if name in commands else {"SourceChangedError", "FormatError"}
        assert result in wanted or result.startswith("[Finding"), (name, result)
