"""Fuzzing of everything that reads files: `python -m tests.fuzz`.

    seeds.py     sound files of every format, made by the project's own writers
    damage.py    where the numbers of a file stand, and what may become of them
    reading.py   reading all that a file holds, and what has to hold for any bytes
    targets.py   one function per kind of reading, which counts what became of its inputs
    worker.py    one process: a target under atheris, or a corpus through `coverage`
    __main__.py  the command: a process per target, then a summary

The first three need neither atheris nor coverage; the property tests use them too.
"""
