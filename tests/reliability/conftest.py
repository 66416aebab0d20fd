"""These tests look at Linux's calls and descriptors, and mount filesystems."""

from __future__ import annotations

import sys

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*"]
