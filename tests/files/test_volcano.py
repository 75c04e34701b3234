"""volcano-scheduler.conf and Volcano's manifests."""

import warnings

import pytest
from workloads.files import write

from gangline.envs.errors import GanglineError
from gangline.envs.files import volcano
from gangline.envs.files.text import UnknownWords

CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
    arguments: {overcommit-factor: 1.5}
  - name: drf
    enablePreemptable: false
    enableHierarchy: true
  - name: predicates
  - name: capacity
    enabledOverused: false
  - name: nodeorder
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.resources: nvidia.com/gpu
configurations:
- name: allocate
  arguments: {predicateErrorCacheEnable: "true"}
"""


def conf(tmp_path, text, **options):
    return volcano.read_conf(write(tmp_path / "volcano-scheduler.conf", text, **options))


@pytest.mark.parametrize("options", [{}, {"newline": "\r\n", "bom": True}])
def test_a_scheduler_configuration(tmp_path, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = conf(tmp_path, CONF, **options)
    assert read.actions == ("enqueue", "allocate", "backfill")
    assert [[plugin.name for plugin in tier] for tier in read.tiers] == [
        ["priority", "gang", "conformance"],
        ["overcommit", "drf", "predicates", "capacity", "nodeorder", "binpack"],
    ]
    gang, drf, capacity = read.tiers[0][1], read.tiers[1][1], read.tiers[1][3]
    assert gang.switches == {"preemptable": False}
    assert (gang.is_on("preemptable"), gang.is_on("job_ready"), gang.is_on("hierarchy")) == (False, True, False)
    assert drf.is_on("hierarchy") and not capacity.is_on("overused")
    assert "cluster_order" not in drf.enabled and "job_order" in drf.enabled
    assert read.tiers[1][5].arguments == {"binpack.weight": 10, "binpack.resources": "nvidia.com/gpu"}
    assert read.action_arguments == {"allocate": {"predicateErrorCacheEnable": "true"}}


def test_the_config_map_of_a_cluster(tmp_path):
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: volcano-scheduler-configmap}\ndata:\n"
    text += "  volcano-scheduler.conf: |\n" + "".join(f"    {line}\n" for line in CONF.splitlines())
    assert conf(tmp_path, text).tiers == conf(tmp_path, CONF).tiers


def test_unknown_fields_are_listed(tmp_path):
    text = CONF.replace("enableHierarchy", "enableHierachy").replace("tiers:", "teirs: []\ntiers:")
    with pytest.warns(UnknownWords) as caught:
        read = conf(tmp_path, text)
    assert len(caught) == 1 and len(read.unknown) == 2
    assert (
        "enableHierachy" in read.unknown[0] and "did you mean 'tiers[1].plugins[1].enableHierarchy'?" in read.unknown[0]
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "0 documents, expected one"),
        ("actions: allocate\n", "tiers is missing, expected a list of tiers with plugins"),
        ("tiers: []\n", "actions is missing, expected a name"),
        (CONF.replace("backfill", "backfil"), "actions has the action 'backfil', expected one of enqueue,"),
        (CONF.replace("backfill", "backfil"), "did you mean 'backfill'?"),
        (
            CONF.replace("name: gang", "name: gangs"),
            "tiers[0].plugins[1].name has the plugin 'gangs', expected one of binpack,",
        ),
        (
            CONF.replace("enablePreemptable: false", "enablePreemptable: 'no'"),
            "enablePreemptable is 'no', expected true or false",
        ),
        (CONF.replace("name: capacity", "name: proportion"), "tiers[1] has proportion beside drf with enableHierarchy"),
        (CONF.replace("- plugins:\n  - name: priority", "- plugins: priority\n  - name: x"), "not YAML"),
        ("actions: allocate\ntiers: {plugins: 1}\n", "tiers is a mapping, expected a list"),
        (
            "actions: allocate\ntiers: [{plugins: [priority]}]\n",
            "tiers[0].plugins[0] is 'priority', expected a mapping",
        ),
    ],
)
def test_a_wrong_configuration_is_one_line(tmp_path, text, want):
    with pytest.raises(GanglineError) as error:
        conf(tmp_path, text)
    assert want in str(error.value) and "\n" not in str(error.value)


TEXT = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  name: train-pg
spec:
  minMember: 8          # 凑够 8 个才调度
  queue: default
"""
SITE = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: research
  annotations: {volcano.sh/hierarchy: root/research, volcano.sh/hierarchy-weights: 1/2}
