"""Source files: few descriptors for many files, and never another file than the planned one."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cordbundle.cord import Cord
from cordbundle.errors import FormatError, SourceChangedError
from cordbundle.source import SourceFile

REPOSITORY = Path(__file__).resolve().parent.parent
HAS_FORK = hasattr(os, "fork")
HAS_PROC = Path("/proc/self/fd").is_dir()


def run_child(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, which has `folder` as its working folder."""
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def make_files(folder: Path, count: int) -> list[Path]:
    """Make files that each hold their own number as ten digits."""
    files = [folder / f"{number}.bin" for number in range(count)]
    for number, file in enumerate(files):
        file.write_bytes(b"%010d" % number)
    return files


def crowd_out(folder: Path) -> None:
    """Read so many other files that no descriptor from before is still open."""
    folder.mkdir()
    sources = [SourceFile.of(file) for file in make_files(folder, 150)]
    assert len(sources) == 150


def descriptors_of(path: Path) -> int:
    """Return how many descriptors of this process are open on `path`."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(link) == str(path)
        except FileNotFoundError:  # the one that lists the folder
            continue
    return found


def run_threads(threads: list[threading.Thread]) -> None:
    """Run threads to their end, with as many switches between them as there can be."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of ten bytes."""
    file = tmp_path / "source.bin"
    file.write_bytes(b"0123456789")
    return file


def read(source: SourceFile, offset: int = 0, size: int = 10) -> bytes:
    """Return bytes of a source."""
    buffer = bytearray(size)
    source.read_into(memoryview(buffer), offset)
    return bytes(buffer)


# One file, one source ------------------------------------------------------------------------


def test_a_source_knows_what_its_file_was(path: Path) -> None:
    status = path.stat()

    source = SourceFile.of(path)

    assert (source.path, source.size) == (str(path), 10)
    assert source.identity == (status.st_dev, status.st_ino)
    assert source.mtime_ns == status.st_mtime_ns
    assert repr(source) == f"SourceFile({str(path)!r}, 10 bytes)"


def test_an_unchanged_file_has_one_source(path: Path) -> None:
    first = SourceFile.of(path)

    assert SourceFile.of(str(path)) is first


def test_a_changed_file_has_another_source(path: Path) -> None:
    first = SourceFile.of(path)
    path.write_bytes(b"changed, and longer")

    second = SourceFile.of(path)

    assert second is not first
    assert read(second, 0, 7) == b"changed"


def test_bytes_are_read_from_their_offset(path: Path) -> None:
    source = SourceFile.of(path)

    assert read(source, 3, 4) == b"3456"
    assert read(source, 0, 0) == b""


def test_a_view_is_that_range_and_read_only(path: Path) -> None:
    view = SourceFile.of(path).view(3, 4)

    assert bytes(view) == b"3456"
    assert view.readonly


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    with pytest.raises(FormatError, match="found a FIFO, expected a regular file"):
        SourceFile.of(tmp_path / "fifo")


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="needs /dev/null")
def test_a_device_is_refused() -> None:
    with pytest.raises(FormatError, match="found a character device"):
        SourceFile.of("/dev/null")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a user with limits")
def test_a_file_that_may_not_be_read_is_refused_when_planned(path: Path) -> None:
    path.chmod(0)

    with pytest.raises(PermissionError):
        SourceFile.of(path)


def test_the_working_folder_may_change_after_planning(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    source = SourceFile.of(path.name)

    crowd_out(tmp_path / "crowd")
    monkeypatch.chdir(tmp_path / "crowd")

    source.check_unchanged()
    assert read(source) == b"0123456789"
    assert source.path == path.name


# A file that changes -------------------------------------------------------------------------


def _truncate(path: Path) -> None:
    os.truncate(path, 5)


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _replace(path: Path) -> None:
    status = path.stat()
    other = path.with_suffix(".new")
    other.write_bytes(b"abcdefghij")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


def _touch(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))


def _become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _lose_the_folder(path: Path) -> None:
    path.unlink()
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.write_bytes(b"a file where the folder was")


CHANGES = [
    pytest.param(_truncate, "size", id="truncated"),
    pytest.param(_grow, "size", id="grown"),
    pytest.param(_replace, "inode", id="replaced"),
    pytest.param(_touch, "modification time", id="touched"),
    pytest.param(Path.unlink, "file", id="deleted"),
    pytest.param(_become_a_folder, "size", id="a folder now"),
    pytest.param(_lose_the_folder, "file", id="folder gone"),
]


@pytest.mark.parametrize(("change", "what"), CHANGES)
def test_a_change_after_planning_is_found_when_asked_for(
    tmp_path: Path, change: Callable[[Path], None], what: str
) -> None:
    path = tmp_path / "folder" / "source.bin"
    path.parent.mkdir()
    path.write_bytes(b"0123456789")
    source = SourceFile.of(path)
    source.check_unchanged()

    change(path)

    with pytest.raises(SourceChangedError, match=f"the {what} changed after planning") as caught:
        source.check_unchanged()
    assert caught.value.source == str(path)
    assert caught.value.expected != caught.value.actual


