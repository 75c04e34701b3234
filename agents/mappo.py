"""Multi-agent PPO: one agent per tenant, one shared network, a value that sees every tenant. See `agents/ppo.py`.

Only training needs the central value: a trained tenant acts on what it sees itself.
Source: Yu et al., "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games", NeurIPS 2022.
"""

from __future__ import annotations

from functools import partial

from gangline.agents import ppo
from gangline.agents.ppo import load, save

__all__ = ["check", "load", "save", "train"]

train = partial(ppo.train, who="tenants", central_value=True)
check = partial(ppo.check, who="tenants", central_value=True)
