"""Topology-aware scheduling."""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper


@helper
def topology_fits(w: Any, k: Any, entry: Any) -> bool:
    """Whether the pods of an entry fit into the topology."""
    return True


@helper
def flavor_serves_topology(w: Any, k: Any, q: int, ps: int, flavor: int) -> bool:
    """Whether a flavor has a topology if and only if the pod set asks for one."""
    return True


@helper
def assign_topology(w: Any, k: Any, entry: Any) -> None:
    """Find domains for the pods of an entry whose flavors are assigned."""


@helper
def write_placement(w: Any, k: Any, slot: int, out: Any) -> bool:
    """Write the nodes of a topology assignment."""
    return True
