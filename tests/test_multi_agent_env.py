"""Several agents: PettingZoo's own checks, what a round is, what a tenant sees and earns, and that nobody breaks it."""

import itertools
import warnings

import gymnasium
import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, render_test
from pettingzoo.utils import parallel_to_aec

import gangline
from gangline.envs.action import decode
from gangline.envs.agent import Kind
from gangline.envs.config import preset_names
from gangline.envs.core.invariants import broken_invariants
from gangline.envs.core.types import JobState
from gangline.envs.errors import GanglineError
from gangline.envs.multi_agent_env import ROLES, RolesBatch, TenantsBatch, several_agents_config

SHORT = {"episode.horizon_h": 12, "episode.warm_h": 12}
EXPECTED_WARNINGS = (  # PettingZoo would like every observation to be a Box, without a mask, and agents to be numbered
    "Observation space for each agent probably should be gymnasium.spaces.box",
    "Observation is not a NumPy array",
    "We recommend agents to be named in the format",
)


@pytest.fixture(autouse=True)
def _no_other_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for message in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message)
        yield


def legal(mask, rng):
    return int(rng.choice(np.flatnonzero(mask)))


def meaning(env, action):
    """(kind, row, rule) of a flat action."""
    return decode.py_func(env.batch.agents.view(np.recarray)[0], action)


def random_legal(masks, rng):
    """(...,) actions for masks (..., num_actions): each legal one equally likely."""
    return np.argmax(masks * (rng.random(masks.shape) + 1e-9), axis=-1)


# -- PettingZoo's checks ------------------------------------------------------------------------------------------


def test_pettingzoo_accepts_the_tenants_environment():
    parallel_api_test(gangline.tenants_env("small", **SHORT), num_cycles=200)
    parallel_seed_test(lambda: gangline.tenants_env("small", **SHORT), num_cycles=50)


@pytest.mark.parametrize(
    "make",
    [lambda **k: parallel_to_aec(gangline.tenants_env("small", **k)), lambda **k: gangline.roles_env("small", **k)],
    ids=["tenants", "roles"],
)
def test_pettingzoo_accepts_both_aec_forms(make):
    api_test(make(**SHORT), num_cycles=200)
    render_test(lambda render_mode: make(**SHORT, render_mode=render_mode))


