"""Which ExecuTorch this package stands in for.

Rules of this file: it imports nothing of ExecuTorch, only asks what is installed.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from cordbundle.errors import UnsupportedVersionError

__all__ = ["SUPPORTED", "check_version"]

SUPPORTED = "1.5"
"""The minor version whose behaviour and bytes are mirrored."""


def check_version() -> None:
    """Refuse another ExecuTorch than the one that is mirrored.

    Raises:
        UnsupportedVersionError: Another version is installed.
        ImportError: None is.
    """
    try:
        installed = version("executorch")
    except PackageNotFoundError:
        raise ImportError(
            "cordbundle.executorch needs ExecuTorch: pip install 'cordbundle[executorch]'",
            name="executorch",
        ) from None
    if installed.split(".")[:2] != SUPPORTED.split("."):
        raise UnsupportedVersionError(
            "version is not supported",
            source="the installed executorch",
            expected=f"{SUPPORTED}.*",
            actual=installed,
            cause="the other parts of cordbundle work with files of any version",
        )
