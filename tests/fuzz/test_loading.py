"""Changed programs that `verify` calls sound, in ExecuTorch's runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest

from tests.fuzz.loading import SEEDS, Loader, sound_changes
from tests.fuzz.seeds import REPOSITORY

pytest.importorskip("executorch")

pytestmark = pytest.mark.executorch


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as made:
        yield made


@pytest.mark.parametrize("name", SEEDS)
def test_a_program_that_was_not_changed_loads(name: str, loader: Loader) -> None:
    assert loader.load((REPOSITORY / "examples" / f"{name}.pte").read_bytes()) == "loaded"


def test_what_is_sound_loads_or_is_refused_in_order(loader: Loader) -> None:
    tried: Counter[str] = Counter()

    answers = Counter(map(loader.load, islice(sound_changes(0, tried), 300)))

    assert sum(answers.values()) == tried["sound"] == 300
    assert set(answers) == {"loaded", "refused"}
    assert tried["unsound"] > 100
