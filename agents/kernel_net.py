"""The kernel network: one small network scores every row of the queue, so any permutation of rows permutes the choices.

Each queue row, with the cluster's features beside it, goes through the same little MLP, which gives a score per way
of starting the job (placement rules, victim rules). Logits are log p(kind) + log-softmax within the kind, so `wait`
does not start at 1 / (1 + slots). Source: RLScheduler (Zhang et al., SC 2020), with kinds.

Plain torch: `agents/policies.py` makes a policy of Stable-Baselines3 of it, `agents/ppo.py` uses it as it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from gangline.envs.errors import GanglineError
from gangline.envs.observation import FEATURES, NUM_CLUSTER, NUM_QUEUE, NUM_RUNNING, NUM_TENANT, block_shapes

FITS = FEATURES["queue"].index("fits")
CAN_MAKE_ROOM = FEATURES["queue"].index("can_make_room")
VALID = FEATURES["queue"].index("valid")
ILLEGAL = -1e4  # as a logit: far below any legal one, and finite


@dataclass(frozen=True)
class Layout:
    """Where the blocks stand in a flat observation, and the segments of the action space."""

    cluster_at: int
    tenants_at: int
    num_tenants: int
    queue_at: int
    queue_rows: int
    num_rules: int
    num_victim_rules: int
    num_actions: int
    num_more_ways: int = 0  # admit, reserve: actions on a queue row besides starting its job
    running_at: int = 0
    running_rows: int = 0  # rows of running jobs that can be stopped; 0 = the network does not choose among them
    own_first: bool = False  # the first row of the tenants block is the agent's own tenant

    @staticmethod
    def of(agent: np.void, *, every_kind: bool = False, own_first: bool = False) -> Layout:
        """The layout of an environment's agent parameters.

        Args:
            agent: AGENT record.
            every_kind: also admit, reserve and preempt, where the world has them; legality then comes from the mask.
            own_first: the observation is a tenant's, whose own row comes first.

        Raises:
            GanglineError: a block that the network reads is not shown.
        """
        at = {}
        position = 0
        for name, shape in block_shapes(agent).items():
            at[name] = position
            position += int(np.prod(shape))
        stops = every_kind and bool(agent["may_preempt"])
        for name in ("cluster", "tenants", "queue", *(["running"] if stops else [])):
            if name not in at:
                raise GanglineError(f"observation.blocks lacks {name!r}, which the kernel policy needs")
        return Layout(
            cluster_at=at["cluster"],
            tenants_at=at["tenants"],
            num_tenants=int(agent["tenant_rows"]),
            queue_at=at["queue"],
            queue_rows=int(agent["queue_rows"]),
            num_rules=int(agent["num_rules"]),
            num_victim_rules=int(agent["num_victim_rules"]),
            num_actions=int(agent["num_actions"]),
            num_more_ways=(int(agent["may_admit"]) + int(agent["may_reserve"])) if every_kind else 0,
            running_at=at["running"] if stops else 0,
            running_rows=int(agent["running_rows"]) if stops else 0,
            own_first=own_first,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as it is saved with a model."""
        return asdict(self)

    @property
    def num_ways(self) -> int:
        """What can be done with a queue row."""
        return self.num_rules + self.num_victim_rules + self.num_more_ways

    def kinds(self) -> list[slice]:
        """The segments of the actions besides `wait`: one for each way of treating a queue row, one for stopping."""
        ends = [1 + way * self.queue_rows for way in range(self.num_ways + 1)]
        stops = [slice(ends[-1], ends[-1] + self.running_rows)] if self.running_rows else []
        return [slice(first, end) for first, end in pairwise(ends)] + stops

    @property
    def num_context(self) -> int:
        """Features that stand beside every row."""
        return NUM_CLUSTER + self.own_first * NUM_TENANT

    def context(self, flat: torch.Tensor) -> torch.Tensor:
        """(..., num_context) of flat observations (..., flat_size): the cluster, and the agent's own tenant."""
        cluster = flat[..., self.cluster_at : self.cluster_at + NUM_CLUSTER]
        return torch.cat([cluster, self.tenants(flat)[..., 0, :]], dim=-1) if self.own_first else cluster

    def tenants(self, flat: torch.Tensor) -> torch.Tensor:
        """(..., num_tenants, NUM_TENANT)."""
        block = flat[..., self.tenants_at : self.tenants_at + self.num_tenants * NUM_TENANT]
        return block.unflatten(-1, (self.num_tenants, NUM_TENANT))

    def queue(self, flat: torch.Tensor) -> torch.Tensor:
        """(..., queue_rows, NUM_QUEUE)."""
        block = flat[..., self.queue_at : self.queue_at + self.queue_rows * NUM_QUEUE]
        return block.unflatten(-1, (self.queue_rows, NUM_QUEUE))

    def running(self, flat: torch.Tensor) -> torch.Tensor:
        """(..., running_rows, NUM_RUNNING)."""
        block = flat[..., self.running_at : self.running_at + self.running_rows * NUM_RUNNING]
        return block.unflatten(-1, (self.running_rows, NUM_RUNNING))


