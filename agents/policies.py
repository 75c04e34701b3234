"""The kernel policy: one small network scores every row of the queue, so any permutation of rows permutes the choices.

Each queue row, with the cluster's features beside it, goes through the same little MLP, which gives a score per way
of starting the job (placement rules, victim rules). Logits are log p(kind) + log-softmax within the kind, so `wait`
does not start at 1 / (1 + slots). Source: RLScheduler (Zhang et al., SC 2020), with kinds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import nn

from gangline.envs.observation import FEATURES, NUM_CLUSTER, NUM_QUEUE, NUM_TENANT, block_shapes

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

    @staticmethod
    def of(agent: np.void) -> Layout:
        """The layout of an environment's agent parameters."""
        at = {}
        position = 0
        for name, shape in block_shapes(agent).items():
            at[name] = position
            position += int(np.prod(shape))
        for name in ("cluster", "tenants", "queue"):
            if name not in at:
                raise ValueError(f"the kernel policy needs the observation block {name!r}")
        return Layout(
            cluster_at=at["cluster"],
            tenants_at=at["tenants"],
            num_tenants=int(agent["tenant_rows"]),
            queue_at=at["queue"],
            queue_rows=int(agent["queue_rows"]),
            num_rules=int(agent["num_rules"]),
            num_victim_rules=int(agent["num_victim_rules"]),
            num_actions=int(agent["num_actions"]),
        )

    def as_dict(self) -> dict[str, int]:
        """Plain data, as it is saved with a model."""
        return asdict(self)


class KernelNet(nn.Module):
    """Scores and values from a flat observation.

    Input: (batch, flat_size) float32. Output: logits (batch, num_actions) and values (batch, hidden) features.
    """

    def __init__(self, layout: Layout, hidden: int) -> None:
        super().__init__()
        self.layout = layout
        ways = layout.num_rules + layout.num_victim_rules
        self.row = nn.Linear(NUM_QUEUE, hidden)
        self.beside = nn.Linear(NUM_CLUSTER, hidden, bias=False)
        self.row_trunk = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.score = nn.Linear(hidden, ways)
        self.kind = nn.Sequential(nn.Linear(NUM_CLUSTER + 2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1 + ways))
        self.value_row = nn.Sequential(nn.Linear(NUM_QUEUE, hidden), nn.ReLU())
        self.value_tenant = nn.Sequential(nn.Linear(NUM_TENANT, hidden), nn.ReLU())
        self.value_trunk = nn.Sequential(nn.Linear(NUM_CLUSTER + 2 * hidden, hidden), nn.ReLU())
        self.latent_dim_pi = layout.num_actions
        self.latent_dim_vf = hidden

    def forward(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and value features."""
        return self.forward_actor(flat), self.forward_critic(flat)

    def _cluster(self, flat: torch.Tensor) -> torch.Tensor:
        return flat[:, self.layout.cluster_at : self.layout.cluster_at + NUM_CLUSTER]

    def _queue(self, flat: torch.Tensor) -> torch.Tensor:
        rows = self.layout.queue_rows
        return flat[:, self.layout.queue_at : self.layout.queue_at + rows * NUM_QUEUE].reshape(-1, rows, NUM_QUEUE)

    def forward_actor(self, flat: torch.Tensor) -> torch.Tensor:
        """Logits, (batch, num_actions)."""
        layout = self.layout
        cluster, queue = self._cluster(flat), self._queue(flat)
        rows = self.row_trunk(self.row(queue) + self.beside(cluster).unsqueeze(1))
        scores = self.score(rows).transpose(1, 2)  # (batch, ways, rows)
        fits = queue[:, :, FITS] > 0.5
        can = queue[:, :, CAN_MAKE_ROOM] > 0.5
        legal = torch.cat(
            [
                fits.unsqueeze(1).expand(-1, layout.num_rules, -1),
                can.unsqueeze(1).expand(-1, layout.num_victim_rules, -1),
            ],
            dim=1,
        )
        within = torch.log_softmax(scores.masked_fill(~legal, ILLEGAL), dim=2)
        kinds = self.kind(torch.cat([cluster, _pooled(rows, queue[:, :, VALID])], dim=1))
        some = torch.cat([torch.ones_like(fits[:, :1]), legal.any(dim=2)], dim=1)
        of_kind = torch.log_softmax(kinds.masked_fill(~some, ILLEGAL), dim=1)
        starts = of_kind[:, 1:].unsqueeze(2) + within
        logits = torch.cat([of_kind[:, :1], starts.flatten(1)], dim=1)
        rest = layout.num_actions - logits.shape[1]
        if rest > 0:  # kinds that the kernel policy does not use
            logits = torch.cat([logits, logits.new_full((len(logits), rest), ILLEGAL)], dim=1)
        return logits

    def forward_critic(self, flat: torch.Tensor) -> torch.Tensor:
        """Value features, (batch, hidden)."""
        layout = self.layout
        queue = self._queue(flat)
        tenants = flat[:, layout.tenants_at : layout.tenants_at + layout.num_tenants * NUM_TENANT]
        tenants = self.value_tenant(tenants.reshape(-1, layout.num_tenants, NUM_TENANT)).mean(dim=1)
        rows = (self.value_row(queue) * queue[:, :, VALID : VALID + 1]).mean(dim=1)
        features: torch.Tensor = self.value_trunk(torch.cat([self._cluster(flat), rows, tenants], dim=1))
        return features


def _pooled(rows: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Mean and maximum over the valid rows, (batch, 2 x hidden)."""
    of_valid = rows * valid.unsqueeze(2)  # rows are not negative: an absent one is never the maximum alone
    mean = of_valid.sum(dim=1) / valid.sum(dim=1, keepdim=True).clamp(min=1.0)
    return torch.cat([mean, of_valid.max(dim=1).values], dim=1)


class KernelPolicy(MaskableActorCriticPolicy):
    """The kernel net as a policy of MaskablePPO. `layout` and `hidden` are saved with the model."""

    def __init__(self, *args: Any, layout: dict[str, int], hidden: int = 32, **kwargs: Any) -> None:
        self.layout = Layout(**layout)
        self.hidden = hidden
        super().__init__(*args, **kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        data = super()._get_constructor_parameters()
        data.update(layout=self.layout.as_dict(), hidden=self.hidden)
        return data

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = KernelNet(self.layout, self.hidden)  # type: ignore[assignment]

    def _build(self, lr_schedule: Any) -> None:
        """The per-slot scores are the logits: there is no action net on top of them."""
        self._build_mlp_extractor()
        self.action_net = nn.Identity()
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, 1)
        if self.ortho_init:
            for module, gain in ((self.mlp_extractor, np.sqrt(2)), (self.value_net, 1.0)):
                module.apply(partial(self.init_weights, gain=gain))
            nn.init.orthogonal_(self.mlp_extractor.score.weight, 0.01)  # type: ignore[union-attr, arg-type]
        optimizer: Any = self.optimizer_class
        self.optimizer = optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)
