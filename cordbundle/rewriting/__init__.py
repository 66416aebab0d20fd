"""Change a finished `.pte`, or write any file again as it is, without touching the rest of it.

Rules of this package: a file is taken apart into metadata and segments (`relayout.py`), laid out
again and put together (`assembly.py`, `metadata.py`); `editor.py` is what users call, `whole.py`
the rewrite without edits, `uses.py` who refers to what.
"""

from __future__ import annotations

from cordbundle.rewriting.editor import PteEditor
from cordbundle.rewriting.whole import Rewrite, rewrite

__all__ = ["PteEditor", "Rewrite", "rewrite"]
