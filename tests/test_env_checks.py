"""What Gymnasium and Stable-Baselines3 ask of an environment, on every preset; and what we ask beyond that."""

import importlib.util
import os
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import gangline  # noqa: F401
from gangline.envs import observation as observations
from gangline.envs.action import can_start, has_no_choice
from gangline.envs.agent import Kind
from gangline.envs.cluster_env import Batch
from gangline.envs.config import load_world, preset_names
from gangline.envs.core.compiled import kernel
from gangline.envs.core.invariants import broken_invariants
from gangline.envs.core.preemption import can_make_room, enough_is_stoppable, plan_make_room
from gangline.envs.core.types import JOB, NEVER, JobState
from gangline.envs.errors import GanglineError

PRESETS = preset_names()
DATA = Path(os.environ.get("GANGLINE_DATA", Path(__file__).resolve().parents[2] / "shared/data"))
NO_PICTURES = importlib.util.find_spec("matplotlib") is None  # rgb_array and human need it
# the largest world keeps its size, its episodes are cut short: a step there is no different
SHORTER = {"datacenter": {"episode.horizon_h": 2, "episode.warm_h": 0.5}}


def make(world, **overrides):
    return gymnasium.make("gangline/GpuCluster-v0", world=world, **SHORTER.get(world, {}), **overrides)


@pytest.mark.parametrize("world", PRESETS)
def test_gymnasiums_checker_passes_without_a_warning(world):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(world, render_mode="ansi").unwrapped, skip_render_check=NO_PICTURES)


@pytest.mark.parametrize("form", ["flat", "dict"])
def test_gymnasiums_checker_passes_for_every_form_of_observation_and_action(form):
    for head in ("slots", "multi_discrete"):
        for mode in ("event", "tick"):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                env = make(
                    "small",
                    render_mode="ansi",
                    **{"observation.form": form, "action.head": head, "time.mode": mode, "time.commands_per_tick": 2},
                )
                check_env(env.unwrapped, skip_render_check=NO_PICTURES)


@pytest.mark.parametrize("world", PRESETS)
def test_sb3s_checker_passes_without_a_warning(world):
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="stable-baselines3 is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(make(world, render_mode="ansi").unwrapped, warn=True)


@kernel
def choose_random_legal(mask, draw):
    """Index of a legal action by a uniform draw in [0, 1)."""
    count = 0
    for a in range(len(mask)):
        count += mask[a]
    wanted = int(draw * count)
    for a in range(len(mask)):
        if mask[a]:
            if wanted == 0:
                return a
            wanted -= 1
    return 0


@pytest.mark.parametrize("world", PRESETS)
def test_observations_stay_in_the_space_over_100_000_random_legal_steps(world):
    config = load_world(
        world,
        **SHORTER.get(world, {}),
        **{
            "action.may_reserve": True,
            "action.placement_rules": ["pack", "spread"],
            "action.victim_rules": ["least_lost", "newest"],
        },
    )
    batch = Batch(config, 1)
    rng = np.random.default_rng(1)
    seed = 0
    batch.reset_one(0, seed, {})
    batch.begin(0, 1)
    steps = 100_000
    draws = rng.random(steps)
    env, observation, mask = batch.envs[0], batch.observations[0], batch.masks[0]
    low, high = np.float32(observations.LOW), np.float32(observations.HIGH)
    for step in range(steps):
        assert mask[0] == 1, "wait is always legal"
        batch.actions[0, 0] = choose_random_legal(mask, draws[step])
        batch.step(0, 1)
        assert observation.min() >= low and observation.max() <= high  # NaN fails too
        if env["terminated"] or env["truncated"]:
            assert env["num_illegal"] == 0, "what the mask allows is applied"
            seed += 1
            batch.reset_one(0, seed, {})
            batch.begin(0, 1)
    assert env["num_illegal"] == 0


def test_the_id_can_name_its_module_so_that_no_import_is_needed():
    env = gymnasium.make("gangline:gangline/GpuCluster-v0", world="toy")
    assert env.unwrapped.batch.names.tenants == ("red", "blue")


