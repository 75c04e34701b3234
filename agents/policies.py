"""The kernel network (`agents/kernel_net.py`) as a policy of Stable-Baselines3's MaskablePPO."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import nn

from gangline.agents.kernel_net import KernelNet, Layout


class KernelPolicy(MaskableActorCriticPolicy):
    """The kernel net as a policy of MaskablePPO. `layout` and `hidden` are saved with the model."""

    def __init__(self, *args: Any, layout: dict[str, Any], hidden: int = 32, **kwargs: Any) -> None:
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
