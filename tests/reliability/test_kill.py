"""Writers that are killed leave whole files, and the next one removes the rest."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import litter
from tests.reliability.kill import (
    Scene,
    alive,
    kill_at_random,
    killed_at,
    one_file,
    three_files,
)

KIB = 1 << 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("make", [one_file, three_files])
def test_a_writer_may_be_killed_at_every_call(
    folder: Path, make: Callable[[Path, int], Scene], before: bool
) -> None:
    scene = make(folder, 30 * KIB)
    renamed = 0
    for index in itertools.count():
        name = killed_at(scene, index, before=before)
        if name is None:
            scene.state = 1 - scene.state
            break
        new = sum(state != scene.state for state in scene.look())
        renamed += name == "replace"
        assert new == (renamed - (before and name == "replace"))
        scene.settle()

    assert set(scene.look()) == {scene.state}
    assert litter(folder) == []
    assert renamed == len(scene.look())
    assert index > 25


@pytest.mark.parametrize("make", [one_file, three_files])
def test_a_writer_may_be_killed_at_any_moment(
    folder: Path, make: Callable[[Path, int], Scene]
) -> None:
    found = kill_at_random(make(folder, 1024 * KIB), runs=4, seed=0)

    assert sum(n for what, n in found.items() if not what.startswith("temporary")) == 4


def test_what_a_living_process_is_writing_is_never_removed(folder: Path) -> None:
    scene = three_files(folder, 30 * KIB)
    with alive(scene) as living:
        assert killed_at(scene, 80, before=True) is not None
        assert len(litter(folder)) > len(living)
        scene.settle(living)

    assert len(living) == 3
