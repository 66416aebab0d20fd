"""Benchmarks of cordbundle against reserialization and against the physical limit.

`python -m benchmarks --help`; method, bias and limits are in `docs/benchmarks.md`.

    jobs.py         what is measured: jobs, ways of doing them, cells, profiles
    targets.py      what is to be reached
    programs.py     real programs, exported by ExecuTorch
    serializing.py  programs, tensors and blobs made from numbers alone
    sources.py      what lies on the disk before a run
    ways/           the competitors, imported only in the process under test
    child.py        the process under test
    process.py      its parent: starts it, samples its memory
    schedule.py     order, repetition, interleaving, checks, cleaning up
    results.py      the shape of the results, medians and ratios
    report.py       results as Markdown
"""