@pytest.mark.parametrize("batch_type", [TenantsBatch, RolesBatch])
@pytest.mark.parametrize("world", preset_names())
def test_100_000_random_legal_steps_stay_in_the_space_and_are_never_refused_as_illegal(world, batch_type):
    num_envs = 16
    config = several_agents_config(world, {"episode.horizon_h": 24, "episode.warm_h": 0})
    batch = batch_type(config, num_envs)
    rng = np.random.default_rng(0)
    seeds = itertools.count()

    def begin(i):
        batch.reset_one(i, next(seeds), {})
        batch.begin(i, i + 1)

    for i in range(num_envs):
        begin(i)
    is_long = world == "datacenter" and batch_type is TenantsBatch  # a round is 64 agents' steps
    for _ in range((20_000 if is_long else 100_000) // num_envs):
        if batch_type is TenantsBatch:
            batch.actions[:] = random_legal(batch.masks, rng)
        else:
            turns = batch.envs["turn"]
            batch.actions[:, 0] = random_legal(batch.masks[np.arange(num_envs), turns], rng)
        batch.step(0, num_envs)
        assert batch.observations.min() >= -1 and batch.observations.max() <= 4  # NaN fails too
        assert (batch.masks[..., 0] == 1).all() and np.isfinite(batch.rewards).all()
        assert not batch.members["num_illegal"].any()
        for i in np.flatnonzero(batch.envs["terminated"] | batch.envs["truncated"]).tolist():
            begin(i)


# -- a round ------------------------------------------------------------------------------------------------------


def test_with_one_tenant_it_is_the_single_agents_environment_step_by_step():
    one = {"workload.options": {"num_tenants": 1}, **SHORT}
    single = gymnasium.make("gangline/GpuCluster-v0", world="small", **one)
    several = gangline.tenants_env("small", **one)
    observation, info = single.reset(seed=3)
    seen, _ = several.reset(seed=3)
    (name,) = several.agents
    rng = np.random.default_rng(0)
    num_zero_time = 0
    for _ in range(3000):
        assert np.array_equal(info["action_mask"], seen[name]["action_mask"][: len(info["action_mask"])])
        assert not seen[name]["action_mask"][len(info["action_mask"]) :].any()  # nothing to give back to anybody
        assert np.array_equal(observation, seen[name]["observation"])
        action = legal(info["action_mask"], rng)
        observation, _, terminated, truncated, info = single.step(action)
        seen, _, ends, cuts, infos = several.step({name: action})
        assert infos[name]["time_s"] == info["time_s"] and infos[name]["discount"] == info["discount"]
        assert (ends[name], cuts[name]) == (terminated, truncated)
        num_zero_time += infos[name]["dt_s"] == 0
        if terminated or truncated:
            break
    assert truncated and num_zero_time > 10


def two_tenants_want_the_last_gpus(**settings):
    """A world of one 8-GPU node on which two tenants have an 8-GPU job each; both fit, one at a time."""
    env = gangline.tenants_env("small", **{**SHORT, "workload.load": 2.0, **settings})
    for seed in range(200):
        seen, _ = env.reset(seed=seed)
        for _ in range(200):
            starts = {a: int(seen[a]["action_mask"][1:22].argmax()) + 1 for a in env.agents}
            can = [a for a in env.agents if seen[a]["action_mask"][starts[a]]]
            if len(can) >= 2:
                yield env, can, starts
            seen, _, _, _, _ = env.step({a: starts[a] for a in can[:1]} if can else {})
            if not env.agents:
                break


def test_who_comes_too_late_in_a_round_is_refused_and_nothing_is_done_for_it():
    for num_tried, (env, can, starts) in enumerate(two_tenants_want_the_last_gpus()):
        w = env.world.record
        running, held = int(w["num_running"]), int(w["gpus_held"])
        ratio = {a: env.batch.worlds[0]["tenants"][env.possible_agents.index(a)] for a in can}
        ratio = {a: t["held"] / t["entitled"] for a, t in ratio.items()}
        _, _, _, _, infos = env.step({a: starts[a] for a in can})
        refused = [a for a in can if infos[a]["refused"] == "conflict"]
        if refused and len(refused) < len(can):
            winners = [a for a in can if a not in refused]
            assert min(ratio, key=ratio.get) in winners  # who holds least of its entitlement goes first
            assert all(infos[a]["dt_s"] == 0 for a in can)
            assert held < w["gpus_held"] or running < w["num_running"]
            assert broken_invariants(env.world) == []
            return
        assert num_tried < 400, "two tenants never wanted the same GPUs"
    pytest.fail("two tenants never wanted the same GPUs")


@pytest.mark.parametrize("arbiter", ["entitlement_deficit", "priority", "round_robin"])
def test_every_arbiter_keeps_the_world_whole(arbiter):
    env = gangline.tenants_env("small", **{**SHORT, "multi_agent.arbiter": arbiter})
    seen, _ = env.reset(seed=1)
    rng = np.random.default_rng(0)
    while env.agents:
        seen, *_ = env.step({a: legal(seen[a]["action_mask"], rng) for a in env.agents})
    assert broken_invariants(env.world) == []


def test_tenants_stay_when_they_have_nothing_to_do():
    env = gangline.tenants_env("small", **SHORT)
    seen, _ = env.reset(seed=0)
    num_idle = 0
    for _ in range(200):
        assert env.agents == env.possible_agents
        num_idle += sum(seen[a]["action_mask"].sum() == 1 for a in env.agents)
        seen, *_ = env.step({})
        if not env.agents:
            break
    assert num_idle > 0


# -- what a tenant sees and may do --------------------------------------------------------------------------------


def test_a_tenant_sees_its_own_jobs_only():
    env = gangline.tenants_env("small", **SHORT)
    seen, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    num_rows = 0
    while env.agents:
        w = env.batch.worlds[0]
        for k, member in enumerate(env.batch.members[0]):
            shown = w["jobs"][member["queue_jobs"][: member["num_queue_rows"]]]
            running = w["jobs"][member["running_jobs"][: member["num_running_rows"]]]
            assert (shown["tenant"] == k).all() and (running["tenant"] == k).all()
            num_rows += len(shown) + len(running)
        seen, *_ = env.step({a: legal(seen[a]["action_mask"], rng) for a in env.agents})
    assert num_rows > 100


def play(strategies, seed, **settings):
    """Sum of rewards by agent, and the number of times that a tenant within its share lost a job to others."""
    env = gangline.tenants_env("small", **{**SHORT, "workload.load": 2.0, "episode.horizon_h": 24, **settings})
    rng = np.random.default_rng(seed)
    num_steps = 0
    seen, _ = env.reset(seed=seed)
    totals = dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        w = env.batch.worlds[0]
        within = (w["tenants"]["held"] <= w["tenants"]["fair"])[: len(env.possible_agents)].copy()
        before = [int(x) for x in w["jobs"]["preemptions"][: w["jobs_used"]]]
        owners = w["jobs"]["tenant"][: w["jobs_used"]].copy()
        rows = w["jobs"]["row"][: w["jobs_used"]].copy()
        actions = {a: strategies(a)(env, k, seen[a]["action_mask"], rng) for k, a in enumerate(env.possible_agents)}
        seen, rewards, _, _, _ = env.step(actions)
        for a, reward in rewards.items():
            totals[a] += reward
        for slot, count in enumerate(before):
            job = w["jobs"][slot]
            if job["row"] == rows[slot] and job["preemptions"] > count and within[owners[slot]]:
                raise AssertionError("a tenant that held no more than its share lost a job")
        num_steps += 1
        if num_steps % 50 == 0:
            assert broken_invariants(env.world) == []
    return totals


def everything(env, k, mask, rng):
    """Ask for whatever is legal, waiting last."""
    return int(np.flatnonzero(mask)[-1])


def start_first(env, k, mask, rng):
    """Start the first job that fits."""
    rows = int(env.batch.agent["queue_rows"])
    at = int(mask[1 : 1 + rows].argmax()) + 1
    return at if mask[at] else 0


def preempt(env, k, mask, rng):
    """Have others stopped whenever that is legal."""
    rows, rules = int(env.batch.agent["queue_rows"]), int(env.batch.agent["num_rules"])
    at = int(mask[1 + rules * rows :].argmax()) + 1 + rules * rows
    return at if mask[at] else start_first(env, k, mask, rng)


def never(env, k, mask, rng):
    """Never act."""
    return 0


def nonsense(env, k, mask, rng):
    """Illegal actions, out of range ones among them."""
    return int(rng.choice([-5, 10**9, len(mask), *np.flatnonzero(mask == 0)[:3]]))


@pytest.mark.parametrize("bad", [everything, preempt, never, nonsense])
def test_an_adversary_breaks_nobodys_guarantee_and_loses_nothing(bad):
    totals = play(lambda name: bad if name == "team0" else start_first, seed=5)
    assert all(np.isfinite(value) for value in totals.values())


def test_all_adversaries_at_once():
    four = {"team0": everything, "team1": preempt, "team2": never, "team3": nonsense}
    play(four.__getitem__, seed=6)


def test_illegal_actions_change_nothing_and_are_counted():
    env = gangline.tenants_env("small", **SHORT)
    env.reset(seed=0)
    before = env.batch.worlds[0]["now_ms"].copy(), env.batch.worlds[0]["num_running"].copy()
    _, _, _, _, infos = env.step(dict.fromkeys(env.agents, 10**6))
    assert (env.batch.worlds[0]["now_ms"], env.batch.worlds[0]["num_running"]) == before
    assert all(infos[a]["refused"] == "illegal" for a in env.possible_agents)
    assert env.batch.members[0]["num_illegal"].tolist() == [1] * len(env.possible_agents)


def give_back(env, k, mask, rng):
    """Start the first job that fits, beyond the fair share only while nobody lacks his; give back what is borrowed."""
    w = env.batch.worlds[0]
    tenant, others = w["tenants"][k], w["tenants"][: len(env.possible_agents)]
    lacking = sum(max(0, int(o["fair"] - o["held"])) for j, o in enumerate(others) if j != k)
    for action in np.flatnonzero(mask[1:]) + 1:
        kind, row, _ = meaning(env, int(action))
        if kind == Kind.PREEMPT:
            return int(action)
        slot = int(env.batch.members[0, k]["queue_jobs"][row])
        stays = tenant["held"] + w["jobs"][slot]["gpus_wanted"] <= tenant["fair"]
        if kind == Kind.PLACE and (stays or lacking == 0):
            return int(action)
    return 0


def test_holding_borrowed_gpus_that_others_lack_does_not_pay():
    """The others take what fits. A tenant that takes all it can and keeps it earns less than one that gives back."""
    settings = {"episode.horizon_h": 48}
    hoards, gives = [], []
    for seed in range(10):
        hoards.append(play(lambda _: start_first, seed, **settings)["team0"])
        gives.append(play(lambda name: give_back if name == "team0" else start_first, seed, **settings)["team0"])
    assert np.mean(hoards) < np.mean(gives)


def test_an_agents_index_is_no_advantage():
    """Equal tenants that do the same earn the same on average: the mean difference is within its own noise."""
    equal = {"tenants.weights": {f"team{k}": 1.0 for k in range(4)}}
    returns = np.array([list(play(lambda _: start_first, seed, **equal).values()) for seed in range(16)])
    first, last = returns[:, 0], returns[:, -1]
    noise = (first - last).std(ddof=1) / np.sqrt(len(first))
    assert abs((first - last).mean()) < 3 * noise


# -- roles --------------------------------------------------------------------------------------------------------


def test_a_job_starts_only_after_the_admitter_has_let_it_in():
    env = gangline.roles_env("small", **SHORT)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    was_let_in, num_started = set(), 0
    for agent in env.agent_iter():
        observation, _, terminated, truncated, _ = env.last()
        if terminated or truncated:
            break
        action = legal(observation["action_mask"], rng)
        kind, row, _ = meaning(env, action)
        w = env.batch.worlds[0]
        member = env.batch.members[0, ROLES.index(agent)]
        if kind == Kind.ADMIT:
            assert agent == "admitter"
            was_let_in.add(int(w["jobs"][member["queue_jobs"][row]]["row"]))
        elif kind in (Kind.PLACE, Kind.MAKE_ROOM):
            assert agent == ("placer" if kind == Kind.PLACE else "preemptor")
            job = w["jobs"][int(member["queue_jobs"][row])]
            assert int(job["row"]) in was_let_in
            was_let_in.discard(int(job["row"]))
            num_started += 1
        env.step(action)
    assert num_started > 10
    assert broken_invariants(env.world) == []


def test_rewards_of_roles_cover_the_time_since_their_last_turn():
    env = gangline.roles_env("small", **SHORT)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    beta = float(env.batch.agent["beta_per_h"])
    since = dict.fromkeys(ROLES, 0.0)
    last_time = env.infos["admitter"]["time_s"]
    for agent in env.agent_iter():
        observation, _, terminated, truncated, info = env.last()
        assert info["dt_s"] == pytest.approx(since[agent], abs=1e-6)
        assert info["discount"] == pytest.approx(np.exp(-beta * since[agent] / 3600.0))
        if terminated or truncated:
            break
        since[agent] = 0.0
        env.step(legal(observation["action_mask"], rng))
        passed = env.infos[agent]["time_s"] - last_time
        last_time += passed
        for role in ROLES:
            since[role] += passed


def test_a_stopped_job_has_to_be_let_in_again():
    env = gangline.roles_env("small", **{**SHORT, "workload.load": 2.0, "episode.horizon_h": 24})
    num_stopped = 0
    for seed in range(4):
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        for _ in env.agent_iter():
            observation, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                break
            env.step(legal(observation["action_mask"], rng))
            w = env.batch.worlds[0]
            jobs = w["jobs"][: w["jobs_used"]]
            fresh = jobs[(jobs["state"] == JobState.QUEUED) & (jobs["last_submit_ms"] == w["now_ms"])]
            stopped = fresh[fresh["preemptions"] > 0]
            num_stopped += len(stopped)
            assert not jobs[jobs["state"] == JobState.RUNNING]["is_let_in"].any()
            assert env.agent_selection == "placer" or not stopped["is_let_in"].any()  # the admitter may have, just now
    assert num_stopped > 0


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({"multi_agent.arbiter": "loudest"}, "unknown multi_agent.arbiter 'loudest'"),
        ({"multi_agent.mu": 2}, "multi_agent.mu is 2"),
        ({"multi_agent.own_weights": {"greed": 1.0}}, "unknown own reward term 'greed'"),
        ({"action.head": "multi_discrete"}, "action.head is 'multi_discrete'"),
        ({"render_mode": "holo"}, "render_mode is 'holo'"),
    ],
)
def test_bad_settings_are_one_line(settings, want):
    with pytest.raises(GanglineError, match=want.replace(".", r"\.")) as caught:
        gangline.tenants_env("small", **settings)
    assert "\n" not in str(caught.value)


def test_own_weights_that_are_left_out_keep_their_defaults():
    env = gangline.tenants_env("small", **SHORT, **{"multi_agent.own_weights": {"neg_waste": 3.0}})
    assert env.batch.agent["own_weights"].tolist() == [1.0, 2.0, 1.0, 3.0]


def test_an_unknown_agent_is_named():
    env = gangline.tenants_env("small", **SHORT)
    env.reset(seed=0)
    with pytest.raises(GanglineError, match="action of agent 'nobody'"):
        env.step({"nobody": 0})
