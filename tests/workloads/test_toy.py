"""Toy instances: their stated best answers are legal, add up, and are the best, found by trying everything."""

import itertools

import numpy as np
import pytest

from gangline.envs.errors import GanglineError
from gangline.envs.workloads.toy import (
    INSTANCES,
    Instance,
    borrow_and_return,
    day,
    fragmented_pair,
    hold_for_the_gang,
    planted,
    short_before_long,
    two_gangs_one_room,
)

HOUR_MS = 3_600_000


def parts(instance: Instance, job: int) -> tuple[int, int, int, int]:
    """Submission, work, pods and GPUs of a pod."""
    row, pods = instance.trace.rows[job], instance.trace.pod_sets[instance.trace.rows["first_pod_set"][job]]
    return int(row["submit_ms"]), int(row["work_ms"]), int(pods["count"]), int(pods["request"][0]) // 1000


def assert_legal(instance: Instance) -> None:
    """No job starts early, every pod has a node, and no node is ever too full (of jobs that are not stopped)."""
    events: dict[int, list[tuple[int, int]]] = {node: [] for node in range(instance.num_nodes)}
    for job in range(instance.trace.num_jobs):
        submit, work, pods, gpus = parts(instance, job)
        start = instance.best_start_ms[job]
        assert start >= submit
        assert len(instance.best_nodes[job]) == pods
        for node in instance.best_nodes[job]:
            events[node] += [(start, gpus), (start + work, -gpus)]
    for changes in events.values():
        used = 0
        for _, change in sorted(changes):  # at one instant leaving sorts before coming
            used += change
            assert used <= instance.gpus_per_node
        assert used == 0


def best_total(instance: Instance, bound: int) -> int:
    """Least total JCT without preemption: every order of jobs, every choice of nodes, each as early as it fits."""
    num = instance.trace.num_jobs
    jobs = [parts(instance, job) for job in range(num)]
    least = [work for _, work, _, _ in jobs]

    def place(busy, left, total, floor, best):
        if total + sum(least[j] for j in left) >= best:
            return best
        if not left:
            return total
        for job in left:
            submit, work, pods, gpus = jobs[job]
            seen = set()
            for nodes in itertools.combinations(range(instance.num_nodes), pods):
                start = earliest(busy, nodes, gpus, max(submit, floor), work)
                shape = (start, tuple(sorted(tuple(sorted(busy[n])) for n in nodes)))
                if shape in seen:
                    continue
                seen.add(shape)
                grown = [[*b, (start, start + work, gpus)] if n in nodes else b for n, b in enumerate(busy)]
                # jobs in order of their starts: an order that starts earlier was tried as another order
                best = place(grown, [j for j in left if j != job], total + start + work - submit, start, best)
        return best

    def earliest(busy, nodes, gpus, submit, work):
        times = sorted({submit, *(end for n in nodes for _, end, _ in busy[n] if end > submit)})
        for start in times:
            if all(fits(busy[n], gpus, start, start + work) for n in nodes):
                return start
        raise AssertionError("an empty node fits")

    def fits(spans, gpus, start, end):
        points = [start, *(s for s, _, _ in spans if start < s < end)]
        return all(sum(g for s, e, g in spans if s <= p < e) + gpus <= instance.gpus_per_node for p in points)

    return place([[] for _ in range(instance.num_nodes)], list(range(num)), 0, 0, bound + 1)


def first_come_first_served(instance: Instance) -> list[int]:
    """Starts in strict order of submission, each job on the first nodes with room."""
    busy: list[list[tuple[int, int]]] = [[] for _ in range(instance.num_nodes)]  # (end, GPUs)
    now, starts = 0, []
    for job in range(instance.trace.num_jobs):
        submit, work, pods, gpus = parts(instance, job)
        now = max(now, submit)
        while True:
            free = [instance.gpus_per_node - sum(g for end, g in b if end > now) for b in busy]
            nodes = [n for n in range(instance.num_nodes) if free[n] >= gpus][:pods]
            if len(nodes) == pods:
                break
            now = min(end for b in busy for end, _ in b if end > now)
        for node in nodes:
            busy[node].append((now + work, gpus))
        starts.append(now)
    return starts


