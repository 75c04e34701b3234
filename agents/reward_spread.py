"""How much each reward term can move: its mean under three hand rules, and the spread between them.

A term that all rules earn alike teaches nothing; its weight should not be judged by its size but by its spread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gangline.agents.evaluate import run_baseline
from gangline.baselines import base
from gangline.envs.cluster_env import Batch
from gangline.envs.config import load_world
from gangline.envs.errors import GanglineError
from gangline.envs.reward import NUM_TERMS, TERM_NAMES
from gangline.envs.stepping import read_episode_areas, terms_of
from gangline.envs.transition import NUM_QUANTITIES

RULES = ("fifo", "drf_greedy", "fair_reclaim")


def print_reward_spread(world: str, overrides: dict[str, Any], traces: int, seed: int) -> None:
    """Print the table: a row per term, a column per rule, per hour of the episode."""
    if traces < 1:
        raise GanglineError(f"traces is {traces}, expected at least 1")
    config = load_world(world, **overrides)
    batch = Batch(config, 1, keep_log=True)
    means = {rule: np.zeros(NUM_TERMS) for rule in RULES}
    for trace in range(seed, seed + traces):
        for rule in RULES:
            batch.reset_one(0, trace, {"trace": trace})
            batch.warm(0)
            before, after = np.zeros(NUM_QUANTITIES), np.zeros(NUM_QUANTITIES)
            read_episode_areas(batch.worlds, 0, before)
            begin_ms = int(batch.worlds[0]["now_ms"])
            run_baseline(batch, base.build(rule))
            read_episode_areas(batch.worlds, 0, after)
            hours = max((int(batch.worlds[0]["now_ms"]) - begin_ms) / 3_600_000, 1e-9)
            terms = np.zeros(NUM_TERMS)
            terms_of(after - before, terms)
            means[rule] += terms / hours / traces
    table = Table(title=f"reward terms per hour, {world}, {traces} traces", title_justify="left")
    table.add_column("term")
    for column in (*RULES, "spread"):
        table.add_column(column, justify="right")
    for k, name in enumerate(TERM_NAMES):
        values = [means[rule][k] for rule in RULES]
        table.add_row(name, *(f"{v:.4f}" for v in values), f"{max(values) - min(values):.4f}")
    Console().print(table)
