"""The slow twin of the simulator. Read `simulator.py` beside `docs/model.md`.

`ReferenceWorld` is the second writing of the rules in `docs/model.md`: lists, dicts and loops, no numba, no numpy, no
code shared with `envs/core/` (only the dataclasses of `spec.py` and the error class). What can be recomputed is
recomputed from the list of pods each time it is asked for: what is idle on a node, a tenant's demand, the fair shares,
quota usage, the next event. It is meant to be right by reading, not to be fast.

`tests/test_reference.py` checks it against numbers worked out by hand; `tests/test_lockstep.py` compares it with the
compiled world, state by state, over random commands.
"""

from reference.simulator import ReferenceWorld

__all__ = ["ReferenceWorld"]
