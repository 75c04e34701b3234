"""Volcano: gang scheduling in sessions.

A session takes a snapshot, lets the configured actions decide on it, and commits or discards each job's statement as a
whole: `scheduler.py` is the list of stages. Beside it: `session.py` (snapshot and close), `statement.py` (commit or
undo), the actions in `allocate.py` (enqueue, allocate, backfill), `preempt.py` (preempt, reclaim, shuffle) and
`gang_eviction.py` (gangpreempt, gangreclaim), and what the plugins know: `gang.py`, `orders.py`, `queues.py`
(proportion, capacity, overcommit), `drf.py`, `nodes.py` (predicates and scores), `topology.py`,
`victims.py`. `config.py` is what an installation is configured with, `files.py` reads that from its own files.
Source: volcano-sh/volcano, August 2026. docs/volcano.md says what is modelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.baselines.base import CompiledScheduler
from gangline.baselines.volcano.config import BUILT_IN_TIERS, CHART_TIERS, VolcanoConfig
from gangline.baselines.volcano.scheduler import DOORS, EVICTING, EVICTING_DOORS
from gangline.baselines.volcano.setup import private_bytes
from gangline.envs.core.driver import compile_decide
from gangline.envs.core.types import NEVER, SizeClass
from gangline.envs.errors import GanglineError, unknown_name

if TYPE_CHECKING:
    from gangline.envs.core.world import World

TIERS = {"chart": CHART_TIERS, "built_in": BUILT_IN_TIERS}


@dataclass(frozen=True)
class Volcano(CompiledScheduler):
    """The compiled scheduler with its configuration.

    Attributes:
        config: the installation.
        grace_ms: of an eviction.
        one_session: run exactly one session a decision, whatever the clock says, for conformance runs.
    """

    config: VolcanoConfig = field(default_factory=VolcanoConfig)
    grace_ms: int = 0
    one_session: bool = False

    def compiled(self, size: SizeClass) -> Any:
        """The door of a size class, compiled."""
        return compile_decide(_doors(self.config)[size.name], size)

    def private_for(self, world: World) -> np.ndarray:
        """(num_bytes,) uint8: Volcano's record for a world."""
        return private_bytes(world, self.config, self.grace_ms, self.one_session)


def build(
    actions: str = "enqueue, allocate, backfill",
    tiers: str = "chart",
    grace_s: float = 0.0,
    config: VolcanoConfig | None = None,
) -> CompiledScheduler:
    """Volcano over the world's queues.

    Args:
        actions: in order, as in `volcano-scheduler.conf`.
        tiers: `chart` (what the Helm chart installs) or `built_in` (what runs without a configuration file).
        grace_s: seconds between an eviction and the release of what the pod held.
        config: a whole installation instead of the first two.
    """
    if not 0 <= grace_s < NEVER / 4000:
        raise GanglineError(f"grace_s is {grace_s}, expected 0 seconds or more")
    if config is None:
        if tiers not in TIERS:
            raise unknown_name("tiers", tiers, TIERS)
        names = tuple(name.strip() for name in actions.split(",") if name.strip())
        config = VolcanoConfig(actions=names, tiers=TIERS[tiers])
    return volcano(config, round(grace_s * 1000))


def volcano(config: VolcanoConfig, grace_ms: int = 0, one_session: bool = False) -> Volcano:
    """The scheduler of an installation."""
    private = np.zeros((), np.dtype([("unused", np.int64)]))
    return Volcano(
        "volcano", _doors(config)["small"], private, config=config, grace_ms=grace_ms, one_session=one_session
    )


def _doors(config: VolcanoConfig) -> dict[str, Any]:
    """Doors by size class: without actions that evict, those that know none."""
    return EVICTING_DOORS if any(action in EVICTING for action in config.actions) else DOORS
