"""Reading all that a file holds, and what has to hold for any bytes.

Rules of this file: only errors of the tree come out of reading; the same bytes give the same
answer, however they lie in memory; what `verify` finds sound can be read to its end; a broken
promise is an `AssertionError`, and nothing else is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import xxhash

import cordbundle as cb
from cordbundle.cli.kinds import AnyFile
from cordbundle.errors import CordBundleError

__all__ = ["Verdict", "answers", "check_agreement", "in_two_pieces", "kind_of", "verdict"]

Verdict = str
"""What became of a file: "refused" by `open` or by reading, "findings" of `verify`, or "sound"."""


def kind_of(data: bytes) -> str:
    """Return the identifier of a file, for counting."""
    identifier = data[4:8]
    return identifier.decode() if identifier in (b"ET12", b"FT01", b"BP08", b"BPS1") else "other"


def in_two_pieces(data: bytes) -> cb.Cord:
    """Return bytes that cannot be read as one run of memory."""
    middle = len(data) // 2
    return cb.Cord(data[:middle]) + cb.Cord(data[middle:])


def answers(source: bytes | cb.Cord) -> tuple[str, ...]:
    """Return what reading everything answers; the text of its error where it is refused."""
    try:
        with cb.open(source) as file:
            return tuple(f"{name}: {_attempt(read)}" for name, read in _reads(file))
    except CordBundleError as error:
        return (_text(error),)


def verdict(data: bytes) -> Verdict:
    """Open and verify a file.

    Raises:
        AssertionError: Two looks at it differ, a finding is outside it, or `check` disagrees.
    """
    try:
        file = cb.open(data)
    except CordBundleError:
        return "refused"
    with file:
        findings = file.verify()
        assert findings == cb.open(in_two_pieces(data)).verify(), "verify gives two answers"
        for finding in findings:
            assert 0 <= finding.offset < 1 << 65, f"no offset: {finding}"
        try:
            file.check()
        except CordBundleError as error:
            assert error.what == findings[0].what, "check raises for another finding"
            return "findings"
        assert not findings, f"check raises nothing for {findings[0]}"
    return "sound"


def check_agreement(data: bytes) -> None:
    """Read everything of a file that `verify` finds sound.

    Raises:
        AssertionError: Something cannot be read after all.
    """
    with cb.open(data) as file:
        for name, read in _reads(file):
            try:
                read()
            except CordBundleError as error:
                raise AssertionError(f"verify finds nothing, but {name}: {error}") from error


def _attempt(read: Callable[[], object]) -> str:
    try:
        return str(read())
    except CordBundleError as error:
        return _text(error)


def _text(error: CordBundleError) -> str:
    return f"{type(error).__name__}: {error}"


def _reads(file: AnyFile) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield everything that can be asked of a file, by name."""
    yield "segment ranges", lambda: file.segment_ranges
    if isinstance(file, cb.PteFile):
        yield "methods", lambda: [_method(method) for method in file.methods.values()]
        yield "segments", lambda: [_digest(cord) for cord in file.segments]
        yield "named data", lambda: [(key, _digest(v)) for key, v in file.named_data.items()]
        yield "program", lambda: _short(file.program())
    elif isinstance(file, cb.PtdFile):
        yield "keys", lambda: list(file)
        yield "records", file.records
        yield "items", lambda: [(key, _blob(file[key])) for key in file]
        yield "blobs", lambda: _same_blobs(file)
    else:
        yield "form", lambda: file.form
        yield "suites", lambda: [_suite(suite) for suite in file.suites]
        yield "named data", lambda: [(key, _digest(v)) for key, v in file.named_data.items()]
        yield "layout", lambda: _within(file)
        yield "digests", lambda: file.digests
        yield "program", lambda: (file.program_offset, _digest(file.program))
        yield from _inner_reads(file)


def _inner_reads(bundle: cb.BundleFile) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the questions to the program of a bundle, if it has one that can be opened."""
    try:
        program = bundle.program
        if not program:
            return
        inner = cb.PteFile(program, "program")
    except CordBundleError:  # told by the answer to "program", and by `verify`
        yield "inner", lambda: _open_inner(bundle)
        return
    for name, read in _reads(inner):
        yield f"inner {name}", read


def _open_inner(bundle: cb.BundleFile) -> str:
    return repr(cb.PteFile(bundle.program, "program"))


def _short(value: object) -> str:
    text = repr(value)
    return (
        text
        if len(text) < 200
        else xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))
    )


def _digest(cord: cb.Cord) -> str:
    return f"{len(cord)} bytes, {cord.xxh3_128().hex()}"


def _method(method: cb.Method) -> str:
    sizes = [s.nbytes for s in (*method.inputs, *method.outputs) if isinstance(s, cb.TensorSpec)]
    return _short((method, sizes))


def _blob(blob: cb.TensorView | cb.Cord) -> str:
    if isinstance(blob, cb.Cord):
        return _digest(blob)
    digest = xxhash.xxh3_128_hexdigest(blob.data)
    assert len(blob.data) == blob.nbytes, "a tensor has other bytes than it says"
    return f"{blob.scalar_type} {blob.sizes} {blob.dim_order} {blob.strides} {digest}"


def _same_blobs(file: cb.PtdFile) -> str:
    """Return all blobs, which are those that are asked for one by one."""
    try:
        one_by_one = [(key, _blob(file[key])) for key in file]
    except CordBundleError as error:
        one_by_one = [("", _text(error))]
    try:
        at_once = [(key, _blob(blob)) for key, blob in file.blobs().items()]
    except CordBundleError as error:
        at_once = [("", _text(error))]
    assert at_once == one_by_one, "blobs() differs from the single blobs"
    file.blobs()
    return _short(at_once)


def _suite(suite: cb.MethodTestSuite) -> str:
    return _short(
        (
            suite.method_name,
            [
                [
                    _blob(value) if isinstance(value, cb.TensorView) else repr(value)
                    for value in (*case.inputs, None, *case.expected_outputs)
                ]
                for case in suite.test_cases
            ],
        )
    )


def _within(file: cb.BundleFile) -> str:
    """Return the layout, every segment of which is inside the file."""
    layout = file.layout
    for place in layout.placements:
        assert not place.size or place.offset + place.size <= len(file.cord), "a segment outside"
    return _short([(place.name, place.offset, place.size) for place in layout.placements])