def test_the_same_seed_gives_the_same_run_bit_for_bit():
    def play(seed):
        env = make("small")
        observation, info = env.reset(seed=seed)
        trail = [observation]
        rng = np.random.default_rng(0)
        for _ in range(400):
            action = int(rng.choice(np.flatnonzero(info["action_mask"])))
            observation, reward, terminated, truncated, info = env.step(action)
            trail += [observation, np.array([reward])]
            if terminated or truncated:
                observation, info = env.reset()
        return np.concatenate(trail).tobytes()

    assert play(5) == play(5)
    assert play(5) != play(6)


def test_a_second_reset_without_a_seed_is_deterministic_and_brings_other_jobs():
    def two_episodes():
        env = make("small")
        return env.reset(seed=1)[0], env.reset()[0]

    (a1, a2), (b1, b2) = two_episodes(), two_episodes()
    assert np.array_equal(a1, b1) and np.array_equal(a2, b2)
    assert not np.array_equal(a1, a2)


def test_an_array_kept_from_a_step_is_unchanged_100_steps_later():
    env = make("small", **{"observation.form": "dict"})
    observation, info = env.reset(seed=0)
    kept = {name: block.copy() for name, block in observation.items()}
    kept_mask, mask = info["action_mask"].copy(), info["action_mask"]
    for _ in range(100):
        env.step(env.action_space.sample())
    assert all(np.array_equal(kept[name], observation[name]) for name in kept)
    assert np.array_equal(kept_mask, mask)


def test_an_illegal_action_changes_nothing_and_is_counted():
    env = make("small").unwrapped
    _, info = env.reset(seed=3)
    for _ in range(200):
        illegal = np.flatnonzero(info["action_mask"] == 0)
        before = env.world.get_state()
        counted = info["num_illegal"]
        _, reward, _, _, info = env.step(int(illegal[0]))
        assert info["num_illegal"] == counted + 1 and not info["legal"]
        if info["dt_s"] == 0:
            assert _without_scratch(env, before) == _without_scratch(env, env.world.get_state())
            assert reward == 0
        *_, terminated, truncated, info = env.step(0)
        if terminated or truncated:
            _, info = env.reset()


def _without_scratch(env, state):
    """Nodes, tenants, queues and live jobs of a state: what an action could change."""
    import pickle

    fields = pickle.loads(state)[0]
    jobs = np.frombuffer(fields["jobs"], JOB)
    return [fields[f] for f in ("nodes", "tenants", "queues")] + [
        jobs[f].tobytes() for f in ("state", "num_bound", "gpus_bound", "starts", "eligible_ms")
    ]


def test_actions_out_of_range_are_counted_not_raised():
    env = make("small").unwrapped
    env.reset(seed=0)
    for action in (-7, 10_000, np.int64(999)):
        *_, info = env.step(action)
    assert info["num_illegal"] == 3


def test_the_mask_says_exactly_what_would_be_applied_on_toy():
    overrides = {
        "action.placement_rules": ["pack", "spread", "topology_aware", "fgd", "first"],
        "action.victim_rules": ["least_lost", "newest", "most_over_share"],
        "action.may_reserve": True,
        "action.may_preempt": True,
        "action.min_run_h": 0.1,
    }
    env = make("toy", **overrides).unwrapped
    rng = np.random.default_rng(0)
    checked = 0
    for episode in range(6):
        _, info = env.reset(seed=episode)
        while True:
            state = env.world.get_state()
            envs = env.batch.envs.copy()
            for action in range(1, env.action_space.n):
                env.batch.actions[0, 0] = action
                env.batch.step(0, 1)
                assert bool(env.batch.envs[0]["last_was_legal"]) == bool(info["action_mask"][action]), action
                env.world.set_state(state)
                env.batch.envs[:] = envs
                checked += 1
            legal = np.flatnonzero(info["action_mask"])
            *_, terminated, truncated, info = env.step(int(rng.choice(legal)))
            if terminated or truncated:
                break
    assert checked > 1000