spec:
  weight: 4
  parent: root
  priority: 10
  reclaimable: false
  capability: {cpu: "512", memory: 4Ti, nvidia.com/gpu: 64}
  deserved: {nvidia.com/gpu: 32}
  guarantee: {resource: {nvidia.com/gpu: 8}}
status: {state: Open, running: 3}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: v1
kind: PriorityClass
metadata: {name: misplaced}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {rack: r1}}
status:
  allocatable: {cpu: 63500m, memory: 500Gi, nvidia.com/gpu: 8, pods: 110}
  conditions: [{type: Ready, status: "True"}]
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {rack: r1}}
spec: {unschedulable: true}
status: {capacity: {cpu: 64, nvidia.com/gpu: 8}}
---
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: s0}
spec:
  tier: 1
  tierName: rack
  members:
  - {type: Node, selector: {exactMatch: {name: n1}}}
  - {type: Node, selector: {regexMatch: {pattern: "^n[2-9]$"}}}
---
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: top}
spec:
  tier: "2"
  members: [{type: HyperNode, selector: {exactMatch: {name: s0}}}]
---
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: labelled}
spec:
  tier: 1
  members: [{type: Node, selector: {labelMatch: {matchLabels: {rack: r1}}}}]
"""
JOB = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: tf, namespace: core, annotations: {volcano.sh/preemptable: "true"}}
spec:
  schedulerName: volcano
  queue: research
  priorityClassName: high
  minAvailable: 3
  networkTopology: {mode: hard, highestTierAllowed: 2}
  plugins: {ssh: [], svc: []}
  policies: [{event: PodEvicted, action: RestartJob}]
  tasks:
  - name: ps
    replicas: 1
    template:
      spec:
        containers: [{name: ps, resources: {requests: {cpu: 4, memory: 8Gi}}}]
  - name: worker
    replicas: 4
    minAvailable: 2
    template:
      metadata: {labels: {volcano.sh/preemptable: "false"}}
      spec:
        priorityClassName: high
        containers: [{name: w, resources: {limits: {nvidia.com/gpu: 8}, requests: {cpu: 16}}}]
"""


def read(tmp_path, *texts, **options):
    return volcano.read(*(write(tmp_path / f"{i}.yaml", text, **options) for i, text in enumerate(texts)))


def test_the_manifest_of_the_text(tmp_path):
    group = read(tmp_path, TEXT).pod_groups["default/train-pg"]
    assert (group.min_member, group.queue, group.priority, group.phase) == (8, "default", 0, "Pending")
    assert group.min_resources is None and group.network_topology is None


@pytest.mark.parametrize("options", [{}, {"newline": "\r\n", "bom": True}])
def test_a_site(tmp_path, options):
    site = read(tmp_path, SITE, JOB, **options)
    queue = site.queues["research"]
    assert (queue.weight, queue.parent, queue.priority, queue.reclaimable) == (4, "root", 10, False)
    assert queue.capability == {"cpu": 512_000, "memory": 4 << 40, "nvidia.com/gpu": 64}
    assert (queue.deserved, queue.guarantee) == ({"nvidia.com/gpu": 32}, {"nvidia.com/gpu": 8})
    assert (queue.hierarchy, queue.hierarchy_weights) == ("root/research", "1/2")
    n1, n2 = site.nodes.values()
    assert (n1.amounts["cpu"], n1.amounts["pods"], n1.is_up, n2.is_up) == (63_500, 110, True, False)
    assert (site.hyper_nodes["s0"].tier, site.hyper_nodes["s0"].tier_name) == (1, "rack")
    assert site.leaf_nodes("s0") == site.leaf_nodes("top") == site.leaf_nodes("labelled") == ("n1", "n2")
    assert [entry.partition(" (")[0] for entry in site.skipped] == ["PriorityClass misplaced"]


