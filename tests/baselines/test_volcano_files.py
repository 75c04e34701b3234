"""Volcano's own files as a world with the configuration of the Volcano baseline."""

from __future__ import annotations

import pytest
from files.test_volcano import CONF, JOB, SITE, TEXT
from workloads.files import write

from gangline.baselines.volcano import build, files
from gangline.baselines.volcano.config import CHART_TIERS
from gangline.envs.core.spec import JobSpec, NodeSpec, OptionsSpec, PodSetSpec, TenantSpec, WorldSpec
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.files import volcano
from gangline.envs.files.text import UnknownWords

HOUR_MS = 3_600_000
CHART = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
NODES = "\n---\n".join(
    f"""\
apiVersion: v1
kind: Node
metadata: {{name: n{i}, labels: {{rack: r{i // 2}}}}}
status: {{allocatable: {{cpu: 64, memory: 500Gi, nvidia.com/gpu: 8, pods: 110, hugepages-1Gi: 0}}}}"""
    for i in range(4)
)
RACKS = "\n---\n".join(
    f"""\
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {{name: rack{i}}}
spec:
  tier: 1
  tierName: rack
  members: [{{type: Node, selector: {{labelMatch: {{matchLabels: {{rack: r{i}}}}}}}}}]"""
    for i in range(2)
)
QUEUES = "\n---\n".join(
    f"""\
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {{name: {name}}}
spec: {{weight: {weight}, reclaimable: {reclaimable}, deserved: {{nvidia.com/gpu: 16}}}}"""
    for name, weight, reclaimable in (("research", 3, "true"), ("batch", 1, "true"))
)


def job(
    name: str, queue: str, workers: int, *, minimum: int | None = None, topology: str = "", priority: str = ""
) -> str:
    """A `batch.volcano.sh` Job of pods with one GPU each."""
    return f"""\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}}}
spec:
  queue: {queue}
  minAvailable: {workers if minimum is None else minimum}
  {topology}
  tasks:
  - name: worker
    replicas: {workers}
    minAvailable: {workers if minimum is None else minimum}
    template:
      spec:
        {priority}
        containers: [{{resources: {{requests: {{nvidia.com/gpu: 1, cpu: 1}}}}}}]
"""


def read(tmp_path, *texts):
    return volcano.read(*(write(tmp_path / f"{i}.yaml", text) for i, text in enumerate(texts)))


def conf(tmp_path, text):
    return volcano.read_conf(write(tmp_path / "volcano-scheduler.conf", text))


def held(w: World) -> dict[str, list[str]]:
    """Nodes of each live job's pods."""
    return {name: sorted(pod[1] for pod in j["bound"]) for name, j in w.dump()["jobs"].items()}


# ---------------------------------------------------------------------------------------------------------------
# volcano-scheduler.conf
# ---------------------------------------------------------------------------------------------------------------


def test_the_charts_file_is_the_default(tmp_path):
    config = files.config_of(conf(tmp_path, CHART))
    assert [[(p.name, set(p.enabled)) for p in tier] for tier in config.tiers] == [
        [(p.name, set(p.enabled)) for p in tier] for tier in CHART_TIERS
    ]
    assert config.actions == ("enqueue", "allocate", "backfill")


def test_switches_and_arguments_reach_the_plugins(tmp_path):
    config = files.config_of(conf(tmp_path, CONF))
    gang, drf, binpack = config.tiers[0][1], config.tiers[1][1], config.tiers[1][5]
    assert "preemptable" not in gang.enabled and "hierarchy" in drf.enabled
    assert binpack.arguments["binpack.weight"] == 10