def most_probable(layout: Layout, probabilities: np.ndarray) -> np.ndarray:
    """(batch,) the action to take for good: whether, then in which way, then which job; ties to the lowest index.

    Not the most probable single action: `wait` is one, starting some job is many, each of which may be less probable
    than waiting when starting any of them is much more so.

    Args:
        probabilities: (batch, num_actions), 0 where illegal.
    """
    kinds = layout.kinds()
    of_kinds = np.stack([probabilities[:, kind].sum(axis=1) for kind in kinds], axis=1)
    best = of_kinds.argmax(axis=1)
    actions = np.zeros(len(probabilities), np.int64)
    for number, kind in enumerate(kinds):
        acts = (best == number) & (of_kinds.sum(axis=1) > probabilities[:, 0])
        actions[acts] = kind.start + probabilities[acts, kind].argmax(axis=1)
    return actions


class KernelNet(nn.Module):
    """Scores and values from a flat observation.

    Input: (batch, flat_size) float32, and (batch, num_actions) bool, what is legal; without it the flags in the queue
    rows say so. Output: logits (batch, num_actions) and value features (batch, hidden).
    """

    def __init__(self, layout: Layout, hidden: int) -> None:
        super().__init__()
        self.layout = layout
        ways, context = layout.num_ways, layout.num_context
        kinds = 1 + ways + (layout.running_rows > 0)
        self.row = nn.Linear(NUM_QUEUE, hidden)
        self.beside = nn.Linear(context, hidden, bias=False)
        self.row_trunk = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.score = nn.Linear(hidden, ways)
        self.kind = nn.Sequential(nn.Linear(context + 2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, kinds))
        self.value_row = nn.Sequential(nn.Linear(NUM_QUEUE, hidden), nn.ReLU())
        self.value_tenant = nn.Sequential(nn.Linear(NUM_TENANT, hidden), nn.ReLU())
        self.value_trunk = nn.Sequential(nn.Linear(context + 2 * hidden, hidden), nn.ReLU())
        if layout.running_rows:
            self.stop = nn.Sequential(nn.Linear(NUM_RUNNING, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.latent_dim_pi = layout.num_actions
        self.latent_dim_vf = hidden

    def forward(self, flat: torch.Tensor, legal: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and value features."""
        filled = _Filled.of(self.layout.queue(flat))
        return self.forward_actor(flat, legal, filled), self.forward_critic(flat, filled)

    def forward_actor(
        self, flat: torch.Tensor, legal: torch.Tensor | None = None, filled: _Filled | None = None
    ) -> torch.Tensor:
        """Logits, (batch, num_actions)."""
        layout = self.layout
        context, queue = layout.context(flat), layout.queue(flat)
        filled = filled or _Filled.of(queue)
        rows = self.row_trunk(self.row(filled.rows) + self.beside(context).index_select(0, filled.sample))
        scores = filled.spread(self.score(rows)).transpose(1, 2)  # (batch, ways, rows)
        kinds = self.kind(torch.cat([context, filled.mean(rows), filled.maximum(rows)], dim=1))
        first = 1 + layout.num_ways * layout.queue_rows
        can = self._flagged(queue) if legal is None else legal[:, 1:first].unflatten(1, scores.shape[1:])
        groups = [(scores, can)]
        if layout.running_rows:
            if legal is None:
                raise ValueError("which running jobs may be stopped is only in the mask, expected one")
            groups.append((self.stop(layout.running(flat)).transpose(1, 2), legal[:, None, first:]))
        can_wait = can.new_ones(len(flat), 1)
        some = torch.cat([can_wait, *(can.any(dim=2) for _, can in groups)], dim=1)
        of_kind = torch.log_softmax(kinds.masked_fill(~some, ILLEGAL), dim=1)
        parts, at = [of_kind[:, :1]], 1
        for scores, can in groups:
            within = torch.log_softmax(scores.masked_fill(~can, ILLEGAL), dim=2)
            parts.append((of_kind[:, at : at + scores.shape[1], None] + within).flatten(1))
            at += scores.shape[1]
        logits = torch.cat(parts, dim=1)
        rest = layout.num_actions - logits.shape[1]
        if rest > 0:  # kinds that the network does not use
            logits = torch.cat([logits, logits.new_full((len(logits), rest), ILLEGAL)], dim=1)
        return logits

    def forward_critic(self, flat: torch.Tensor, filled: _Filled | None = None) -> torch.Tensor:
        """Value features, (batch, hidden)."""
        layout = self.layout
        filled = filled or _Filled.of(layout.queue(flat))
        rows = filled.sum(self.value_row(filled.rows)) / layout.queue_rows
        tenants = self.value_tenant(layout.tenants(flat)).mean(dim=1)
        features: torch.Tensor = self.value_trunk(torch.cat([layout.context(flat), rows, tenants], dim=1))
        return features

    def _flagged(self, queue: torch.Tensor) -> torch.Tensor:
        """(batch, ways, rows) bool: what the flags in the queue rows call legal."""
        fits = (queue[:, :, FITS] > 0.5).unsqueeze(1).expand(-1, self.layout.num_rules, -1)
        can_make_room = (queue[:, :, CAN_MAKE_ROOM] > 0.5).unsqueeze(1).expand(-1, self.layout.num_victim_rules, -1)
        return torch.cat([fits, can_make_room], dim=1)


@dataclass(frozen=True)
class _Filled:
    """The rows of a block that are filled, one after another: half of a queue block is empty on average.

    Attributes:
        rows: (filled, features).
        sample: (filled,) which observation of the batch a row belongs to.
        at: (filled,) its place among all rows of the batch.
        shape: (batch, rows) of the block.
    """

    rows: torch.Tensor
    sample: torch.Tensor
    at: torch.Tensor
    shape: tuple[int, int]

    @staticmethod
    def of(block: torch.Tensor) -> _Filled:
        """The filled rows of (batch, rows, features); the feature VALID says which they are."""
        batch, num_rows, _ = block.shape
        at = (block[:, :, VALID] > 0.5).flatten().nonzero().squeeze(1)
        return _Filled(block.flatten(0, 1).index_select(0, at), at // num_rows, at, (batch, num_rows))

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """(filled, n) -> (batch, rows, n), zero where a row is empty."""
        everywhere = values.new_zeros(self.shape[0] * self.shape[1], values.shape[1])
        return everywhere.index_copy(0, self.at, values).unflatten(0, self.shape)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """(filled, n) -> (batch, n): sum over an observation's rows."""
        return values.new_zeros(self.shape[0], values.shape[1]).index_add(0, self.sample, values)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """(filled, n) -> (batch, n): mean over an observation's rows, zero if it has none."""
        count = torch.bincount(self.sample, minlength=self.shape[0]).clamp(min=1)
        return self.sum(values) / count.unsqueeze(1)

    def maximum(self, values: torch.Tensor) -> torch.Tensor:
        """(filled, n) -> (batch, n): maximum over an observation's rows of values that are not negative."""
        none = values.new_zeros(self.shape[0], values.shape[1])
        return none.scatter_reduce(0, self.sample.unsqueeze(1).expand_as(values), values, "amax")
