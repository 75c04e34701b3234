"""slurm.conf and gres.conf of a small site, and what is wrong with others."""

import warnings

import pytest
from workloads.files import write

from gangline.envs.errors import GanglineError
from gangline.envs.files import slurm_conf
from gangline.envs.files.text import UnknownWords

SLURM_CONF = """\
# A site with twelve GPU nodes
ClusterName=aurora
SlurmctldHost=head(10.0.0.1)
SlurmctldPort=6817        # not ours
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=60,bf_continue,\\
bf_window=4320,default_queue_depth=200
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
priorityweightage = 1000
PriorityWeightFairshare=100000
PriorityWeightTRES=CPU=100,GRES/gpu=3000
PriorityDecayHalfLife=14-0
PriorityMaxAge=7-0
PriorityUsageResetPeriod=NONE
PreemptType=preempt/qos
PreemptMode=REQUEUE
AccountingStorageEnforce=associations,limits,qos
GresTypes=gpu
Include parts/nodes.conf
PartitionName=DEFAULT State=UP MaxTime=2-00:00:00 DefaultTime=4:00:00
PartitionName=batch Nodes=ALL Default=YES TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu=16.0"
PartitionName=urgent Nodes=h[01-08] PriorityTier=10 PreemptMode=OFF MaxTime=UNLIMITED AllowAccounts=vip QOS=urgent
PartitionName=big Nodes=fat,a1 OverSubscribe=EXCLUSIVE
"""
NODES_CONF = """\
NodeName=DEFAULT CPUs=128 Sockets=2 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=2063000 State=UNKNOWN
NodeName=h[01-08] Gres=gpu:8 Weight=20 Feature=hopper,ib
NodeName=a[1-4] Gres=gpu:a100:4 CPUs=64 RealMemory=515000 Weight=10 Feature=ib
NodeName=login CPUs=16 RealMemory=64000 State=DOWN
NodeSet=fat Feature=hopper
"""
GRES_CONF = """\
AutoDetect=nvml
NodeName=h[01-08] Name=gpu Type=h100 File=/dev/nvidia[0-7]
NodeName=a[1-4] Name=gpu Type=a100 File=/dev/nvidia[0-3]
NodeName=elsewhere Name=gpu Type=v100 Count=2
"""


def site(tmp_path, slurm=SLURM_CONF, nodes=NODES_CONF, gres=GRES_CONF, **options):
    (tmp_path / "parts").mkdir(exist_ok=True)
    write(tmp_path / "parts" / "nodes.conf", nodes, **options)
    if gres is not None:
        write(tmp_path / "gres.conf", gres, **options)
    return write(tmp_path / "slurm.conf", slurm, **options)


