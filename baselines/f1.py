"""F1: jobs by log10(claim) x processors + 870 log10(submit), smallest first, passing over what does not fit.

Carastan-Santos and de Camargo, "Obtaining Dynamic Scheduling Policies with Simulation and Machine Learning", SC 2017.
"""

from __future__ import annotations

import numpy as np

from gangline.baselines.base import CompiledScheduler, placement_rule
from gangline.baselines.greedy_fifo import PRIVATE, decide
from gangline.envs.core.queue import QueueOrder


def build(rule: str = "pack") -> CompiledScheduler:
    """F1 with a placement rule."""
    return CompiledScheduler("f1", decide, np.array([(placement_rule(rule),)], PRIVATE), queue_order=QueueOrder.F1)
