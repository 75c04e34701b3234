"""What Kueue does when it is asked: look, run cycles until nothing changes, place what was admitted."""

from __future__ import annotations

from typing import Any

from gangline.baselines.kueue.admission_fair_sharing import sample_usage
from gangline.baselines.kueue.commands import evict_not_ready, place_next, take_back_refused
from gangline.baselines.kueue.cycle import run_cycle
from gangline.baselines.kueue.queues import wake_backoffs
from gangline.baselines.kueue.snapshot import close_books, open_books
from gangline.baselines.kueue.state import NAMED, Bucket, kueue_dtype
from gangline.baselines.kueue.watch import look
from gangline.envs.core.compiled import helper
from gangline.envs.core.types import AGAIN, SIZE_CLASSES

SMALL, MEDIUM, LARGE = (kueue_dtype(size) for size in SIZE_CLASSES)
SMALL_BYTES, MEDIUM_BYTES, LARGE_BYTES = SMALL.itemsize, MEDIUM.itemsize, LARGE.itemsize


def decide_small(w: Any, private: Any, out: Any) -> int:
    """The door of the small size class."""
    return schedule(w, private[:SMALL_BYTES].view(SMALL)[0], private[SMALL_BYTES:].view(NAMED), out)


def decide_medium(w: Any, private: Any, out: Any) -> int:
    """The door of the medium size class."""
    return schedule(w, private[:MEDIUM_BYTES].view(MEDIUM)[0], private[MEDIUM_BYTES:].view(NAMED), out)


def decide_large(w: Any, private: Any, out: Any) -> int:
    """The door of the large size class."""
    return schedule(w, private[:LARGE_BYTES].view(LARGE)[0], private[LARGE_BYTES:].view(NAMED), out)


DOORS = {size.name: door for size, door in zip(SIZE_CLASSES, (decide_small, decide_medium, decide_large), strict=True)}


@helper
def schedule(w: Any, k: Any, named: Any, out: Any) -> int:
    """Look at what has happened; evict what missed its time; run cycles; place what is admitted; else wait."""
    open_books(w, k)
    take_back_refused(w, k)
    look(w, k, named)
    wake_backoffs(w, k)
    next_ms = min(sample_usage(w, k), evict_not_ready(w, k, out))
    if k.one_cycle:
        run_cycle(w, k, out)
    elif not k.only_looks and out.num_commands == 0:
        _run_cycles(w, k, out)
    close_books(w, k)
    if out.num_commands == 0 and k.places and not k.one_cycle and not k.only_looks:
        place_next(w, k, out)
    return AGAIN if out.num_commands > 0 else next_ms


@helper
def _run_cycles(w: Any, k: Any, out: Any) -> None:
    """Cycles until something is asked of the world, or nothing changes any more."""
    idle = 0
    while idle < k.max_idle_cycles and out.num_commands == 0 and w.error == 0:
        before = k.cycle
        idle = 0 if run_cycle(w, k, out) else idle + 1
        if k.cycle == before:  # no heads
            return


@helper
def may_have_pods(w: Any, k: Any, slot: int) -> bool:
    """Whether a job's pods may be scheduled: it holds quota, and is not on its way out."""
    note = k.workloads[slot]
    return note.is_known and note.bucket == Bucket.RESERVED and not note.is_evicted
