"""Replacing a file as a whole.

Rules of this file: it moves no payload. A replacement is a temporary file in its target's folder,
`.NAME.RANDOM.cordbundle-tmp`, that takes the target's place by one rename or is removed. While its
writer lives it is locked (`flock`), so that a later write to the same target can tell what a dead
one left, and removes only that. The new file has the permission bits and, where that is allowed,
the owner of the old one, or those that `open()` would give; access control lists and extended
attributes of the old file are not carried over, and a hard link to it keeps the old bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from cordbundle.errors import WriteError
from cordbundle.failures import system_errors, tolerated
from cordbundle.source import kind_of_file

try:
    import fcntl
except ImportError:  # Windows
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

__all__ = [
    "Replacement",
    "folder_to_sync",
    "path_to_replace",
    "sync_descriptor",
]

SUFFIX = ".cordbundle-tmp"
"""How the names of temporary files end."""

_TOKEN_SIZE = 16  # hexadecimal digits
_NAME_KEPT = 48  # characters: at most 192 bytes, so that the whole stays under NAME_MAX, 255
_MAX_LINKS = 40  # as many as Linux follows
_MAX_TRIES = 100  # each but the last one lost to another writer within a moment
_FLAGS = (
    os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)


class Replacement:
    """A new file that takes the place of `path`, or vanishes.

    Its methods raise what the system raises, an `OSError`.

    Attributes:
        descriptor: The temporary file, open for reading and writing; -1 when there is none.
    """

    __slots__ = ("_path", "_temporary", "descriptor")

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary: str | None = None
        self.descriptor = -1

    def create(self) -> None:
        """Make the temporary file, empty and locked; remove what dead writers left.

        Costs O(entries of the folder).
        """
        folder, base = os.path.split(self._path)
        prefix = f".{base[:_NAME_KEPT]}."
        _remove_dead(folder, prefix)
        old = _status(self._path)
        # the mode goes through the umask here, as with open(); asking for the umask itself would
        # change it for all threads
        mode = 0o666 if old is None else old.st_mode & 0o777
        for _ in range(_MAX_TRIES):
            token = os.urandom(_TOKEN_SIZE // 2).hex()
            if self._make(os.path.join(folder, prefix + token + SUFFIX), mode):
                break
            self.discard()
        else:
            raise OSError(errno.ENOENT, "temporary files vanish as soon as they are made")
        if old is not None:
            _take_over(self.descriptor, old)

    def _make(self, path: str, mode: int) -> bool:
        """Make and lock a temporary file; False if another writer removed it in between."""
        self._temporary = path
        try:
            self.descriptor = os.open(path, _FLAGS, mode)
        except FileExistsError:
            self._temporary = None  # another writer's, not to be discarded
            raise
        return not _lock(self.descriptor) or _is_at(self.descriptor, path)

    def sync(self, *, durable: bool) -> None:
        """Push the bytes to the disk, or at least learn of errors held back until closing."""
        if durable:
            sync_descriptor(self.descriptor)
        else:
            os.close(os.dup(self.descriptor))  # network filesystems write when one closes

    def commit(self) -> None:
        """Put the new file in the target's place; it keeps the lock until then."""
        if self._temporary is None:
            return
        if not _HAS_LOCKS:
            self._close()  # Windows renames closed files only
        os.replace(self._temporary, self._path)
        self._temporary = None
        self._close()

    def discard(self) -> None:
        """Remove the temporary file, if it did not take the target's place."""
        temporary, self._temporary = self._temporary, None
        if not _HAS_LOCKS:
            self._close()  # Windows removes closed files only
        try:
            if temporary is not None:
                with tolerated():
                    os.unlink(temporary)
        finally:
            self._close()

    def _close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with tolerated():  # sync() asked for errors before
                os.close(descriptor)