def test_what_volcano_knows_and_is_not_modelled_is_listed_once(tmp_path):
    text = CHART.replace("- name: conformance", "- name: tdm").replace("backfill", "backfill, elect")
    text += "configurations:\n- name: preempt\n  arguments: {enableTopologyAwarePreemptoin: true}\n"
    with pytest.warns(UnknownWords) as caught:
        config = files.config_of(conf(tmp_path, text))
    [warning] = [str(w.message) for w in caught]
    assert "3 not modelled, passed over" in warning
    assert "action elect" in warning and "plugin tdm" in warning
    assert "did you mean 'configurations.preempt enableTopologyAwarePreemption'?" in warning
    assert [p.name for p in config.tiers[0]] == ["priority", "gang"]
    assert config.actions == ("enqueue", "allocate", "backfill")


# ---------------------------------------------------------------------------------------------------------------
# Manifests
# ---------------------------------------------------------------------------------------------------------------


def test_a_site_is_a_world_that_runs(tmp_path):
    site = read(tmp_path, QUEUES, NODES, job("a", "research", 12), job("b", "batch", 4))
    world, config = files.world_of(site, conf(tmp_path, CHART), work_ms=HOUR_MS)
    assert (world.gpu_resource, world.pods_resource) == ("nvidia.com/gpu", "pods")
    assert "hugepages-1Gi" not in world.resources  # nobody asks for it
    assert [(q.name, q.weight) for q in world.queues] == [("research", 3000), ("batch", 1000), ("default", 1000)]
    w = World.from_state(world)
    w.run(build(config=config), 0)
    assert {name: len(nodes) for name, nodes in held(w).items()} == {"default/a": 12, "default/b": 4}
    w.run(build(config=config))
    assert {row["outcome"] for row in w.dump()["ended"]} == {"done"}


def test_hyper_nodes_are_domains_and_a_hard_topology_stays_in_one(tmp_path):
    conf_text = CHART.replace("- name: binpack", "- name: binpack\n  - name: network-topology-aware")
    for wish in ("{mode: hard, highestTierAllowed: 1}", "{mode: hard, highestTierName: rack}"):
        jobs = job("wide", "research", 16, topology=f"networkTopology: {wish}"), job("first", "batch", 8)
        world, config = files.world_of(
            read(tmp_path, QUEUES, NODES, RACKS, *jobs), conf(tmp_path, conf_text), work_ms=HOUR_MS
        )
        assert world.nodes[2].domains == {"hypernodes": "rack1"}
        w = World.from_state(world)
        w.run(build(config=config), 0)
        racks = {node in ("n0", "n1") for node in held(w)["default/wide"]}
        assert len(held(w)["default/wide"]) == 16 and len(racks) == 1


def test_a_running_site_goes_on_where_it_stands_and_reclaims_for_its_queues(tmp_path):
    pods = "\n---\n".join(
        f"""\
apiVersion: v1
kind: Pod
metadata: {{name: old-worker-{i}, labels: {{volcano.sh/task-spec: worker}},
  annotations: {{scheduling.k8s.io/group-name: old}}}}
spec: {{nodeName: n{i // 8}, containers: [{{resources: {{requests: {{nvidia.com/gpu: 1, cpu: 1}}}}}}]}}
status: {{phase: Running}}"""
        for i in range(32)
    )
    group = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: old}
