"""Gangline: a multi-agent reinforcement-learning environment for scheduling shared GPU clusters.

`import gangline` registers the Gymnasium ids; `gymnasium.make("gangline/GpuCluster-v0", world="small")` makes one.
"""

from __future__ import annotations

from typing import Any

import gymnasium

__all__ = ["__version__", "roles_env", "tenants_env"]
__version__ = "0.1.0.dev0"

gymnasium.register(
    id="gangline/GpuCluster-v0",
    entry_point="gangline.envs.cluster_env:GpuClusterEnv",
    vector_entry_point="gangline.envs.vector_env:GpuClusterVectorEnv",
)


def __getattr__(name: str) -> Any:
    """`gangline.tenants_env` and `gangline.roles_env`, loaded when asked for: they need PettingZoo."""
    if name in ("tenants_env", "roles_env"):
        from importlib import import_module

        return getattr(import_module("gangline.envs.multi_agent_env"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
