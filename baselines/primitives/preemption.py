"""When a running job may be stopped: its protected time, and when to look again."""

from __future__ import annotations

import math
from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.spec import HOUR_MS
from gangline.envs.core.types import NEVER, NONE
from gangline.envs.errors import GanglineError


def protected_ms(min_run_h: float) -> int:
    """The option `min_run_h` of a baseline that preempts, in milliseconds."""
    if not 0 <= min_run_h < math.inf:
        raise GanglineError(f"min_run_h is {min_run_h}, expected 0 hours or more")
    return round(min_run_h * HOUR_MS)


@helper
def next_unprotected_ms(w: Any, min_run_ms: int) -> int:
    """When the next running job will have run for `min_run_ms` and may be stopped; NEVER if none is protected now."""
    next_ms = NEVER
    at = w.first_running
    while at != NONE:
        job = w.jobs[at]
        if job.preemptible and job.start_ms < NEVER and job.start_ms + min_run_ms > w.now_ms:
            next_ms = min(next_ms, job.start_ms + min_run_ms)
        at = job.next
    return next_ms
