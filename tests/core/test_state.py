"""A world returns to a state of its own, whole, and refuses one of another size class without changing anything."""

import numpy as np
import pytest

from gangline.envs.core.spec import JobSpec, NodeSpec, PodSetSpec, TenantSpec, WorldSpec
from gangline.envs.core.types import SIZE_CLASSES
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError

SPEC = WorldSpec(
    nodes=[NodeSpec(name="a", amounts={"gpu": 8000})],
    tenants=[TenantSpec(name="red")],
    jobs=[
        JobSpec(
            name=f"j{i}",
            tenant="red",
            pod_sets=[PodSetSpec(count=1, request={"gpu": 1000})],
            work_ms=1000,
            submit_ms=1000 * i,
        )
        for i in range(5)
    ],
)


def test_a_world_returns_to_what_it_was():
    world = World(SPEC)
    world.advance(1500)
    state, dump = world.get_state(), world.dump()
    world.advance(4500)
    assert world.dump() != dump
    world.set_state(state)
    assert world.dump() == dump
    world.advance(4500)
    again = World(SPEC)
    again.advance(4500)
    assert world.dump() == again.dump()


def test_a_state_of_another_size_class_is_refused_and_changes_nothing():
    world, other = World(SPEC), World(SPEC, size=SIZE_CLASSES[1])
    world.advance(1500)
    before = world.records.tobytes()
    with pytest.raises(GanglineError, match="another size class"):
        world.set_state(other.get_state())
    assert np.array_equal(np.frombuffer(before, np.uint8), world.records.view(np.uint8).reshape(-1))
