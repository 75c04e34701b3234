"""Kueue's manifests as a world with the configuration of the Kueue baseline."""

import pytest
from files.test_kueue import ADMITTED, CONFIGURATION, JOB, SITE, TEXT
from workloads.files import write

from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.files import kueue
from gangline.envs.files.text import UnknownWords

config = pytest.importorskip("gangline.baselines.kueue.config", reason="the Kueue baseline is not there")
files = pytest.importorskip("gangline.baselines.kueue.files", reason="the Kueue baseline is not there")

HOUR_MS = 3_600_000
NODES = "\n---\n".join(
    f"""\
apiVersion: v1
kind: Node
metadata: {{name: n{i}, labels: {{gpu: h100, block: b{i // 2}, rack: r{i}}}}}
status: {{allocatable: {{cpu: 64, memory: 500Gi, nvidia.com/gpu: 8, pods: 110, hugepages-1Gi: 0}}}}"""
    for i in range(4)
)


# "any" and "spot" have quota and no nodes of their own
pytestmark = pytest.mark.filterwarnings("ignore:Kueue's quotas:gangline.envs.files.text.UnknownWords")


def read(tmp_path, *texts):
    return kueue.read(*(write(tmp_path / f"{i}.yaml", text) for i, text in enumerate(texts)))


def test_the_manifest_of_the_text_is_a_world_of_quotas(tmp_path):
    world, made = files.world_of(read(tmp_path, TEXT), work_ms=HOUR_MS)
    assert [(queue.name, queue.parent) for queue in world.queues] == [("cohort/prod", None), ("team-a", "cohort/prod")]
    assert (world.resources, world.gpu_resource, world.nodes) == (("nvidia.com/gpu",), None, [])
    assert [queue.name for queue in made.cluster_queues] == ["team-a"]
    World.from_state(world)


def test_a_site_with_nodes_and_a_job_is_a_world(tmp_path):
    world, made = files.world_of(read(tmp_path, SITE, JOB, NODES, CONFIGURATION), work_ms={"core/llm": HOUR_MS})
    assert (world.gpu_resource, world.pods_resource) == ("nvidia.com/gpu", "pods")
    assert "hugepages-1Gi" not in world.resources  # nobody asks for it
    first = world.nodes[0]
    assert (first.flavor, first.amounts["nvidia.com/gpu"], first.amounts["cpu"]) == ("h100", 8000, 64_000)
    assert first.domains == {"h100": "b0/r0/n0"}
    assert [(d.name, d.parent, d.tier) for d in world.domains][:4] == [
        ("b0", None, 3),
        ("b0/r0", "b0", 2),
        ("b0/r0/n0", "b0/r0", 1),
        ("b0/r1", "b0", 2),
    ]
    (job,) = world.jobs
    assert (job.name, job.queue, job.priority, job.min_member, job.work_ms) == (
        "core/llm",
        "training",
        1000,
        4,
        HOUR_MS,
    )
    assert job.pod_sets[0].request["nvidia.com/gpu"] == 8000 and job.pod_sets[0].request["pods"] == 1
    assert made.workloads["core/llm"].pod_sets == [config.TopologyRequest(required="rack")]
    assert made.topologies == [
        config.Topology(flavor="h100", topology="h100", levels=("block", "rack", "kubernetes.io/hostname"))
    ]
    (queue,) = made.cluster_queues
    assert queue.preemption.borrow_within_cohort == config.BorrowWithinCohort(
        policy="LowerPriority", max_priority_threshold=100
    )
    assert made.fair_sharing == config.FairSharing(preemption_strategies=("LessThanInitialShare",))
    assert made.admission_fair_sharing.usage_half_life_ms == 168 * HOUR_MS
    assert made.wait_for_pods_ready.requeuing_timestamp == "Creation"
    assert made.gates == {"PartialAdmission": False}
    World.from_state(world)


def test_a_workload_of_a_running_cluster_holds_its_quota(tmp_path):
    world, _ = files.world_of(read(tmp_path, SITE, ADMITTED, NODES), work_ms=HOUR_MS)
    (job,) = world.jobs
    assert [(held.count, held.flavors) for held in job.live.admissions] == [
        (1, {"cpu": "h100"}),
        (4, {"nvidia.com/gpu": "h100"}),
    ]
    assert job.live.admit_ms == 5000
    assert job.pod_sets[1].min_count == 2


def test_a_flavor_that_no_node_has_is_named(tmp_path):
    with pytest.warns(UnknownWords, match="2 without nodes.*flavor spot .*flavor any "):
        files.world_of(read(tmp_path, SITE, NODES), work_ms=HOUR_MS)


def test_a_node_selector_rules_flavors_out(tmp_path):
    flavors = SITE.replace("metadata: {name: spot}", "metadata: {name: spot}\nspec: {nodeLabels: {gpu: a100}}")
    job = JOB.replace("nodeSelector: {zone: a}", "nodeSelector: {gpu: a100}")
    world, _ = files.world_of(read(tmp_path, flavors, job), work_ms=HOUR_MS)
    assert list(world.jobs[0].pod_sets[0].flavors) == ["spot", "any"]


def test_what_does_not_fit_together_is_named(tmp_path):
    for texts, want in (
        (
            (SITE.replace("clusterQueue: training", "clusterQueue: trainig"), JOB),
            "'trainig'; known: training; did you mean",
        ),
        ((SITE.replace("topologyName: fabric", "topologyName: fabrik"), NODES), "topology of flavor 'h100' 'fabrik'"),
    ):
        with pytest.raises(GanglineError, match=want):
            files.world_of(read(tmp_path, *texts), work_ms=HOUR_MS)
    with pytest.raises(GanglineError, match="unknown job in work_ms 'core/llm'"):
        files.world_of(read(tmp_path, SITE, JOB), work_ms={})
    with pytest.warns(UnknownWords, match=r"featureGates\.MultiKueue"):
        gates = CONFIGURATION.replace("PartialAdmission: false", "MultiKueue: true")
        assert files.config_of(read(tmp_path, SITE, gates)).gates == {}
