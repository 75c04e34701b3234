"""Kueue: quota in a cohort tree decides who may enter; admitted jobs are placed by a rule behind it.

A cycle takes the head of every ClusterQueue, finds it flavors and, where need be, victims, and admits what fits the
quota tree: `cycle.py` is the list of stages. Beside it: `queues.py` (who is next), `flavors.py` (in which flavor),
`preemption.py` and `fair_sharing.py` (whom to preempt), `tas.py` (in which domain), `watch.py` (what has happened),
`commands.py` (what is asked of the world), `config.py` (what an installation is configured with).
Source: Kueue main, August 2026, commit ff69552e. docs/kueue.md says what is modelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.kueue.config import (
    BorrowWithinCohort,
    ClusterQueue,
    FairSharing,
    KueueConfig,
    Preemption,
)
from gangline.baselines.kueue.scheduler import DOORS
from gangline.baselines.kueue.setup import private_bytes
from gangline.envs.core.driver import compile_decide
from gangline.envs.core.types import NEVER, SizeClass
from gangline.envs.errors import GanglineError

if TYPE_CHECKING:
    from gangline.envs.core.world import World


@dataclass(frozen=True)
class Kueue(CompiledScheduler):
    """The compiled scheduler with its configuration; the record it keeps depends on the world's size class.

    Attributes:
        config: the installation.
        grace_ms: of an eviction; NEVER = until the world is told that the pods are gone.
        one_cycle: run exactly one cycle a decision, for conformance runs.
    """

    config: KueueConfig = field(default_factory=KueueConfig)
    grace_ms: int = 0
    one_cycle: bool = False

    def compiled(self, size: SizeClass) -> Any:
        """The door of a size class, compiled."""
        return compile_decide(DOORS[size.name], size)

    def private_for(self, world: World, places: bool = True) -> np.ndarray:
        """(num_bytes,) uint8: Kueue's record for a world, then what is configured for single jobs.

        Args:
            world: for which it is.
            places: bind the pods of admitted workloads too, by the placement rule; False: somebody else does.
        """
        rule = int(self.private["rule"][()])
        return private_bytes(world, self.config, rule, self.grace_ms, self.one_cycle, places)


def build(
    rule: str = "pack",
    strategy: str = "BestEffortFIFO",
    within_cluster_queue: str = "LowerPriority",
    reclaim_within_cohort: str = "Any",
    borrow_within_cohort: str = "Never",
    fair_sharing: bool = False,
    grace_s: float = 0.0,
    config: KueueConfig | None = None,
) -> CompiledScheduler:
    """Kueue over the world's quota tree.

    Args:
        rule: placement rule for admitted jobs.
        strategy, within_cluster_queue, reclaim_within_cohort, borrow_within_cohort: of every ClusterQueue.
        fair_sharing: preempt and order by dominant resource shares.
        grace_s: seconds between an eviction and the release of what it held.
        config: a whole installation instead of the five options before.
    """
    if not 0 <= grace_s < NEVER / 4000:
        raise GanglineError(f"grace_s is {grace_s}, expected 0 seconds or more")
    if config is None:
        config = KueueConfig(
            default_cluster_queue=ClusterQueue(
                queueing_strategy=strategy,  # type: ignore[arg-type]
                preemption=Preemption(
                    within_cluster_queue=within_cluster_queue,  # type: ignore[arg-type]
                    reclaim_within_cohort=reclaim_within_cohort,  # type: ignore[arg-type]
                    borrow_within_cohort=BorrowWithinCohort(policy=borrow_within_cohort),  # type: ignore[arg-type]
                ),
            ),
            fair_sharing=FairSharing() if fair_sharing else None,
            excluded_resources=None,
        )
    return kueue(config, rule, round(grace_s * 1000))


def kueue(config: KueueConfig, rule: str = "pack", grace_ms: int = 0, one_cycle: bool = False) -> Kueue:
    """The scheduler of an installation."""
    private = np.array((placement_rule(rule),), np.dtype([("rule", np.int64)]))
    return Kueue(
        "kueue",
        DOORS["small"],
        private,
        config=config,
        grace_ms=grace_ms,
        one_cycle=one_cycle,
    )