spec: {minMember: 4, queue: batch}
status: {phase: Running}
"""
    text = CHART.replace("backfill", "backfill, reclaim").replace("proportion", "capacity")
    text = text.replace("  - name: overcommit\n", "")  # it would admit nobody into a full cluster
    site = read(tmp_path, QUEUES, NODES, group, pods, job("new", "research", 8))
    world, config = files.world_of(site, conf(tmp_path, text), work_ms=HOUR_MS)
    w = World.from_state(world)
    assert len(held(w)["default/old"]) == 32
    w.run(build(config=config), 60_000)
    assert {name: len(nodes) for name, nodes in held(w).items()} == {"default/old": 24, "default/new": 8}


def test_the_manifests_of_the_text_are_read(tmp_path):
    with pytest.warns(UnknownWords, match=r"HyperNodes that overlap others: HyperNode labelled \(n1, n2"):
        world, config = files.world_of(read(tmp_path, SITE, JOB, TEXT), work_ms={"core/tf": 1, "default/train-pg": 1})
    assert [(q.name, q.parent) for q in world.queues] == [("research", "root"), ("default", "root"), ("root", None)]
    assert [(d.name, d.parent, d.tier) for d in world.domains] == [
        ("s0", "top", 1),
        ("top", None, 2),
        ("labelled", None, 1),
    ]
    groups = {group.job: group for group in config.pod_groups}
    assert groups["core/tf"].min_task_member == {"ps": 1, "worker": 2}
    assert (groups["core/tf"].highest_tier, groups["core/tf"].preemptable) == (2, True)
    assert [pods.preemptable for pods in groups["core/tf"].pods] == [True, False]
    [queue] = config.queues
    assert (queue.capability["nvidia.com/gpu"], queue.guarantee["nvidia.com/gpu"]) == (64_000, 8000)
    World.from_state(world)
    build(config=config).private_for(World.from_state(world))


def test_a_job_without_a_run_time_is_one_line(tmp_path):
    site = read(tmp_path, QUEUES, NODES, job("a", "research", 2))
    with pytest.raises(GanglineError) as error:
        files.world_of(site, work_ms={})
    assert "job in work_ms 'default/a'" in str(error.value) and "\n" not in str(error.value)


def test_a_hyper_node_in_two_others_is_one_line(tmp_path):
    tops = "\n---\n".join(
        "apiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\n"
        f"metadata: {{name: top{i}}}\n"
        "spec: {tier: 2, members: [{type: HyperNode, selector: {exactMatch: {name: rack0}}}]}"
        for i in range(2)
    )
    with pytest.raises(GanglineError, match="HyperNode 'rack0' is in 'top0' and in 'top1', expected in one"):
        files.world_of(read(tmp_path, NODES, RACKS, tops), work_ms=HOUR_MS)


# ---------------------------------------------------------------------------------------------------------------
# For a world of another make
# ---------------------------------------------------------------------------------------------------------------


def tenants_world() -> World:
    """Two tenants without queues, as a trace of jobs gives them."""
    jobs = [
        JobSpec(
            name=name,
            tenant=name,
            pod_sets=[PodSetSpec(count=count, request={"gpu": 1000})],
            min_member=least,
            work_ms=HOUR_MS,
            submit_ms=submit_ms,
        )
        for name, count, least, submit_ms in (("batch", 16, 1, 0), ("research", 8, 8, 1000))
    ]
    return World.from_state(
        WorldSpec(
            nodes=[NodeSpec(name=f"n{i}", amounts={"gpu": 8000}) for i in range(2)],
            tenants=[TenantSpec(name="batch"), TenantSpec(name="research")],
            jobs=jobs,
            options=OptionsSpec(gang=False),
        )
    )


def test_a_conf_and_queues_apply_to_the_tenants_of_a_trace(tmp_path):
    text = CHART.replace("backfill", "reclaim").replace("proportion", "capacity").replace("  - name: overcommit\n", "")
    path = write(tmp_path / "volcano-scheduler.conf", text)
    for reclaimable, want in (("true", 8), ("false", 16)):
        queues = QUEUES.replace("reclaimable: true", f"reclaimable: {reclaimable}").replace("gpu: 16", "gpu: 8")
        config = files.read_config(path, write(tmp_path / "queues.yaml", queues))
        w = tenants_world()
        w.run(build(config=config), 60_000)
        assert len(held(w)["batch"]) == want


def test_a_queue_of_no_tenant_is_one_line(tmp_path):
    config = files.read_config(None, write(tmp_path / "queues.yaml", QUEUES.replace("name: batch", "name: batsh")))
    with pytest.raises(GanglineError, match="batsh"):
        build(config=config).private_for(tenants_world())
