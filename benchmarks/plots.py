"""Results as plots: time, memory and ratio against size or count, as SVG.

Rules of this file: both axes are logarithmic; the floor is dashed; a way has the same colour in all
plots of a report; nothing but text is made here, and no library draws.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.results import Cell, series

__all__ = ["Plot", "plots"]

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 210, 40, 50
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c564b")
_LEAST = 1e-9

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot.

    Attributes:
        name: Of its file.
        title: What it shows.
        svg: The file's text.
    """

    name: str
    title: str
    svg: str


def plots(results: Sequence[dict[str, Any]]) -> Iterator[Plot]:
    """Yield a plot for everything that was measured at two or more sizes or counts.

    Args:
        results: With summaries.
    """
    cells = [cell for result in results for cell in result["cells"]]
    ways = list(dict.fromkeys(way for cell in cells for way in cell["ways"]))
    colours = {way: _COLOURS[number % len(_COLOURS)] for number, way in enumerate(ways)}
    for name, group in series(cells):
        by = "size" if len({cell["size"] for cell in group}) > 1 else "count"
        if len({cell[by] for cell in group}) < 2:
            continue
        for what, unit, value in _quantities(group):
            lines = _lines(group, by, value)
            if any(len(points) > 1 for points in lines.values()):
                title = name if what == "time" else f"{name}: {what}"
                chart = _Chart(lines, by=by if by == "size" else group[0]["counted"], unit=unit)
                svg = "\n".join(chart.draw(title, group[0]["floor"], colours)) + "\n"
                yield Plot(f"{re.sub('[^a-z0-9]+', '-', title.lower())}.svg", title, svg)


def _quantities(group: Sequence[Cell]) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    if group[0]["measure"] == "memory":
        yield "peak of anonymous memory", "bytes", lambda it: it["peak"]["anonymous"]["median"]
        return
    yield "time", "s", lambda it: it["seconds"]["median"]
    if any(cell["floor"] in cell["ways"] for cell in group):
        floor = group[0]["floor"]
        yield f"ratio to {floor}", "", lambda it: (it["ratio_to_floor"] or {}).get("median")


def _lines(group: Sequence[Cell], by: str, value: Callable[[Any], Any]) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for cell in group:
        for way, it in cell["summary"].items():
            found = value(it)
            if found is not None:
                lines.setdefault(way, []).append((cell[by], max(found, _LEAST)))
    return lines


class _Chart:
    """Lines on logarithmic axes.

    Args:
        lines: Points of each way.
        by: What the horizontal axis counts.
        unit: Of the vertical axis: "s", "bytes", or "" for a ratio.
    """

    def __init__(self, lines: dict[str, list[Point]], *, by: str, unit: str) -> None:
        self._lines = lines
        self._by = by
        self._unit = unit
        points = [point for line in lines.values() for point in line]
        self._x_base = 2 if by == "size" else 10
        self._y_base = 2 if unit == "bytes" else 10
        self._x = _span([x for x, _ in points], self._x_base)
        self._y = _span([y for _, y in points], self._y_base)

    def draw(self, title: str, floor: str, colours: dict[str, str]) -> Iterator[str]:
        """Yield the lines of the file's text."""
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="12">'
        )
        yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
        yield f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>'
        yield from self._axes()
        for number, (way, points) in enumerate(self._lines.items()):
            dashed = ' stroke-dasharray="6 4"' if way == floor else ""
            yield from self._line(way, points, colours[way], dashed)
            yield from _legend(number, way + " (floor)" * (way == floor), colours[way], dashed)
        yield "</svg>"

    def _axes(self) -> Iterator[str]:
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        for exponent in _ticks(*self._x):
            x = self._across(self._x_base**exponent)
            text = _number(self._x_base**exponent, "bytes" if self._by == "size" else "")
            yield f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#ddd"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{text}</text>'
        for exponent in _ticks(*self._y):
            y = self._up(self._y_base**exponent)
            text = _number(self._y_base**exponent, self._unit)
            yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#ddd"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        yield (
            f'<rect x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{bottom - _TOP}" '
            'fill="none" stroke="#888"/>'
        )
        middle = (_LEFT + right) // 2
        yield f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">{self._by}</text>'

    def _line(self, way: str, points: list[Point], colour: str, dashed: str) -> Iterator[str]:
        places = [(self._across(x), self._up(y)) for x, y in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'
        for x, y in places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'

    def _across(self, value: float) -> float:
        low, high = self._x
        share = (math.log(value, self._x_base) - low) / (high - low)
        return _LEFT + share * (_WIDTH - _RIGHT - _LEFT)

    def _up(self, value: float) -> float:
        low, high = self._y
        share = (math.log(value, self._y_base) - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def _legend(number: int, text: str, colour: str, dashed: str) -> Iterator[str]:
    x, y = _WIDTH - _RIGHT + 12, _TOP + 12 + 20 * number
    yield f'<path d="M{x} {y}h24" stroke="{colour}" stroke-width="2"{dashed}/>'
    yield f'<text x="{x + 30}" y="{y + 4}">{escape(text)}</text>'


def _span(values: Sequence[float], base: int) -> tuple[int, int]:
    """Return the whole exponents around all values."""
    low = math.floor(math.log(min(values), base) + 1e-9)
    high = math.ceil(math.log(max(values), base) - 1e-9)
    return low, max(high, low + 1)


def _ticks(low: int, high: int) -> range:
    return range(low, high + 1, max(1, (high - low + 7) // 8))


def _number(value: float, unit: str) -> str:
    if unit == "bytes":
        for factor, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= factor:
                return f"{value / factor:g} {name}"
        return f"{value:g} B"
    if unit == "s":
        for part, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= part * 0.999:
                return f"{value / part:g} {name}"
        return f"{value:g} s"
    return f"{value:,}" if value >= 1 else f"{value:g}"
