"""Kueue's manifests in both API versions, Jobs, a running cluster's workloads, and the configuration."""

import warnings

import pytest
from workloads.files import write

from gangline.envs.errors import GanglineError
from gangline.envs.files import kueue
from gangline.envs.files.text import UnknownWords

TEXT = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata:
  name: team-a
spec:
  cohort: prod           # 同 cohort 可共享配额
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors:
        - name: default
          resources:
            - name: nvidia.com/gpu
              nominalQuota: 8
"""

SITE = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
spec:
  nodeLabels: {gpu: h100}
  nodeTaints: [{key: gpu, value: "true", effect: NoSchedule}]
  topologyName: fabric
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: fabric}
spec:
  levels:
  - nodeLabel: block
  - nodeLabel: rack
  - nodeLabel: kubernetes.io/hostname
---
# the cohort tree
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: ml}
spec:
  parentName: company
  fairSharing: {weight: "2"}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: spot
      resources: [{name: nvidia.com/gpu, nominalQuota: 16}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: training, labels: {team: core}}
spec:
  cohortName: ml
  namespaceSelector: {}
  queueingStrategy: StrictFIFO
  preemption:
    reclaimWithinCohort: Any
    withinClusterQueue: LowerPriority
    borrowWithinCohort: {policy: LowerPriority, maxPriorityThreshold: 100}
  flavorFungibility: {whenCanBorrow: TryNextFlavor, whenCanPreempt: MayStopSearch}
  fairSharing: {weight: 500m}
  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
  resourceGroups:
  - coveredResources: ["nvidia.com/gpu", "cpu", "memory"]
    flavors:
    - name: h100
      resources:
      - {name: nvidia.com/gpu, nominalQuota: "64", borrowingLimit: 32, lendingLimit: 0}
      - {name: cpu, nominalQuota: 1500m}
      - {name: memory, nominalQuota: 4Ti}
    - name: spot
      resources:
      - {name: nvidia.com/gpu, nominalQuota: 0}
      - {name: cpu, nominalQuota: 0}
      - {name: memory, nominalQuota: 0}
  - coveredResources: [pods]
    flavors:
    - name: any
      resources: [{name: pods, nominalQuota: 100}]
status:
  pendingWorkloads: 3
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: core}
spec: {clusterQueue: training, fairSharing: {weight: 3}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 1000
description: for the demo
"""

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: llm
  namespace: core
  labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/priority-class: urgent}
  annotations: {kueue.x-k8s.io/job-min-parallelism: "4"}
spec:
  suspend: true
  parallelism: 8
  completions: 8
  activeDeadlineSeconds: 3600
  template:
    metadata:
      annotations: {kueue.x-k8s.io/podset-required-topology: rack}
    spec:
      nodeSelector: {zone: a}
      containers:
      - name: train
        image: train:1
        resources: {requests: {cpu: "8", memory: 64Gi, nvidia.com/gpu: 8}, limits: {nvidia.com/gpu: 8}}
      restartPolicy: Never
