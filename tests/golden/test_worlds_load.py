"""Every recorded world loads without loss: read back from the world, it is what was recorded."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from reference import ReferenceWorld

from gangline.baselines.conformance.kueue.world import kueue_world
from gangline.baselines.conformance.slurm import SlurmWorld, slurm_world
from gangline.baselines.conformance.volcano.world import volcano_world
from gangline.envs.core.spec import WorldSpec
from gangline.envs.core.types import MAX_FLAVORS, MAX_QUOTA_CELLS, MAX_RESOURCES, MAX_TOPOLOGIES
from gangline.envs.core.world import World
from golden import worlds
from golden.record import spec_of

SYSTEMS = ("kueue", "volcano", "slurm")
FILES = {system: sorted(path.name for path in (worlds.GOLDEN / system).glob("*.json")) for system in SYSTEMS}
pytestmark = pytest.mark.skipif(
    not any(FILES.values()), reason=f"no recorded cases in {worlds.GOLDEN}; GANGLINE_GOLDEN names their folder"
)

BUILDERS: dict[str, Callable[[WorldSpec], Any]] = {
    "reference": ReferenceWorld.from_state,
    "compiled": World.from_state,
}


# ---------------------------------------------------------------------------------------------------------------
# Case -> WorldSpec -> case
# ---------------------------------------------------------------------------------------------------------------


def check_keys(record: dict[str, Any], private: tuple[str, ...], *owned: str) -> None:
    """Every key of a record is either owned by the core or listed as private."""
    unknown = set(record) - set(private) - set(owned)
    assert not unknown, f"neither owned nor listed as private: {sorted(unknown)}"


def check_capacities(world: WorldSpec) -> None:
    """The world fits the capacities that every state record has."""
    assert len(world.resources) <= MAX_RESOURCES
    assert len(world.flavors) <= MAX_FLAVORS
    assert len({cell for queue in world.queues for cell in queue.quotas}) <= MAX_QUOTA_CELLS
    assert len({domain.topology for domain in world.domains}) <= MAX_TOPOLOGIES
    assert len({job.name for job in world.jobs}) == len(world.jobs)


@pytest.mark.parametrize("file", FILES["kueue"])
def test_kueue_read_back(file: str) -> None:
    _, cases = worlds.read("kueue", file)
    assert cases
    private = worlds.KUEUE_PRIVATE
    for case in cases:
        if case["kind"] in worlds.KUEUE_WITHOUT_WORLD:
            assert "cohorts" not in case and "nodes" not in case
            continue
        owned = ("cohorts", "queues", "usage", "admitted", "pending", "nodes", "topologies", "pod_sets")
        check_keys(case, private["case"], *owned)
        for queue in case.get("queues", []):
            check_keys(queue, private["queue"], "name", "cohort", "fair_weight")
        loaded = kueue_world(case)
        check_capacities(loaded.world)
        want = worlds.kueue_owned(case)
        assert worlds.kueue_inputs(loaded.world) == want, case["id"]
        assert worlds.kueue_inputs(spec_of(World.from_state(loaded.world))) == want, case["id"]
        assert {job.name for job in loaded.world.jobs} == set(loaded.private), case["id"]


@pytest.mark.parametrize("file", FILES["volcano"])
def test_volcano_read_back(file: str) -> None:
    _, cases = worlds.read("volcano", file)
    assert cases
    private = worlds.VOLCANO_PRIVATE
    for case in cases:
        if case["kind"] in worlds.VOLCANO_WITHOUT_WORLD:
            assert "queues" not in case
            continue
        check_keys(case, private["case"], "queues", "nodes", "hypernodes", "podgroups", "pods")
        for queue in case["queues"]:
            check_keys(queue, private["queue"], "name", "weight", "parent")
        for node in case.get("nodes", []):
            check_keys(node, private["node"], "name", "allocatable")
        for hypernode in case.get("hypernodes", []):
            check_keys(hypernode, private["hypernode"], "name", "tier", "nodes", "parent")
        for podgroup in case.get("podgroups", []):
            check_keys(podgroup, private["job"], "name", "queue", "min_member", "network_topology", "created")
        for pod in case.get("pods", []):
            check_keys(pod, private["pod"], "podgroup", "requests", "node")
        loaded = volcano_world(case)
        check_capacities(loaded.world)
        want = worlds.volcano_owned(case)
        assert worlds.volcano_inputs(loaded.world) == want, case["id"]
        assert worlds.volcano_inputs(spec_of(World.from_state(loaded.world))) == want, case["id"]
        names = sorted(pod["name"] for job in loaded.private.values() for pods in job["pods"] for pod in pods)
        later = [pod for cycle in case.get("cycles", []) for pod in cycle.get("add_pods", [])]
        assert names == sorted(pod["name"] for pod in [*case.get("pods", []), *later]), case["id"]


@pytest.mark.parametrize("file", FILES["slurm"])
def test_slurm_read_back(file: str) -> None:
    about, cases = worlds.read("slurm", file)
    if file in worlds.SLURM_WITHOUT_WORLD:
        assert "cluster" not in about
        return
    assert cases
    private = worlds.SLURM_PRIVATE
    for case in cases:
        check_keys(case, private["case"], "jobs", "actions")
        for group in about["cluster"]["nodes"]:
            check_keys(group, private["node"], "names", "cpus", "gpus", "gpu_type")
        loaded = slurm_world(about, case)
        check_capacities(loaded.world)
        want = worlds.slurm_owned(about, case)
        assert worlds.slurm_inputs(loaded.world) == want, case["name"]
        assert worlds.slurm_inputs(spec_of(World.from_state(loaded.world))) == want, case["name"]


# ---------------------------------------------------------------------------------------------------------------
# Case -> running world: what the state says, against what was recorded
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("file", FILES["kueue"])
def test_kueue_runs_from_there(file: str, builder: str) -> None:
    for case in worlds.read("kueue", file)[1]:
        if case["kind"] in worlds.KUEUE_WITHOUT_WORLD:
            continue
        spec = kueue_world(case).world
        dump = BUILDERS[builder](spec).dump()
        recorded = worlds.kueue_owned(case)
        units = worlds.Units(spec.gpu_resource)
        used: dict[str, Counter[str]] = {queue: Counter() for queue in recorded["queues"]}
        idle = {name: Counter(node["free"]) for name, node in recorded["nodes"].items()}
        for queue, usage in recorded["usage"].items():
            for flavor, amounts in usage.items():
                used[queue].update({f"{flavor}/{resource}": amount for resource, amount in amounts.items()})
        for name, workload in recorded["admitted"].items():
            job = dump["jobs"][name]
            assert job["state"] == ("running" if job["bound"] else "admitted"), (case["id"], name)
            bound = Counter((i, node) for i, node, *_ in job["bound"])
            for i, pods in enumerate(workload["pod_sets"]):
                used[workload["queue"]].update({f"{pods['flavors'][r]}/{r}": v for r, v in pods["usage"].items()})
                for node, count in pods["placed"].items():
                    assert bound.pop((i, node)) == count, (case["id"], name)
                    idle[node].subtract({r: v // pods["count"] * count for r, v in pods["usage"].items()})
                    idle[node].subtract({"pods": count})
            assert not bound, (case["id"], name)
        for name, workload in recorded["pending"].items():
            if "steps" in case and "pending" not in case:  # a history: all of them are still to come
                assert workload["created"] > 0 and name not in dump["jobs"]
            else:
                assert dump["jobs"][name]["state"] == "queued", (case["id"], name)
        for queue in recorded["queues"]:
            want = units.to_core_cells(used[queue])
            assert dump["queues"].get(queue, {}) == want, (case["id"], queue)
        for name, node in recorded["nodes"].items():
            offered = {resource: idle[name][resource] for resource in node["free"]}
            assert dump["nodes"][name]["idle"] == units.to_core(offered), (case["id"], name)


@pytest.mark.parametrize("file", ["available.json", "available_random.json"])
def test_kueue_quota_that_is_left_is_as_recorded(file: str) -> None:
    """The reference's quota arithmetic on the loaded world, against Kueue's own."""
    if file not in FILES["kueue"]:
        pytest.skip(f"{file} is not there")
    for case in worlds.read("kueue", file)[1]:
        world = ReferenceWorld.from_state(kueue_world(case).world)
        for queue, flavors in case["expect"]["available"].items():
            for flavor, amounts in flavors.items():
                for resource, want in amounts.items():
                    if want != "inf":
                        cell = (flavor, resource)
                        assert max(0, world.available(queue, cell)) == want, (case["id"], queue, cell)


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("file", FILES["volcano"])
def test_volcano_runs_from_there(file: str, builder: str) -> None:
    for case in worlds.read("volcano", file)[1]:
        if case["kind"] in worlds.VOLCANO_WITHOUT_WORLD:
            continue
        loaded = volcano_world(case)
        dump = BUILDERS[builder](loaded.world).dump()
        units = worlds.Units(loaded.world.gpu_resource)
        idle = {node["name"]: Counter(node["allocatable"]) for node in case.get("nodes", [])}
        bound: dict[str, Counter[str]] = {name: Counter() for name in loaded.private}
        for pod in case.get("pods", []):
            if pod["node"]:
                idle[pod["node"]].subtract({**pod["requests"], "pods": 1})
                bound[pod["podgroup"]][pod["node"]] += 1
        for node in case.get("nodes", []):
            offered = {resource: idle[node["name"]][resource] for resource in node["allocatable"]}
            assert dump["nodes"][node["name"]]["idle"] == units.to_core(offered), (case["id"], node["name"])
        for job in loaded.world.jobs:
            if job.live is None:
                assert job.submit_ms > 0 or job.name not in dump["jobs"]
                continue
            state = dump["jobs"][job.name]
            assert Counter(node for _, node, *_ in state["bound"]) == bound[job.name], (case["id"], job.name)
            pods = bound[job.name].total()
            want = "queued" if not pods else "partial" if pods < (job.min_member or 1) else "running"
            assert state["state"] == want, (case["id"], job.name)


def start_groups() -> Iterator[tuple[dict[str, Any], float, SlurmWorld]]:
    """(history, second, world just before it) of every recorded start group."""
    about, cases = worlds.read("slurm", "histories.json")
    for case in cases:
        for group in case["facts"]["start_groups"]:
            yield case, group["start"], slurm_world(about, case, at_s=group["start"])


@pytest.mark.skipif("histories.json" not in FILES["slurm"], reason="no recorded Slurm histories")
@pytest.mark.parametrize("builder", BUILDERS)
def test_slurm_histories_can_be_entered_at_any_start(builder: str) -> None:
    """Just before each recorded start group the cluster is as recorded, and what starts then is there to start."""
    num_groups = 0
    for case, second, loaded in start_groups():
        where = (case["name"], second)
        dump = BUILDERS[builder](loaded.world).dump()
        want_idle = {node.name: Counter(node.amounts) for node in loaded.world.nodes}
        for job in case["jobs"]:
            runs = [run for run in case["observed"][job["label"]]["runs"] if run["start"] < second]
            stops = [v["at"] for v in case["facts"]["victims"] if v["label"] == job["label"] and v["at"] <= second]
            ended = runs and runs[-1]["start"] + job["runtime_s"] <= second
            if not runs or ended or len(stops) == len(runs):
                continue
            assert [node for _, node, *_ in dump["jobs"][job["label"]]["bound"]] == runs[-1]["nodes"], where
            for node in runs[-1]["nodes"]:
                want_idle[node].subtract({"gpu": job["request"].get("gpus_per_node", 0) * 1000})
                tasks = max(job["request"].get("ntasks", 1), job["request"]["nodes"])
                want_idle[node].subtract({"cpu": tasks // job["request"]["nodes"] * 1000})
        for node, idle in want_idle.items():
            assert dump["nodes"][node]["idle"] == dict(idle), (*where, node)
            assert min(idle.values()) >= 0, (*where, node)
        num_groups += 1
    assert num_groups > 100
