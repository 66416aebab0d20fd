"""Benchmarks of cordbundle against reserialization and against the physical limit.

`python -m benchmarks --help`; method, bias and limits are in `docs/benchmarks.md`.

    terms.py        the words: job, way, cell, profile
    jobs.py         what is measured; file_jobs.py: bytes, metadata_jobs.py: objects
    profiles.py     sets of cells
    targets.py      what is to be reached
    programs.py     real programs, exported by ExecuTorch
    serializing.py  programs, tensors and blobs made from numbers alone
    sources.py      what lies on the disk before a run
    filesystems.py  XFS and Btrfs, made for a run
    ways/           the competitors, imported only in the process under test
    child.py        the process under test
    process.py      its parent: starts it, samples its memory, counts its system calls
    schedule.py     order, repetition, interleaving, cleaning up
    checks.py       what a run has to have made
    results.py      the shape of the results, medians and ratios
    report.py       results as Markdown
    plots.py        results as SVG
"""