@pytest.mark.parametrize("name", [n for n in INSTANCES if n != "borrow_and_return"])
def test_the_stated_schedule_is_legal_and_adds_up(name):
    instance = INSTANCES[name]()
    assert_legal(instance)
    ends = [instance.best_start_ms[j] + parts(instance, j)[1] for j in range(instance.trace.num_jobs)]
    assert instance.best_makespan_ms == max(ends)
    assert instance.best_total_jct_ms == sum(ends) - int(instance.trace.rows["submit_ms"].sum())


@pytest.mark.parametrize("make", [two_gangs_one_room, fragmented_pair, short_before_long, day])
def test_no_schedule_without_preemption_has_a_smaller_total_jct(make):
    instance = make()
    assert best_total(instance, instance.best_total_jct_ms) == instance.best_total_jct_ms


def test_two_gangs_take_turns():
    instance = two_gangs_one_room()
    assert instance.best_makespan_ms == 2 * HOUR_MS
    assert instance.best_total_jct_ms == 3 * HOUR_MS
    assert instance.trace.rows["min_member"].tolist() == [2, 2]


def test_packing_the_pair_saves_almost_two_hours():
    instance = fragmented_pair()
    assert instance.best_total_jct_ms == 5 * HOUR_MS
    assert instance.best_nodes[0] == instance.best_nodes[1] != instance.best_nodes[2]


def test_what_is_borrowed_is_returned_on_a_checkpoint():
    instance = borrow_and_return()
    assert instance.best_makespan_ms == 5 * HOUR_MS
    assert instance.best_total_jct_ms == (4 * 4 + 4 * 5 + 1) * HOUR_MS
    assert (instance.trace.rows["checkpoint_interval_ms"] * 2 == HOUR_MS).all()
    assert instance.trace.rows["tenant"].tolist() == [0] * 8 + [1]


def test_holding_for_the_gang_starts_it_at_three_instead_of_six():
    instance = hold_for_the_gang()
    gang = instance.jobs.index("G")
    assert instance.best_start_ms[gang] == 3 * HOUR_MS
    assert instance.best_total_jct_ms == 17.5 * HOUR_MS
    greedy = best_total(instance, instance.best_total_jct_ms)
    assert greedy == 15.5 * HOUR_MS  # the mean JCT would rather starve it


def test_the_day_goes_as_its_docstring_walks_it():
    instance = day()
    starts = first_come_first_served(instance)
    assert [s // HOUR_MS for s in starts] == [0, 1, 5, 6, 8, 12, 12, 12]
    jct = [s + parts(instance, j)[1] - parts(instance, j)[0] for j, s in enumerate(starts)]
    assert [t // HOUR_MS for t in jct] == [6, 4, 6, 4, 4, 5, 5, 8]
    assert sum(jct) == 42 * HOUR_MS
    assert instance.best_total_jct_ms == 39 * HOUR_MS
    assert instance.best_makespan_ms == 20 * HOUR_MS


@pytest.mark.parametrize(("nodes", "gpus", "num_jobs"), [(1, 1, 1), (1, 8, 5), (2, 4, 12), (8, 8, 100), (64, 8, 1000)])
def test_a_planted_schedule_is_legal_and_leaves_no_gpu_idle(nodes, gpus, num_jobs):
    for seed in range(3):
        instance = planted(np.random.default_rng(seed), nodes, gpus, 24 * HOUR_MS, num_jobs=num_jobs, num_tenants=3)
        assert_legal(instance)
        assert instance.best_makespan_ms == 24 * HOUR_MS
        trace = instance.trace
        assert int((trace.gpus() * trace.rows["work_ms"]).sum()) == nodes * gpus * 1000 * 24 * HOUR_MS
        assert trace.num_jobs == num_jobs
        assert (trace.rows["submit_ms"] == 0).all()


def test_a_planted_schedule_holds_gangs_and_parts_of_nodes_and_repeats_with_its_seed():
    first, again = (planted(np.random.default_rng(7), 16, 8, 24 * HOUR_MS, num_jobs=200) for _ in range(2))
    assert (first.trace.rows == again.trace.rows).all()
    pods = first.trace.pod_sets["count"]
    assert (pods > 1).any() and (pods == 1).any()
    assert (first.trace.gpus() < 8000).any()


def test_what_cannot_be_cut_further_gives_fewer_jobs():
    instance = planted(np.random.default_rng(0), 1, 2, 2 * 60_000, num_jobs=50)
    assert instance.trace.num_jobs == 4


def test_a_makespan_off_the_grid_is_refused():
    with pytest.raises(GanglineError, match="a multiple of 60000 ms"):
        planted(np.random.default_rng(0), 2, 4, 90_001)
