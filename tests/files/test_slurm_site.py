"""The world of a Slurm site: its nodes, and the tenants and users of its month."""

import pytest
from workloads.files import write
from workloads.test_sacct import MONTH, text

from files.test_sacctmgr import TREE
from files.test_slurm_conf import site
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.files import sacctmgr, slurm_conf
from gangline.envs.files.slurm_site import world_of
from gangline.envs.workloads.traces import load


def test_nodes_tenants_and_users_have_the_names_of_the_files(tmp_path):
    conf = slurm_conf.read(site(tmp_path))
    accounts = sacctmgr.read_accounts(write(tmp_path / "assoc.txt", TREE))
    trace = load("sacct", write(tmp_path / "march.txt", text(*MONTH)), resources="gpu_cpu_memory")
    spec = world_of(conf, trace, accounts)
    first, login = spec.nodes[0], spec.nodes[-1]
    assert (first.name, first.flavor, first.amounts) == (
        "h01",
        "h100",
        {"gpu": 8000, "cpu": 128_000, "memory": 2_063_000 << 20},
    )
    assert (login.name, login.state) == ("login", "down")
    assert [(tenant.name, tenant.weight) for tenant in spec.tenants] == [("chem", 40), ("physics", 60)]
    assert next((user.name, user.tenant) for user in spec.users) == ("alice", "physics")
    assert spec.options.half_life_ms == 14 * 86_400_000
    World(spec, trace)  # the trace's tables fit


def test_flavors_that_jobs_name_come_first(tmp_path):
    conf = slurm_conf.read(site(tmp_path))
    asked = {"ReqTRES": "cpu=1,gres/gpu:a100=8"}
    rows = write(tmp_path / "march.txt", text({**MONTH[0], **asked}, *MONTH[1:]))
    assert world_of(conf, load("sacct", rows, gpu_types="requested")).flavors == ("a100", "h100", "cpu")
    assert world_of(conf, load("sacct", rows)).flavors == ("h100", "a100", "cpu")


def test_only_what_the_trace_counts_is_offered_and_a_site_without_gpus_is_refused(tmp_path):
    trace = load("sacct", write(tmp_path / "march.txt", text(*MONTH)))
    spec = world_of(slurm_conf.read(site(tmp_path)), trace)
    assert (spec.resources, spec.nodes[0].amounts) == (("gpu",), {"gpu": 8000})
    assert [tenant.weight for tenant in spec.tenants] == [1, 1]
    plain = slurm_conf.read(write(tmp_path / "plain.conf", "NodeName=n[1-4] CPUs=64\nPartitionName=p Nodes=ALL\n"))
    with pytest.raises(GanglineError, match="no node with GPUs, expected NodeName lines with Gres=gpu:8"):
        world_of(plain, trace)
