"""`train.py` from outside: what it writes; bad input is one clear line, exit code 2, nothing half-written."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("sb3_contrib", reason="training needs gangline[train]")

from gangline.agents.training import main

DATA = Path(os.environ.get("GANGLINE_DATA", Path(__file__).resolve().parents[2] / "shared/data"))
TINY = (
    "scheduler=few",
    "agent.total_steps=512",
    "agent.num_envs=8",
    "agent.steps_per_rollout=32",
    "evaluation.traces=2",
    "env.episode.horizon_h=12",
    "env.episode.warm_h=6",
)


def test_a_run_trains_compares_and_writes_its_folder(tmp_path, capsys):
    assert main([*TINY, f"run_dir={tmp_path / 'run'}"]) == 0
    printed = capsys.readouterr().out
    assert "trained" in printed and "drf_greedy" in printed
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert {r["scheduler"] for r in results["runs"]} == {"fifo", "sjf", "drf_greedy", "trained"}
    assert len(results["runs"]) == 8
    assert all(r["identity_holds"] for r in results["runs"])
    assert (tmp_path / "run/frontier.png").stat().st_size > 10_000
    assert (tmp_path / "run/model.zip").exists() and (tmp_path / "run/config.json").exists()
    assert list((tmp_path / "run").glob("tensorboard*/events*"))


def test_the_same_run_again_is_refused_not_overwritten(tmp_path, capsys):
    (tmp_path / "results.json").write_text("{}")
    assert main([*TINY, f"run_dir={tmp_path}"]) == 2
    assert "holds results already" in capsys.readouterr().err
    assert (tmp_path / "results.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["env=smal"], "unknown env 'smal'; known: datacenter, philly, "),
        (["env=smal"], "did you mean 'small'?"),
        (["agent.total_step=5"], "did you mean 'total_steps'"),
        (["agent.total_steps=many"], "agent.total_steps is 'many', expected a whole number of at least 1"),
        (["env.reward.weights.neg_jtc=1"], "unknown reward term 'neg_jtc'"),
        (["env.reward.weights.neg_idle=nan"], "NaN"),
        (["env.rules.half_life_h=0"], "rules.half_life_h is 0.0, expected a positive time, or null for none"),
        (["env.tenants.weights.nobody=3"], "'nobody'; known:"),
        (["env.cluster.nodes=[]"], "cluster.nodes is empty"),
        (["workload=philly", "workload.path=/no/such/file.csv"], "/no/such/file.csv"),
        (["scheduler.slumr={}"], "unknown scheduler 'slumr'"),
        (["scheduler.easy={rule: pck}"], "unknown placement rule 'pck'"),
        (["sedd=1"], "unknown key in the configuration 'sedd'"),
        (["env=small", "nonsense"], "argument 'nonsense', expected key=value"),
        (["evaluation.traces=two"], "evaluation.traces is 'two', expected a whole number"),
        (["env.action.min_run_h=-1"], "action.min_run_h is -1.0"),
        (["env.observation.blocks=[queue, tenant]"], "unknown observation block 'tenant'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(arguments, want, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*arguments, f"run_dir={folder}"]) == 2
    captured = capsys.readouterr()
    assert want in captured.err
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("content", "want"),
    [
        ("timestamp,duration,gpus,gpu_time,cluster\n", "num_gpus"),
        ("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,-5,1,-5,a\n", "duration is -5"),
    ],
)
def test_a_bad_trace_file_is_named_with_row_and_column(content, want, tmp_path, capsys):
    (tmp_path / "bad.csv").write_text(content)
    assert main(["env=philly64", "workload=philly", f"workload.path={tmp_path / 'bad.csv'}"]) == 2
    error = capsys.readouterr().err
    assert want in error and error.count("\n") == 1


def test_help_names_every_group(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for word in ("philly64", "maskable_ppo", "smoke", "workload.path"):
        assert word in printed


def test_the_script_itself_exits_with_2(tmp_path):
    script = Path(__file__).resolve().parents[1] / "train.py"
    done = subprocess.run(
        [sys.executable, script, "env=smal"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not (DATA / "philly.csv.gz").exists(), reason="the Philly trace is not here (GANGLINE_DATA)")
def test_the_real_philly_trace_trains_and_is_compared_on_held_out_weeks(tmp_path):
    arguments = [
        *TINY,
        "env=philly64",
        "workload=philly",
        f"workload.path={DATA / 'philly.csv.gz'}",
        "env.episode.horizon_h=120",
        "evaluation.traces=1",
    ]
    assert main([*arguments, f"run_dir={tmp_path}"]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["world"]["workload"]["window"] == "test"
    assert all(abs(r["load"] - 0.9) <= 0.01 for r in results["runs"])


def test_a_run_killed_again_and_again_ends_with_the_same_policy_as_an_unbroken_one(tmp_path):
    arguments = [*TINY, "agent.total_steps=4096", "checkpoint_every_s=0"]
    assert main([*arguments, f"run_dir={tmp_path / 'whole'}"]) == 0
    script = [sys.executable, str(Path(__file__).resolve().parents[1] / "train.py")]
    folder = tmp_path / "broken"
    begin = [*arguments, f"run_dir={folder}"]
    kills = 0
    while not (folder / "results.json").exists():
        resumes = (folder / "checkpoint.pt").exists()
        command = [*script, f"resume={folder}", "checkpoint_every_s=0"] if resumes else [*script, *begin]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            before = _stamp(folder / "checkpoint.pt")
            while process.poll() is None and (_stamp(folder / "checkpoint.pt") == before or kills >= 3):
                time.sleep(0.02)
            if process.poll() is None:
                process.kill()
                kills += 1
            elif process.returncode != 0:
                pytest.fail(process.stderr.read().decode())
    assert kills >= 3
    whole, broken = (json.loads((tmp_path / f"{n}/results.json").read_text()) for n in ("whole", "broken"))
    assert broken["runs"] == whole["runs"]


def _stamp(path):
    return path.stat().st_mtime_ns if path.exists() else 0


def test_several_seeds_are_trained_and_compared_in_one_run(tmp_path):
    assert main([*TINY, "agent.total_steps=512", "seed=3", "seeds=2", f"run_dir={tmp_path}"]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    trained = {n for n in results["means"] if n.startswith("trained")}
    assert trained == {"trained, seed 3", "trained, seed 4"}
    for name in ("seed-3/model.zip", "seed-4/model.zip", "seed-3/curve.csv", "learning.png", "frontier.png"):
        assert (tmp_path / name).stat().st_size > 0, name
    for bad in ("seeds=0", "seed=-1", "evaluation.traces=0"):
        assert main([*TINY, bad, f"run_dir={tmp_path / 'none'}"]) == 2
    assert not (tmp_path / "none").exists()


def test_resuming_with_other_settings_or_from_nothing_is_refused_by_name(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*TINY, "agent.total_steps=512", "checkpoint_every_s=0", f"run_dir={folder}"]) == 0
    assert main([f"resume={folder}"]) == 2
    assert "the run has ended" in capsys.readouterr().err
    (folder / "results.json").unlink()
    assert main([f"resume={folder}", *TINY, "agent.hidden=64"]) == 2
    assert "agent.hidden is 64, the run has 32; leave it out" in capsys.readouterr().err
    assert main([f"resume={tmp_path / 'nowhere'}"]) == 2
    assert "no config.json there" in capsys.readouterr().err
    (folder / "model.zip").unlink()
    (folder / "checkpoint.pt").write_bytes(b"half a file")
    assert main([f"resume={folder}"]) == 2
    assert "damaged" in capsys.readouterr().err