@kernel
def _rooms(worlds, envs, agents, out, answers):
    """For each waiting job that is shown and victim rule: whether room could be made as the mask is told, and as the
    plan that would be applied says; and in the last row, whether the quick look denies every choice."""
    w = worlds[0]
    agent = agents[0]
    count = 0
    for i in range(envs[0].num_queue_rows):
        slot = envs[0].queue_jobs[i]
        if not can_start(w, slot):
            for rule in range(agent.num_victim_rules):
                victims = agent.victim_rules[rule]
                answers[count, 0] = can_make_room(w, slot, 0, victims, 0, agent.min_run_ms, out[0])
                out[0].num_commands = 0
                out[0].num_transactions = 0
                answers[count, 1] = plan_make_room(w, slot, 0, victims, 0, agent.min_run_ms, out[0])
                answers[count, 2] = enough_is_stoppable(w, slot, agent.min_run_ms)
                count += 1
    answers[count, 0] = has_no_choice(w, agent)
    return count


@pytest.mark.parametrize(
    "options",
    [
        {"max_gpus": 8},
        {"max_gpus": 32},
        {"max_gpus": 16, "fractional": 0.6},
        {"max_gpus": 16, "checkpoint_interval_ms": None, "restart_cost_ms": 60_000, "num_tenants": 9},
    ],
    ids=["one node", "gangs", "parts of GPUs", "many tenants"],
)
@pytest.mark.parametrize("min_run_h", [0, 0.5])
def test_what_the_mask_is_told_of_making_room_is_what_the_plan_says(options, min_run_h):
    env = make(
        "small",
        **{
            "workload.load": 1.3,
            "workload.options": options,
            "action.victim_rules": ["least_lost", "newest", "most_over_share"],
            "action.min_run_h": min_run_h,
            "time.skip_forced": False,
        },
    ).unwrapped
    batch = env.batch
    rng = np.random.default_rng(0)
    answers = np.zeros((3 * 64 + 1, 3), np.int8)
    seen, denied = set(), 0
    _, info = env.reset(seed=1)
    for _ in range(1000):
        count = _rooms(batch.worlds, batch.envs, batch.agents, batch.decisions[0], answers)
        told, planned, possible = answers[:count].T
        assert np.array_equal(told, planned)
        assert not np.any(planned & (possible == 0))
        legal = np.flatnonzero(info["action_mask"])
        assert not (answers[count, 0] and len(legal) > 1)
        denied += int(answers[count, 0])
        seen |= set(told.tolist())
        *_, terminated, truncated, info = env.step(int(rng.choice(legal)))
        if terminated or truncated:
            _, info = env.reset()
    assert seen == {0, 1} and denied > 20


def test_room_is_made_only_within_the_fair_share_if_so_set():
    def rows_beyond_share(**overrides):
        """How many jobs that would take their tenant beyond its share could have others stopped, of how many."""
        env = make("small", **overrides).unwrapped
        rng = np.random.default_rng(0)
        batch, beyond, count = env.batch, 0, 0
        queue_rows = int(batch.agent["queue_rows"])
        for seed in range(3):
            _, info = env.reset(seed=seed)
            over = False
            while not over:
                w, shown = batch.worlds[0], batch.envs[0]
                for row in np.flatnonzero(info["action_mask"][1 + queue_rows : 1 + 2 * queue_rows]):
                    job = w["jobs"][shown["queue_jobs"][row]]
                    tenant = w["tenants"][job["tenant"]]
                    beyond += tenant["held"] + job["gpus_wanted"] > tenant["fair"]
                    count += 1
                action = int(rng.choice(np.flatnonzero(info["action_mask"])))
                *_, terminated, truncated, info = env.step(action)
                over = terminated or truncated
        return beyond, count

    beyond, count = rows_beyond_share()
    assert beyond > 0
    beyond, count = rows_beyond_share(**{"action.reclaim_within_share": True})
    assert beyond == 0 and count > 0


def test_hidden_truth_changes_no_observation_and_no_mask():
    env = make("small").unwrapped
    _, info = env.reset(seed=2)
    rng = np.random.default_rng(0)
    for _ in range(150):
        *_, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        if terminated or truncated:
            _, info = env.reset()
    batch = env.batch
    state, envs = env.world.get_state(), batch.envs.copy()

    def look():
        batch.actions[0, 0] = -1  # illegal: the environment looks again, nothing else
        batch.step(0, 1)
        return batch.observations[0].copy(), batch.masks[0].copy()

    observation, mask = look()
    env.world.set_state(state)
    batch.envs[:] = envs
    jobs = batch.worlds[0]["jobs"]
    jobs["work_ms"] = 123_456
    jobs["cancel_ms"] = NEVER
    jobs["outcome"] = 1
    jobs["progress"]["left"] = 10**12
    jobs["progress"]["saved_left"] = 10**12
    jobs["progress"]["outcome_left"] = 5
    poisoned, poisoned_mask = look()
    assert np.array_equal(observation, poisoned)
    assert np.array_equal(mask, poisoned_mask)


