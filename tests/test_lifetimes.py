"""How long things live: descriptors, mappings, memory, threads, processes, copies."""

from __future__ import annotations

import copy
import gc
import hashlib
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import cordbundle as cb
from tests.faults import litter
from tests.support import floats, program, suite, tensor
from tests.test_source import run_child

HAS_FORK = hasattr(os, "fork")
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/maps").is_file(), reason="needs /proc to count"
)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Make a file of each kind, with payload."""
    pte = program([tensor((2048,))], [tensor((2048,))])
    case = cb.MethodTestCase([floats((2048,))], [floats((2048,), 1.0)])
    (tmp_path / "m.pte").write_bytes(pte)
    cb.bundle(pte, [suite(case)], named_data={"k": b"blob" * 999}).write(tmp_path / "m.bpte")
    weights = cb.TensorView(cb.ScalarType.FLOAT, (2048,), None, cb.Cord(floats((2048,))))
    cb.save_ptd({"w": weights, "b": b"blob"}, tmp_path / "m.ptd")
    return [tmp_path / "m.pte", tmp_path / "m.bpte", tmp_path / "m.ptd"]


def held() -> tuple[int, int]:
    """Return how many descriptors and mappings this process has."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return len(os.listdir("/proc/self/fd")), len(maps)


def touch_all(path: Path) -> None:
    """Open a file, read all of it in every way, map it, and close it."""
    with cb.open(path) as file:
        file.verify()
        bytes(file.cord)
        if isinstance(file, cb.BundleFile):
            first = file.suites[0].test_cases[0].inputs[0]
            assert isinstance(first, cb.TensorView)
            assert first.data.nbytes == 8192
        elif isinstance(file, cb.PtdFile):
            view = file["w"]
            assert isinstance(view, cb.TensorView)
            assert view.data.nbytes == 8192
        else:
            assert list(file.methods) == ["forward"]


# What is held.


@needs_proc
def test_a_thousand_opens_leave_no_descriptor_and_no_mapping(paths: list[Path]) -> None:
    for path in paths:
        touch_all(path)
    before = held()

    for number in range(1000):
        touch_all(paths[number % 3])

    assert held()[0] == before[0]
    assert held()[1] <= before[1] + 2  # the allocator's own


def test_a_thousand_opens_leave_no_memory(paths: list[Path]) -> None:
    """In a process of its own, since the resident size of this one has many reasons."""
    done = run_child(
        f"""
        import gc, resource
        import cordbundle as cb
        paths = {[str(path) for path in paths]!r}

        def run(count):
            for number in range(count):
                with cb.open(paths[number % 3]) as file:
                    file.verify()
                    next(file.cord.chunks())
            gc.collect()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        before = run(100)
        print((run(1000) - before) < 2048)  # KiB; a leak of a file's 8 KiB would show
        """,
        paths[0].parent,
    )

    assert (done.stdout, done.stderr) == ("True\n", "")


def test_views_and_cords_outlive_the_file_object_and_the_file(paths: list[Path]) -> None:
    with cb.open(paths[1]) as bundle, cb.open(paths[2]) as weights:
        assert isinstance(bundle, cb.BundleFile)
        assert isinstance(weights, cb.PtdFile)
        value = bundle.suites[0].test_cases[0].inputs[0]
        weight, blob, pte = weights["w"], bundle.named_data["k"], bundle.program
        assert isinstance(value, cb.TensorView)
        assert isinstance(weight, cb.TensorView)
        exported = value.data
        assert blob[0] == ord("b")  # opens the descriptor
    for path in paths[1:]:
        path.unlink()
    gc.collect()

    assert bytes(exported) == bytes(value.cord) == bytes(memoryview(floats((2048,))).cast("B"))
    assert bytes(blob) == b"blob" * 999
    assert bytes(pte) == paths[0].read_bytes()


def test_closing_while_a_view_is_exported_is_quiet_and_twice_is_too(paths: list[Path]) -> None:
    file = cb.open(paths[2])
    assert isinstance(file, cb.PtdFile)
    view = file["w"]
    assert isinstance(view, cb.TensorView)
    exported = view.data

    file.close()
    file.close()

    assert file.closed
    assert exported[:4].tobytes() == bytes(4)
    with pytest.raises(ValueError, match=r"m\.ptd is closed"):
        bytes(file.cord)


def test_a_users_own_buffer_refuses_to_go_while_it_is_held(paths: list[Path]) -> None:
    own = bytearray(paths[2].read_bytes())
    file = cb.open(own)
    with pytest.raises(BufferError):
        own.clear()

    file.close()
    gc.collect()
    own.clear()

    assert own == b""


@needs_proc
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_file_object_that_is_kept_holds_no_descriptor(
    paths: list[Path], number: int
) -> None:
    before = held()
    file = cb.open(paths[number])
    touch = file.suites if isinstance(file, cb.BundleFile) else file.segment_ranges
    file.verify()
    assert held()[0] == before[0] + 1
    del touch

    file.close()

    assert held()[0] == before[0]
    assert file.closed


