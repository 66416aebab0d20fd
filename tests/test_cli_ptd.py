"""`cordbundle ptd`: safetensors in, `.ptd` files out, merged, listed and checked."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.cli import main
from cordbundle.flatbuffer import encode

pytest.importorskip("typer", reason="the command line needs the extra cli")


@dataclass(frozen=True)
class Outcome:
    """What a call of the command line left behind."""

    code: int
    out: str
    err: str


Call = Callable[..., Outcome]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that calls the command line in this process."""

    def caller(*words: str | Path) -> Outcome:
        code = main(["ptd", *map(str, words)])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return caller


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Return a file with the tensors a, b and c of 8 bytes each."""
    return save(tmp_path / "w.safetensors", {"c": 3, "a": 1, "b": 2})


def save(path: Path, tensors: Mapping[str, float]) -> Path:
    """Write a safetensors file of tensors with two equal elements."""
    header = {
        name: {"dtype": "F32", "shape": [2], "data_offsets": [8 * place, 8 * place + 8]}
        for place, name in enumerate(tensors)
    }
    text = json.dumps(header).encode()
    data = b"".join(struct.pack("<2f", value, value) for value in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def save_program(path: Path, names: Mapping[str, list[int]], backend: str | None = None) -> Path:
    """Write a program whose method has these external tensors, by shape."""
    values = [
        schema.EValue(
            schema.Tensor(
                scalar_type=int(cb.ScalarType.FLOAT),
                sizes=sizes,
                dim_order=list(range(len(sizes))),
                extra_tensor_info=schema.ExtraTensorInfo(fully_qualified_name=name, location=1),
            )
        )
        for name, sizes in names.items()
    ]
    delegates = [] if backend is None else [schema.BackendDelegate(id=backend)]
    plan = schema.ExecutionPlan(name="forward", values=values, delegates=delegates)
    program = schema.Program(execution_plan=[plan])
    path.write_bytes(bytes(encode(program, schema.PROGRAM_IDENTIFIER).cord))
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def keys(path: Path) -> list[str]:
    return list(cb.load_ptd(path))


# writing


def test_a_safetensors_file_becomes_a_ptd_file(call: Call, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.ptd"

    outcome = call(weights, "-o", out)

    assert outcome == Outcome(0, f"wrote {out}: {out.stat().st_size} bytes\n  3 keys\n", "")
    assert out.read_bytes() == bytes(cb.ptd_from_safetensors(weights))
    assert sorted(files(tmp_path)) == ["w.ptd", "w.safetensors"]


def test_the_alignment_is_as_asked(call: Call, weights: Path, tmp_path: Path) -> None:
    call(weights, "-o", tmp_path / "w.ptd", "--alignment", "4096")

    expected = cb.ptd_from_safetensors(weights, segment_alignment=4096)
    assert (tmp_path / "w.ptd").read_bytes() == bytes(expected)


def test_several_files_and_an_index_become_one(call: Call, weights: Path, tmp_path: Path) -> None:
    save(tmp_path / "x.safetensors", {"x": 4})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "x.safetensors"}}))

    outcome = call(weights, index, "-o", tmp_path / "out.ptd")

    assert outcome.code == 0
    assert keys(tmp_path / "out.ptd") == ["a", "b", "c", "x"]


def test_a_cap_makes_numbered_files(call: Call, weights: Path, tmp_path: Path) -> None:
    outcome = call(weights, "-o", tmp_path / "w.ptd", "--max-bytes", "16")

    names = ["w-00001-of-00002.ptd", "w-00002-of-00002.ptd"]
    assert [keys(tmp_path / name) for name in names] == [["a", "b"], ["c"]]
    assert sorted(files(tmp_path)) == [*names, "w.safetensors"]
    assert [line.split(": ")[0] for line in outcome.out.splitlines()] == [
        *(f"wrote {tmp_path / name}" for name in names),
        "  3 keys",
    ]


def test_a_cap_that_all_tensors_keep_makes_the_file_that_was_named(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    call(weights, "-o", tmp_path / "w.ptd", "--max-bytes", "24")

    assert sorted(files(tmp_path)) == ["w.ptd", "w.safetensors"]


def test_a_tag_names_the_files_as_executorch_does(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()

    call(weights, "-o", out, "--tag", "model")
    call(weights, "-o", out, "--tag", "part", "--max-bytes", "16")

    digests = [hashlib.sha256(text).hexdigest() for text in (b"a\0b", b"c")]
    assert sorted(files(out)) == sorted(["model.ptd", *(f"part_{it}.ptd" for it in digests)])
    assert keys(out / f"part_{digests[0]}.ptd") == ["a", "b"]


TAGS = ["../x", "/x", "", "a/b", "a\\b", "a:b", "a\0b"]
CAP = ("--max-bytes", "16")


@pytest.mark.parametrize(
    ("tag", "cap"),
    [
        *((tag, ()) for tag in [*TAGS, "..", ".ptd"]),
        *((tag, CAP) for tag in TAGS),
    ],
)
def test_a_tag_that_is_no_file_name_writes_nothing(
    call: Call, weights: Path, tmp_path: Path, tag: str, cap: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    out.mkdir()

    outcome = call(weights, "-o", out, "--tag", tag, *cap)

    assert outcome.code == 1
    assert "tag" in outcome.err
    assert outcome.err.count("\n") == 1
    assert (files(out), sorted(files(tmp_path))) == ({}, ["w.safetensors"])


@pytest.mark.parametrize("out", ["-", "w", "nowhere/w.ptd"])
def test_a_tag_needs_a_folder_to_name_files_in(
    call: Call, weights: Path, tmp_path: Path, out: str
) -> None:
    outcome = call(weights, "-o", out if out == "-" else tmp_path / out, "--tag", "model")

    assert outcome.code == 2
    assert "-o has to be a folder or a .ptd file" in outcome.err


def test_a_file_named_beside_a_tag_is_written_and_its_shards_are_named_by_the_tag(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    assert call(weights, "-o", tmp_path / "w.ptd", "--tag", "model").code == 0
    assert call(weights, "-o", tmp_path / "v.ptd", "--tag", "model", *CAP).code == 0

    made = sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".ptd")
    assert made[-1] == "w.ptd"
    assert [name.startswith("model_") for name in made] == [True, True, False]


def test_one_file_streams_to_standard_output_and_several_do_not(
    weights: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "cordbundle", "ptd", str(weights), "-o", "-"]

    one = subprocess.run(command, capture_output=True, check=False)
    two = subprocess.run([*command, "--max-bytes", "16"], capture_output=True, check=False)

    assert one.stdout == bytes(cb.ptd_from_safetensors(weights))
    assert one.stderr.startswith(b"wrote standard output: ")
    assert (two.returncode, two.stdout) == (2, b"")
    assert b"2 files do not go to standard output" in two.stderr
    assert sorted(files(tmp_path)) == ["w.safetensors"]


@pytest.mark.parametrize("name", ["w.safetensors", "index.json", "x.safetensors"])
def test_an_input_is_never_overwritten(
    call: Call, weights: Path, tmp_path: Path, name: str
) -> None:
    save(tmp_path / "x.safetensors", {"x": 4})
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"weight_map": {"x": "x.safetensors"}}))
    before = files(tmp_path)

    outcome = call(weights, index, "-o", tmp_path / name)

    assert outcome.code == 2
    assert "would be overwritten and is an input" in outcome.err
    assert files(tmp_path) == before


def test_a_set_that_cannot_be_written_in_full_leaves_no_part(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    (tmp_path / "w-00002-of-00002.ptd").mkdir()

    outcome = call(weights, "-o", tmp_path / "w.ptd", "--max-bytes", "16")

    assert outcome.code == 1
    assert "w-00002-of-00002.ptd" in outcome.err
    assert sorted(files(tmp_path)) == ["w.safetensors"]


def test_a_name_in_two_files_is_one_line_with_both(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    other = save(tmp_path / "other.safetensors", {"b": 5})

    outcome = call(weights, other, "-o", tmp_path / "w.ptd")

    line = f"cordbundle: error: key 'b': stands in {weights} and in {other}\n"
    assert outcome == Outcome(1, "", line)
    assert not (tmp_path / "w.ptd").exists()


# merging


def test_merging_shards_gives_the_file_that_was_not_split(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    call(weights, "-o", tmp_path / "w.ptd", "--max-bytes", "8")
    shards = sorted(tmp_path.glob("w-*.ptd"), reverse=True)

    outcome = call("--merge", *shards, "-o", tmp_path / "all.ptd")

    assert len(shards) == 3
    assert outcome.code == 0
    assert (tmp_path / "all.ptd").read_bytes() == bytes(cb.ptd_from_safetensors(weights))


def test_merging_takes_both_kinds_and_splits_again(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    cb.write(cb.serialize_ptd({"blob": b"12345678"}), tmp_path / "more.ptd")

    call("--merge", weights, tmp_path / "more.ptd", "-o", tmp_path / "o.ptd", "--max-bytes", "16")

    shards = sorted(tmp_path.glob("o-*.ptd"))
    assert [keys(shard) for shard in shards] == [["a", "b"], ["blob", "c"]]


def test_a_ptd_file_is_taken_only_to_be_merged(call: Call, tmp_path: Path) -> None:
    cb.write(cb.serialize_ptd({"blob": b"12345678"}), tmp_path / "w.ptd")

    outcome = call(tmp_path / "w.ptd", "-o", tmp_path / "o.ptd")

    assert outcome.code == 2
    assert "say --merge" in outcome.err


# listing


def test_list_shows_what_files_hold(call: Call, weights: Path, tmp_path: Path) -> None:
    cb.write(cb.serialize_ptd({"blob": b"123"}), tmp_path / "w.ptd")

    outcome = call("--list", weights, tmp_path / "w.ptd")

    assert outcome.code == 0
    assert [line.split() for line in outcome.out.splitlines() if line.startswith("  ")] == [
        ["key", "what", "size", "file"],
        ["c", "FLOAT", "[2]", "8", str(weights)],
        ["a", "FLOAT", "[2]", "8", str(weights)],
        ["b", "FLOAT", "[2]", "8", str(weights)],
        ["blob", "bytes", "3", str(tmp_path / "w.ptd")],
    ]
    assert outcome.out.splitlines()[-1] == "4 keys, 27 bytes"


def test_list_shows_every_public_weights_file(call: Call, real_files: Path) -> None:
    outcome = call("--list", real_files / "xor.ptd")

    assert outcome.code == 0
    assert "net.linear.weight" in outcome.out


# checking


def test_a_program_whose_keys_are_all_there_passes(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    model = save_program(tmp_path / "m.pte", {"a": [2], "c": [2]})
    call(weights, "-o", tmp_path / "w.ptd", "--max-bytes", "8")

    outcome = call("--check", model, *sorted(tmp_path.glob("w-*.ptd")))

    unneeded = f"{tmp_path / 'w-00002-of-00003.ptd'}: key 'b': not needed by any tensor"
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        f"{unneeded} of the program",
        f"{model}: 2 external keys: all as the program needs them",
    ]
    assert outcome.err == ""


def test_what_is_missing_or_different_is_a_line_each_and_code_1(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    model = save_program(tmp_path / "m.pte", {"a": [2], "b": [1, 2], "gone": [7]})
    twin = save(tmp_path / "twin.safetensors", {"c": 3})

    outcome = call("--check", model, weights, twin)

    assert outcome.code == 1
    assert outcome.out.splitlines() == [
        f"{weights}: key 'b': another shape: found FLOAT [2], expected FLOAT [1, 2]",
        f"key 'c': ambiguous: found 2, in {weights} and {twin}, expected one blob",
        "key 'gone': missing: expected FLOAT [7]",
        f"{weights}: key 'c': not needed by any tensor of the program",
        f"{model}: 3 external keys: 3 keys wrong",
    ]


def test_what_delegates_look_up_is_said_to_be_unknown(
    call: Call, weights: Path, tmp_path: Path
) -> None:
    model = save_program(tmp_path / "m.pte", {}, backend="XnnpackBackend")

    outcome = call("--check", model, weights)

    assert outcome.code == 0
    assert "delegates ('XnnpackBackend') may look up keys of their own" in outcome.err


def test_the_public_program_and_its_weights_fit(call: Call, real_files: Path) -> None:
    outcome = call("--check", real_files / "xor.pte", real_files / "xor.ptd")

    assert (outcome.code, outcome.err) == (0, "")
    assert "all as the program needs them" in outcome.out


def test_only_a_program_can_be_checked(call: Call, weights: Path, tmp_path: Path) -> None:
    cb.write(cb.serialize_ptd({"blob": b"123"}), tmp_path / "w.ptd")

    outcome = call("--check", tmp_path / "w.ptd", weights)

    assert outcome.code == 1
    assert "no program: found ExecuTorch weights (.ptd)" in outcome.err


# wrong usage


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "WEIGHTS"),
        (["w.safetensors"], "-o OUT.ptd"),
        (["w.safetensors", "--list", "--merge"], "do not go together"),
        (["w.safetensors", "--check", "m.pte", "--list"], "do not go together"),
        (["w.safetensors", "--list", "-o", "o.ptd"], "write nothing"),
        (["w.safetensors", "--check", "m.pte", "--max-bytes", "8"], "write nothing"),
        (["w.safetensors", "-o", "o.ptd", "--max-bytes", "0"], "--max-bytes"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    call: Call,
    weights: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    text: str,
) -> None:
    monkeypatch.chdir(weights.parent)

    outcome = call(*words)

    assert outcome.code == 2
    assert outcome.err.startswith("cordbundle: error: ")
    assert text in outcome.err
    assert outcome.err.count("\n") == 1
    assert sorted(files(weights.parent)) == ["w.safetensors"]


def test_a_missing_file_is_named(call: Call, tmp_path: Path) -> None:
    outcome = call(tmp_path / "gone.safetensors", "-o", tmp_path / "w.ptd")

    assert outcome.code == 1
    assert outcome.err == (
        f"cordbundle: error: {tmp_path / 'gone.safetensors'}: {os.strerror(2)}\n"
    )


def test_names_from_a_file_cannot_steer_the_terminal(call: Call, tmp_path: Path) -> None:
    path = save(tmp_path / "w.safetensors", {"\x1b[2J\n": 1})

    outcome = call("--list", path)

    assert "\x1b" not in outcome.out
    assert "\\x1b[2J\\n" in outcome.out
