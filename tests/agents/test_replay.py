"""A site's month through the command: read, replayed, printed; and what is wrong with other files."""

import pytest
from files.test_sacctmgr import QOS, TREE
from files.test_slurm_conf import site
from workloads.files import write
from workloads.test_sacct import MONTH, text

from gangline.__main__ import main

pytest.importorskip("gangline.baselines.slurm.config", reason="the Slurm baseline is not there")


def files(tmp_path):
    return [str(write(tmp_path / "march.txt", text(*MONTH))), "--slurm-conf", str(site(tmp_path))]


def test_a_month_is_replayed_beside_what_was_recorded(tmp_path, capsys):
    assert main(["replay", *files(tmp_path), "--schedulers", "fifo"]) == 0
    head, titles, recorded, fifo = capsys.readouterr().out.splitlines()
    assert head.startswith("8 jobs of 2 tenants from 2024-03-01 08:00, 13 nodes with 80 GPUs; left out: duplicate 1")
    assert [title.strip() for title in titles.split("  ") if title] == [
        *("scheduler", "mean wait (h)", "p95 wait (h)", "mean JCT (h)", "finished", "allocated"),
    ]
    assert recorded.split() == ["as", "recorded", "0.50", "0.96"]
    assert fifo.split()[:2] == ["fifo", "0.00"]  # 80 GPUs hold everything at once
    assert fifo.split()[3:5] == ["1.07", "8"]  # mean of the run times


@pytest.mark.slow
def test_the_sites_own_slurm_runs_its_month(tmp_path, capsys):
    tree = write(tmp_path / "assoc.txt", TREE)
    qos = write(tmp_path / "qos.txt", QOS.replace("high|", "urgent|", 1))  # the QOS of the partition urgent
    assert main(["replay", *files(tmp_path), "--accounts", str(tree), "--qos", str(qos), "--schedulers", "slurm"]) == 0
    slurm = capsys.readouterr().out.splitlines()[-1].split()
    assert slurm[0] == "slurm" and slurm[4] == "8"
    assert float(slurm[1]) < 0.02  # an empty cluster: it waits for Slurm's own intervals only


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