@pytest.mark.parametrize(("change", "what"), CHANGES)
def test_a_changed_file_is_not_opened_again(
    tmp_path: Path, change: Callable[[Path], None], what: str
) -> None:
    path = tmp_path / "folder" / "source.bin"
    path.parent.mkdir()
    path.write_bytes(b"0123456789")
    source = SourceFile.of(path)
    crowd_out(tmp_path / "crowd")

    change(path)

    with pytest.raises(SourceChangedError, match=f"the {what} changed after planning"):
        read(source, 0, 1)
    assert not HAS_PROC or descriptors_of(path) == 0


def test_a_short_read_is_an_error_that_tells_both_sizes(path: Path) -> None:
    source = SourceFile.of(path)
    os.truncate(path, 5)

    with pytest.raises(SourceChangedError) as caught:
        read(source)

    assert (caught.value.expected, caught.value.actual) == (10, 5)


def test_a_view_of_a_shorter_file_is_refused_also_of_the_bytes_that_are_left(path: Path) -> None:
    source = SourceFile.of(path)
    os.truncate(path, 5)

    with pytest.raises(SourceChangedError, match="the size changed") as caught:
        source.view(0, 2)
    assert (caught.value.expected, caught.value.actual) == (10, 5)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_fifo_in_place_of_the_file_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    done = run_child(
        """
        import os
        from cordbundle.errors import SourceChangedError
        from cordbundle.source import SourceFile
        names = [f"{number}.bin" for number in range(150)]
        for name in names:
            with open(name, "wb") as file:
                file.write(b"0123456789")
        sources = [SourceFile.of(name) for name in names]
        os.unlink(names[0])
        os.mkfifo(names[0])
        try:
            sources[0].read_into(memoryview(bytearray(1)), 0)
        except SourceChangedError:
            print("refused")
        """,
        tmp_path,
    )

    assert (done.stdout, done.stderr) == ("refused\n", "")


# Descriptors ---------------------------------------------------------------------------------


@pytest.mark.skipif(not HAS_PROC, reason="needs /proc/self/fd")
def test_a_file_has_one_descriptor_however_many_cords_refer_to_it(path: Path) -> None:
    cords = [Cord.from_file(path, offset) for offset in range(10)]

    assert b"".join(bytes(cord[:1]) for cord in cords) == b"0123456789"
    assert descriptors_of(path) == 1


@pytest.mark.skipif(not HAS_PROC, reason="needs /proc/self/fd")
def test_the_descriptor_is_closed_with_the_last_cord(path: Path) -> None:
    cord = Cord.from_file(path)
    part = cord[2:4]

    del cord
    gc.collect()
    assert descriptors_of(path) == 1

    del part
    gc.collect()
    assert descriptors_of(path) == 0


@pytest.mark.skipif(not HAS_PROC, reason="needs /proc/self/fd")
def test_the_mapping_is_gone_with_the_last_view(path: Path) -> None:
    source = SourceFile.of(path)
    first, second = source.view(0, 2), source.view(5, 2)
    assert Path("/proc/self/maps").read_text().count(str(path)) == 1

    del first, second
    gc.collect()

    assert str(path) not in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(not HAS_PROC, reason="needs /proc/self/fd")
def test_the_file_unused_longest_is_closed_first(path: Path, tmp_path: Path) -> None:
    source, unused = SourceFile.of(path), SourceFile.of(make_files(tmp_path, 1)[0])
    folder = tmp_path / "crowd"
    folder.mkdir()

    path.unlink()  # closed once, it could not be opened again

    others = []
    for file in make_files(folder, 150):
        others.append(SourceFile.of(file))
        assert read(source) == b"0123456789"

    assert descriptors_of(Path(unused.path)) == 0


def test_a_descriptor_that_is_lent_is_not_closed_by_others(path: Path, tmp_path: Path) -> None:
    with SourceFile.of(path).descriptor() as descriptor:
        crowd_out(tmp_path / "crowd")

        assert os.fstat(descriptor).st_ino == path.stat().st_ino


