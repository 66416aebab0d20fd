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

from cordbundle.errors import WriteError
from cordbundle.sinks import system_errors
from cordbundle.source import kind_of_file

try:
    import fcntl
except ImportError:  # Windows
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

__all__ = ["Replacement", "path_to_replace", "sync_descriptor", "sync_folder"]

SUFFIX = ".cordbundle-tmp"
"""How the names of temporary files end."""

_TOKEN_SIZE = 16  # hexadecimal digits
_NAME_KEPT = 48  # characters: at most 192 bytes, so that the whole stays under NAME_MAX, 255
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
        while True:
            token = os.urandom(_TOKEN_SIZE // 2).hex()
            self._temporary = os.path.join(folder, prefix + token + SUFFIX)
            self.descriptor = os.open(self._temporary, _FLAGS, mode)
            if _lock(self.descriptor):
                break
            self._close()  # taken for a dead writer's in the moment before
        if old is not None:
            _take_over(self.descriptor, old)

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
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        self._close()

    def _close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # sync() asked for errors before
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
        return os.path.realpath(name)
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
    path = os.path.realpath(name)
    if _status(path) is None:  # such as /dev/stdout, sent to a file that was removed
        raise WriteError(
            "cannot be replaced",
            errno=errno.EINVAL,
            source=name,
            cause="it is open, but has no name any more; hand over the descriptor",
        )
    if not os.access(path, os.W_OK):
        raise WriteError("is write-protected", errno=errno.EACCES, source=name)
    return path


def sync_descriptor(descriptor: int) -> None:
    """Wait until a file's bytes are on the disk."""
    if _HAS_LOCKS and hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync stops at the drive's cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_folder(folder: str) -> None:
    """Wait until a folder's entries are on the disk; nothing where folders cannot be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _take_over(descriptor: int, old: os.stat_result) -> None:
    """Give a file the owner and permission bits of the one it replaces, where that is allowed."""
    if not hasattr(os, "fchown"):
        return
    new = os.fstat(descriptor)
    mode = stat.S_IMODE(old.st_mode)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError:
            mode &= 0o777  # set-user-id means another thing for another owner
    with contextlib.suppress(OSError):  # it was created with these bits or fewer
        os.fchmod(descriptor, mode)


def _lock(descriptor: int) -> bool:
    """Lock a new file; return False if another writer removed it just before."""
    if not _HAS_LOCKS:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # a filesystem without locks: nobody can take it for dead either
        return True
    return os.fstat(descriptor).st_nlink > 0


def _remove_dead(folder: str, prefix: str) -> None:
    """Remove temporary files that no living writer holds."""
    if not _HAS_LOCKS:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(prefix) and name.endswith(SUFFIX):
                token = name[len(prefix) : -len(SUFFIX)]
                if len(token) == _TOKEN_SIZE and not token.strip("0123456789abcdef"):
                    _remove_unlocked(entry.path)


def _remove_unlocked(path: str) -> None:
    with contextlib.suppress(OSError):  # locked: alive; or gone already
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                os.unlink(path)
        finally:
            os.close(descriptor)
