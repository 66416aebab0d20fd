"""A set that was left half new: what of it `cordbundle ptd --check` tells, and what it cannot."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import struct
import subprocess
import sys
from array import array
from importlib.util import find_spec
from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle import program as schema
from cordbundle.cli import main
from cordbundle.flatbuffer import encode
from cordbundle.weights import read_weights
from cordbundle.weights_check import WeightsCheck, check_weights
from tests import support
from tests.faults import broken_call


def program(*tensors: tuple[str, int], constants: bytes | None = None) -> cb.Cord:
    """Return a program with external tensors, by number of elements, and XNNPACK's constants."""
    values = [
        schema.EValue(
            schema.Tensor(
                scalar_type=int(cb.ScalarType.FLOAT),
                sizes=[size],
                dim_order=[0],
                extra_tensor_info=schema.ExtraTensorInfo(fully_qualified_name=name, location=1),
            )
        )
        for name, size in tensors
    ]
    place = schema.BackendDelegateDataReference(location=0, index=0)
    delegate = schema.BackendDelegate(id="XnnpackBackend", processed=place)
    has_delegate = constants is not None
    return encode(
        schema.Program(
            execution_plan=[
                schema.ExecutionPlan(
                    name="forward", values=values, delegates=[delegate] if has_delegate else []
                )
            ],
            backend_delegate_data=[schema.BackendDelegateInlineData(payload(constants or b""))],
        ),
        schema.PROGRAM_IDENTIFIER,
    ).cord


def key_of(constants: bytes) -> str:
    return hashlib.sha256(constants).hexdigest()


def payload(constants: bytes) -> bytes:
    """Return what XNNPACK compiles, as far as it is looked at: a header, a graph with one key."""
    graph = b"....XN01" + struct.pack("<I", 64) + key_of(constants).encode() + b"\0...."
    return struct.pack("<4x4sHII12x", b"XH00", 30, 32, len(graph)) + b"\0\0" + graph


def delegated(constants: bytes) -> tuple[cb.Cord, cb.Cord]:
    """Return a program and its weights, whose key is the digest of the constants."""
    weights = cb.serialize_ptd({key_of(constants): constants})
    return program(constants=constants), weights


def named(size: int, value: float) -> tuple[cb.Cord, cb.Cord]:
    """Return a program and its weights, whose key is the tensor's name."""
    return program(("w", size)), ptd(size, value)


def ptd(size: int, value: float) -> cb.Cord:
    tensor = cb.TensorView(
        cb.ScalarType.FLOAT, [size], None, cb.Cord(array("f", [value] * size).tobytes())
    )
    return cb.serialize_ptd({"w": tensor})


@pytest.fixture
def half_new(tmp_path: Path) -> HalfNew:
    return HalfNew(tmp_path)


class HalfNew:
    """Replaces a set by another, and fails between the renames."""

    def __init__(self, folder: Path) -> None:
        self.model, self.weights = folder / "m.pte", folder / "w.ptd"

    def __call__(self, old: tuple[cb.Cord, cb.Cord], new: tuple[cb.Cord, cb.Cord]) -> WeightsCheck:
        cb.write_all(dict(zip((self.model, self.weights), old, strict=True)))
        sound = self.check()
        assert (sound.findings, sound.unneeded) == ((), ())
        with broken_call("replace", errno.EIO, 1), pytest.raises(cb.WriteError) as caught:
            cb.write_all(dict(zip((self.model, self.weights), new, strict=True)))
        assert f"new already: {self.weights}" in str(caught.value)
        assert self.model.read_bytes() == bytes(old[0])
        assert self.weights.read_bytes() == bytes(new[1])
        return self.check()

    def check(self) -> WeightsCheck:
        with cb.open(self.model) as file:
            assert isinstance(file, cb.PteFile)
            return check_weights(file, read_weights(str(self.weights)))


def test_new_constants_of_a_delegate_beside_an_old_program_are_told(half_new: HalfNew) -> None:
    check = half_new(delegated(b"old constants"), delegated(b"new constants"))

    assert [str(finding) for finding in check.findings] == [
        f"key '{key_of(b'old constants')}': missing: expected constants of XnnpackBackend"
    ]
    assert [weight.key for weight in check.unneeded] == [key_of(b"new constants")]
    assert check.backends == ()


