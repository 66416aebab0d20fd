"""All jobs by name.

Rules of this file: none are described here. A new job is a `Job` with its ways in one of the tables
and a line in a profile; nothing else has to know of it.
"""

from __future__ import annotations

from benchmarks.file_jobs import FILE_JOBS
from benchmarks.metadata_jobs import METADATA_JOBS

__all__ = ["JOBS"]

JOBS = {job.name: job for job in (*FILE_JOBS, *METADATA_JOBS)}
