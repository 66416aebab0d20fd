"""Benchmarks of cordbundle against reserialization and against the physical limit.

`python -m benchmarks --help`; method, bias and limits are in `docs/benchmarks.md`.

    jobs.py      what is measured: jobs, ways of doing them, cells, profiles
    targets.py   what is to be reached
    programs.py  real programs, exported by ExecuTorch
    ways/        the competitors, one module for each, imported only in the process under test
    child.py     the process under test
    process.py   its parent: starts it, samples its memory
    schedule.py  order, repetition, interleaving, checks, cleaning up
    results.py   the shape of the results, medians and ratios
    report.py    results as Markdown
"""
