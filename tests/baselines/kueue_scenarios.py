"""Worked examples of the text as manifests, jobs and what is to be seen when: example 8-4 and exercise 8-2.

The manifests are what one would `kubectl apply`; `world_of` makes the world and the configuration of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builders import minutes
from workloads.files import write

from gangline.baselines.kueue import files
from gangline.baselines.kueue.config import KueueConfig
from gangline.envs.core.spec import JobSpec, PodSetSpec, WorldSpec
from gangline.envs.files import kueue

GPU = "nvidia.com/gpu"
HIGH, NORMAL = 1000, 100
FLAVOR = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
"""


@dataclass(frozen=True)
class Scenario:
    """A cluster, its Kueue, what the teams submit, and the GPUs that each team holds at some minutes."""

    manifests: str
    jobs: Sequence[JobSpec]
    want: Mapping[float, Mapping[str, int]]

    def build(self, folder: Path) -> tuple[WorldSpec, KueueConfig]:
        """The world with the jobs, and the installation."""
        world, config = files.world_of(kueue.read(write(folder / "site.yaml", self.manifests)), work_ms=1)
        return replace(world, jobs=self.jobs), config


def cluster_queue(name: str, gpus: int, preemption: str) -> str:
    """The manifest of a team's ClusterQueue in the cohort `prod`."""
    return f"""\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  cohortName: prod
  preemption: {preemption}
  resourceGroups:
  - coveredResources: [{GPU}]
    flavors:
    - name: default
      resources:
      - {{name: {GPU}, nominalQuota: {gpus}}}
"""


def node(name: str, gpus: int) -> str:
    """The manifest of a node."""
    return f"""\
apiVersion: v1
kind: Node
metadata: {{name: {name}}}
status: {{allocatable: {{{GPU}: {gpus}, pods: 110}}}}
"""


def job(
    team: str, name: str, gpus: int, submit_min: float, priority: int = NORMAL, leaves_min: float | None = None
) -> JobSpec:
    """A gang of single-GPU workers that runs for ten hours, or until its team takes it back."""
    return JobSpec(
        name=f"{team}-{name}",
        tenant=team,
        pod_sets=[PodSetSpec(count=gpus, request={GPU: 1000, "pods": 1})],
        work_ms=minutes(600),
        submit_ms=minutes(submit_min),
        cancel_ms=None if leaves_min is None else minutes(leaves_min),
        priority=priority,
    )


# Two teams with 8 GPUs each. a uses 8, b 2; a borrows 4 of b's idle 6; b comes back for its own.
EXAMPLE_8_4 = Scenario(
    "---\n".join(
        [
            FLAVOR,
            *(cluster_queue(name, 8, "{reclaimWithinCohort: Any}") for name in ("a", "b")),
            *(node(f"n{i}", 8) for i in range(2)),
        ]
    ),
    [job("a", "own", 8, 0), job("b", "own", 2, 0), job("a", "borrows", 4, 10), job("b", "returns", 6, 20)],
    {
        5: {"a": 8, "b": 2},
        15: {"a": 12, "b": 2},
        25: {"a": 8, "b": 8},
    },
)

# Three teams on 100 GPUs, 40/30/30. Everybody lends what is idle and takes back its own, b and c on equal terms. a's
# workloads have the higher priority: it may also preempt what b and c borrow while it borrows itself.
A_FIRST = "{withinClusterQueue: LowerPriority, reclaimWithinCohort: Any, borrowWithinCohort: {policy: LowerPriority}}"
EQUALS = "{withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}"
EXERCISE_8_2 = Scenario(
    "---\n".join(
        [
            FLAVOR,
            cluster_queue("a", 40, A_FIRST),
            cluster_queue("b", 30, EQUALS),
            cluster_queue("c", 30, EQUALS),
            *(node(f"n{i}", 10) for i in range(10)),
        ]
    ),
    [
        *(job(team, f"early{i}", 10, 0, leaves_min=30 if team == "c" else None) for i in range(5) for team in "bc"),
        *(job("a", f"own{i}", 10, 10, HIGH) for i in range(4)),
        *(job("a", f"more{i}", 10, 20, HIGH) for i in range(2)),
        *(job("c", f"back{i}", 10, 40) for i in range(3)),
    ],
    {
        5: {"a": 0, "b": 50, "c": 50},  # a's idle 40 are lent, half to each
        15: {"a": 40, "b": 30, "c": 30},  # a takes its own back, from both alike
        25: {"a": 40, "b": 30, "c": 30},  # a would borrow; nobody below its quota loses anything to that
        35: {"a": 60, "b": 40, "c": 0},  # c has left: its 30 are lent, a first
        45: {"a": 40, "b": 30, "c": 30},  # c is back
    },
)
