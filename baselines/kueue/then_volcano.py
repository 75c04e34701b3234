"""Kueue decides whether a job may enter, Volcano where its pods go: quota by the one, gangs by the other.

A job that Kueue has not admitted is suspended in a real cluster: it has no pods, and Volcano sees nothing of it. Once
it is admitted it is a PodGroup like any other. Kueue's evictions take a job's pods away as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.baselines.base import CompiledScheduler
from gangline.baselines.kueue import Kueue
from gangline.baselines.kueue import build as build_kueue
from gangline.baselines.kueue import scheduler as kueue
from gangline.baselines.kueue.config import KueueConfig
from gangline.baselines.kueue.scheduler import may_have_pods
from gangline.baselines.kueue.state import NAMED
from gangline.baselines.volcano import Volcano
from gangline.baselines.volcano import build as build_volcano
from gangline.baselines.volcano import scheduler as volcano
from gangline.baselines.volcano.config import VolcanoConfig
from gangline.baselines.volcano.state import volcano_dtype
from gangline.envs.core.compiled import helper
from gangline.envs.core.driver import compile_decide
from gangline.envs.core.types import AGAIN, NONE, SIZE_CLASSES, SizeClass

if TYPE_CHECKING:
    from gangline.envs.core.world import World


def decide_small(w: Any, private: Any, out: Any) -> int:
    """The door of the small size class."""
    rest = private[volcano.SMALL_BYTES :]
    v = private[: volcano.SMALL_BYTES].view(volcano.SMALL)[0]
    k = rest[: kueue.SMALL_BYTES].view(kueue.SMALL)[0]
    return decide(w, k, rest[kueue.SMALL_BYTES :].view(NAMED), v, out)


def decide_medium(w: Any, private: Any, out: Any) -> int:
    """The door of the medium size class."""
    rest = private[volcano.MEDIUM_BYTES :]
    v = private[: volcano.MEDIUM_BYTES].view(volcano.MEDIUM)[0]
    k = rest[: kueue.MEDIUM_BYTES].view(kueue.MEDIUM)[0]
    return decide(w, k, rest[kueue.MEDIUM_BYTES :].view(NAMED), v, out)


def decide_large(w: Any, private: Any, out: Any) -> int:
    """The door of the large size class."""
    rest = private[volcano.LARGE_BYTES :]
    v = private[: volcano.LARGE_BYTES].view(volcano.LARGE)[0]
    k = rest[: kueue.LARGE_BYTES].view(kueue.LARGE)[0]
    return decide(w, k, rest[kueue.LARGE_BYTES :].view(NAMED), v, out)


DOORS = {size.name: door for size, door in zip(SIZE_CLASSES, (decide_small, decide_medium, decide_large), strict=True)}


@helper
def decide(w: Any, k: Any, named: Any, v: Any, out: Any) -> int:
    """Kueue until it has nothing more to ask of the world; then Volcano on what is admitted."""
    kueue_ms = kueue.schedule(w, k, named, out)
    if kueue_ms == AGAIN:
        return AGAIN
    for slot in range(w.jobs_used):
        is_gated = not may_have_pods(w, k, slot)
        if v.jobs[slot].is_gated != is_gated:
            v.jobs[slot].is_gated = is_gated
            v.seen_change = NONE  # so that it looks, whatever the world says
    volcano_ms = volcano.schedule(w, v, out)
    return AGAIN if volcano_ms == AGAIN else min(kueue_ms, volcano_ms)


@dataclass(frozen=True)
class KueueThenVolcano(CompiledScheduler):
    """The two with their configurations.

    Attributes:
        admits: Kueue.
        binds: Volcano.
        one_queue: every job is in Volcano's queue `default`.
    """

    admits: Kueue | None = None
    binds: Volcano | None = None
    one_queue: bool = True

    def compiled(self, size: SizeClass) -> Any:
        """The door of a size class, compiled."""
        return compile_decide(DOORS[size.name], size)

    def private_for(self, world: World) -> np.ndarray:
        """(num_bytes,) uint8: Volcano's record, then Kueue's."""
        assert self.admits is not None and self.binds is not None
        bound_by = self.binds.private_for(world)
        bound_by.view(volcano_dtype(world.size))[0]["one_queue"] = self.one_queue
        return np.concatenate([bound_by, self.admits.private_for(world, places=False)])


def build(
    strategy: str = "BestEffortFIFO",
    within_cluster_queue: str = "LowerPriority",
    reclaim_within_cohort: str = "Any",
    borrow_within_cohort: str = "Never",
    fair_sharing: bool = False,
    grace_s: float = 0.0,
    config: KueueConfig | None = None,
    actions: str = "enqueue, allocate, backfill",
    tiers: str = "chart",
    volcano_config: VolcanoConfig | None = None,
    one_queue: bool = True,
) -> CompiledScheduler:
    """Kueue's admission, then Volcano's sessions.

    Args:
        strategy, within_cluster_queue, reclaim_within_cohort, borrow_within_cohort, fair_sharing, config: of Kueue.
        grace_s: seconds between an eviction by either and the release of what it held.
        actions, tiers, volcano_config: of Volcano.
        one_queue: every job is in Volcano's queue `default`, as where Kueue alone divides the cluster; False: in the
            Volcano queue of its team, so that Volcano's shares (proportion) apply on top of Kueue's quotas.
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
    binds = build_volcano(actions, tiers, grace_s, volcano_config)
    assert isinstance(admits, Kueue) and isinstance(binds, Volcano)
    return KueueThenVolcano(
        "kueue+volcano", DOORS["small"], binds.private, admits=admits, binds=binds, one_queue=one_queue
    )