"""


def read(tmp_path, *texts, **options):
    return kueue.read(*(write(tmp_path / f"{i}.yaml", text, **options) for i, text in enumerate(texts)))


def quietly(tmp_path, *texts, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read(tmp_path, *texts, **options)


def test_the_manifest_of_the_text(tmp_path):
    site = quietly(tmp_path, TEXT)
    queue = site.cluster_queues["team-a"]
    assert queue.parent == "prod"
    assert queue.quotas() == {("default", "nvidia.com/gpu"): kueue.Quota(nominal=8)}
    assert (queue.queueing_strategy, queue.preemption) == ("BestEffortFIFO", kueue.Preemption())
    cohort, spec = site.queue_specs()
    assert (cohort.name, cohort.is_cohort, cohort.parent) == (
        "cohort/prod",
        True,
        None,
    )  # only named: it is there all the same
    assert (spec.parent, spec.quotas["default", "nvidia.com/gpu"].nominal) == ("cohort/prod", 8)


@pytest.mark.parametrize("options", [{}, {"newline": "\r\n", "bom": True}])
def test_a_site(tmp_path, options):
    site = quietly(tmp_path, SITE, JOB, **options)
    queue = site.cluster_queues["training"]
    assert (queue.parent, queue.queueing_strategy, queue.weight) == ("ml", "StrictFIFO", 0.5)
    assert queue.preemption == kueue.Preemption(
        within_cluster_queue="LowerPriority",
        reclaim_within_cohort="Any",
        borrow_within_cohort="LowerPriority",
        max_priority_threshold=100,
    )
    assert queue.flavor_fungibility.when_can_borrow == "TryNextFlavor"
    assert queue.admission_mode == "UsageBasedAdmissionFairSharing"
    first, second = queue.resource_groups
    assert first.resources == ("nvidia.com/gpu", "cpu", "memory")
    assert [flavor.name for flavor in first.flavors] == ["h100", "spot"]
    assert first.flavors[0].quotas == {
        "nvidia.com/gpu": kueue.Quota(nominal=64, borrowing_limit=32, lending_limit=0),
        "cpu": kueue.Quota(nominal=1500),
        "memory": kueue.Quota(nominal=4 << 40),
    }
    assert second.flavors[0].quotas == {"pods": kueue.Quota(nominal=100)}
    assert (site.cohorts["ml"].parent, site.cohorts["ml"].weight) == ("company", 2.0)
    assert site.flavors["h100"] == kueue.ResourceFlavor(name="h100", node_labels={"gpu": "h100"}, topology="fabric")
    assert site.topologies["fabric"].levels == ("block", "rack", "kubernetes.io/hostname")
    assert site.local_queues["core/main"].weight == 3.0

    (job,) = site.workloads.values()
    assert (job.full_name, job.priority, job.claim_ms) == ("core/llm", 1000, 3_600_000)
    (pods,) = job.pod_sets
    assert (pods.count, pods.min_count, pods.node_selector) == (8, 4, {"zone": "a"})
    assert pods.requests == {"cpu": 8000, "memory": 64 << 30, "nvidia.com/gpu": 8}
    assert pods.topology == kueue.TopologyRequest(required="rack")
    assert site.queue_of(job) == "training"

    specs = {spec.name: spec for spec in site.queue_specs(lambda resource: 1000 if resource == "nvidia.com/gpu" else 1)}
    assert [spec.parent for spec in specs.values()] == ["cohort/company", None, "cohort/ml"]
    quota = specs["training"].quotas["h100", "nvidia.com/gpu"]
    assert (quota.nominal, quota.borrowing_limit, quota.lending_limit) == (64_000, 32_000, 0)
    assert (specs["cohort/ml"].weight, specs["training"].weight) == (2000, 500)


def test_a_folder_stands_for_its_files(tmp_path):
    write(tmp_path / "1.yaml", SITE)
    write(tmp_path / "2.yml", JOB)
    write(tmp_path / "notes.txt", "not a manifest")
    assert len(kueue.read(tmp_path).workloads) == 1


def test_old_field_names_mean_the_same(tmp_path):
    old = TEXT.replace(
        "  cohort: prod", "  cohort: prod\n  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}"
    )
    old += "---\napiVersion: kueue.x-k8s.io/v1alpha1\nkind: Cohort\nmetadata: {name: prod}\nspec: {parent: company}\n"
    site = quietly(tmp_path, old)
    assert site.cluster_queues["team-a"].flavor_fungibility == kueue.FlavorFungibility(when_can_preempt="MayStopSearch")
    assert site.cohorts["prod"].parent == "company"


ADMITTED = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: job-llm-1, namespace: core, uid: u-1, creationTimestamp: 2024-03-01T12:00:00Z}
spec:
  queueName: main
  priorityClassRef: {group: kueue.x-k8s.io, kind: WorkloadPriorityClass, name: urgent}
  priority: 7
  podSets:
  - name: launcher
    count: 1
    template: {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}
  - name: worker
    count: 4
    minCount: 2
    topologyRequest: {preferred: block, podSetSliceRequiredTopology: rack, podSetSliceSize: 2, podSetGroupName: g}
    template: {spec: {containers: [{resources: {requests: {nvidia.com/gpu: 8}}}]}}
status:
  conditions:
  - {type: QuotaReserved, status: "True", lastTransitionTime: "2024-03-01T12:00:05Z"}
  - {type: Evicted, status: "False", lastTransitionTime: "2024-03-01T12:00:06Z"}
  admission:
    clusterQueue: training
    podSetAssignments:
    - {name: launcher, count: 1, flavors: {cpu: h100}, resourceUsage: {cpu: 1}}
    - {name: worker, count: 4, flavors: {nvidia.com/gpu: h100}, resourceUsage: {nvidia.com/gpu: 32}}
"""


