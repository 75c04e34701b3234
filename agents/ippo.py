"""Independent PPO: one agent per tenant, one shared network, each values what it sees itself. See `agents/ppo.py`."""

from __future__ import annotations

from functools import partial

from gangline.agents import ppo
from gangline.agents.ppo import load, save

__all__ = ["check", "load", "save", "train"]

train = partial(ppo.train, who="tenants", central_value=False)
check = partial(ppo.check, who="tenants", central_value=False)