def test_waiting_for_ever_is_truncated_at_the_horizon_not_terminated():
    env = make("small")
    env.reset(seed=0)
    for _ in range(100_000):
        *_, terminated, truncated, info = env.step(0)
        if terminated or truncated:
            break
    assert truncated and not terminated
    assert info["time_s"] == (72 + 24) * 3600


def test_the_toy_day_terminates_when_every_job_has_ended():
    env = make("toy")
    _, info = env.reset(seed=0)
    rows = int(env.unwrapped.batch.agent["queue_rows"])
    for _ in range(1000):
        places = np.flatnonzero(info["action_mask"][: 1 + rows])  # wait, or start a job: nobody is stopped
        *_, terminated, truncated, info = env.step(int(places[min(1, len(places) - 1)]))
        if terminated or truncated:
            break
    assert terminated and not truncated
    assert info["time_s"] == 20 * 3600  # the makespan of the docstring of workloads/toy.py: day


def test_reward_terms_add_up_and_the_discount_is_of_the_time_passed():
    env = make("small", **{"time.beta_per_h": 0.25})
    _, info = env.reset(seed=4)
    total = 0.0
    for _ in range(300):
        _, reward, terminated, truncated, info = env.step(int(np.flatnonzero(info["action_mask"])[-1]))
        total += reward
        assert info["discount"] == pytest.approx(np.exp(-0.25 * info["dt_s"] / 3600), rel=1e-9)
        if terminated or truncated:
            break
    sums = info["reward_term_sums"]
    assert sums["neg_deficit"] <= 0 and sums["neg_idle"] <= 0
    assert total <= 0


def test_splitting_an_instant_into_commands_costs_no_time():
    env = make("small")
    _, info = env.reset(seed=0)
    zero, some = 0, 0
    for _ in range(500):
        action = int(np.flatnonzero(info["action_mask"])[-1])
        *_, terminated, truncated, info = env.step(action)
        if action != 0 and info["dt_s"] == 0:
            assert info["discount"] == 1.0
            zero += 1
        some += info["dt_s"] > 0
        if terminated or truncated:
            _, info = env.reset()
    assert zero > 10 and some > 10


def test_reset_options_fix_the_jobs_apart_from_the_seed():
    env = make("small").unwrapped
    env.reset(seed=0, options={"trace": 7})
    first = env.episode.jobs().rows["submit_ms"].tobytes()
    env.reset(seed=99, options={"trace": 7})
    assert env.episode.jobs().rows["submit_ms"].tobytes() == first
    env.reset(seed=99, options={"trace": 8})
    assert env.episode.jobs().rows["submit_ms"].tobytes() != first


def test_every_kind_of_action_has_its_place_in_the_flat_space():
    overrides = {
        "action.may_admit": True,
        "action.may_reserve": True,
        "action.may_preempt": True,
        "rules.quota": "enforced",
    }
    env = make("small", **overrides).unwrapped
    agent = env.batch.agent
    seen = {env.flat_action(agent, kind, slot, 0) for kind in Kind for slot in range(int(agent["queue_rows"]))}
    seen.discard(-1)
    assert seen == set(range(env.action_space.n))


@pytest.mark.parametrize("quota", ["tracked", "enforced"])
def test_quota_worlds_run_and_no_limit_is_ever_passed(quota):
    env = make("small", **{"rules.quota": quota, "tenants.borrowing_limit": 0.0}).unwrapped
    _, info = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(500):
        *_, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        w = env.world.record
        held = w["tenants"]["held"][: int(w["num_tenants"])]
        queues = w["queues"][: int(w["num_queues"])]
        usage = queues["usage"][~queues["is_cohort"], 0]
        assert np.array_equal(held, usage)
        if quota == "enforced":
            assert (usage <= queues["nominal"][~queues["is_cohort"], 0]).all()
        if terminated or truncated:
            _, info = env.reset()


