"""Worlds that contradict themselves are refused in one line: what came, what was expected."""

import pytest

from gangline.envs.core.spec import (
    ChangeSpec,
    DomainSpec,
    JobSpec,
    NodeSpec,
    OptionsSpec,
    PodSetSpec,
    QueueSpec,
    QuotaSpec,
    TenantSpec,
    UserSpec,
    WorldSpec,
)
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError

NODE = NodeSpec(name="a", amounts={"gpu": 8000})
RED = TenantSpec(name="red")


def job(**settings):
    values = {"name": "j", "tenant": "red", "pod_sets": [PodSetSpec(count=1, request={"gpu": 1000})], "work_ms": 1000}
    return JobSpec(**{**values, **settings})


@pytest.mark.parametrize(
    ("world", "want"),
    [
        (
            {
                "queues": [
                    QueueSpec(name="x", parent="y", is_cohort=True),
                    QueueSpec(name="y", parent="x", is_cohort=True),
                ]
            },
            "cohort cycle through 'x', expected a tree",
        ),
        ({"queues": [QueueSpec(name="q", parent="r"), QueueSpec(name="r")]}, "parent 'r', expected a cohort"),
        ({"queues": [QueueSpec(name="q", quotas={("default", "gpu"): QuotaSpec(nominal=-1)})]}, "nominal of queue 'q'"),
        ({"queues": [QueueSpec(name="q", quotas={("spot", "gpu"): QuotaSpec()})]}, "unknown flavor 'spot'"),
        ({"tenants": [TenantSpec(name="red", queue="rde")]}, "unknown queue 'rde'"),
        ({"tenants": [TenantSpec(name="red", weight=-1)]}, "tenant 'red' has weight -1"),
        ({"tenants": [RED, RED]}, "tenant 'red' is defined twice"),
        ({"users": [UserSpec(name="u", tenant="rde")]}, "did you mean 'red'"),
        ({"jobs": [job(tenant="rde")]}, "unknown tenant 'rde'; known: red; did you mean 'red'?"),
        ({"jobs": [job(work_ms=-5)]}, "work_ms is -5, expected at least 1"),
        ({"jobs": [job(min_member=2)]}, "min_member is 2, expected at most the number of its pods"),
        ({"jobs": [job(pod_sets=[])]}, "job 'j' has no pod sets"),
        ({"jobs": [job(pod_sets=[PodSetSpec(count=1, request={"gpu": 1500})])]}, "1500 milli-GPU a pod"),
        ({"jobs": [job(pod_sets=[PodSetSpec(count=1, request={"gpus": 1000})])]}, "unknown resource 'gpus'"),
        ({"jobs": [job(after="k")]}, "unknown job 'k'"),
        ({"jobs": [job(), job()]}, "job 'j' is defined twice"),
        ({"nodes": [NodeSpec(name="a", amounts={"gpu": 17_000})]}, "at most 16"),
        ({"nodes": [NodeSpec(name="a", amounts={"gpu": 500})]}, "expected whole GPUs"),
        ({"nodes": [NodeSpec(name="a", amounts={"gpu": 8000}, speed=0)]}, "speed 0"),
        ({"nodes": [NodeSpec(name="a", amounts={"gpu": 8000}, domains={"net": "r"})]}, "unknown domain 'net/r'"),
        ({"domains": [DomainSpec(name="r", tier=2), DomainSpec(name="c", tier=3, parent="r")]}, "has tier 3"),
        ({"options": OptionsSpec(half_life_ms=0)}, "half_life_ms is 0, expected a positive time"),
        ({"options": OptionsSpec(locality=(1000, 2000))}, "locality is [1000, 2000]"),
        ({"usage": {"green": 1.0}}, "unknown tenant or user with usage 'green'"),
        ({"changes": [ChangeSpec(time_ms=1, what="nominal", target="q", value=1)]}, "unknown queue 'q'"),
    ],
)
def test_a_contradiction_is_named(world, want):
    with pytest.raises(GanglineError) as error:
        World.from_state(WorldSpec(**{"nodes": [NODE], "tenants": [RED], **world}))
    assert want in str(error.value)
    assert "\n" not in str(error.value)