def test_a_workload_of_a_running_cluster_keeps_what_it_holds(tmp_path):
    site = quietly(tmp_path, SITE, ADMITTED)
    job = site.workloads["core/job-llm-1"]
    assert (job.priority, job.uid, job.created_ms, job.reserved_ms) == (7, "u-1", 1_709_294_400_000, 1_709_294_405_000)
    assert job.evicted_ms is None and site.queue_of(job) == "training"
    launcher, worker = job.pod_sets
    assert (launcher.requests, worker.count, worker.min_count) == ({"cpu": 1000}, 4, 2)
    assert worker.topology == kueue.TopologyRequest(preferred="block", slices=(("rack", 2),), group="g")
    assert job.assignments[1].usage == {"nvidia.com/gpu": 32}


CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 168h, usageSamplingInterval: 5m, resourceWeights: {nvidia.com/gpu: 2}}
waitForPodsReady: {timeout: 10m, blockAdmission: true, requeuingStrategy: {timestamp: Creation, backoffLimitCount: 5}}
featureGates: {PartialAdmission: false}
integrations: {frameworks: [batch/job]}
"""


def test_the_configuration_by_itself_or_in_its_config_map(tmp_path):
    config_map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kueue-manager-config}\ndata:\n"
    config_map += "  controller_manager_config.yaml: |\n" + "".join(
        f"    {line}\n" for line in CONFIGURATION.splitlines()
    )
    for text in (CONFIGURATION, config_map):
        configuration = quietly(tmp_path, text).configuration
        assert configuration.fair_sharing == ("LessThanInitialShare",)
        assert configuration.usage_half_life_ms == 7 * 86_400_000
        assert configuration.resource_weights == {"nvidia.com/gpu": 2.0}
        assert (configuration.pods_ready_timeout_ms, configuration.block_admission) == (600_000, True)
        assert (configuration.requeuing_timestamp, configuration.backoff_limit_count) == ("Creation", 5)
        assert configuration.gates == {"PartialAdmission": False}
    old = CONFIGURATION.replace("v1beta2", "v1beta1")
    assert quietly(tmp_path, old).configuration.fair_sharing is None  # v1beta1 wants enable: true


def test_other_objects_and_unknown_fields_are_listed(tmp_path):
    text = (
        TEXT.replace("  cohort:", "  cohrtName: x\n  cohort:")
        + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n"
    )
    plain_job = JOB.replace("kueue.x-k8s.io/queue-name: main, ", "")
    with pytest.warns(UnknownWords, match="cohrtName") as caught:
        site = read(tmp_path, text, plain_job)
    assert len(caught) == 1
    assert site.unknown == (f"spec.cohrtName (manifest {tmp_path}/0.yaml document 1; did you mean 'spec.cohortName'?)",)
    assert [entry.partition(" (")[0] for entry in site.skipped] == [
        "Namespace n",
        "Job without the label kueue.x-k8s.io/queue-name",
    ]


GPU = "spec.resourceGroups[0].flavors[0].resources[0]"


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        (
            "nominalQuota: 8",
            "nominalQuota: 8GB",
            f"0.yaml document 1: {GPU}.nominalQuota is '8GB', expected a quantity such",
        ),
        ("nominalQuota: 8", "nominalQuota: 500m", f"{GPU}.nominalQuota is '500m', expected whole GPUs"),
        ("nominalQuota: 8", "nominalQuota: -8", f"{GPU}.nominalQuota is -8, expected a quantity of at least 0"),
        ("nominalQuota: 8", "nominalQuota: {a: 1}", f"{GPU}.nominalQuota is a mapping, expected a single value"),
        ("nominalQuota: 8", "nominalQuota:", f"{GPU}.nominalQuota is missing, expected a quantity such as 8"),
        (
            "nominalQuota: 8",
            "nominalQuota: 8\n              lendingLimit: 9",
            "lendingLimit is 9, expected at most the nominal",
        ),
        (
            "name: nvidia.com/gpu",
            "name: amd.com/gpu",
            f"{GPU}.name is 'amd.com/gpu', expected each of coveredResources once",
        ),
        ("[nvidia.com/gpu]", "[nvidia.com/gpu, cpu]", "flavors[0].resources has no cpu, expected a quota for each"),
        (
            "[nvidia.com/gpu]",
            "nvidia.com/gpu",
            "spec.resourceGroups[0].coveredResources is 'nvidia.com/gpu', expected a list",
        ),
        (
            "[nvidia.com/gpu]",
            "[nvidia.com/gpu, nvidia.com/gpu]",
            "expected a resource that no other place of the queue covers",
        ),
        (
            "cohort: prod",
            "queueingStrategy: Fifo",
            "spec.queueingStrategy is 'Fifo', expected one of StrictFIFO, BestEffort",
        ),
        ("cohort: prod", "preemption: {reclaimWithinCohort: any}", "expected one of Never, LowerPriority,"),
        ("cohort: prod", "cohort: 7", "spec.cohort is 7, expected a text (a name of digits needs quotes)"),
        ("cohort: prod", "fairSharing: {weight: heavy}", "spec.fairSharing.weight is 'heavy', expected a quantity"),
        ("name: team-a", "title: team-a", "metadata.name is missing, expected a name"),
        ("metadata:\n  name: team-a", "metadata: team-a", "metadata is 'team-a', expected a mapping"),
    ],
)
def test_a_wrong_value_is_one_line_with_file_document_and_path(tmp_path, before, after, want):
    assert before in TEXT
    with pytest.raises(GanglineError) as error:
        read(tmp_path, TEXT.replace(before, after))
    assert want in str(error.value) and "\n" not in str(error.value)


BORROWING = TEXT.replace("  cohort: prod", "").replace("Quota: 8", "Quota: 8\n              borrowingLimit: 8")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (TEXT + "---\n" + TEXT, "document 2: 'team-a' is there already (manifest"),
        (BORROWING, f"{GPU}.borrowingLimit is 8, expected none without a cohort"),
        (JOB, "metadata.labels[kueue.x-k8s.io/priority-class]: no priority class 'urgent', expected one of the files"),
        (SITE + "---\n" + JOB.replace('"4"', '"four"'), "job-min-parallelism] is 'four', expected a whole number"),
        (
            SITE + "---\n" + JOB.replace("parallelism: 8", "parallelism: eight"),
            "spec.parallelism is 'eight', expected a whole",
        ),
        (
            SITE + "---\n" + JOB.replace("memory: 64Gi", "memory: 64GiB"),
            "requests.memory is '64GiB', expected a quantity",
        ),
        (ADMITTED.replace("podSets:", "podset:"), "spec.podSets is missing, expected at least one pod set"),
        (
            CONFIGURATION.replace("168h", "a week"),
            "admissionFairSharing.usageHalfLifeTime is 'a week', expected a duration",
        ),
        (CONFIGURATION.replace("LessThanInitialShare", "Less"), "preemptionStrategies[0] is 'Less', expected one of"),
    ],
)
def test_other_objects_that_make_no_sense(tmp_path, text, want):
    with pytest.raises(GanglineError) as error:
        read(tmp_path, text)
    assert want in str(error.value) and "\n" not in str(error.value)


def test_a_workload_without_its_local_queue(tmp_path):
    site = quietly(tmp_path, SITE, JOB.replace("queue-name: main", "queue-name: mian"))
    with pytest.raises(
        GanglineError, match="unknown LocalQueue of workload core/llm 'core/mian'; known: core/main; did you"
    ):
        site.queue_of(site.workloads["core/llm"])