def test_a_job_becomes_the_pod_group_and_the_pods_that_volcano_makes_of_it(tmp_path):
    site = read(tmp_path, SITE, JOB)
    group = site.pod_groups["core/tf"]
    assert (group.queue, group.priority, group.min_member) == ("research", 1000, 3)
    assert group.min_task_member == {"ps": 1, "worker": 2}
    # the two workers and the parameter server that make up minAvailable
    assert group.min_resources == {"cpu": 36_000, "memory": 8 << 30, "nvidia.com/gpu": 16}
    assert group.network_topology == volcano.NetworkTopology(mode="hard", highest_tier_allowed=2)
    assert group.preemptable is True
    assert [pod.name for pod in site.pods.values()] == ["tf-ps-0", *(f"tf-worker-{i}" for i in range(4))]
    ps, worker = site.pods["core/tf-ps-0"], site.pods["core/tf-worker-3"]
    assert (ps.task, ps.priority, ps.preemptable, ps.pod_group) == ("ps", None, True, "core/tf")
    assert (worker.priority, worker.preemptable) == (1000, False)
    assert worker.requests == {"nvidia.com/gpu": 8, "cpu": 16_000}


def test_pods_find_their_group_and_others_are_listed(tmp_path):
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p-0\n  annotations: {scheduling.k8s.io/group-name: train-pg}\n"
        "spec:\n  nodeName: n1\n  containers: [{resources: {requests: {nvidia.com/gpu: 1}}}]\n"
        "status: {phase: Running}\n"
    )
    site = read(
        tmp_path, TEXT, pod, pod.replace("scheduling.k8s.io/group-name: train-pg", "a: b").replace("p-0", "p-1")
    )
    (found,) = site.pods.values()
    assert (found.pod_group, found.node, found.phase) == ("default/train-pg", "n1", "Running")
    assert len(site.skipped) == 1 and site.skipped[0].startswith("Pod without a group")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (TEXT.replace("8 ", "eight "), "document 1: spec.minMember is 'eight', expected a whole number"),
        (TEXT.replace("8 ", "-1 "), "spec.minMember is -1, expected a whole number of at least 0"),
        (TEXT + "  priorityClassName: hihg\n", "spec.priorityClassName: no priority class 'hihg'"),
        (TEXT + "---\n" + TEXT, "document 2: 'default/train-pg' is there already"),
        (SITE.replace("weight: 4", "weight: 0"), "spec.weight is 0, expected a whole number of at least 1"),
        (SITE.replace("memory: 4Ti", "memory: 4TB"), "spec.capability.memory is '4TB', expected a quantity"),
        (
            SITE.replace("nvidia.com/gpu: 64", "nvidia.com/gpu: 0.5"),
            "spec.capability[nvidia.com/gpu] is 0.5, expected whole GPUs",
        ),
        (
            SITE.replace('tier: "2"', "tier: 1"),
            "HyperNode 's0' of tier 1 is inside 'top' of tier 1, expected a lower tier",
        ),
        (SITE.replace("^n[2-9]$", "^n[2-9$"), "regexMatch.pattern is '^n[2-9$', expected a regular expression"),
        (
            SITE.replace("type: HyperNode", "type: Rack"),
            "spec.members[0].type is 'Rack', expected one of Node, HyperNode",
        ),
        (
            SITE.replace("exactMatch: {name: n1}", "match: n1"),
            "spec.members[0].selector is a mapping, expected exactMatch",
        ),
        (
            SITE + "---\n" + JOB.replace("minAvailable: 3", "minAvailable: 9"),
            "spec.minAvailable is 9, expected at most the job's 5",
        ),
        (
            SITE + "---\n" + JOB.replace("minAvailable: 2", "minAvailable: 5"),
            "minAvailable is 5, expected at most replicas, 4",
        ),
        (
            SITE + "---\n" + JOB.replace("name: worker", "name: ps"),
            "spec.tasks[1].name is 'ps', expected a name that no other",
        ),
        (
            SITE + "---\n" + JOB.replace("replicas: 4", "replicas: 4000000000"),
            "replicas is 4000000000, expected at most 100000",
        ),
        (
            SITE + "---\n" + JOB.replace("mode: hard", "mode: harsh"),
            "networkTopology.mode is 'harsh', expected one of hard, soft",
        ),
    ],
)
def test_a_wrong_value_is_one_line_with_file_document_and_path(tmp_path, text, want):
    with pytest.raises(GanglineError) as error:
        read(tmp_path, text)
    assert want in str(error.value) and "\n" not in str(error.value)


def test_unknown_fields_of_manifests_are_listed(tmp_path):
    with pytest.warns(UnknownWords, match=r"spec\.minMembers .*did you mean 'spec\.minMember'"):
        group = read(tmp_path, TEXT.replace("minMember", "minMembers")).pod_groups["default/train-pg"]
    assert group.min_member == 0
