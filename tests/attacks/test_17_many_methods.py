"""Tries: 100,000 methods, for a reader that works on each as on the only one.

Stopped by: time and memory go with the size of the file: each table is visited once.
"""

from __future__ import annotations

from cordbundle import program as schema
from cordbundle.flatbuffer.verify import MAX_FINDINGS
from tests.attacks.surgery import findings, metadata, methods
from tests.support import peak


def test_memory_goes_with_the_file() -> None:
    few, many = made(100), made(5000)
    small, large = (peak(lambda data=data: methods(data)) for data in (few, many))  # type: ignore[misc]
    assert large / len(many) < 2 * small / len(few)


def test_each_is_read_and_no_more_is_said_than_a_person_reads() -> None:
    data = made(100_000)
    assert len(methods(data)) == 100_000
    assert len(findings(data)) == MAX_FINDINGS  # each method lacks all that it should have


def made(count: int) -> bytearray:
    plans = [schema.ExecutionPlan(f"f{number}", values=[]) for number in range(count)]
    return metadata(schema.Program(execution_plan=plans))
