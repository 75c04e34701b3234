"""Kueue decides whether a job may enter, kube-scheduler where its pods go, pod by pod.

Quota without gangs: in a world with `gang: false` an admitted job may be half started and hang, where the nodes do not
have the room that the quota promises. A job that Kueue has not admitted is suspended: it has no pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.baselines import kube_scheduler
from gangline.baselines.base import CompiledScheduler
from gangline.baselines.kube_scheduler import GATED, NUM_BYTES, PARAMETERS, gates_of, num_cells, schedule_pods
from gangline.baselines.kueue import Kueue
from gangline.baselines.kueue import build as build_kueue
from gangline.baselines.kueue import scheduler as kueue
from gangline.baselines.kueue.config import KueueConfig
from gangline.baselines.kueue.scheduler import may_have_pods
from gangline.baselines.kueue.state import NAMED
from gangline.envs.core.compiled import helper
from gangline.envs.core.driver import compile_decide
from gangline.envs.core.types import AGAIN, SIZE_CLASSES, SizeClass

if TYPE_CHECKING:
    from gangline.envs.core.world import World

SMALL_CELLS, MEDIUM_CELLS, LARGE_CELLS = (NUM_BYTES + 8 * num_cells(size) for size in SIZE_CLASSES)  # bytes


def decide_small(w: Any, private: Any, out: Any) -> int:
    """The door of the small size class."""
    rest = private[SMALL_CELLS:]
    k = rest[: kueue.SMALL_BYTES].view(kueue.SMALL)[0]
    return decide(w, k, rest[kueue.SMALL_BYTES :].view(NAMED), private[:SMALL_CELLS], out)


def decide_medium(w: Any, private: Any, out: Any) -> int:
    """The door of the medium size class."""
    rest = private[MEDIUM_CELLS:]
    k = rest[: kueue.MEDIUM_BYTES].view(kueue.MEDIUM)[0]
    return decide(w, k, rest[kueue.MEDIUM_BYTES :].view(NAMED), private[:MEDIUM_CELLS], out)


def decide_large(w: Any, private: Any, out: Any) -> int:
    """The door of the large size class."""
    rest = private[LARGE_CELLS:]
    k = rest[: kueue.LARGE_BYTES].view(kueue.LARGE)[0]
    return decide(w, k, rest[kueue.LARGE_BYTES :].view(NAMED), private[:LARGE_CELLS], out)


DOORS = {size.name: door for size, door in zip(SIZE_CLASSES, (decide_small, decide_medium, decide_large), strict=True)}


@helper
def decide(w: Any, k: Any, named: Any, pods: Any, out: Any) -> int:
    """Kueue until it has nothing more to ask of the world; then kube-scheduler on what is admitted."""
    kueue_ms = kueue.schedule(w, k, named, out)
    if kueue_ms == AGAIN:
        return AGAIN
    cells = pods[NUM_BYTES:].view(np.int64)
    gates = gates_of(w, cells)
    for slot in range(w.jobs_used):
        gates[slot] = 0 if may_have_pods(w, k, slot) else GATED
    kube_ms = schedule_pods(w, pods[:NUM_BYTES].view(PARAMETERS)[0], cells, out)
    return AGAIN if kube_ms == AGAIN else min(kueue_ms, kube_ms)


@dataclass(frozen=True)
class KueueThenKube(CompiledScheduler):
    """The two with their configurations.

    Attributes:
        admits: Kueue.
        binds: kube-scheduler.
    """

    admits: Kueue | None = None
    binds: CompiledScheduler | None = None

    def compiled(self, size: SizeClass) -> Any:
        """The door of a size class, compiled."""
        return compile_decide(DOORS[size.name], size)

    def private_for(self, world: World) -> np.ndarray:
        """(num_bytes,) uint8: kube-scheduler's notes, then Kueue's record."""
        assert self.admits is not None and self.binds is not None
        return np.concatenate([self.binds.private_for(world), self.admits.private_for(world, places=False)])


def build(
    strategy: str = "BestEffortFIFO",
    within_cluster_queue: str = "LowerPriority",
    reclaim_within_cohort: str = "Any",
    borrow_within_cohort: str = "Never",
    fair_sharing: bool = False,
    grace_s: float = 0.0,
    config: KueueConfig | None = None,
    preemption: bool = True,
) -> CompiledScheduler:
    """Kueue's admission, then kube-scheduler.

    Args:
        strategy, within_cluster_queue, reclaim_within_cohort, borrow_within_cohort, fair_sharing, config: of Kueue.
        grace_s: seconds between an eviction by either and the release of what it held.
        preemption: kube-scheduler evicts pods of lower priority for a pod that finds no node.
    """
    admits = build_kueue(
        "pack",
        strategy,
        within_cluster_queue,
        reclaim_within_cohort,
        borrow_within_cohort,
        fair_sharing,
        grace_s,
        config,
    )
    binds = kube_scheduler.build(preemption, grace_s)
    assert isinstance(admits, Kueue)
    return KueueThenKube("kueue+kube", DOORS["small"], binds.private, admits=admits, binds=binds)
