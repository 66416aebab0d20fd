"""The error tree of cordbundle.

Rules of this file: every error that a user can cause is a `CordBundleError`; each class also
derives from the builtin that a caller would catch anyway; each instance carries its facts as
attributes and composes its text from them, so that no message has to be parsed.

    CordBundleError(Exception)
    ├── FormatError(ValueError)            the bytes are not what the format asks for
    │   ├── TruncatedError                 the bytes end too early
    │   ├── UnsupportedVersionError        sound, but of a version that is not known here
    │   └── IntegrityError                 a digest differs from the bytes it covers
    ├── LayoutError(ValueError)            a description that cannot be laid out
    │   └── TooLargeError                  it would pass a limit of the format
    ├── CaseMismatchError(ValueError)      a test case that does not fit its method
    ├── DuplicateKeyError(ValueError)      one key, two meanings
    ├── SourceChangedError(OSError)        a source file changed after it was planned
    └── WriteError(OSError)                the target did not take all bytes
"""

from __future__ import annotations

__all__ = [
    "CaseMismatchError",
    "CordBundleError",
    "DuplicateKeyError",
    "FormatError",
    "IntegrityError",
    "LayoutError",
    "SourceChangedError",
    "TooLargeError",
    "TruncatedError",
    "UnsupportedVersionError",
    "WriteError",
]


class CordBundleError(Exception):
    """Carry the facts of a failure; the root of all errors of this package.

    Args:
        what: What is wrong, in a few words that stand alone ("segment 3 ends past the file").
        source: The file, method or key at fault.
        offset: Absolute offset in bytes from the start of `source`.
        expected: What would have been right.
        actual: What was found.
        cause: The likely cause and the way out, for a person.
    """

    def __init__(
        self,
        what: str,
        *,
        source: str | None = None,
        offset: int | None = None,
        expected: object = None,
        actual: object = None,
        cause: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.source = source
        self.offset = offset
        self.expected = expected
        self.actual = actual
        self.cause = cause

    def __str__(self) -> str:
        text = self.what if self.source is None else f"{self.source}: {self.what}"
        if self.offset is not None:
            text += f" at offset {self.offset}"
        facts = [
            f"{word} {value}"
            for word, value in (("found", self.actual), ("expected", self.expected))
            if value is not None
        ]
        if facts:
            text += ": " + ", ".join(facts)
        return text if self.cause is None else f"{text}; {self.cause}"

    def _facts(self) -> dict[str, object]:
        return dict(self.__dict__)

    def __reduce__(self) -> tuple[object, ...]:  # keyword arguments are lost to the default one
        return (_rebuild, (type(self), self.what, self._facts()))


def _rebuild(kind: type[CordBundleError], what: str, facts: dict[str, object]) -> CordBundleError:
    """Make an error again from its pickled facts."""
    error = kind(what)
    for name, value in facts.items():
        setattr(error, name, value)
    return error


class FormatError(CordBundleError, ValueError):
    """Say that bytes do not follow the format they claim."""


class TruncatedError(FormatError):
    """Say that bytes end before the format is complete."""


class UnsupportedVersionError(FormatError):
    """Say that a file, or an installed package, has a version that is not supported."""


class IntegrityError(FormatError):
    """Say that a stored digest differs from the bytes it covers."""


class LayoutError(CordBundleError, ValueError):
    """Say that a description cannot be laid out: an alignment, a size, a data type."""


class TooLargeError(LayoutError):
    """Say that a size would pass a limit of the format."""


class CaseMismatchError(CordBundleError, ValueError):
    """Say that a test case does not fit the method it is for."""


class DuplicateKeyError(CordBundleError, ValueError):
    """Say that one key or method was given two meanings."""


class SourceChangedError(CordBundleError, OSError):
    """Say that a source file is no longer the one that was planned."""


class WriteError(CordBundleError, OSError):
    """Say that a target did not take all bytes; `errno` holds the system's number, if any."""

    def __init__(
        self,
        what: str,
        *,
        errno: int | None = None,
        source: str | None = None,
        offset: int | None = None,
        expected: object = None,
        actual: object = None,
        cause: str | None = None,
    ) -> None:
        super().__init__(
            what, source=source, offset=offset, expected=expected, actual=actual, cause=cause
        )
        self.errno = errno

    def _facts(self) -> dict[str, object]:
        return {**super()._facts(), "errno": self.errno}
