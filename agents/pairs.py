"""Paired rollouts: several environments on the same jobs, and what all of them met at a time as a baseline."""

from __future__ import annotations

import numpy as np


def met_by_pairs(
    advantages: np.ndarray, decides: np.ndarray, clock: np.ndarray, episode: np.ndarray, paired: int
) -> np.ndarray:
    """What the others on the same jobs met at the same time: the mean of their advantages, between their decisions.

    Subtracted from an agent's own advantages, the luck of the arrivals goes out of them. Others' actions do not depend
    on the agent's, so no bias comes in. Where no other was in the same episode at that time, it is 0. Source: DeepRM
    (Mao et al., HotNets 2016), Decima (SIGCOMM 2019), which take the mean return; here each return is less its state's
    value, since states drift apart.

    Args:
        advantages, decides: (steps, num_envs, num_agents).
        clock: (steps, num_envs), time in the episode, not decreasing; episode: (steps, num_envs), its number.
        paired: environments [0, paired) are on the same jobs, and so on.
    """
    _, num_envs, num_agents = advantages.shape
    met, count = np.zeros_like(advantages), np.zeros_like(advantages)
    for first in range(0, num_envs, paired):
        for other in range(first, first + paired):
            for agent in range(num_agents):
                for number in np.unique(episode[:, other]):
                    own = decides[:, other, agent] & (episode[:, other] == number)
                    if not own.any():
                        continue
                    times, theirs = clock[own, other], advantages[own, other, agent]
                    for env in range(first, first + paired):
                        now = clock[:, env]
                        same = (episode[:, env] == number) & (now >= times[0]) & (now <= times[-1])
                        if env != other and same.any():
                            met[same, env, agent] += np.interp(now[same], times, theirs)
                            count[same, env, agent] += 1
    return met / np.maximum(count, 1)
