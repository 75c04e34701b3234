"""What a world can return to: a copy of what its record holds, without the room that is empty and without scratch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gangline.envs.core.types import IN_USE, SCRATCH


def state_of(w: np.void) -> dict[str, bytes]:
    """Everything of a record that can change, by field: what is in use, and no scratch."""
    return {
        name: (w[name][: int(w[IN_USE[name]])] if name in IN_USE else w[name]).tobytes()
        for name in w.dtype.names or ()
        if name not in SCRATCH
    }


def restore_state(w: np.void, state: Mapping[str, bytes]) -> None:
    """Return a record to a state that `state_of` has read from one of the same size class.

    Raises:
        ValueError: it was another; nothing is changed.
    """
    if not all(_fits(w, name, saved) for name, saved in state.items()):
        raise ValueError("the state belongs to a world of another size class or version")
    for name, saved in state.items():
        field = w[name]
        if isinstance(field, np.ndarray):  # field by field takes ten times as long
            field.view(np.uint8).reshape(-1)[: len(saved)] = np.frombuffer(saved, np.uint8)
        else:
            w[name] = np.frombuffer(saved, field.dtype)[0]
    w["stoppable_of"] = w["candidates_of"] = 0  # what a search has noted before belongs to another state
    w["jobs"][: int(w["jobs_used"])]["cost_of_search"] = 0


def _fits(w: np.void, name: str, saved: bytes) -> bool:
    """Whether a record has such a field, of that length."""
    if name not in (w.dtype.names or ()) or not isinstance(saved, bytes):
        return False
    return len(saved) <= w[name].nbytes if name in IN_USE else len(saved) == w[name].nbytes