LIMITED = """
    import hashlib, io, os, resource, sys
    limit = {limit}
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    import xxhash
    from cordbundle.cord import Cord

    contents = [b"%010d" % number for number in range(3000)]
    cord = Cord()
    for number, content in enumerate(contents):
        with open(f"{{number}}.bin", "wb") as file:
            file.write(content)
        cord.append(Cord.from_file(f"{{number}}.bin"))
    whole = b"".join(contents)
    assert bytes(cord) == whole
    assert cord == whole
    assert cord.xxh3_128() == xxhash.xxh3_128(whole).digest()
    assert [bytes(cord[at : at + 10]) for at in range(29_990, -1, -10)] == contents[::-1]
    assert [bytes(view) for view in cord.chunks()] == contents
    file = io.BytesIO()
    cord.write_to_file(file)
    assert file.getvalue() == whole
    if sys.version_info >= (3, 13):  # before, each mapping that is held holds a descriptor
        assert [bytes(view) for view in list(cord.chunks())] == contents
    print("good", len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a limit of descriptors")
@pytest.mark.parametrize("limit", [1024, 200])
def test_three_thousand_files_work_under_a_limit_of_descriptors(tmp_path: Path, limit: int) -> None:
    done = run_child(LIMITED.format(limit=limit), tmp_path)

    assert done.stderr == ""
    word, count = done.stdout.split()
    assert word == "good"
    assert int(count) < min(limit, 150)


@pytest.mark.skipif(os.name != "posix", reason="needs a limit of descriptors")
def test_a_process_that_holds_nearly_all_descriptors_itself_still_reads(tmp_path: Path) -> None:
    done = run_child(
        """
        import os, resource
        from cordbundle.cord import Cord
        for number in range(200):
            with open(f"{number}.bin", "wb") as file:
                file.write(b"%010d" % number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        others = [os.dup(0) for _ in range(50)]
        cords = [Cord.from_file(f"{number}.bin") for number in range(200)]
        print([bytes(cord) for cord in cords] == [b"%010d" % number for number in range(200)])
        with cords[0]._chunks[0].source.descriptor(), cords[1]._chunks[0].source.descriptor():
            others += [os.dup(0) for _ in range(2)]
            print(bytes(cords[2]) == b"0000000002")
        """,
        tmp_path,
    )

    assert (done.stdout, done.stderr) == ("True\nTrue\n", "")


# Threads, processes, the end -----------------------------------------------------------------


def test_threads_read_more_files_than_are_open(tmp_path: Path) -> None:
    sources = [SourceFile.of(file) for file in make_files(tmp_path, 140)]
    wrong: list[object] = []

    def read_all(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(3000):
            number = chance.randrange(140)
            try:
                found = read(sources[number])
            except OSError as error:
                wrong.append(error)
            else:
                if found != b"%010d" % number:
                    wrong.append((number, found))

    run_threads([threading.Thread(target=read_all, args=(seed,)) for seed in range(4)])

    assert wrong == []


def test_sources_that_die_in_one_thread_and_return_in_another_read_their_own_file(
    tmp_path: Path,
) -> None:
    files = make_files(tmp_path, 8)
    wrong: list[object] = []

    def open_and_drop(shift: int) -> None:
        for turn in range(2000):
            number = (turn // 2 + shift) % 8
            try:
                found = bytes(Cord.from_file(files[number]))
            except OSError as error:
                wrong.append(error)
            else:
                if found != b"%010d" % number:
                    wrong.append((number, found))

    run_threads([threading.Thread(target=open_and_drop, args=(n % 2,)) for n in range(6)])

    assert wrong == []


def test_sources_collected_while_others_are_opened_do_no_harm(tmp_path: Path) -> None:
    """The garbage collector runs at any allocation, also inside the pool of descriptors."""
    files = make_files(tmp_path, 400)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number, file in enumerate(files):
            cycle: list[object] = [Cord.from_file(file)]
            cycle.append(cycle)
            assert bytes(cycle[0]) == b"%010d" % number  # type: ignore[call-overload]
    finally:
        gc.set_threshold(*threshold)


@pytest.mark.skipif(not HAS_FORK, reason="needs fork")
def test_a_forked_process_reads_while_another_thread_reads(tmp_path: Path) -> None:
    done = run_child(
        """
        import os, signal, threading, warnings
        from cordbundle.source import SourceFile
        warnings.simplefilter("ignore")
        names = [f"{number}.bin" for number in range(200)]
        for name in names:
            with open(name, "wb") as file:
                file.write(name.encode())
        sources = [SourceFile.of(name) for name in names]

        def read(source):
            buffer = bytearray(source.size)
            source.read_into(memoryview(buffer), 0)
            return buffer.decode() == source.path

        stop = threading.Event()

        def go_on():
            while not stop.is_set():
                for source in sources:
                    read(source)

        thread = threading.Thread(target=go_on)
        thread.start()
        bad = 0
        for _ in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                os._exit(0 if all(read(source) for source in sources) else 1)
            bad += os.waitpid(child, 0)[1] != 0
        stop.set()
        thread.join()
        print("bad:", bad)
        """,
        tmp_path,
    )

    assert (done.stdout, done.stderr) == ("bad: 0\n", "")


def test_a_cord_that_lives_until_the_interpreter_ends_ends_quietly(path: Path) -> None:
    done = run_child(
        """
        import sys
        from cordbundle.cord import Cord
        cord = Cord.from_file("source.bin")
        sys.kept = [cord, next(cord.chunks()), cord.open()]  # taken down after all other modules
        print(cord[3])
        """,
        path.parent,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("51\n", "", 0)
