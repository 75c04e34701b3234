"""Shortest job first by walltime claim; a job that does not fit is passed over. Without claims it is greedy FIFO."""

from __future__ import annotations

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.greedy_fifo import PRIVATE, decide
from gangline.envs.core.queue import QueueOrder


def build(rule: str = "pack") -> CompiledScheduler:
    """SJF on claims with a placement rule."""
    return CompiledScheduler("sjf", decide, np.array([(placement_rule(rule),)], PRIVATE), queue_order=QueueOrder.CLAIM)
