"""Gangline: a multi-agent reinforcement-learning environment for scheduling shared GPU clusters.

`import gangline` registers the Gymnasium ids; `gymnasium.make("gangline/GpuCluster-v0", world="small")` makes one.
"""

from __future__ import annotations

import gymnasium

__all__ = ["__version__"]
__version__ = "0.1.0.dev0"

gymnasium.register(
    id="gangline/GpuCluster-v0",
    entry_point="gangline.envs.cluster_env:GpuClusterEnv",
    vector_entry_point="gangline.envs.vector_env:GpuClusterVectorEnv",
)
