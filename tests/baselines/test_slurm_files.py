"""A site's Slurm files as the configuration of the Slurm baseline, and its month as a world."""

import warnings

import pytest
from files.test_sacctmgr import QOS, TREE
from files.test_slurm_conf import GRES_CONF, NODES_CONF, SLURM_CONF
from workloads.files import write
from workloads.test_sacct import MONTH, text

from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.files import sacctmgr, sbatch, slurm_conf, slurm_site
from gangline.envs.files.text import UnknownWords
from gangline.envs.workloads.traces import load
from gangline.envs.workloads.traces.sacct import submissions

config = pytest.importorskip("gangline.baselines.slurm.config", reason="the Slurm baseline is not there")
setup = pytest.importorskip("gangline.baselines.slurm.setup", reason="the Slurm baseline is not there")
files = pytest.importorskip("gangline.baselines.slurm.files", reason="the Slurm baseline is not there")


def site(tmp_path, slurm=SLURM_CONF):
    (tmp_path / "parts").mkdir(exist_ok=True)
    write(tmp_path / "parts" / "nodes.conf", NODES_CONF)
    write(tmp_path / "gres.conf", GRES_CONF)
    write(tmp_path / "assoc.txt", TREE)
    write(tmp_path / "qos.txt", QOS)
    return write(tmp_path / "slurm.conf", slurm.replace("QOS=urgent", "QOS=high"))


def read(tmp_path, slurm=SLURM_CONF):
    path = site(tmp_path, slurm)
    return files.read_config(path, accounts=tmp_path / "assoc.txt", qos=tmp_path / "qos.txt")


def test_a_site_becomes_a_configuration(tmp_path):
    with pytest.warns(UnknownWords, match="2 not modelled, passed over: MinTRES .QOS high., Flags=DenyOnLimit"):
        made = read(tmp_path)
    assert made.priority == config.Priority(
        weight_age=1000,
        weight_fairshare=100_000,
        weight_tres={"cpu": 100.0, "gres/gpu": 3000.0},
        decay_half_life_s=14 * 86_400,
    )
    assert (made.scheduler.bf_interval_s, made.scheduler.bf_window_min, made.scheduler.bf_continue) == (60, 4320, True)
    assert (made.scheduler.default_queue_depth, made.scheduler.bf_resolution_s) == (200, 60)
    assert (made.preemption.type, made.preemption.modes) == ("preempt/qos", frozenset({"REQUEUE"}))
    batch, urgent, big = made.partitions
    assert (batch.is_default, batch.max_time_min, batch.default_time_min) == (True, 2880, 240)
    assert batch.tres_billing_weights == {"cpu": 1.0, "mem": 0.25 / 1024, "gres/gpu": 16.0}
    assert (urgent.priority_tier, urgent.preempt_mode, urgent.max_time_min, urgent.qos) == (10, "OFF", None, "high")
    assert (big.exclusive, big.over_subscribe) == (True, 0)
    high = made.qos[1]
    assert (high.preempts, high.preempt_mode, high.grace_time_s) == (("low", "normal"), "REQUEUE", 30)
    assert high.limits.max_tres_per_user == {"cpu": 64, "gres/gpu": 8}
    physics, chem = made.accounts
    assert (physics.shares, physics.limits.grp_tres) == (60, {"gres/gpu": 64})
    assert [(child.name, child.shares) for child in physics.children] == [("astro", "parent"), ("nuclear", 30)]
    assert (list(chem.children), made.root_user_shares) == ([config.User(name="bob")], 1)
    assert made.sibling_order == "alphabetical"  # the file does not say who was created first
    assert made.enforces_limits


def test_the_configuration_fits_the_world_of_the_site_and_its_month(tmp_path):
    path = site(tmp_path)
    conf, accounts = slurm_conf.read(path), sacctmgr.read_accounts(tmp_path / "assoc.txt")
    users = [{**row, "Account": {"physics": "astro"}.get(row["Account"], row["Account"])} for row in MONTH]
    trace = load("sacct", write(tmp_path / "march.txt", text(*users)), resources="gpu_cpu_memory")
    spec = slurm_site.world_of(conf, trace, accounts)
    assert [node.name for node in spec.nodes][:2] == ["h01", "h02"]
    assert [(tenant.name, tenant.weight) for tenant in spec.tenants] == [("astro", 1), ("chem", 40)]
    world = World(spec, trace)
    with pytest.warns(UnknownWords, match="not modelled"):
        made = files.config_of(conf, accounts, sacctmgr.read_qos(tmp_path / "qos.txt"))
    assert len(setup.block_for(made, world)) > 0  # every name and limit is one that the world has


def test_a_world_with_other_nodes_takes_the_partitions_without_theirs(tmp_path):
    with pytest.warns(UnknownWords, match="QOS high of a partition .no QOS file has it"):
        made = files.read_config(site(tmp_path), any_nodes=True)
    assert [partition.nodes for partition in made.partitions] == [None, None, None]
    assert made.accounts == () and [entry.name for entry in made.qos] == ["normal"]


