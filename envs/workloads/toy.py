"""Hand-made instances small enough to solve in the head, each with its best answer, and planted ones of any size.

Every instance is a trace, the cluster it is meant for, and the best starts. "Best" is said in each docstring. Nodes
are called a, b, ...; a drawing shows one line per node and one column per hour, the jobs by their letter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gangline.envs.core.spec import DEFAULT_CHECKPOINT_INTERVAL_MS, HOUR_MS, MINUTE_MS
from gangline.envs.core.trace import JobTrace, new_pod_sets, new_rows
from gangline.envs.core.types import ONE_GPU
from gangline.envs.errors import GanglineError


@dataclass(frozen=True)
class Instance:
    """A small problem and its best answer.

    Attributes:
        trace: the jobs.
        jobs: their names, in row order.
        num_nodes: equal nodes.
        gpus_per_node: whole GPUs.
        weights: (num_tenants,) entitlements.
        best_start_ms: (num_jobs,) first starts in a best schedule.
        best_nodes: the node of each pod of each job at its first start.
        best_makespan_ms: last end of that schedule.
        best_total_jct_ms: sum over jobs of end - submission.
    """

    trace: JobTrace
    jobs: tuple[str, ...]
    num_nodes: int
    gpus_per_node: int
    weights: tuple[int, ...]
    best_start_ms: tuple[int, ...]
    best_nodes: tuple[tuple[int, ...], ...]
    best_makespan_ms: int
    best_total_jct_ms: int

    def sample(self, rng: np.random.Generator) -> JobTrace:
        """The trace: an instance is a workload that is always the same."""
        return self.trace


def two_gangs_one_room() -> Instance:
    """Two gangs, each as large as the cluster: one after the other, whichever comes first.

    2 nodes x 4 GPUs. A and B are gangs of two 4-GPU pods, 1 h of work, both submitted at 0.

        a  A B
        b  A B

    Makespan 2 h, JCT 1 h + 2 h. A scheduler that binds pod by pod can start half of each: then both hold 4 GPUs,
    neither makes progress, and nothing ever ends. Half-started is worse than not started.
    """
    jobs = [
        ("A", "red", 0, HOUR_MS, 2, 4),
        ("B", "blue", 0, HOUR_MS, 2, 4),
    ]
    return _instance(jobs, starts=[0, HOUR_MS], nodes=[(0, 1), (0, 1)])


def fragmented_pair() -> Instance:
    """Two halves belong on one node, or the whole one that follows has to wait.

    2 nodes x 4 GPUs. A and B take 2 GPUs for 2 h, at 0; one minute later C comes, a single pod of 4 GPUs, 1 h.

        a  A A        (A and B share it)
        b  C .

    Packed, everybody starts at once: total JCT 5 h. Spread out, 4 GPUs are free and no node has 4: C waits until
    A and B end, and the total is 6 h 59 min.
    """
    jobs = [
        ("A", "red", 0, 2 * HOUR_MS, 1, 2),
        ("B", "red", 0, 2 * HOUR_MS, 1, 2),
        ("C", "blue", MINUTE_MS, HOUR_MS, 1, 4),
    ]
    return _instance(jobs, starts=[0, 0, MINUTE_MS], nodes=[(0,), (0,), (1,)])


def borrow_and_return() -> Instance:
    """Red borrows what blue does not use, and gives it back when blue comes.

    2 nodes x 4 GPUs, red and blue entitled to 4 each. Red submits eight single-GPU jobs of 4 h (A to H) at 0; blue
    submits a 4-GPU gang Z of 1 h at 1 h. Checkpoints every 30 min.

        a  A A A A .      (A to D)
        b  E Z E E E      (E to H, stopped for an hour)

    Best for fairness: nobody is ever below its water-filled share. Red uses all 8 GPUs for an hour (blue has no
    demand); at 1 h four of red's jobs are evicted on their checkpoint, losing nothing, and go on at 2 h. Every GPU is
    busy whenever somebody could use it until A to D end at 4 h; all is done at 5 h. Without preemption Z waits 3 h, and
    blue is 4 GPUs short all that time; without borrowing 4 GPUs idle for the first hour.
    """
    jobs: list[tuple[str, str, int, int, int, int]] = [(name, "red", 0, 4 * HOUR_MS, 1, 1) for name in "ABCDEFGH"]
    jobs.append(("Z", "blue", HOUR_MS, HOUR_MS, 1, 4))
    nodes = [(0,)] * 4 + [(1,)] * 4 + [(1,)]
    stopped = [0] * 4 + [HOUR_MS] * 4 + [0]
    return _instance(jobs, starts=[0] * 8 + [HOUR_MS], nodes=nodes, stopped=stopped)


def short_before_long() -> Instance:
    """With one seat, the shortest first; with a claim, a scheduler can know.

    1 node x 4 GPUs. At 0 A runs for 4 h, B for 1 h and C for 2 h, each on all 4 GPUs. Claims are the truth.

        a  B C C A A A A

    Total JCT 1 + 3 + 7 = 11 h, the makespan 7 h as in any order. In order of submission: 4 + 5 + 7 = 16 h.
    """
    jobs = [
        ("A", "red", 0, 4 * HOUR_MS, 1, 4),
        ("B", "blue", 0, HOUR_MS, 1, 4),
        ("C", "red", 0, 2 * HOUR_MS, 1, 4),
    ]
    return _instance(jobs, starts=[3 * HOUR_MS, 0, HOUR_MS], nodes=[(0,)] * 3, num_nodes=1)


def hold_for_the_gang() -> Instance:
    """Filling every hole starves the gang: a stream of small jobs never leaves 8 GPUs free at once.

    2 nodes x 4 GPUs. Red's A and B (4 GPUs, 2 h) come at 0 and 1 h; blue's gang G (2 x 4 GPUs, 1 h) at 1 h 30; red's C,
    D and E (4 GPUs, 2 h) at 2 h, 3 h and 4 h.

        a  A A . G C C E E
        b  . B B G D D . .

    Best for the gang: node a idles from 2 h to 3 h, G runs at 3 h, then C and D at 4 h and E at 6 h. Greedy order fills
    each hole: C at 2 h, D at 3 h, E at 4 h, and G starts at 6 h, when E ends, instead of 3 h. The price: the total JCT
    is 17 h 30 instead of 15 h 30, so a reward of mean JCT alone would starve the gang.
    """
    half = HOUR_MS // 2
    jobs = [
        ("A", "red", 0, 2 * HOUR_MS, 1, 4),
        ("B", "red", HOUR_MS, 2 * HOUR_MS, 1, 4),
        ("G", "blue", HOUR_MS + half, HOUR_MS, 2, 4),
        ("C", "red", 2 * HOUR_MS, 2 * HOUR_MS, 1, 4),
        ("D", "red", 3 * HOUR_MS, 2 * HOUR_MS, 1, 4),
        ("E", "red", 4 * HOUR_MS, 2 * HOUR_MS, 1, 4),
    ]
    starts = [0, HOUR_MS, 3 * HOUR_MS, 4 * HOUR_MS, 4 * HOUR_MS, 6 * HOUR_MS]
    return _instance(jobs, starts=starts, nodes=[(0,), (1,), (0, 1), (0,), (1,), (0,)])


def day() -> Instance:
    """A day on the `toy` preset: 2 nodes x 4 GPUs, red and blue entitled to half each.

        job  tenant  submitted  pods x GPUs  work
        A    red      0:00      1 x 4        6 h
        B    blue     1:00      1 x 2        4 h
        C    red      2:00      1 x 4        3 h
        D    blue     3:00      1 x 1        1 h
        E    blue     8:00      2 x 4        4 h     a gang over both nodes
        F    red      9:00      1 x 2        2 h
        G    red     10:00      1 x 4        3 h
        H    blue    12:00      1 x 1        8 h

    Strict first come, first served (a dot is an idle node, a small letter leaves a part of the node idle):

        hour  0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19
        a     A  A  A  A  A  A  d  .  E  E  E  E fh fh  h  h  h  h  h  h
        b     .  b  b  b  b  C  C  C  E  E  E  E  G  G  G  .  .  .  .  .

    0:00 A starts on a. 1:00 B on b. 2:00 C needs a whole node and waits; 3:00 D would fit beside B but stands behind C.
    5:00 B ends and C starts on b; 6:00 A ends, D starts on a, done at 7:00. 8:00 C ends just as E comes: E starts on
    both. 9:00 F and 10:00 G wait. 12:00 E ends: F starts on a, G on b, and H, which has just come, beside F. H ends at
    20:00. JCTs: 6 4 6 4 4 5 5 8 = 42 h.

    Best for the total JCT, without preemption: let D run beside B at 3:00, which delays nobody. JCTs: 6 4 6 1 4 5 5 8 =
    39 h, and the makespan is 20 h either way: H alone ends then.
    """
    jobs = [
        ("A", "red", 0, 6 * HOUR_MS, 1, 4),
        ("B", "blue", HOUR_MS, 4 * HOUR_MS, 1, 2),
        ("C", "red", 2 * HOUR_MS, 3 * HOUR_MS, 1, 4),
        ("D", "blue", 3 * HOUR_MS, HOUR_MS, 1, 1),
        ("E", "blue", 8 * HOUR_MS, 4 * HOUR_MS, 2, 4),
        ("F", "red", 9 * HOUR_MS, 2 * HOUR_MS, 1, 2),
        ("G", "red", 10 * HOUR_MS, 3 * HOUR_MS, 1, 4),
        ("H", "blue", 12 * HOUR_MS, 8 * HOUR_MS, 1, 1),
    ]
    starts = [h * HOUR_MS for h in (0, 1, 5, 3, 8, 12, 12, 12)]
    return _instance(jobs, starts=starts, nodes=[(0,), (1,), (1,), (1,), (0, 1), (0,), (1,), (0,)])


def planted(
    rng: np.random.Generator,
    nodes: int,
    gpus: int,
    makespan_ms: int,
    *,
    num_jobs: int = 32,
    num_tenants: int = 2,
    grid_ms: int = MINUTE_MS,
) -> Instance:
    """A full schedule cut into jobs, so that the best makespan is known at any size.

    The block `nodes x gpus x makespan` is cut in two again and again, along time, between nodes or within a node, and
    each piece becomes a job: whole nodes a gang with one pod a node, a part of a node a single pod. All are submitted
    at 0, in random order. No schedule is shorter, since every GPU is busy for the whole of this one.

    Args:
        rng: where to cut.
        nodes: of the cluster.
        gpus: of a node.
        makespan_ms: length of the schedule, a multiple of `grid_ms`.
        num_jobs: pieces; fewer when there is nothing left to cut.
        num_tenants: jobs are dealt out evenly at random.
        grid_ms: run times are multiples of it.

    Returns: `best_start_ms` and `best_nodes` are the planted schedule; `best_total_jct_ms` is its total, which need not
        be the least.
    """
    if min(nodes, gpus, num_jobs, num_tenants, grid_ms) < 1 or makespan_ms < grid_ms or makespan_ms % grid_ms:
        raise GanglineError(
            f"planted: {nodes} nodes x {gpus} GPUs x {makespan_ms} ms in {num_jobs} jobs of {num_tenants} tenants; "
            f"expected at least 1 of each, and a makespan that is a multiple of {grid_ms} ms"
        )
    pieces: list[_Piece] = []
    waiting = [(_Piece(0, nodes, 0, gpus, 0, makespan_ms // grid_ms), num_jobs)]
    while waiting:
        piece, parts = waiting.pop()
        halves = piece.cut(rng) if parts > 1 else None
        if halves is None:
            pieces.append(piece)
            continue
        first = int(rng.binomial(parts - 2, halves[0].volume / piece.volume)) + 1
        waiting += [(halves[0], first), (halves[1], parts - first)]
    pieces = [pieces[i] for i in rng.permutation(len(pieces))]
    tenant = rng.permutation(np.arange(len(pieces)) % num_tenants)
    jobs = [
        (f"job{i}", f"tenant{tenant[i]}", 0, (p.to - p.start) * grid_ms, p.node_to - p.node, p.gpu_to - p.gpu)
        for i, p in enumerate(pieces)
    ]
    return _instance(
        jobs,
        starts=[p.start * grid_ms for p in pieces],
        nodes=[tuple(range(p.node, p.node_to)) for p in pieces],
        num_nodes=nodes,
        gpus_per_node=gpus,
        tenants=[f"tenant{k}" for k in range(num_tenants)],
    )


@dataclass(frozen=True)
class _Piece:
    """A block of the schedule: nodes, GPUs of each, time on the grid; ends exclusive."""

    node: int
    node_to: int
    gpu: int
    gpu_to: int
    start: int
    to: int

    @property
    def volume(self) -> int:
        return (self.node_to - self.node) * (self.gpu_to - self.gpu) * (self.to - self.start)

    def cut(self, rng: np.random.Generator) -> tuple[_Piece, _Piece] | None:
        """Two pieces, or None where it is one GPU for one step. Pieces over several nodes keep whole nodes."""
        across = ("node", "node_to") if self.node_to - self.node > 1 else ("gpu", "gpu_to")
        ways = [way for way in (across, ("start", "to")) if getattr(self, way[1]) - getattr(self, way[0]) > 1]
        if not ways:
            return None
        low, high = ways[int(rng.integers(len(ways)))]
        at = int(rng.integers(getattr(self, low) + 1, getattr(self, high)))
        fields = dict(self.__dict__)
        return _Piece(**{**fields, high: at}), _Piece(**{**fields, low: at})


def _instance(
    jobs: Sequence[tuple[str, str, int, int, int, int]],
    *,
    starts: Sequence[int],
    nodes: Sequence[tuple[int, ...]],
    num_nodes: int = 2,
    gpus_per_node: int = 4,
    tenants: Sequence[str] = ("red", "blue"),
    stopped: Sequence[int] | None = None,
) -> Instance:
    """From (name, tenant, submit_ms, work_ms, pods, GPUs of a pod); `stopped` = time evicted between start and end."""
    rows, pod_sets = new_rows(len(jobs)), new_pod_sets(len(jobs))
    pod_sets["asked"] = 1
    for i, (_, tenant, submit_ms, work_ms, pods, gpus) in enumerate(jobs):
        rows["submit_ms"][i] = rows["eligible_ms"][i] = submit_ms
        rows["work_ms"][i] = rows["claim_ms"][i] = work_ms
        rows["tenant"][i] = tenants.index(tenant)
        rows["min_member"][i] = pods
        pod_sets["count"][i] = pod_sets["min_count"][i] = pods
        pod_sets["request"][i, 0] = gpus * ONE_GPU
    rows["checkpoint_interval_ms"] = DEFAULT_CHECKPOINT_INTERVAL_MS
    names = tuple(job[0] for job in jobs)
    rows["name_rank"] = rows["uid_rank"] = np.argsort(np.argsort(names))
    end_ms = np.asarray(starts) + rows["work_ms"] + (0 if stopped is None else np.asarray(stopped))
    return Instance(
        trace=JobTrace.build(rows, pod_sets, tenants),
        jobs=names,
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        weights=(1,) * len(tenants),
        best_start_ms=tuple(int(start) for start in starts),
        best_nodes=tuple(nodes),
        best_makespan_ms=int(end_ms.max()),
        best_total_jct_ms=int((end_ms - rows["submit_ms"]).sum()),
    )


INSTANCES: dict[str, Callable[[], Instance]] = {
    "two_gangs_one_room": two_gangs_one_room,
    "fragmented_pair": fragmented_pair,
    "borrow_and_return": borrow_and_return,
    "short_before_long": short_before_long,
    "hold_for_the_gang": hold_for_the_gang,
    "day": day,
}
