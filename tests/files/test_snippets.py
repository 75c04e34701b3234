"""The manifests and the command line that the text prints, as they stand there, as input: read, and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.baselines.base import build
from gangline.baselines.kueue import files as kueue_files
from gangline.baselines.volcano import files as volcano_files
from gangline.envs.config import load_world
from gangline.envs.core.spec import HOUR_MS
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.files import kueue, sbatch, volcano
from gangline.envs.worlds import build_world

SBATCH = "sbatch --nodes=8 --ntasks-per-node=8 --gres=gpu:h100:8 train.sh"

POD_GROUP = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  name: train-pg
spec:
  minMember: 8          # 凑够 8 个才调度
  queue: default
"""

CLUSTER_QUEUE = """\
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

NODE = """\
---
apiVersion: v1
kind: Node
metadata: {{name: n0}}
status: {{allocatable: {{nvidia.com/gpu: "{gpus}", pods: "110"}}, conditions: [{{type: Ready, status: "True"}}]}}
"""

POD = """\
---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: default
  annotations: {{scheduling.k8s.io/group-name: {group}}}
spec:
  schedulerName: volcano
  containers: [{{name: c, resources: {{requests: {{nvidia.com/gpu: "1"}}, limits: {{nvidia.com/gpu: "1"}}}}}}]
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_pod_group_is_a_gang_of_eight(tmp_path):
    site = volcano.read(written(tmp_path, "pg.yaml", POD_GROUP))
    (group,) = site.pod_groups.values()
    assert (group.full_name, group.min_member, group.queue) == ("default/train-pg", 8, "default")
    assert not site.unknown and not site.skipped


@pytest.mark.parametrize(("gpus", "want_bound"), [(6, 0), (8, 8)])
def test_volcano_starts_the_pods_of_that_group_all_or_none(tmp_path, gpus, want_bound):
    pods = "".join(POD.format(name=f"train-pg-{i}", group="train-pg") for i in range(8))
    site = volcano.read(written(tmp_path, "all.yaml", POD_GROUP + NODE.format(gpus=gpus) + pods))
    spec, config = volcano_files.world_of(site, work_ms=HOUR_MS)
    world = World.from_state(spec)
    world.run(build("volcano", config=config), HOUR_MS // 2)
    assert len(world.dump()["jobs"]["default/train-pg"]["bound"]) == want_bound


def test_the_cluster_queue_has_eight_gpus_in_the_cohort(tmp_path):
    site = kueue.read(written(tmp_path, "cq.yaml", CLUSTER_QUEUE))
    (queue,) = site.cluster_queues.values()
    assert (queue.name, queue.parent) == ("team-a", "prod")
    assert queue.quotas()["default", "nvidia.com/gpu"].nominal == 8
    assert not site.unknown and not site.skipped


def test_that_cluster_queue_twice_is_a_world_in_which_a_borrows_from_b(tmp_path):
    second = CLUSTER_QUEUE.replace("team-a", "team-b")
    path = written(tmp_path, "queues.yaml", CLUSTER_QUEUE + "---\n" + second)
    jobs = [
        {"name": "a1", "tenant": "team-a", "hours": 9, "pods": 8},
        {"name": "b1", "tenant": "team-b", "hours": 9, "pods": 2},
        {"name": "a2", "tenant": "team-a", "at_h": 1, "hours": 3, "pods": 4},
    ]
    config = load_world(
        {
            "cluster": {"nodes": [{"count": 2, "gpus": 8}]},
            "tenants": {"queues": str(path)},
            "workload": {"name": "listed", "load": None, "claims": "exact", "options": {"jobs": jobs}},
            "episode": {"horizon_h": 12, "warm_h": 0},
        }
    )
    spec, source = build_world(config)
    assert [(t.name, t.weight) for t in spec.tenants] == [("team-a", 8), ("team-b", 8)]
    world = World(spec, source.draw(0, {}).jobs())
    world.run(build("kueue", config=kueue_files.read_config(path)), 2 * HOUR_MS)
    tenants = world.dump()["tenants"]
    assert {name: t["held"] // 1000 for name, t in tenants.items()} == {"team-a": 12, "team-b": 2}


def test_the_sbatch_line_is_a_gang_of_eight_nodes_with_eight_h100_each():
    request = sbatch.read_command(SBATCH)
    assert (request.num_nodes, request.num_tasks, request.num_gpus, request.gpu_type) == (8, 64, 64, "h100")


def test_the_sbatch_line_is_a_job_of_a_world(tmp_path):
    jobs = [
        {"name": "small", "tenant": "chem", "hours": 2, "gpus": 4},
        {"name": "big", "tenant": "chem", "at_h": 0.5, "hours": 3, "sbatch": SBATCH},
    ]
    config = load_world(
        {
            "cluster": {"nodes": [{"count": 8, "gpus": 8, "flavor": "h100"}]},
            "workload": {"name": "listed", "load": None, "claims": "own", "options": {"jobs": jobs}},
            "episode": {"horizon_h": 12, "warm_h": 0},
        }
    )
    spec, source = build_world(config)
    trace = source.draw(0, {}).jobs()
    assert trace.gpus().tolist() == [4_000, 64_000]
    world = World(spec, trace)
    world.run(build("slurm"), HOUR_MS)
    assert [j["state"] for j in world.dump()["jobs"].values()] == ["running", "queued"]
    world.run(build("slurm"), 3 * HOUR_MS)
    assert len(world.dump()["jobs"]["job-1"]["bound"]) == 8


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        ({"sbatch": "srun --nodes=8"}, "expected sbatch OPTIONS SCRIPT"),
        ({"hours": 0}, r"jobs\[0\].hours is 0.0, expected more than 0"),
        ({"tenat": "x"}, "did you mean 'tenant'"),
        ({"kind": "trainig"}, "did you mean 'training'"),
        ({"every_h": 1}, "stream 'j' has no end"),
        ({"sbatch": SBATCH}, "h100"),
    ],
)
def test_a_listed_job_that_makes_no_sense_is_one_line(changed, want):
    config = load_world(
        {
            "workload": {"name": "listed", "options": {"jobs": [{"name": "j", "tenant": "t", **changed}]}},
            "episode": {"horizon_h": None},
        }
    )
    with pytest.raises(GanglineError, match=want) as error:
        build_world(config)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (CLUSTER_QUEUE.replace("name: default", "name: a100"), "unknown flavor of 'team-a'"),
        (CLUSTER_QUEUE.replace("team-a", "team-x"), "unknown ClusterQueue of a tenant 'team-a'.*did you mean 'team-x'"),
        (POD_GROUP, "no ClusterQueue, expected at least one"),
    ],
)
def test_queues_that_do_not_suit_the_world_are_one_line(tmp_path, text, want):
    path = written(tmp_path, "q.yaml", text)
    jobs = [{"name": "j", "tenant": "team-a"}]
    with pytest.raises(GanglineError, match=want):
        build_world(
            load_world({"tenants": {"queues": str(path)}, "workload": {"name": "listed", "options": {"jobs": jobs}}})
        )