@pytest.mark.filterwarnings("ignore")
def test_siblings_stand_in_order_of_creation_where_the_file_has_ids(tmp_path):
    table = "ID|Account|User|ParentName|Share\n1|root|||1\n9|b||root|1\n4|c||root|1\n7|c|zoe||1\n5|c|amy||1\n"
    accounts = sacctmgr.read_accounts(write(tmp_path / "a.txt", table))
    made = files.config_of(slurm_conf.read(site(tmp_path)), accounts)
    assert [account.name for account in made.accounts] == ["c", "b"]
    assert [user.name for user in made.accounts[0].children] == ["amy", "zoe"]
    assert (made.sibling_order, made.root_user_shares) == ("newest_first", None)


def test_what_is_not_modelled_is_named(tmp_path):
    slurm = SLURM_CONF + "PriorityFlags=DEPTH_OBLIVIOUS,NO_FAIR_TREE\nPartitionName=old Nodes=a1 State=DOWN\n"
    with pytest.warns(UnknownWords, match=r"partition old .*PriorityFlags=DEPTH_OBLIVIOUS"):
        made = read(tmp_path, slurm)
    assert made.priority.flags == {"NO_FAIR_TREE"} and len(made.partitions) == 3


def test_a_cluster_without_partitions_or_gpus_is_refused(tmp_path):
    with pytest.raises(GanglineError, match="no partition that is up"):
        files.read_config(write(tmp_path / "slurm.conf", "NodeName=n1 CPUs=4\n"))


def test_requests(tmp_path):
    asked = sbatch.read_command("sbatch -p urgent -q high -N 2 -n 5 --exclusive --nice=5 -w n1 -H x.sh")
    assert files.request_of(asked) == config.Request(
        partitions=("urgent",),
        qos="high",
        nice=5,
        exclusive=True,
        nodelist=("n1",),
        whole_nodes=True,
        tasks_per_node_are_fixed=False,
        priority=0,
    )
    assert files.request_of(sbatch.read_command("sbatch --gres=gpu:1 x.sh")) == config.Request()
    element = files.request_of(sbatch.read_command("sbatch --array=1-9%3 -C hopper -x n3 x.sh"), "sweep_4")
    assert (element.array, element.array_limit) == ("sweep", 3)
    assert (element.constraint, element.exclude) == ("hopper", ("n3",))
    spread = files.request_of(sbatch.read_command("sbatch --gpus=8 x.sh"))
    assert (spread.whole_nodes, spread.tasks_per_node_are_fixed) == (False, False)


def test_limits_weights_features_and_what_jobs_asked_for_come_along(tmp_path):
    """A month: QOS and partition of each job, arrays, who is no association any more."""
    rows = [
        {**MONTH[0], "JobID": "1_1", "Partition": "urgent", "QOS": "high", "User": "alice", "Account": "astro"},
        {**MONTH[0], "JobID": "1_2", "Partition": "urgent", "QOS": "high", "User": "alice", "Account": "astro"},
        {**MONTH[0], "JobID": "2", "Partition": "gone", "QOS": "gone", "User": "zoe", "Account": "chem"},
        {**MONTH[0], "JobID": "3", "Partition": "batch", "QOS": "normal", "User": "eve", "Account": "math"},
    ]
    conf, accounts = slurm_conf.read(site(tmp_path)), sacctmgr.read_accounts(tmp_path / "assoc.txt")
    path = write(tmp_path / "march.txt", text(*rows))
    trace = load("sacct", path, resources="gpu_cpu_memory")
    qos = sacctmgr.read_qos(tmp_path / "qos.txt")
    with pytest.warns(UnknownWords) as warned:
        made = files.config_of_month(conf, trace, submissions(path, trace), accounts, qos)
    told = " ".join(str(w.message) for w in warned)
    for what in (
        "partition gone",
        "QOS gone",
        "user zoe (account chem; given one share)",
        "account math (given one share",
    ):
        assert what in told
    first, second, third = (made.requests.distinct[i] for i in range(3))
    assert (first.partitions, first.qos, first.whole_nodes) == (["urgent"], "high", True)
    assert (second.partitions, second.qos, third.partitions) == ([], None, ["batch"])
    assert made.requests.of_row.tolist() == [0, 0, 1, 2] and made.requests.array_of_row.tolist() == [0, 0, -1, -1]
    assert made.node_weights["h01"] == 20 and made.node_features["h01"] == ("hopper", "ib")
    nuclear = made.accounts[0].children[1]
    assert (nuclear.children[0].limits.max_submit, nuclear.limits.max_jobs) == (10, 4)
    world = World(slurm_site.world_of(conf, trace, accounts), trace)
    assert len(setup.block_for(made, world)) > 0


def test_the_life_of_a_credential_is_how_long_a_requeued_job_waits(tmp_path):
    path = site(tmp_path, SLURM_CONF + "AuthInfo=socket=/run/munge,cred_expire=30\n")
    assert slurm_site.requeue_hold_ms(slurm_conf.read(path)) == 31_000
    assert slurm_site.requeue_hold_ms(slurm_conf.read(site(tmp_path))) == 121_000


def test_the_old_priority_plugin_is_the_order_of_submission(tmp_path):
    made = read_quietly(tmp_path, SLURM_CONF + "PriorityType=priority/basic\n")
    assert made.priority == config.Priority()


def read_quietly(tmp_path, slurm):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(tmp_path, slurm)
