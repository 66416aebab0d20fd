"""Tries: a key that leads out of the folder that a blob is extracted to.

Stopped by: a key never becomes a path; the target is named by the user.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import cordbundle as cb
from cordbundle.cli import main


def test_the_blob_goes_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typer", reason="the command line needs the extra cli")
    source, folder = tmp_path / "w.ptd", tmp_path / "folder"
    folder.mkdir()
    source.write_bytes(bytes(cb.serialize_ptd({"../../out": b"blob"})))
    monkeypatch.chdir(folder)
    command = ["cordbundle", "extract", str(source), "--named", "../../out", "x"]
    monkeypatch.setattr("sys.argv", command)
    assert main() == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "w.ptd", "x"]
    assert (folder / "x").read_bytes() == b"blob"
