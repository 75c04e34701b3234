"""What Volcano's manifests hold, in plain dataclasses with the names of its API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gangline.envs.files.kubernetes import Node, PriorityClass

DEFAULT_QUEUE = "default"


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A Queue. Amounts that are not set are empty."""

    name: str
    weight: int = 1
    parent: str | None = None
    priority: int = 0
    capability: Mapping[str, int] = field(default_factory=dict)
    deserved: Mapping[str, int] = field(default_factory=dict)
    guarantee: Mapping[str, int] = field(default_factory=dict)
    reclaimable: bool = True
    state: str = "Open"
    hierarchy: str | None = None
    hierarchy_weights: str | None = None


@dataclass(frozen=True, kw_only=True)
class NetworkTopology:
    """`networkTopology` of a PodGroup, Job or sub-group."""

    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class SubGroup:
    """An entry of `subGroupPolicy`."""

    name: str
    size: int | None = None
    min_sub_groups: int | None = None
    match_label_keys: tuple[str, ...] = ()
    network_topology: NetworkTopology | None = None


@dataclass(frozen=True, kw_only=True)
class PodGroup:
    """A PodGroup."""

    name: str
    namespace: str = "default"
    queue: str = DEFAULT_QUEUE
    min_member: int = 0  # 0 = no gang: each pod by itself
    min_task_member: Mapping[str, int] = field(default_factory=dict)
    min_resources: Mapping[str, int] | None = None
    priority: int = 0
    priority_class: str | None = None
    phase: str = "Pending"
    network_topology: NetworkTopology | None = None
    sub_groups: tuple[SubGroup, ...] = ()
    preemptable: bool | None = None
    sla_waiting_time: str | None = None  # `2h30m`
    created_ms: int | None = None
    uid: str = ""

    @property
    def full_name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod of a PodGroup."""

    name: str
    namespace: str
    pod_group: str  # namespace/name
    requests: Mapping[str, int]
    task: str = ""  # role
    priority: int | None = None
    preemptable: bool = True
    preemption_policy: str | None = None
    node: str | None = None
    phase: str = "Pending"
    labels: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class HyperNode:
    """A HyperNode: a network domain.

    Attributes:
        members: (type, how, word) of each selector: (`Node`, `exact`, `n1`), (`HyperNode`, `regex`, `s[0-9]`),
            (`Node`, `label`, `rack=r1`).
    """

    name: str
    tier: int
    tier_name: str | None = None
    members: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Manifests:
    """What the files hold, by name (PodGroups and pods by `namespace/name`).

    Attributes:
        skipped: objects of kinds that are not read, with their place.
        unknown: fields that were passed over, with their place.
    """

    queues: Mapping[str, Queue] = field(default_factory=dict)
    pod_groups: Mapping[str, PodGroup] = field(default_factory=dict)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    hyper_nodes: Mapping[str, HyperNode] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def leaf_nodes(self, hyper_node: str) -> tuple[str, ...]:
        """Names of the nodes in a HyperNode and in those below it, in order of the nodes."""
        inside = self._members(hyper_node, set())
        return tuple(name for name in self.nodes if name in inside)

    def children(self, hyper_node: str) -> tuple[str, ...]:
        """Names of the HyperNodes directly in a HyperNode."""
        found = [self._matching(k, how, word) for k, how, word in self.hyper_nodes[hyper_node].members if k != "Node"]
        return tuple(name for name in self.hyper_nodes if any(name in names for names in found))

    def _members(self, hyper_node: str, above: set[str]) -> set[str]:
        if hyper_node in above or hyper_node not in self.hyper_nodes:
            return set()
        inside: set[str] = set()
        for kind, how, word in self.hyper_nodes[hyper_node].members:
            names = self._matching(kind, how, word)
            if kind == "Node":
                inside |= names
            else:
                for name in names:
                    inside |= self._members(name, above | {hyper_node})
        return inside

    def _matching(self, kind: str, how: str, word: str) -> set[str]:
        known: Mapping[str, Any] = self.nodes if kind == "Node" else self.hyper_nodes
        if how == "exact":
            return {word} & set(known)
        if how == "regex":
            pattern = re.compile(word)
            return {name for name in known if pattern.search(name)}
        wanted = dict(pair.split("=", 1) for pair in word.split(",") if pair)
        return {name for name, node in self.nodes.items() if wanted.items() <= node.labels.items()}
