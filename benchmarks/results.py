"""The shape of the results, and what is computed from them.

Rules of this file: results are plain JSON values; every run is kept, and a summary can always be
made again from the runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

__all__ = [
    "OURS",
    "REFERENCE",
    "SCHEMA",
    "Cell",
    "Run",
    "Spread",
    "grown",
    "ratio",
    "series",
    "slopes",
    "spread",
    "summary",
]

SCHEMA = 2
"""Version of the results' shape."""

REFERENCE = "executorch"
"""The way that is to be replaced."""

OURS = "cordbundle"
"""What the names of cordbundle's own ways begin with."""

Run = dict[str, Any]
Cell = dict[str, Any]
Spread = dict[str, float]


def spread(values: Sequence[float]) -> Spread:
    """Return median, quartiles, extremes and number of values."""
    low, high = min(values), max(values)
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else []
    return {
        "median": statistics.median(values),
        "quartile_1": quartiles[0] if quartiles else low,
        "quartile_3": quartiles[2] if quartiles else high,
        "least": low,
        "most": high,
        "runs": len(values),
    }


def ratio(cell: Cell, way: str, other: str, what: str = "seconds") -> Spread | None:
    """Return the ratio of the medians of two ways' times, with the spread of ratios by round.

    A round's runs stand side by side in time, so their ratio is spared what slows the machine down
    for a while. None where a way did not run, or took no time that could be measured.

    Args:
        cell: The cell with its runs.
        way: Whose time is divided.
        other: By whose time.
        what: "seconds" or "processor_seconds".
    """
    times = {name: _by_round(cell, name, what) for name in (way, other)}
    if not times[way] or not times[other]:
        return None
    rounds = times[way].keys() & times[other].keys()
    medians = [statistics.median(times[name].values()) for name in (way, other)]
    if not medians[1] or not all(times[other].values()):  # shorter than the clock's step
        return None
    by_round = [times[way][number] / times[other][number] for number in sorted(rounds)]
    return spread(by_round) | {"median": medians[0] / medians[1]}


def _ratio_to_best(cell: Cell, way: str) -> Spread | None:
    """Return the ratio to the fastest way that is not cordbundle's; None without one."""
    others = {run["way"] for run in cell["runs"] if not run["way"].startswith(OURS)}
    if not others:
        return None
    medians = {
        name: statistics.median(_by_round(cell, name, "seconds").values())
        for name in sorted(others)
    }
    return ratio(cell, way, min(medians, key=lambda name: medians[name]))


def series(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """Yield cells that differ in nothing but size or count, under what they have in common.

    Their order is that of their sizes and counts.
    """
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        key = tuple(cell[it] for it in ("job", "filesystem", "measure", "durability", "cache"))
        groups.setdefault(key, []).append(cell)
    for (job, filesystem, measure, durability, cache), group in groups.items():
        details = [measure, "until durable" * (durability != "none"), "cold" * (cache == "cold")]
        name = ", ".join((f"{job} on {filesystem}", *filter(None, details)))
        yield name, sorted(group, key=lambda cell: (cell["size"], cell["count"]))


def grown(group: Sequence[Cell]) -> dict[str, list[tuple[float, float]]]:
    """Return for each way its median time at each count of a series."""
    found: dict[str, list[tuple[float, float]]] = {}
    for cell in group:
        for way, it in cell["summary"].items():
            found.setdefault(way, []).append((cell["count"], it["seconds"]["median"]))
    return found


def slopes(points: Sequence[tuple[float, float]]) -> list[float]:
    """Return the exponent of growth between neighbours: 1 where twice as much takes twice as long.

    Args:
        points: Sizes or counts, each with its time, sorted.
    """
    return [
        math.log(time / time_before) / math.log(at / at_before)
        for (at_before, time_before), (at, time) in pairwise(points)
    ]


def _by_round(cell: Cell, way: str, what: str) -> dict[int, float]:
    return {run["round"]: run[what] for run in cell["runs"] if run["way"] == way}


def summary(cell: Cell) -> dict[str, dict[str, Any]]:
    """Return for each way the spread of its times, its ratios, and what else was counted."""
    ways = list(dict.fromkeys(run["way"] for run in cell["runs"]))
    return {way: _summary(cell, way) for way in sorted(ways, key=cell["ways"].index)}


def _summary(cell: Cell, way: str) -> dict[str, Any]:
    runs = [run for run in cell["runs"] if run["way"] == way]
    found: dict[str, Any] = {
        "seconds": spread([run["seconds"] for run in runs]),
        "processor_seconds": spread([run["processor_seconds"] for run in runs]),
        "ratio_to_floor": ratio(cell, way, cell["floor"]),
        "processor_ratio_to_floor": ratio(cell, way, cell["floor"], "processor_seconds"),
        f"ratio_to_{REFERENCE}": ratio(cell, way, REFERENCE),
        "ratio_to_best": _ratio_to_best(cell, way),
        "io": {name: statistics.median(run["io"][name] for run in runs) for name in runs[0]["io"]},
    }
    if "device_bytes" in runs[0]:
        found["device_bytes"] = spread([run["device_bytes"] for run in runs])
        most = found["device_bytes"]["most"]
        found["device_share"] = most / cell["source_size"] if cell["source_size"] else None
    if "peak" in runs[0]:
        kinds = list(runs[0]["peak"].keys() - {"samples", "longest_gap_seconds"})
        found["peak"] = {kind: spread([run["peak"][kind] for run in runs]) for kind in kinds}
    return found
