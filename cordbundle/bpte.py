"""Bundled programs (`.bpte`): reading, from any writer.

Rules of this file: suites are read when they are asked for, tensors when they are touched; the
program is a Cord over the file. ExecuTorch's own bundles are one flatbuffer around the program;
ours have a header and a segment table besides (`docs/format.md`). Where things stand is said by
`bpte_tables.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from cordbundle import bpte_schema as schema
from cordbundle.bpte_tables import SHOWN, BundleTables
from cordbundle.cord import Cord
from cordbundle.errors import FormatError
from cordbundle.flatbuffer import Finding, no_collection
from cordbundle.suites import MethodTestCase, MethodTestSuite
from cordbundle.tensor_view import TensorView

if TYPE_CHECKING:
    from cordbundle.progress import Progress

__all__ = ["BundleFile"]


class BundleFile(BundleTables):
    """An open bundled program; made by `cordbundle.open`."""

    @cached_property
    def suites(self) -> tuple[MethodTestSuite, ...]:
        """The test suites in file order. O(test cases); no tensor is touched.

        Raises:
            FormatError: The metadata is damaged, or a value that no bundle can hold.
        """
        with no_collection():
            return tuple(self._suite(suite) for suite in self._walk_root().method_test_suites or ())

    def _suite(self, suite: schema.BundledMethodTestSuite) -> MethodTestSuite:
        name = suite.method_name or ""
        where = f"method {name[:SHOWN]!r}"
        cases = enumerate(suite.test_cases or ())
        return MethodTestSuite(
            name, [self._case(case, f"{where}, case {number}") for number, case in cases]
        )

    def suite(self, method_name: str) -> MethodTestSuite:
        """Return the suite of a method; the first one, as the runtime does.

        Raises:
            KeyError: There is none.
        """
        for suite in self.suites:
            if suite.method_name == method_name:
                return suite
        raise KeyError(method_name)

    def _case(self, case: schema.BundledMethodTestCase, where: str) -> MethodTestCase:
        return MethodTestCase(
            [self._value(v.val, f"{where}, input {i}") for i, v in enumerate(case.inputs or ())],
            [
                self._value(v.val, f"{where}, output {i}")
                for i, v in enumerate(case.expected_outputs or ())
            ],
        )

    def _value(
        self, value: schema.ValueUnion | None, where: str
    ) -> TensorView | bool | int | float:
        if isinstance(value, schema.Tensor):
            return self._tensor(value, where)
        if isinstance(value, schema.Bool):
            return value.bool_val
        if isinstance(value, schema.Int):
            return value.int_val
        if isinstance(value, schema.Double):
            return value.double_val
        raise FormatError(
            f"{where} has no value", source=self.name, expected="a tensor, int, float or bool"
        )

    def _tensor(self, tensor: schema.Tensor, where: str) -> TensorView:
        shape = self.tensor_shape(tensor, where)
        data: object = tensor.data
        if tensor.data_segment:
            data = self.segment(tensor.data_segment - 1, where)
        cord = data if isinstance(data, Cord) else Cord()
        if len(cord) > shape.nbytes:  # writers may store more
            cord = cord[: shape.nbytes]
        shape.check_size(len(cord), where, self.name)
        return TensorView.within(shape, cord, 0)

    def verify(self, progress: Progress | None = None) -> list[Finding]:
        """Check everything that the format promises and return all that is wrong, by offset.

        Recomputes every digest, so it reads the whole file, once, through 1 MiB of memory. The
        program inside is checked as `PteFile.verify` does, and the cases against its methods. Where
        the flatbuffer or the place of a segment is damaged, the digest in the header is recomputed
        alone. The check stops at 1,000 findings.

        Args:
            progress: Called with (bytes read, bytes to read), about every 4 MiB; what it raises
                ends the check and arrives at the caller.

        Raises:
            SourceChangedError: The file shrinks while it is read.
        """
        return super().verify(progress)

    def _contents(self) -> Iterator[Finding]:
        from cordbundle.bundle_check import check_metadata  # not needed to open a file

        return check_metadata(self)

    def _bytes(self, is_structure_sound: bool, progress: Progress | None) -> Iterator[Finding]:
        from cordbundle.bundle_check import check_bytes, check_header_digest

        check = check_bytes if is_structure_sound else check_header_digest
        return check(self, progress)