def test_a_new_shape_beside_an_old_program_is_told(half_new: HalfNew) -> None:
    check = half_new(named(2, 1.0), named(3, 1.0))

    assert [finding.what for finding in check.findings] == ["another shape"]


def test_new_values_under_the_old_name_and_shape_are_not_told(half_new: HalfNew) -> None:
    """As documented: nothing in ExecuTorch's files ties a name to its values."""
    check = half_new(named(2, 1.0), named(2, 2.0))

    assert check.findings == ()


def test_the_command_says_so_by_its_exit_code(
    half_new: HalfNew, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("typer", reason="the command line needs the extra cli")
    half_new(delegated(b"old constants"), delegated(b"new constants"))

    code = main(["ptd", "--check", str(half_new.model), str(half_new.weights)])

    assert code == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("1 external key: 1 key wrong")


DYING = """
import os, signal, sys
import cordbundle as cb
replace = os.replace
def replace_once(source, target):
    os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = replace_once
cb.write_all({path: cb.Cord.from_file(path + ".new") for path in sys.argv[1:]})
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Return where a program and its weights go, on a filesystem that keeps marks."""
    pytest.importorskip("typer", reason="the command line needs the extra cli")
    if not hasattr(os, "setxattr"):
        pytest.skip("marks are extended attributes, which Python knows on Linux")
    try:
        os.setxattr(tmp_path, "user.probe", b"x")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    return tmp_path / "m.pte", tmp_path / "w.ptd"


def is_told(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> bool:
    """Return what the command says of a program and its weights, by its words and exit code."""
    capsys.readouterr()
    code = main(["ptd", "--check", *map(str, pair)])
    line = f"{pair[1]}: was written in one set with another program than {pair[0]}"
    told = line in capsys.readouterr().out.splitlines()
    assert code == told
    return told


def test_new_values_beside_an_old_program_are_told_after_a_rename_that_failed(
    half_new: HalfNew, pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = named(2, 1.0), (program(("w", 2), ("unused", 1)), named(2, 2.0)[1])
    assert half_new(old, new).findings == ()

    assert is_told(pair, capsys)

    cb.write_all(dict(zip(pair, named(2, 2.0), strict=True)))
    assert not is_told(pair, capsys)


@pytest.mark.parametrize("is_set", [False, True])
def test_new_values_beside_an_old_program_are_told_after_the_writer_was_killed(
    is_set: bool, pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = named(2, 1.0), (program(("w", 2), ("unused", 1)), named(2, 2.0)[1])
    for path, before, after in zip(pair, old, new, strict=True):
        cb.write(before, path)
        cb.write(after, f"{path}.new")
    if is_set:
        cb.write_all(dict(zip(pair, old, strict=True)))
    assert not is_told(pair, capsys)

    died = subprocess.run([sys.executable, "-c", DYING, *map(str, pair)], check=False)

    assert died.returncode == -signal.SIGKILL
    assert [path.read_bytes() for path in pair] == [bytes(old[0]), bytes(new[1])]
    assert is_told(pair, capsys)


@pytest.mark.parametrize("copied", [0, 1])
def test_a_set_of_which_one_file_was_copied_is_whole(
    copied: int, pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cb.write_all(dict(zip(pair, named(2, 1.0), strict=True)))
    copy = tmp_path / f"copy{pair[copied].suffix}"
    copy.write_bytes(pair[copied].read_bytes())

    assert not is_told((copy, pair[1]) if copied == 0 else (pair[0], copy), capsys)


def test_weights_of_several_programs_belong_to_each_of_them(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, weights = named(2, 1.0)
    other = tmp_path / "other.pte"
    cb.write_all({pair[0]: first, other: program(("w", 2), ("unused", 1)), pair[1]: weights})

    assert not is_told(pair, capsys)
    assert main(["ptd", "--check", str(other), str(pair[1])]) == 1  # for the missing key alone
    assert "another program" not in capsys.readouterr().out


@pytest.mark.parametrize("is_set", [True, False])
def test_weights_of_two_sets_of_one_program_are_told(
    is_set: bool, pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, one, two = program(("v", 1), ("w", 1)), tmp_path / "v.ptd", tmp_path / "w.ptd"
    old, new = ([cb.serialize_ptd({key: array("f", [x])}) for key in "vw"] for x in (1.0, 2.0))
    if is_set:
        cb.write_all({one: old[0], two: old[1], pair[0]: model})
    else:
        for path, cord in zip((one, two, pair[0]), (*old, model), strict=True):
            cb.write(cord, path)
    assert main(["ptd", "--check", *map(str, (pair[0], one, two))]) == 0

    with broken_call("replace", errno.EIO, 1), pytest.raises(cb.WriteError):
        cb.write_all({one: new[0], two: new[1], pair[0]: model})

    assert main(["ptd", "--check", *map(str, (pair[0], one, two))]) == 1
    word = "another set than" if is_set else "was not written in one set with"
    lines = [line for line in capsys.readouterr().out.splitlines() if word in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"{two}: ")
    assert str(one) in lines[0]


def test_weights_of_a_set_beside_weights_of_their_own_are_whole(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    model, one, two = program(("v", 1), ("w", 1)), tmp_path / "v.ptd", tmp_path / "w.ptd"
    cb.write_all({pair[0]: model, one: cb.serialize_ptd({"v": array("f", [1.0])})})
    cb.write(cb.serialize_ptd({"w": array("f", [1.0])}), two)

    assert main(["ptd", "--check", *map(str, (pair[0], one, two))]) == 0


def test_two_whole_sets_of_one_program_are_whole_together(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    model, one, two = program(("v", 1), ("w", 1)), tmp_path / "v.ptd", tmp_path / "w.ptd"

    for path, key in ((one, "v"), (two, "w")):
        cb.write_all({pair[0]: model, path: cb.serialize_ptd({key: array("f", [1.0])})})

    assert main(["ptd", "--check", *map(str, (pair[0], one, two))]) == 0


def test_what_else_is_in_a_set_does_not_miss_weights_of_their_own(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    model, one, two = program(("v", 1), ("w", 1)), tmp_path / "v.ptd", tmp_path / "w.ptd"
    words = cb.Cord(b"the words of a tokenizer")
    weights = cb.serialize_ptd({"v": array("f", [1.0])})
    cb.write_all({pair[0]: model, one: weights, tmp_path / "words.json": words})
    cb.write(cb.serialize_ptd({"w": array("f", [1.0])}), two)

    assert main(["ptd", "--check", *map(str, (pair[0], one, two))]) == 0


def test_files_that_were_overwritten_in_place_have_lost_their_mark(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    cb.write_all(dict(zip(pair, named(2, 1.0), strict=True)))
    new = program(("w", 2), ("w", 2)), named(2, 2.0)[1]

    for path, cord in zip(pair, new, strict=True):
        path.write_bytes(bytes(cord))

    assert os.listxattr(pair[1]) == ["user.cordbundle.set"]
    assert not is_told(pair, capsys)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_set_is_marked_whole_or_not_at_all(
    failing: int, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    model, paths = program(("v", 1)), [tmp_path / f"{key}.ptd" for key in "uvw"]
    weights = {path: cb.serialize_ptd({path.stem: array("f", [1.0])}) for path in paths}

    with broken_call("setxattr", errno.ENOSPC, failing):
        cb.write_all({**weights, pair[0]: model})

    assert [os.listxattr(path) for path in paths] == [[], [], []]
    cb.write_all({**weights, pair[0]: model})
    assert [os.listxattr(path) for path in paths] == [["user.cordbundle.set"]] * 3


def test_another_program_with_the_weights_of_a_set_is_not_told(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cb.write_all(dict(zip(pair, named(2, 1.0), strict=True)))
    other = tmp_path / "other.pte"
    cb.write(program(("w", 2)), other)

    assert not is_told((other, pair[1]), capsys)


@pytest.mark.parametrize("replaced", ["m.pte", "v.ptd", "w.ptd"])
def test_what_was_replaced_later_on_purpose_is_not_told(
    replaced: str, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    cords = {
        tmp_path / f"{key}.ptd": cb.serialize_ptd({key: array("f", [1.0])}) for key in "vw"
    } | {pair[0]: program(("v", 1), ("w", 1))}
    check = ["ptd", "--check", *map(str, (pair[0], tmp_path / "v.ptd", tmp_path / "w.ptd"))]
    path = tmp_path / replaced
    cb.write_all(cords)
    before = path.stat().st_mtime_ns

    cb.write(program(("w", 1), ("v", 1)) if path == pair[0] else cords[path], path)

    assert path.stat().st_mtime_ns > before
    assert main(check) == 0
    os.utime(path, (0, 0))  # as it would be if the set had been cut off
    assert main(check) == 1


def test_programs_of_one_name_in_two_folders_are_both_of_their_set(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, weights = named(2, 1.0)
    other = tmp_path / "other" / pair[0].name
    other.parent.mkdir()

    cb.write_all({pair[0]: first, other: program(("w", 2), ("w", 2)), pair[1]: weights})

    assert not is_told(pair, capsys)
    assert not is_told((other, pair[1]), capsys)


def test_an_attribute_that_is_no_mark_is_none(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    cb.write_all(dict(zip(pair, named(2, 1.0), strict=True)))
    mark = os.getxattr(pair[1], "user.cordbundle.set")
    cb.write(program(("w", 2), ("w", 2)), pair[0])
    os.utime(pair[0], (0, 0))
    assert is_told(pair, capsys)

    for value in (b"", mark[:-1], mark + b"x", mark[:39]):
        os.setxattr(pair[1], "user.cordbundle.set", value)

        assert not is_told(pair, capsys)


def test_weights_beside_a_bundle_are_not_marked(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, weights = named(2, 1.0)
    cb.write(model, pair[0])
    bundle = cb.bundle(support.program([], []), [], check=False)
    cb.write_all({tmp_path / "m.bpte": bundle.cord, pair[1]: weights})

    assert not is_told(pair, capsys)


@pytest.mark.parametrize("name", ["m.pte", "M.PTE", "model", "m.bp"])
def test_a_program_is_put_in_place_last_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    model, weights = tmp_path / name, tmp_path / "w.ptd"
    old, new = named(2, 1.0), (program(("w", 2), ("unused", 1)), named(2, 2.0)[1])
    cb.write_all(dict(zip((model, weights), old, strict=True)))

    with (
        broken_call("replace", errno.EIO, 1),
        pytest.raises(cb.WriteError, match=r"new already: .*w\.ptd"),
    ):
        cb.write_all(dict(zip((model, weights), new, strict=True)))

    assert [path.read_bytes() for path in (model, weights)] == [bytes(old[0]), bytes(new[1])]


def test_files_that_were_not_written_as_a_set_with_a_program_are_not_told(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, weights = named(2, 1.0)
    cb.write(model, pair[0])
    cb.write_all({pair[1]: weights, pair[1].with_name("other.ptd"): weights})

    assert not is_told(pair, capsys)


def test_weights_that_were_replaced_alone_are_not_told(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    cb.write_all(dict(zip(pair, named(2, 1.0), strict=True)))
    cb.write(named(2, 2.0)[1], pair[1])

    assert not is_told(pair, capsys)


def test_constants_that_a_program_carries_itself_are_not_missed() -> None:
    with cb.open(with_own_constants(b"constants")) as file:
        assert isinstance(file, cb.PteFile)
        check = check_weights(file, [])

    assert (check.keys, check.findings) == ((), ())


def with_own_constants(constants: bytes) -> cb.Cord:
    """Return a program whose named data holds what its delegate looks up."""
    with cb.open(program(constants=constants)) as file:
        assert isinstance(file, cb.PteFile)
        store = cb.NamedDataStore()
        store.add_named_data(key_of(constants), constants)
        return cb.serialize_pte(file.program(), named_data=store.get_named_data_store_output())


@pytest.mark.parametrize("at", [0, 1, 68, 69, 70])
def test_a_key_is_found_wherever_it_is_in_a_large_graph(at: int) -> None:
    """Graphs are read in steps of 1 MiB; the key begins `at` bytes before the second one."""
    key = key_of(b"constants")
    graph = bytes((1 << 20) - at) + struct.pack("<I", 64) + key.encode() + b"\0...."
    data = struct.pack("<4x4sHII12x", b"XH00", 30, 32, len(graph)) + b"\0\0" + graph
    place = schema.BackendDelegateDataReference(location=0, index=0)
    delegate = schema.BackendDelegate(id="XnnpackBackend", processed=place)
    record = schema.Program(
        execution_plan=[schema.ExecutionPlan(name="forward", delegates=[delegate])],
        backend_delegate_data=[schema.BackendDelegateInlineData(data)],
    )
    with cb.open(encode(record, schema.PROGRAM_IDENTIFIER).cord) as file:
        assert isinstance(file, cb.PteFile)
        check = check_weights(file, [])

    assert (check.keys, check.backends) == ((key,), ())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b"XH00", b"XH99"),
        lambda data: data.replace(struct.pack("<II", 32, 81), struct.pack("<II", 32, 10**6)),
        lambda data: data.replace(struct.pack("<II", 32, 81), struct.pack("<II", 2**32 - 1, 81)),
    ],
)
def test_a_payload_that_is_not_known_is_said_to_be_unknown(damage: object) -> None:
    assert callable(damage)
    data = bytes(program(constants=b"x"))
    damaged = damage(data)
    assert damaged != data
    with cb.open(damaged) as file:
        assert isinstance(file, cb.PteFile)
        check = check_weights(file, [])

    assert (check.findings, check.backends) == ((), ("XnnpackBackend",))


def test_a_payload_that_does_not_exist_is_an_error_with_its_index() -> None:
    place = schema.BackendDelegateDataReference(location=0, index=9)
    delegate = schema.BackendDelegate(id="XnnpackBackend", processed=place)
    record = schema.Program(
        execution_plan=[schema.ExecutionPlan(name="forward", delegates=[delegate])]
    )
    with cb.open(encode(record, schema.PROGRAM_IDENTIFIER).cord) as file:
        assert isinstance(file, cb.PteFile)
        with pytest.raises(cb.FormatError, match="found 9, expected an index below 0") as caught:
            check_weights(file, [])

    assert caught.value.what == "data of delegate 'XnnpackBackend' does not exist"


def test_a_large_payload_is_not_held_in_memory(tmp_path: Path) -> None:
    size = 64 << 20
    record = schema.Program(
        execution_plan=[schema.ExecutionPlan(name="forward")],
        backend_delegate_data=[schema.BackendDelegateInlineData(bytes(size))],
    )
    cb.write(encode(record, schema.PROGRAM_IDENTIFIER).cord, tmp_path / "m.pte")
    del record
    with cb.open(tmp_path / "m.pte") as file:
        assert isinstance(file, cb.PteFile)
        used = support.peak(lambda: check_weights(file, []))

    assert used < size // 4


@pytest.mark.executorch
def test_the_keys_of_an_exported_program_are_those_of_its_weights(tmp_path: Path) -> None:
    if find_spec("executorch") is None or find_spec("torch") is None:
        pytest.skip("ExecuTorch and PyTorch are not installed")
    from tests.executorch_models import manager

    exported = manager("delegate with external data")
    exported.write_tensor_data_to_file(str(tmp_path))
    weights = read_weights(str(tmp_path / "weights.ptd"))
    with cb.open(exported.buffer) as file:
        assert isinstance(file, cb.PteFile)
        with_them, without = check_weights(file, weights), check_weights(file, weights[1:])

    assert with_them.keys == tuple(sorted(weight.key for weight in weights))
    assert (with_them.findings, with_them.unneeded, with_them.backends) == ((), (), ())
    assert [finding.key for finding in without.findings] == [weights[0].key]
