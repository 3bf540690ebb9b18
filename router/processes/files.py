"""Open files: several processes need some before the first connection, and too few would be a riddle later."""

from __future__ import annotations

import resource

OWN, EACH = 64, 8  # files of a process by itself, and what the parent has open for each child, with those that leave


def too_few_files(processes: int) -> str:
    """Why so many processes cannot run here; empty when they can. The soft limit is raised where that helps."""
    needed = OWN + EACH * processes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _reaches(soft, needed):
        return ""
    if _reaches(hard, needed):
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return ""
    return f"{processes} processes need at least {needed} open files each, and `ulimit -n` allows {soft}"


def _reaches(limit: int, needed: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= needed