@pytest.mark.parametrize("quota", ["off", "tracked", "enforced"])
def test_every_invariant_holds_after_every_step_of_random_legal_actions(quota):
    overrides = {"rules.quota": quota, "action.may_reserve": True, "action.may_preempt": True, "action.min_run_h": 0.2}
    env = make(
        "small", **overrides, **{"cluster.mean_up_h": 40, "workload.options": {"fail": 0.2, "hang": 0.1}}
    ).unwrapped
    _, info = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(400):
        *_, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        assert broken_invariants(env.world) == []
        if terminated or truncated:
            _, info = env.reset()


def test_no_job_is_lost_or_doubled():
    env = make("small").unwrapped
    _, info = env.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(400):
        *_, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
        w = env.world.record
        live = w["jobs"][: int(w["jobs_used"])]["state"] != JobState.FREE
        assert live.sum() == w["num_jobs"] == w["totals"]["num_arrived"] - w["totals"]["num_ended"]
        if terminated or truncated:
            _, info = env.reset()


def count_of_running_jobs(view):
    """An observation block of one's own."""
    return np.array([len(view.running()) / 100.0])


def share_that_runs(transition):
    """A reward term of one's own."""
    return float(transition["plain"][1])


def test_a_block_and_a_reward_term_of_ones_own_are_named_by_dotted_path():
    path = f"{__name__}.count_of_running_jobs"
    weights = {"neg_idle": 1.0, f"{__name__}.share_that_runs": 0.5}
    plain = make("small").unwrapped
    env = make("small", observation={"own_blocks": [path]}, reward={"weights": weights}).unwrapped
    assert env.observation_space.shape[0] == plain.observation_space.shape[0] + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)
    observation, info = env.reset(seed=0)
    assert observation[-1] == pytest.approx(int(env.world.record["num_running"]) / 100.0)
    *_, info = env.step(0)
    assert info["reward_terms"][f"{__name__}.share_that_runs"] > 0


@pytest.mark.parametrize(
    ("overrides", "want"),
    [
        ({"world": "smal"}, "unknown world 'smal'"),
        ({"reward.weights.neg_jtc": 1.0}, "unknown reward term 'neg_jtc'"),
        ({"reward.weights.neg_idle": float("nan")}, "NaN"),
        ({"observation.blocks": ["queu"]}, "unknown observation block 'queu'"),
        ({"observation.own_blocks": ["nowhere.block"]}, "cannot be imported"),
        ({"rules.half_life_h": 0}, "rules.half_life_h is 0.0"),
        ({"cluster.nodes": [{"count": 0}]}, "cluster.nodes[0].count is 0"),
        ({"cluster.nodes": [{"gpus": 17}]}, "at most 16"),
        ({"tenants.weights": {"nobody": 1}}, "nobody"),
        ({"action.placement_rule": ["pack"]}, "did you mean 'placement_rules'"),
        ({"workload.load": "high"}, "workload.load is 'high'"),
        ({"workload.name": "philyl"}, "did you mean 'philly'"),
        ({"workload.name": "swf"}, "workload.path=FILE"),
        ({"time.mode": "events"}, "did you mean 'event'"),
    ],
)
def test_bad_settings_are_one_line_that_says_what_came_and_what_was_expected(overrides, want):
    world = overrides.pop("world", "small")
    with pytest.raises(GanglineError) as error:
        make(world, **overrides)
    assert want in str(error.value) and "\n" not in str(error.value)


@pytest.mark.skipif(not (DATA / "philly.csv.gz").exists(), reason="the Philly trace is not here (GANGLINE_DATA)")
@pytest.mark.parametrize("world", ["philly64", "philly128", "philly256"])
def test_an_agent_that_only_waits_does_not_fill_a_world(world):
    batch = Batch(load_world(world, **{"workload.name": "philly", "workload.path": str(DATA / "philly.csv.gz")}), 1)
    assert batch.source.most_jobs <= batch.size.max_jobs
    batch.reset_one(0, 0, {})
    batch.begin(0, 1)
    while not batch.envs[0]["truncated"]:
        batch.step(0, 1)  # action 0
    assert batch.worlds[0]["num_jobs"] > batch.worlds[0]["totals"]["num_arrived"] / 2
