"""A site's month through the command: read, replayed, printed; and what is wrong with other files."""

import pytest
from files.test_sacctmgr import QOS, TREE
from files.test_slurm_conf import site
from workloads.files import write
from workloads.test_sacct import MONTH, text

from gangline.__main__ import main
from gangline.agents.replay import read_month

VOLCANO_CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""
pytest.importorskip("gangline.baselines.slurm.config", reason="the Slurm baseline is not there")


def files(tmp_path):
    return [str(write(tmp_path / "march.txt", text(*MONTH))), "--slurm-conf", str(site(tmp_path))]


def test_a_month_is_replayed_beside_what_was_recorded(tmp_path, capsys):
    assert main(["replay", *files(tmp_path), "--schedulers", "fifo"]) == 0
    head, titles, recorded, fifo = capsys.readouterr().out.splitlines()
    assert head.startswith("8 jobs of 2 tenants from 2024-03-01 08:00, 13 nodes with 80 GPUs; ")
    assert "; counted: gpu, cpu, memory; left out: duplicate 1" in head
    assert [title.strip() for title in titles.split("  ") if title] == [
        *("scheduler", "mean wait (h)", "p95 wait (h)", "mean JCT (h)", "finished", "allocated"),
    ]
    assert recorded.split() == ["as", "recorded", "0.50", "0.96"]
    assert fifo.split()[:2] == ["fifo", "0.00"]  # 80 GPUs hold everything at once
    assert fifo.split()[3:5] == ["1.07", "8"]  # mean of the run times


def test_jobs_do_not_come_back_where_the_site_says_so(tmp_path):
    month = write(tmp_path / "march.txt", text(*MONTH))
    conf = site(tmp_path)
    assert read_month(month, conf).trace.rows["requeue"].all()
    conf.write_text(conf.read_text() + "\nJobRequeue=0\n")
    assert not read_month(month, conf).trace.rows["requeue"].any()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_sites_own_slurm_runs_its_month(tmp_path, capsys):
    tree = write(tmp_path / "assoc.txt", TREE)
    qos = write(tmp_path / "qos.txt", QOS.replace("high|", "urgent|", 1))  # the QOS of the partition urgent
    assert main(["replay", *files(tmp_path), "--accounts", str(tree), "--qos", str(qos), "--schedulers", "slurm"]) == 0
    printed = capsys.readouterr()
    warned = printed.err.splitlines()
    assert any(
        "not modelled, passed over: MinTRES (QOS urgent), Flags=DenyOnLimit (QOS urgent)" in line for line in warned
    )
    assert any("account physics" in line or "user alice (account" in line for line in warned)
    slurm = printed.out.splitlines()[-1].split()
    assert slurm[0] == "slurm" and slurm[4] == "8"
    assert float(slurm[1]) < 0.02  # an empty cluster: it waits for Slurm's own intervals only


def test_volcano_runs_the_month_with_its_own_configuration(tmp_path, capsys):
    conf = write(tmp_path / "volcano-scheduler.conf", VOLCANO_CONF)
    assert main(["replay", *files(tmp_path), "--schedulers", "volcano", "--volcano-conf", str(conf)]) == 0
    volcano = capsys.readouterr().out.splitlines()[-1].split()
    assert volcano[0] == "volcano" and volcano[4] == "8"
    assert float(volcano[1]) < 0.01  # an empty cluster: it waits for the next session only
    closed = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: nobody}\n"
    queues = write(tmp_path / "queues.yaml", closed)
    assert main(["replay", *files(tmp_path), "--schedulers", "volcano", "--volcano-queues", str(queues)]) == 2
    assert "nobody" in capsys.readouterr().err


@pytest.mark.slow
def test_a_combination_goes_by_its_name(tmp_path, capsys):
    assert main(["replay", *files(tmp_path), "--schedulers", "kueue+volcano"]) == 0
    combined = capsys.readouterr().out.splitlines()[-1].split()
    assert combined[0] == "kueue+volcano" and combined[4] == "8"
    assert float(combined[1]) < 0.01  # Volcano's sessions begin each second


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["--schedulers", "fofo"], "unknown scheduler 'fofo'"),
        (["tenants=user"], "unknown option of the sacct loader 'tenants'"),
        (
            ["--volcano-conf", "nowhere.conf", "--schedulers", "fifo"],
            "files of Volcano without the scheduler 'volcano'",
        ),
        (["--volcano-conf", "nowhere.conf", "--schedulers", "volcano"], "volcano conf nowhere.conf: no such file"),
        (["--accounts", "nowhere.txt"], "accounts nowhere.txt: no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, arguments, want):
    given = files(tmp_path)
    if "=" in arguments[0]:
        given = [given[0], *arguments, *given[1:]]  # positionals together
    else:
        given += arguments
    assert main(["replay", *given]) == 2
    error = capsys.readouterr().err
    assert want in error and error.count("\n") == 1