# Threads and processes.


def test_eight_threads_read_one_file_object_at_once(paths: list[Path]) -> None:
    with cb.open(paths[1]) as first:
        assert isinstance(first, cb.BundleFile)
        expected = digest_of(first)
    file = cb.open(paths[1])  # nothing of it is read yet
    assert isinstance(file, cb.BundleFile)
    start, seen = threading.Barrier(8), list[object]()

    def work() -> None:
        start.wait()
        seen.extend(digest_of(file) for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [expected] * 80


def digest_of(file: cb.BundleFile) -> tuple[object, ...]:
    """Return what a bundle holds, read in several ways."""
    case = file.suites[0].test_cases[0]
    views = [value for value in (*case.inputs, *case.expected_outputs)]
    sums = [hashlib.sha1(view.data).digest() for view in views if isinstance(view, cb.TensorView)]
    return (file.verify(), file.cord.xxh3_128(), bytes(file.named_data["k"]), *sums)


@pytest.mark.skipif(not HAS_FORK, reason="needs fork")
def test_two_processes_that_write_one_target_leave_the_file_of_one(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    size = 3 << 20
    children = []
    for letter in b"ab":
        child = os.fork()
        if child == 0:
            try:
                for _ in range(5):
                    cb.write(cb.Cord(bytes([letter]) * size), target, durability="none")
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(child)

    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert target.read_bytes() in (b"a" * size, b"b" * size)
    assert litter(tmp_path) == []


@pytest.mark.skipif(not HAS_FORK, reason="needs fork")
def test_a_forked_child_reads_what_its_parent_opened_and_leaves_it_alone(
    paths: list[Path],
) -> None:
    with cb.open(paths[1]) as file:
        assert isinstance(file, cb.BundleFile)
        expected = digest_of(file)
        child = os.fork()
        if child == 0:
            try:
                same = digest_of(file) == expected
                file.close()
            except BaseException:
                os._exit(1)
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert digest_of(file) == expected


# Pickling and copying.


def kinds(paths: list[Path]) -> dict[str, object]:
    """Return an object of each class that refers to bytes elsewhere."""
    bundle = cb.open(paths[1])
    assert isinstance(bundle, cb.BundleFile)
    program_file = cb.open(paths[0])
    return {
        "Cord": cb.Cord.from_file(paths[0]),
        "PteFile": program_file,
        "PtdFile": cb.open(paths[2]),
        "BundleFile": bundle,
        "TensorView": bundle.suites[0].test_cases[0].inputs[0],
        "Bundle": cb.bundle(paths[0], []),
        "Layout": cb.bundle(paths[0], []).layout,
    }


@pytest.mark.parametrize(
    "name", ["Cord", "PteFile", "PtdFile", "BundleFile", "TensorView", "Bundle", "Layout"]
)
def test_what_refers_to_memory_and_files_is_not_pickled_and_says_why(
    paths: list[Path], name: str
) -> None:
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(kinds(paths)[name])


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("name", ["PteFile", "PtdFile", "BundleFile"])
def test_an_open_file_is_not_copied_and_says_so(
    paths: list[Path], name: str, duplicate: Callable[[object], object]
) -> None:
    with pytest.raises(TypeError, match="is an open file"):
        duplicate(kinds(paths)[name])


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_changes_of_a_program_are_not_copied_and_say_so(
    paths: list[Path], duplicate: Callable[[object], object]
) -> None:
    with cb.open(paths[0]) as file:
        editor = cb.PteEditor(file)
    with pytest.raises(TypeError, match="are made in one place"):
        duplicate(editor)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_copies_of_what_never_changes_refer_to_the_same_bytes(
    paths: list[Path], duplicate: Callable[[object], object]
) -> None:
    given = kinds(paths)
    cord = duplicate(given["Cord"])
    view = duplicate(given["TensorView"])
    bundle = duplicate(given["Bundle"])

    assert isinstance(cord, cb.Cord)
    assert isinstance(view, cb.TensorView)
    assert isinstance(bundle, cb.Bundle)
    assert cord.identity() == cb.Cord.from_file(paths[0]).identity()
    original = given["TensorView"]
    assert isinstance(original, cb.TensorView)
    assert view.cord.identity() == original.cord.identity()
    assert (view.sizes, view.scalar_type) == (original.sizes, original.scalar_type)
    planned = given["Bundle"]
    assert isinstance(planned, cb.Bundle)
    assert bundle.cord == planned.cord
    assert str(bundle.layout) == str(planned.layout)


def test_a_copied_cord_grows_alone() -> None:
    cord = cb.Cord(b"one")
    other = copy.deepcopy(cord)
    other.append(b"two")

    assert (bytes(cord), bytes(other)) == (b"one", b"onetwo")