@pytest.mark.parametrize("options", [{}, {"newline": "\r\n", "bom": True}])
def test_a_site_is_read_with_its_includes_defaults_and_gres(tmp_path, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing unknown
        conf = slurm_conf.read(site(tmp_path, **options))
    assert conf.value("ClusterName") == "aurora"
    assert conf.value("PriorityDecayHalfLife") == 14 * 86_400_000
    assert conf.value("PriorityWeightAge") == 1000
    assert conf.value("PriorityWeightTRES") == {"cpu": 100.0, "gres/gpu": 3000.0}
    assert conf.value("PreemptMode") == ("requeue",)
    assert conf.value("PriorityCalcPeriod") == 300_000  # Slurm's default
    assert conf.parameters == {
        "bf_interval": "60",
        "bf_continue": "",
        "bf_window": "4320",
        "default_queue_depth": "200",
    }
    assert "SlurmctldPort" in conf.ignored and conf.unknown == ()
    assert [node.name for node in conf.nodes] == [*(f"h0{i}" for i in range(1, 9)), "a1", "a2", "a3", "a4", "login"]
    first, fat = conf.nodes[0], conf.nodes[8]
    assert (dict(first.gpus), first.cpus, first.memory_mib, first.weight) == ({"h100": 8}, 128, 2_063_000, 20)
    assert (dict(fat.gpus), fat.cpus, fat.features) == ({"a100": 4}, 64, ("ib",))
    batch, urgent, big = conf.partitions
    assert (batch.nodes, batch.max_time_ms, batch.default_time_ms) == (
        tuple(node.name for node in conf.nodes),
        2 * 86_400_000,
        4 * 3_600_000,
    )
    assert conf.default_partition == "batch"
    assert batch.billing_weights == {"cpu": 1.0, "mem": 0.25 / 1024, "gres/gpu": 16.0}
    assert (urgent.max_time_ms, urgent.priority_tier, urgent.preempt_mode) == (None, 10, ("off",))
    assert (urgent.allow_accounts, urgent.qos, len(urgent.nodes)) == (("vip",), "urgent", 8)
    assert big.nodes == (*(f"h0{i}" for i in range(1, 9)), "a1")  # a node set and a node, in order of the nodes
    assert big.over_subscribe == "EXCLUSIVE"


def test_the_nodes_make_the_cluster_of_a_world(tmp_path):
    conf = slurm_conf.read(site(tmp_path))
    assert conf.runs_of_nodes() == [
        {"count": 8, "gpus": 8, "gpu_type": "h100", "flavor": "h100"},
        {"count": 4, "gpus": 4, "gpu_type": "a100", "flavor": "a100"},
    ]
    login = conf.node_specs()[-1]
    assert (login.name, login.state, login.amounts["gpu"], login.amounts["cpu"]) == ("login", "down", 0, 16_000)


def test_without_gres_conf_the_type_of_a_gpu_is_not_known(tmp_path):
    conf = slurm_conf.read(site(tmp_path, gres=None))
    assert (conf.nodes[0].num_gpus, conf.nodes[0].gpu_type) == (8, "gpu")


def test_words_that_slurm_does_not_have_are_listed_once_in_one_warning(tmp_path):
    text = SLURM_CONF + "PriorityWeigthAge=5\nPriorityWeigthAge=6\nMyOwn=1\nPartitionName=x Nodes=ALL Deflaut=NO\n"
    text = text.replace("bf_window=4320", "bf_widnow=4320")
    with pytest.warns(UnknownWords) as caught:
        conf = slurm_conf.read(site(tmp_path, text))
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    assert len(conf.unknown) == 4
    assert "bf_widnow" in conf.unknown[0] and "line 6; did you mean 'bf_window'?" in conf.unknown[0]
    assert "PriorityWeigthAge" in conf.unknown[1] and "line 25; did you mean 'PriorityWeightAge'?" in conf.unknown[1]
    assert "Deflaut" in conf.unknown[3] and "did you mean 'Default'?" in conf.unknown[3]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("PriorityWeightAge=heavy", "line 2: PriorityWeightAge is 'heavy', expected a whole number"),
        ("PriorityDecayHalfLife=7d", "line 2: PriorityDecayHalfLife is '7d', expected a time such as 90"),
        ("PreemptType=preempt/force", "expected one of preempt/none, preempt/partition_prio, preempt/qos"),
        ("PriorityFavorSmall=maybe", "PriorityFavorSmall is 'maybe', expected YES or NO"),
        ("PriorityWeightTRES=CPU", "expected weights such as CPU=1.0"),
        ("NodeName=n[1-2] Gres=gpu:h100:x:8", "Gres is 'gpu:h100:x:8', expected resources such as gpu:8"),
        ("NodeName=n[2-1]", "NodeName is 'n[2-1]', expected a span that grows"),
        ("NodeName=n1 CPUs=0", "CPUs is '0', expected a whole number of at least 1"),
        ("NodeName=n1\nNodeName=n[1-2]", "line 3: node 'n1' is there already"),
        ("PartitionName=p Nodes=n[1-2]", "line 2: no node 'n1', expected a name from a NodeName or NodeSet line"),
        ("PartitionName=p OverSubscribe=FORCE:many", "OverSubscribe is 'FORCE:many', expected one of NO, EXCLUSIVE"),
        ("PartitionName=p MaxTime=tomorrow", "MaxTime is 'tomorrow', expected a time"),
        ("SchedulerParameters=bf_interval=soon", "line 2: bf_interval is 'soon', expected a whole number"),
        ("SchedulerType", "line 2: 'SchedulerType', expected Keyword=value pairs"),
        ("Include nowhere.conf", "nowhere.conf: no such file"),
        ("Include slurm.conf", "includes itself"),
        ("DownNodes=n9 State=DRAIN", "no node 'n9', expected a name from a NodeName line"),
        ("X" * 5_000_000, "expected Keyword=value pairs"),
        ("PriorityWeightAge=" + "9" * 5_000_000, "expected a whole number"),
    ],
)
def test_a_wrong_value_is_one_line_with_file_and_line(tmp_path, line, want):
    path = write(tmp_path / "slurm.conf", "# top\n" + line + "\n")
    with pytest.raises(GanglineError) as error:
        slurm_conf.read(path)
    message = str(error.value)
    assert want in message and str(tmp_path) in message
    assert "\n" not in message and len(message) < 500


def test_gpus_that_the_two_files_count_differently_are_an_error(tmp_path):
    gres = GRES_CONF.replace("nvidia[0-3]", "nvidia[0-2]")
    with pytest.raises(GanglineError, match=r"gres.conf line 3: node 'a1' has 3 GPUs here, expected the 4"):
        slurm_conf.read(site(tmp_path, gres=gres))


def test_a_file_that_is_cut_off_in_a_continuation_is_read_to_its_end(tmp_path):
    path = write(tmp_path / "slurm.conf", "ClusterName=c\nSchedulerParameters=bf_interval=30,\\")
    assert slurm_conf.read(path).parameters == {"bf_interval": "30"}


def test_a_hash_sign_may_be_escaped_and_tabs_separate(tmp_path):
    path = write(tmp_path / "slurm.conf", "ClusterName=a\\#b\t# note\nNodeName=n1\tCPUs=4\t\tRealMemory=10\n")
    conf = slurm_conf.read(path)
    assert (conf.value("ClusterName"), conf.nodes[0].cpus, conf.nodes[0].memory_mib) == ("a#b", 4, 10)