def path_to_replace(name: str) -> str | None:
    """Return the path of the file to replace, links followed; None for a FIFO or character device.

    Raises:
        WriteError: It is a folder, another special file or write-protected, or cannot be looked at.
    """
    try:
        with system_errors(name):
            status = os.stat(name)
    except WriteError as error:
        if error.errno != errno.ENOENT:
            raise
        if os.path.basename(name) in ("", ".", ".."):
            number = errno.EISDIR if name else errno.ENOENT
            raise WriteError("names no file", errno=number, source=repr(name)) from None
        with system_errors(name):
            return _end_of_links(name)
    if stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        raise WriteError(
            "cannot be written",
            errno=errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL,
            source=name,
            expected="a file, FIFO or character device",
            actual=kind_of_file(status.st_mode),
        )
    with system_errors(name):
        try:
            path = os.path.realpath(name, strict=True)
        except FileNotFoundError:  # such as /dev/stdout, sent to a file that was removed
            raise WriteError(
                "cannot be replaced",
                errno=errno.EINVAL,
                source=name,
                cause="it is open, but has no name any more; hand over the descriptor",
            ) from None
    if not os.access(path, os.W_OK):
        with system_errors(name):
            flags = os.statvfs(path).f_flag if hasattr(os, "statvfs") else 0
        if flags & getattr(os, "ST_RDONLY", 0):
            raise WriteError("is on a read-only filesystem", errno=errno.EROFS, source=name)
        raise WriteError("is write-protected", errno=errno.EACCES, source=name)
    return path


def _end_of_links(name: str) -> str:
    """Return the path that is made where `name`, or what its links lead to, is missing.

    `os.path.realpath` would take a link that it cannot read for the file itself.
    """
    for _ in range(_MAX_LINKS):
        folder, base = os.path.split(name)
        name = os.path.join(os.path.realpath(folder, strict=True), base)
        status = _status(name, follow=False)
        if status is None or not stat.S_ISLNK(status.st_mode):  # or made in the moment before
            return name
        name = os.path.join(os.path.dirname(name), os.readlink(name))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def sync_descriptor(descriptor: int) -> None:
    """Wait until a file's bytes are on the disk."""
    if _HAS_LOCKS and hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync stops at the drive's cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


@contextlib.contextmanager
def folder_to_sync(folder: str) -> Iterator[int | None]:
    """Lend a descriptor of a folder; None where folders cannot be opened.

    Synced, it waits until the folder's entries are on the disk.
    """
    if not hasattr(os, "O_DIRECTORY"):
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        with tolerated():
            os.close(descriptor)


def _status(path: str, *, follow: bool = True) -> os.stat_result | None:
    try:
        return os.stat(path) if follow else os.lstat(path)
    except FileNotFoundError:
        return None


def _take_over(descriptor: int, old: os.stat_result) -> None:
    """Give a file the owner and permission bits of the one it replaces, where that is allowed."""
    if not hasattr(os, "fchown"):
        return
    new = os.fstat(descriptor)
    mode = stat.S_IMODE(old.st_mode)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        mode &= 0o777  # set-user-id means another thing for another owner
        with tolerated():
            os.fchown(descriptor, old.st_uid, old.st_gid)
            mode = stat.S_IMODE(old.st_mode)
    with tolerated():  # it was created with these bits or fewer
        os.fchmod(descriptor, mode)


def _lock(descriptor: int) -> bool:
    """Lock a new file, which any other writer takes for a dead one's until then.

    Returns:
        False on a filesystem without locks, where nobody can take it for that.
    """
    if _HAS_LOCKS:
        with tolerated():
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return True
    return False


def _is_at(descriptor: int, path: str) -> bool:
    """Return whether a path is that of an open file; not all filesystems count links."""
    status = _status(path, follow=False)
    return status is not None and os.path.samestat(os.fstat(descriptor), status)


def _remove_dead(folder: str, prefix: str) -> None:
    """Remove temporary files that no living writer holds."""
    if not _HAS_LOCKS:
        return
    with tolerated(), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(prefix) and name.endswith(SUFFIX):
                token = name[len(prefix) : -len(SUFFIX)]
                if len(token) == _TOKEN_SIZE and not token.strip("0123456789abcdef"):
                    _remove_unlocked(entry.path)


def _remove_unlocked(path: str) -> None:
    with tolerated():  # locked: alive; or gone already
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                os.unlink(path)
        finally:
            os.close(descriptor)
