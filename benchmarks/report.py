"""Results as Markdown.

Rules of this file: it reads results and nothing else; every number comes from a summary made anew
from the runs; a table says what its ratios are to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from benchmarks.results import (
    OURS,
    REFERENCE,
    SCHEMA,
    Cell,
    Spread,
    grown,
    series,
    slopes,
    summary,
)
from benchmarks.targets import Target, outcomes

__all__ = ["markdown"]


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """Return a report of one or several results.

    Raises:
        ValueError: Results of another version of the harness.
    """
    lines: list[str] = []
    for result in results:
        if result.get("schema") != SCHEMA:
            raise ValueError(f"results of schema {result.get('schema')}, not {SCHEMA}")
        for cell in result["cells"]:
            cell["summary"] = summary(cell)
        lines += _result(result)
    return "\n".join(lines) + "\n"


def _result(result: dict[str, Any]) -> Iterator[str]:
    yield f"## Profile {result['profile']!r}, {result['started']}"
    yield ""
    yield from _machine(result)
    yield ""
    yield from _targets(result["cells"])
    yield from _slopes(result["cells"])
    for cell in result["cells"]:
        yield from _cell(cell)
    for title, word in (("Left out", "left_out"), ("Broken", "broken")):
        if result[word]:
            yield f"### {title}"
            yield ""
            yield from (f"* {entry['what']}: {entry['why']}" for entry in result[word])
            yield ""


def _machine(result: dict[str, Any]) -> Iterator[str]:
    machine = result["machine"]
    versions = ", ".join(f"{name} {it}" for name, it in machine["versions"].items() if it)
    filesystems = "; ".join(
        f"{kind} ({facts['options']}, block {facts['block']})"
        for kind, facts in result["filesystems"].items()
    )
    commit = machine["commit"] or "none"
    changed = " with uncommitted changes" if machine["uncommitted_changes"] else ""
    load = result["load"]
    yield from _table(
        ("", ""),
        [
            ("machine", f"{machine['processor']}, {machine['cores']} cores, "
             f"{_size(machine['memory'])}, {machine['architecture']}"),
            ("kernel", f"{machine['kernel']}, {machine['system']}"),
            ("filesystems", filesystems),
            ("software", f"{machine['python']}, {versions}, {machine['coreutils']}"),
            ("commit", f"{commit}{changed}"),
            ("run", f"{result['minutes']} minutes, seed {result['seed']}, load "
             f"{load['before']} before and {load['after']} after"),
        ],
    )  # fmt: skip


def _targets(cells: list[Cell]) -> Iterator[str]:
    rows = []
    for target, cell, found in outcomes(cells):
        met = found <= target.at_most
        rows.append(
            (
                _title(cell),
                target.way,
                _quantity(target, cell),
                _value(target.at_most, target.unit),
                _value(found, target.unit),
                "met" if met else f"missed by {found / target.at_most - 1:.0%}",
            )
        )
    if rows:
        yield "### Targets"
        yield ""
        yield from _table(("cell", "way", "quantity", "at most", "found", ""), rows)
        yield ""


def _slopes(cells: list[Cell]) -> Iterator[str]:
    rows = []
    for name, group in series(cells):
        counts = [cell["count"] for cell in group]
        if len(set(counts)) < 3:
            continue
        for way, points in grown(group).items():
            if len(points) > 2:
                times = " ".join(f"{at:,}: {_seconds(time)}." for at, time in points)
                found = ", ".join(f"{slope:.2f}" for slope in slopes(points))
                rows.append((name, way, times, found))
    if rows:
        yield "### Growth"
        yield ""
        yield "The exponent is 1 where ten times as many take ten times as long, and less where "
        yield "a fixed cost is most of the time."
        yield ""
        yield from _table(("cells", "way", "median times", "exponents between neighbours"), rows)
        yield ""


def _cell(cell: Cell) -> Iterator[str]:
    yield f"### {_title(cell)}"
    yield ""
    source = f" Source {_size(cell['source_size'])}, {cell['cache']}."
    yield cell["what"] + (source if cell["source_size"] else "")
    yield ""
    if cell["measure"] == "memory":
        yield from _memory(cell)
    else:
        yield from _times(cell)
    yield ""


def _times(cell: Cell) -> Iterator[str]:
    reference = f"ratio_to_{REFERENCE}"
    on_device = any("device_bytes" in it for it in cell["summary"].values())
    others = [way for way in cell["ways"] if not way.startswith(OURS)]
    traced = cell["calls"]
    has_reference = cell["floor"] != REFERENCE and REFERENCE in cell["ways"]
    yield from _table(
        ("way", "median", "quartiles", "least to most", f"to {cell['floor']}", "round by round",
         *(["to the best other"] if len(others) > 1 else []),
         *([f"to {REFERENCE}"] if has_reference else []),
         "processor", f"to {cell['floor']}", "read", "written",
         *(["to the device"] if on_device else []),
         "calls" if traced else "read and write calls",
         *(["most often"] if traced else []), "runs"),
        (
            (
                way,
                _seconds(it["seconds"]["median"]),
                _range(it["seconds"], "quartile_1", "quartile_3"),
                _range(it["seconds"], "least", "most"),
                _ratio(it["ratio_to_floor"]),
                _ratio_range(it["ratio_to_floor"]),
                *([_ratio(it["ratio_to_best"])] if len(others) > 1 else []),
                *([_ratio(it[reference])] if has_reference else []),
                _seconds(it["processor_seconds"]["median"]),
                _ratio(it["processor_ratio_to_floor"]),
                _size(it["io"]["rchar"]),
                _size(it["io"]["wchar"]),
                *([_size(it["device_bytes"]["median"])] if on_device else []),
                *(_calls(traced[way]) if traced else (str(_io_calls(it)),)),
                str(it["seconds"]["runs"]),
            )
            for way, it in cell["summary"].items()
        ),
    )  # fmt: skip


def _io_calls(it: dict[str, Any]) -> int:
    return int(it["io"]["syscr"] + it["io"]["syscw"])


def _calls(names: dict[str, int]) -> tuple[str, str]:
    """Return how many calls a trace counted, and which there were most."""
    most = sorted(names, key=lambda name: -names[name])[:3]
    return str(sum(names.values())), ", ".join(f"{name} {names[name]}" for name in most)


def _memory(cell: Cell) -> Iterator[str]:
    kinds = {
        "anonymous": "anonymous",
        "file pages": "file",
        "shared": "shared",
        "anonymous (smaps_rollup)": "rollup_anonymous",
        "file pages (smaps_rollup)": "rollup_file",
        "total (kept by the kernel)": "total",
    }
    yield "Peaks above what is resident after the import; median and largest."
    yield ""
    yield from _table(
        ("way", *kinds, "runs"),
        (
            (way, *(_sizes(it["peak"][kind]) for kind in kinds.values()),
             str(it["seconds"]["runs"]))
            for way, it in cell["summary"].items()
        ),
    )  # fmt: skip


def _title(cell: Cell) -> str:
    durable = "" if cell["durability"] == "none" else ", until durable"
    durable += ", cold" if cell["cache"] == "cold" else ""
    counted = [f"{cell['count']:,} {cell['counted']}"] if cell["count"] else []
    size = [_size(cell["size"])] if cell["size"] else []
    what = ", ".join((cell["job"], *counted, *size))
    return f"{what} on {cell['filesystem']}, {cell['measure']}{durable}"


def _quantity(target: Target, cell: Cell) -> str:
    words = {
        "ratio_to_floor.median": f"time to {cell['floor']}'s",
        f"ratio_to_{REFERENCE}.median": f"time to {REFERENCE}'s",
        "ratio_to_best.median": "time to the best other's",
        "seconds.median": "time",
        "device_share": "written to the device, of the source's size",
        "peak.anonymous.most": "anonymous memory",
        "io.rchar": "bytes read",
    }
    return words.get(target.value, target.value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _value(value: float, unit: str) -> str:
    if unit == "s":
        return _seconds(value)
    return _size(value) if unit == "bytes" else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.3g} ms"


def _size(value: float) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(value) >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"


def _sizes(spread: Spread) -> str:
    return f"{_size(spread['median'])} ({_size(spread['most'])})"


def _range(spread: Spread, low: str, high: str) -> str:
    return f"{_seconds(spread[low])} to {_seconds(spread[high])}"


def _ratio(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread['median']:.3g}"


def _ratio_range(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{spread['quartile_1']:.3g} to {spread['quartile_3']:.3g}"
