"""The index of the attacks says what their files say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_the_table_holds_the_sentences_of_every_file_in_order() -> None:
    rows = re.findall(
        r"^\| (\d\d) \| .* \| (.*) \| (.*) \|$", (FOLDER / "README.md").read_text(), re.M
    )
    said = []
    for path in sorted(FOLDER.glob("test_[0-9]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        tries, stops = " ".join(text.split()).split(" Stopped by: ")
        said.append((path.name[5:7], tries.removeprefix("Tries: ")[:-1], stops[:-1]))

    assert rows == said


def test_the_numbers_of_the_attacks_have_no_gap() -> None:
    numbers = [int(path.name[5:7]) for path in sorted(FOLDER.glob("test_[0-9]*.py"))]

    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 40
