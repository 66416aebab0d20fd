"""Fixtures that all tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parent.parent

# A test never fails for a slow machine, and a failure is the same one in every run.
settings.register_profile("cordbundle", deadline=None, derandomize=True, database=None)
settings.load_profile("cordbundle")

# A shell's background jobs ignore Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def examples() -> Path:
    """Return the folder of the example programs and their cases."""
    return REPOSITORY / "examples"


@pytest.fixture(scope="session")
def real_files() -> Path:
    """Return the folder of public files of many ExecuTorch versions; skip where there is none."""
    folder = REPOSITORY.parent / "shared" / "cases" / "real"
    if not folder.is_dir():
        pytest.skip("the folder of real files does not stand beside the repository")
    return folder
