"""A small world without a simulator, with the interface that learners see: who starts the good job is paid."""

import numpy as np

from gangline.envs.agent import AGENT
from gangline.envs.observation import FEATURES, NUM_CLUSTER, NUM_QUEUE, NUM_TENANT

ROWS = 3
GPUS = FEATURES["queue"].index("gpus")
FITS = FEATURES["queue"].index("fits")


def agent_record(num_tenants, rows=ROWS, beta_per_h=0.125):
    agents = np.zeros(1, AGENT)
    a = agents[0]
    a["shows_cluster"] = a["shows_queue"] = True
    a["tenant_rows"], a["queue_rows"] = num_tenants, rows
    a["num_rules"], a["num_actions"], a["beta_per_h"] = 1, 1 + rows, beta_per_h
    return a


class GoodAndBadJobs:
    """Each agent has a choice in a part of the rounds: a good job (its GPUs are 1) pays 1, a bad one -1, waiting 0.

    Rounds take no time, or some: half of them each. An episode is cut off after `length` rounds.
    """

    def __init__(self, num_envs, num_agents, length=20, choice_share=0.5):
        self.num_envs, self.num_agents, self.length = num_envs, num_agents, length
        self.choice_share = choice_share
        self.agent = agent_record(num_agents)
        size = NUM_CLUSTER + num_agents * NUM_TENANT + ROWS * NUM_QUEUE
        self.observations = np.zeros((num_envs, num_agents, size), np.float32)
        self.masks = np.zeros((num_envs, num_agents, 1 + ROWS), np.int8)
        self.actions = np.zeros((num_envs, num_agents), np.int64)
        self.rewards = np.zeros((num_envs, num_agents), np.float32)
        self.discounts = np.ones(num_envs)
        self.had_choice = np.zeros((num_envs, num_agents), bool)
        self.terminated, self.truncated = np.zeros(num_envs, bool), np.zeros(num_envs, bool)
        self.rounds = np.zeros(num_envs, np.int64)
        self.generators = [np.random.default_rng(0) for _ in range(num_envs)]

    @property
    def queue(self):
        return self.observations[:, :, -ROWS * NUM_QUEUE :].reshape(self.num_envs, self.num_agents, ROWS, NUM_QUEUE)

    def reset_one(self, i, seed, options):
        self.generators[i] = np.random.default_rng(seed)
        self.rounds[i] = 0
        self.terminated[i] = self.truncated[i] = False

    def begin(self, lo, hi):
        for i in range(lo, hi):
            self._show(i)

    def step(self, lo, hi):
        for i in range(lo, hi):
            self.had_choice[i] = self.masks[i].sum(axis=1) > 1
            for k in range(self.num_agents):
                action = self.actions[i, k]
                assert self.masks[i, k, action] == 1
                self.rewards[i, k] = 0.0 if action == 0 else 2 * self.queue[i, k, action - 1, GPUS] - 1
            self.rounds[i] += 1
            self.truncated[i] = self.rounds[i] >= self.length
            self.discounts[i] = 1.0 if self.generators[i].random() < 0.5 else 0.9
            self._show(i)

    def state(self):
        names = ("observations", "masks", "rewards", "discounts", "terminated", "truncated", "rounds")
        arrays = {name: getattr(self, name).copy() for name in names}
        return {"arrays": arrays, "generators": [g.bit_generator.state for g in self.generators]}

    def restore(self, state):
        for name, values in state["arrays"].items():
            getattr(self, name)[:] = values
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.bit_generator.state = saved

    def _show(self, i):
        rng = self.generators[i]
        self.observations[i] = 0.0
        self.observations[i, :, NUM_CLUSTER] = 1.0  # the agent's own row is there
        self.masks[i] = 0
        self.masks[i, :, 0] = 1
        for k in range(self.num_agents):
            if rng.random() < self.choice_share:
                queue = self.queue[i, k]
                queue[:, 0] = queue[:, FITS] = 1.0
                queue[rng.integers(ROWS), GPUS] = 1.0
                self.observations[i, k, -ROWS * NUM_QUEUE :] = queue.reshape(-1)
                self.masks[i, k] = 1
