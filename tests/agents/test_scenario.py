"""The scenarios: what the text says will happen happens, each is an environment, and bad input is one line."""

from __future__ import annotations

import importlib.util
import re
import time
import warnings
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import gangline  # noqa: F401
from gangline.__main__ import main
from gangline.agents import scenario
from gangline.agents.scenario import Played, end_h, load, play, wait_h, who_holds
from gangline.agents.timeline import follow
from gangline.baselines.base import build
from gangline.envs import metrics
from gangline.envs.config import load_world, preset_names, scenario_names
from gangline.envs.core.spec import HOUR_MS
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError
from gangline.envs.worlds import build_world

NAMES = [
    "cohort-borrow",
    "company500",
    "gate-or-scheduler",
    "half-start",
    "hpc-and-kube",
    "preempt-checkpoint",
    "three-teams",
]
MOST_CPU_S = 30


def played(name: str, which: str = "run", *labels: str) -> dict[str, Played]:
    """Cases of a scenario, played."""
    found, path = load(name)
    part = getattr(found, which)
    return {label: play(found, path, part, label) for label in labels or part.cases}


def value(case: Played, measure: str) -> float:
    """A measure of a case."""
    return scenario.words_of(measure)[1](case)


def held(case: Played, hour: float) -> dict[str, int]:
    """GPUs that each team holds at an hour."""
    return dict(zip(case.tenants, case.timeline.held(round(hour * HOUR_MS)).tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------------------
# What the text says, example by example
# ---------------------------------------------------------------------------------------------------------------


def test_half_started_six_gpus_are_held_for_nothing_and_as_a_gang_the_job_waits():
    """Example 8-2: 8 workers meet 6 free GPUs."""
    cases = played("half-start")
    pods, gang = cases["pod by pod"], cases["as a gang"]
    story = [text for _, row, text in pods.timeline.story if pods.names[row] == "train"]
    assert story[0] == "comes, has 6 of its 8 pods: they hold GPUs and make no progress"
    assert held(pods, 3) == {"research": 8}  # 2 that work, 6 that do not
    assert value(pods, "stuck") == 6 * 5
    story = [text for _, row, text in gang.timeline.story if gang.names[row] == "train"]
    assert story == ["comes, waits", "starts on 8 GPUs", "ends"]  # never a part of it
    assert value(gang, "stuck") == 0


def test_waiting_costs_the_job_nothing_and_gives_the_others_the_gpus():
    """Exercise 8-3, at once: the half start does not make the job earlier."""
    cases = played("half-start")
    assert end_h(cases["pod by pod"], "train") == end_h(cases["as a gang"], "train") == 10
    assert wait_h(cases["as a gang"], "2-GPU jobs") == 0 < wait_h(cases["pod by pod"], "2-GPU jobs")


def test_over_two_weeks_half_starts_block_one_another_and_waiting_wins():
    """Exercise 8-3, in the long run."""
    cases = played("half-start", "compare", "pod by pod", "pod by pod, 30 min", "volcano")
    hung, aborted, gang = cases.values()
    assert value(gang, "stuck") == 0
    assert value(hung, "stuck") > value(aborted, "stuck") > 1000
    assert value(gang, "work") > 1.1 * value(aborted, "work") > 1.1 * value(hung, "work")
    assert held(hung, 335) == {"research": 32}  # every GPU is held,
    assert (hung.timeline.phases[-1] != 3).all()  # and no job runs


def test_without_checkpoints_the_preempted_job_begins_again_and_with_them_it_loses_twenty_minutes():
    """Example 8-3."""
    waits, none, every_30 = played("preempt-checkpoint").values()
    assert value(waits, "lost") == 0
    assert value(none, "lost") == pytest.approx(8 * (4 + 20 / 60), abs=1e-3)
    assert value(every_30, "lost") == pytest.approx(8 * 20 / 60, abs=1e-3)
    assert wait_h(none, "urgent") == wait_h(every_30, "urgent") == 0
    assert wait_h(waits, "urgent") == pytest.approx(7 + 40 / 60, abs=1e-3)


def test_the_price_of_preemption_is_far_below_the_wait_of_the_urgent_job():
    """Example 8-3: that is why preemption pays, and only with checkpoints."""
    waits, none, every_30 = played("preempt-checkpoint").values()
    waited_gpu_h = 8 * wait_h(waits, "urgent")
    assert value(every_30, "lost") + value(every_30, "overhead") < waited_gpu_h / 10
    assert value(none, "lost") + value(none, "overhead") > waited_gpu_h / 2
    assert end_h(every_30, "long") < end_h(none, "long") - 3.9


def test_kueue_volcano_and_slurm_all_preempt_for_the_urgent_jobs():
    """Example 8-3 with each system's own means: priority, the action preempt, a QOS that preempts another."""
    labels = ("wait", "every 30 min", "volcano, 30 min", "slurm, 30 min")
    waits, *preempting = played("preempt-checkpoint", "compare", *labels).values()
    assert wait_h(waits, "urgent jobs") > 1
    for case in preempting:
        assert wait_h(case, "urgent jobs") < 0.01, case.label
        assert 0 < value(case, "lost") < 8 * 0.5 * value(case, "stops"), case.label


def test_a_borrows_four_that_b_leaves_idle_and_b_takes_them_back():
    """Example 8-4: A 8 of 8, B 2 of 8."""
    fixed, lent, back = played("cohort-borrow").values()
    assert [held(case, 0.5) for case in (fixed, lent, back)] == 3 * [{"team-a": 8, "team-b": 2}]
    assert [held(case, 2)["team-a"] for case in (fixed, lent, back)] == [8, 12, 12]
    assert who_holds(back, 2) == "team-a 12 GPUs (8 its own, 4 borrowed), team-b 2 of its 8 GPUs"
    assert held(back, 4) == {"team-a": 8, "team-b": 8}
    assert value(back, "stops") == 1 and wait_h(back, "b-back") == 0


def test_whether_the_owner_gets_it_back_at_once_is_a_setting():
    """Example 8-4: it may evict what was borrowed, as configured; by default it waits."""
    _, lent, back = played("cohort-borrow").values()
    assert held(lent, 4) == {"team-a": 12, "team-b": 2}
    assert wait_h(lent, "b-back") == 3.75 and value(lent, "stops") == 0
    assert value(back, "lost") == 4 * 0.25


def test_three_teams_a_comes_first_b_and_c_are_equal_and_idle_quota_is_lent():
    """Exercise 8-2."""
    fixed, design = played("three-teams").values()
    assert held(design, 2) == {"team-a": 0, "team-b": 40, "team-c": 40}  # lent, in equal parts
    assert held(fixed, 2) == {"team-a": 0, "team-b": 24, "team-c": 24}
    assert wait_h(design, "a-own") == 0  # A preempts
    assert held(design, 3.5) == {"team-a": 32, "team-b": 24, "team-c": 24}  # nobody below its own quota
    stopped = [design.names[row] for _, row, text in design.timeline.story if text.startswith("is stopped")]
    assert stopped == ["b4", "c4", "b5", "c5"]  # two of each


def test_a_may_preempt_borrowers_even_for_what_it_borrows_itself_and_b_may_not():
    """Exercise 8-2: the manifest's borrowWithinCohort, which only A has."""
    found, path = load("three-teams")
    for first, want_stopped in (("team-a", True), ("team-b", False)):
        other = "team-b" if first == "team-a" else "team-a"
        jobs = [  # C holds its 24 and 56 borrowed GPUs; then somebody wants 16 more than its own
            *({"name": f"c{i}", "tenant": "team-c", "hours": 20, "gpus": 8} for i in range(10)),
            {"name": "own", "tenant": first, "at_h": 1, "hours": 9, "pods": 3, "gpus": 8, "priority": 100},
            {"name": "more", "tenant": first, "at_h": 2, "hours": 9, "pods": 3, "gpus": 8, "priority": 100},
            {"name": "late", "tenant": other, "at_h": 19, "hours": 1},
        ]
        part = replace(
            found.run, cases={"it": found.run.cases["the design"]}, world={"workload": {"options": {"jobs": jobs}}}
        )
        case = play(found, path, part, "it")
        assert held(case, 1.5)[first] == 24
        assert (wait_h(case, "more") == 0) is want_stopped, first
        assert held(case, 3)["team-c"] >= 24


def test_a_gate_counts_gpus_and_a_scheduler_sees_nodes():
    """Exercise 8-4: what Kueue in front and Volcano in place change."""
    alone, gate, other, both = played("gate-or-scheduler").values()
    assert held(alone, 2) == {"team-a": 16, "team-b": 0}  # A floods
    assert held(gate, 2)["team-a"] == 8  # the gate holds A to its quota, but B's node is not free
    assert wait_h(gate, "b-node") == 4
    assert held(other, 2) == held(both, 2) == {"team-a": 8, "team-b": 8}  # packed: one node is free
    assert wait_h(other, "b-node") == wait_h(both, "b-node") == 0


def test_with_room_in_the_quotas_the_gate_leaves_the_scheduler_as_it_was():
    """Exercise 8-4: why Kueue suits a site whose scheduler works: what is admitted is placed as before, GPU by GPU."""
    found, path = load("gate-or-scheduler")
    cases = [found.run.cases[label] for label in ("scheduler alone", "gate + scheduler")]
    jobs = [
        {"name": f"j{i}", "tenant": ("team-a", "team-b")[i % 2], "at_h": i * 0.4, "hours": 1, "pods": 1 + i % 3}
        for i in range(12)
    ]
    part = replace(
        found.run, cases=dict(zip("ab", cases, strict=True)), world={"workload": {"options": {"jobs": jobs}}}
    )
    alone, gate = play(found, path, part, "a"), play(found, path, part, "b")
    for hour in np.arange(0, 6, 0.1):
        where = [case.timeline.holders[case.timeline.at(round(hour * HOUR_MS))] for case in (alone, gate)]
        assert np.array_equal(*where), hour


def test_the_company_is_best_served_on_kubernetes_by_kueue_and_volcano_together():
    """Example 8-1: the text's choice, measured over three draws of the jobs."""
    found, path = load("company500")
    labels = ["kube", "kueue+kube", "volcano", "kueue+volcano"]
    runs = {label: [play(found, path, found.compare, label, seed=seed) for seed in range(3)] for label in labels}
    work = {label: sum(value(case, "work") for case in cases) for label, cases in runs.items()}
    wait = {label: sum(value(case, "wait") for case in cases) for label, cases in runs.items()}
    assert max(work, key=work.__getitem__) == min(wait, key=wait.__getitem__) == "kueue+volcano"
    for case in runs["kueue+volcano"]:
        assert value(case, "stuck") == 0
        assert wait_h(case, "day-2") == wait_h(case, "day-3") == 0  # inference has its quota at once
        assert sum(run.count * run.gpus for run in case.config.cluster.nodes) == 500
    assert sum(wait_h(case, "day-3") for case in runs["kube"]) > 1


def test_on_the_mixed_site_gangs_run_whole_in_slurm_and_in_volcano():
    """Exercise 8-1; the sbatch line is the text's."""
    found, path = load("hpc-and-kube")
    runs = {label: [play(found, path, found.run, label, seed=seed) for seed in range(3)] for label in found.run.cases}
    for cases in runs.values():
        for case in cases:
            assert value(case, "stuck") == 0
            assert wait_h(case, "serve-more") < 1  # resident pods soon find room in both
            assert case.timeline.gpus[case.names.index("chem-64-1")] == 64
    wait = {label: np.mean([wait_h(case, "64-GPU jobs") for case in cases]) for label, cases in runs.items()}
    assert wait["slurm"] < 0.7 * wait["volcano"]  # it keeps nodes for the head of the queue, and fills the gaps


def test_where_each_team_has_a_volcano_queue_a_job_larger_than_its_share_holds_up_everybody():
    cases = played("hpc-and-kube", "compare", "volcano", "volcano, queues")
    assert value(cases["volcano, queues"], "work") < 0.6 * value(cases["volcano"], "work")


# ---------------------------------------------------------------------------------------------------------------
# The scenarios as such
# ---------------------------------------------------------------------------------------------------------------


def test_the_seven_are_there():
    assert scenario_names() == NAMES
    assert not set(NAMES) & set(preset_names())


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_is_an_environment_of_its_name(name):
    env = gymnasium.make("gangline/GpuCluster-v0", world=name, render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=importlib.util.find_spec("matplotlib") is None)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=1)
    for _ in range(400):
        _, reward, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        assert np.isfinite(reward) and info["legal"]
        if terminated or truncated:
            break
    env.close()


def test_the_environment_has_the_scenarios_jobs():
    env = gymnasium.make("gangline/GpuCluster-v0", world="half-start").unwrapped
    env.reset(seed=0)
    _, source = build_world(load_world("half-start"))
    assert source.listing.names_of(env.episode.trace) == ("other", "train", "small-1", "small-2", "small-3")


@pytest.mark.parametrize("name", NAMES)
def test_the_figures_add_up_and_noting_changes_nothing(name):
    """A run that is noted instant by instant is the run that the simulator gives in one go."""
    found, path = load(name)
    label, case = next(iter(found.run.cases.items()))
    case = replace(case, files=scenario.Files(), scheduler="kube_scheduler", options={})
    config = load_world(scenario.beside(found.world, path))
    spec, source = build_world(config)
    trace = source.draw(0, {}).jobs()
    until_ms = round((config.episode.horizon_h or 0) * HOUR_MS)
    whole = World(spec, trace)
    whole.run(build("kube_scheduler"), until_ms)
    noted = World(spec, trace)
    follow(noted, build("kube_scheduler"), until_ms, source.listing.names_of(trace), every_ms=until_ms // 50)
    assert np.array_equal(whole.ended(), noted.ended()), label
    assert metrics.identity(noted).holds
    if name in ("half-start", "cohort-borrow", "three-teams"):
        told = World(spec, trace)
        follow(told, build("kube_scheduler"), until_ms, source.listing.names_of(trace))
        assert np.array_equal(whole.ended(), told.ended())


@pytest.mark.parametrize("name", NAMES)
def test_run_prints_a_table_and_writes_a_picture_in_time(name, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="pictures need gangline[train]")
    played(name)  # compiled
    start = time.process_time()
    assert main(["scenario", "run", name, "--out", str(tmp_path / "p.png")]) == 0
    assert time.process_time() - start < MOST_CPU_S  # measured: 2 to 4 s
    printed = capsys.readouterr().out
    assert "GPU-hours of work done and safe" in printed and re.search(r"wait of .* until the start, hours +\d", printed)
    assert (tmp_path / "p.png").stat().st_size > 20_000


def test_list_prints_names_and_titles(capsys):
    assert main(["scenario", "list", "--names"]) == 0
    assert capsys.readouterr().out.split() == NAMES
    assert main(["scenario", "list"]) == 0
    assert "An 8-GPU job meets 6 free GPUs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["scenario", "run", "half-strat"], "did you mean 'half-start'"),
        (["scenario", "run", "nowhere.yaml"], "nowhere.yaml"),
        (["scenario", "compare", "half-start", "--seed", "-1"], "seed is -1, expected at least 0"),
        (["picture", "--world", "half-strat"], "did you mean 'half-start'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, want, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert want in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("titel: x", "did you mean 'title'"),
        ("run: {cases: {a: {scheduler: fifo}}}", "compare.cases is empty"),
        ("run: {cases: {a: {says: x}}}", "run.cases.a has no scheduler"),
        ("run: {cases: {a: {scheduler: fifo}}, measures: [wrok]}", "did you mean 'work'"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_one_line(text, want, tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(GanglineError, match=want):
        load(str(file))


def test_an_own_scenario_file_runs(tmp_path, capsys):
    file = tmp_path / "own.yaml"
    file.write_text(
        """
title: mine
world:
  cluster: {nodes: [{count: 1, gpus: 4}]}
  workload: {name: listed, load: null, claims: exact, options: {jobs: [{name: a, tenant: t, gpus: 4}]}}
  episode: {horizon_h: 2, warm_h: 0, random_start: false}
run: {cases: {it: {scheduler: fifo}}}
compare: {cases: {it: {scheduler: fifo}}}
"""
    )
    pytest.importorskip("matplotlib", reason="pictures need gangline[train]")
    assert main(["scenario", "run", str(file), "--out", str(tmp_path / "p.png")]) == 0
    assert re.search(r"GPU-hours of work done and safe +4\.0", capsys.readouterr().out)


def test_streams_in_a_batch_are_those_of_single_environments():
    """Environment i of a batch seeded s is the single one seeded s + i, where each draws other jobs."""
    batch = gymnasium.make_vec("gangline/GpuCluster-v0", num_envs=2, world="hpc-and-kube")
    singles = [gymnasium.make("gangline/GpuCluster-v0", world="hpc-and-kube") for _ in range(2)]
    observation, info = batch.reset(seed=5)
    one = [env.reset(seed=5 + i) for i, env in enumerate(singles)]
    for _ in range(150):
        for i, (seen, own) in enumerate(one):
            assert np.array_equal(observation[i], seen)
            assert np.array_equal(info["action_mask"][i], own["action_mask"])
        actions = [int(np.flatnonzero(own["action_mask"])[-1]) for _, own in one]
        observation, _, _, _, info = batch.step(np.array(actions))
        one = []
        for env, action in zip(singles, actions, strict=True):
            seen, _, _, _, own = env.step(action)
            one.append((seen, own))
    assert not np.array_equal(observation[0], observation[1])
