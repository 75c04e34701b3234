"""Read this first: a day on two nodes of four GPUs, the state drawn after each event.

The jobs are those of `workloads/toy.py: day`; the schedule is strict FIFO with packing.
"""

from gangline.baselines import base
from gangline.envs.core.invariants import broken_invariants
from gangline.envs.core.spec import Command, JobSpec, NodeSpec, PodSetSpec, TenantSpec, WorldSpec
from gangline.envs.core.world import World
from gangline.envs.rendering import text_view
from gangline.envs.workloads import toy

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


def toy_world():
    nodes = [NodeSpec(name=name, amounts={"gpu": 4000}) for name in ("a", "b")]
    return World(WorldSpec(nodes=nodes, tenants=[TenantSpec(name="red"), TenantSpec(name="blue")]), toy.day().trace)


def picture(world):
    """The two nodes: R = red, B = blue, . = free."""
    lines = [line.split("|")[1] for line in text_view(world).splitlines()[1:3]]
    return [line.replace("B", "b").replace("A", "R").replace("b", "B") for line in lines]


def test_a_day_under_strict_fifo():
    world = toy_world()
    fifo = base.build("fifo")
    want = {
        # hour: [node a, node b]
        0: ["RRRR", "...."],  # A starts
        1: ["RRRR", "BB.."],  # B starts
        2: ["RRRR", "BB.."],  # C needs a whole node and waits
        3: ["RRRR", "BB.."],  # D would fit beside B, but stands behind C
        5: ["RRRR", "RRRR"],  # B ends, C starts
        6: ["B...", "RRRR"],  # A ends, D starts
        7: ["....", "RRRR"],  # D ends
        8: ["BBBB", "BBBB"],  # C ends just as E, a gang over both nodes, comes: E starts
        9: ["BBBB", "BBBB"],  # F waits
        12: ["RRB.", "RRRR"],  # E ends: F, G and H, which has just come, start
        14: ["..B.", "RRRR"],  # F ends
        15: ["..B.", "...."],  # G ends
        20: ["....", "...."],  # H ends
    }
    for hour, nodes in want.items():
        world.run(fifo, hour * HOUR_MS)
        assert picture(world) == nodes, f"at {hour}:00"
        assert broken_invariants(world) == []
    starts = {int(row["row"]): int(row["first_start_ms"]) // HOUR_MS for row in world.ended()}
    assert [starts[row] for row in range(8)] == [0, 1, 5, 6, 8, 12, 12, 12]
    jct = [(int(row["end_ms"]) - int(row["submit_ms"])) // HOUR_MS for row in world.ended()]
    assert sum(jct) == 42


def test_letting_a_small_job_go_first_saves_three_hours_and_delays_nobody():
    world = toy_world()
    world.run(base.build("greedy_fifo"))
    jct = [(int(row["end_ms"]) - int(row["submit_ms"])) // HOUR_MS for row in world.ended()]
    assert sum(jct) == 39
    assert world.now_ms == 20 * HOUR_MS


def test_preempted_50_minutes_into_a_job_with_30_minute_checkpoints_20_minutes_are_lost():
    job = JobSpec(
        name="train",
        tenant="red",
        pod_sets=[PodSetSpec(count=1, request={"gpu": 4000})],
        work_ms=100 * MINUTE_MS,
        checkpoint_interval_ms=30 * MINUTE_MS,
        restart_cost_ms=5 * MINUTE_MS,
    )
    world = World.from_state(
        WorldSpec(nodes=[NodeSpec(name="a", amounts={"gpu": 4000})], tenants=[TenantSpec(name="red")], jobs=[job])
    )
    world.advance(0)
    assert world.apply([[Command(op="place", job="train", node="a")]]) == ["ok"]
    world.advance(50 * MINUTE_MS)
    assert world.apply([[Command(op="evict", job="train")]]) == ["ok"]
    world.advance(60 * MINUTE_MS)
    assert world.apply([[Command(op="place", job="train", node="a")]]) == ["ok"]
    # it waited 10 minutes, loads for 5, and has 70 of 100 minutes to go
    world.advance(400 * MINUTE_MS)
    ended = world.ended()[0]
    gpu_minutes = 4000 * MINUTE_MS
    assert ended["lost"] == 20 * gpu_minutes
    assert ended["overhead"] == 5 * gpu_minutes
    assert ended["kept"] == 100 * gpu_minutes
    assert ended["end_ms"] == (60 + 5 + 70) * MINUTE_MS
    assert ended["submit_ms"] == 0  # JCT counts from the first submission
