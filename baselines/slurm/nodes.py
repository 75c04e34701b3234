"""Which nodes a job gets: select/cons_tres, consecutive best fit. All of them or none.

A search runs on the cluster as it is (`is_now`), or on `s.work`, amounts per node from which other jobs have been
taken away. The candidates are a set of nodes; the result is `s.choices` (pods by node) and `s.chosen` (a set).

Source: Slurm src/plugins/topology/common/eval_nodes.c, src/plugins/select/cons_tres/job_test.c.
"""

from __future__ import annotations

from typing import Any

from gangline.envs.core.compiled import helper
from gangline.envs.core.placement import flavor_allowed, narrow_to_domain, pods_that_fit
from gangline.envs.core.quota import cell_of
from gangline.envs.core.transactions import _new_command, quota_suffices
from gangline.envs.core.types import NEVER, NONE, ONE_GPU, NodeState, Op, PodState, Quota, Shape


@helper
def has_node(nodes: Any, n: int) -> bool:
    """Whether a node is in a set."""
    return (nodes[n >> 6] >> (n & 63)) & 1 != 0


@helper
def copy_free(w: Any, s: Any) -> None:
    """Fill `s.free` with what is free on every node now; the last column counts GPUs with nothing on them."""
    width = s.own[0].num_resources + 1
    gpu = w.params.gpu_resource
    for n in range(w.num_nodes):
        node = w.nodes[n]
        for r in range(width - 1):
            s.free[n * width + r] = node.idle[r] - node.planned[r]
        if gpu != NONE:
            s.free[n * width + width - 1] = node.free_gpus * ONE_GPU - node.planned[gpu]


@helper
def take_away(w: Any, s: Any, slot: int, freed: int) -> None:
    """Take a running job off its nodes in `s.work`: the resources of the mask `freed`."""
    width = s.own[0].num_resources + 1
    gpu = w.params.gpu_resource
    gone = w.jobs[slot].freed_mask
    at = w.jobs[slot].first_pod
    while at != NONE:
        pod = w.pods[at]
        if pod.state == PodState.BOUND:
            for r in range(width - 1):
                if (freed >> r) & 1 and not (gone >> r) & 1:
                    s.work[pod.node * width + r] += pod.held[r]
                    if r == gpu and pod.gpu_milli == ONE_GPU:
                        s.work[pod.node * width + width - 1] += pod.held[r]
        at = pod.next


@helper
def pods_on(w: Any, s: Any, job: Any, pod_set: Any, n: int, is_now: bool, exclusive: bool, flavor: int) -> int:
    """Pods of a pod set that a node takes. An exclusive job needs completely idle nodes."""
    node = w.nodes[n]
    if node.state != NodeState.UP or (flavor != NONE and node.flavor != flavor):
        return 0
    if not flavor_allowed(pod_set, node.flavor):
        return 0
    width = s.own[0].num_resources + 1
    if exclusive:
        if is_now and node.num_pods > 0:
            return 0
        for r in range(width - 1):
            if not is_now and s.work[n * width + r] < node.capacity[r]:
                return 0
    if is_now:
        return pods_that_fit(w, job, pod_set, n)
    fit = NEVER
    for r in range(width - 1):
        request = pod_set.request[r]
        if request == 0 or not (pod_set.asked >> r) & 1:
            continue
        if not (node.has >> r) & 1:
            return 0
        column = width - 1 if r == w.params.gpu_resource and request >= ONE_GPU else r
        fit = min(fit, s.work[n * width + column] // request)
        if fit <= 0:
            return 0
    return fit


@helper
def choose_nodes(w: Any, s: Any, slot: int, partition: int, is_now: bool) -> bool:
    """Choose nodes among `s.candidates` for everything that a job wants; False if they do not suffice."""
    own = s.own[0]
    own.num_choices = 0
    for i in range(s.own[0].words):
        s.chosen[i] = 0
    job = w.jobs[slot]
    several = job.num_pod_sets > 1
    if several and is_now:  # later pod sets must see what earlier ones took
        copy_free(w, s)
        for i in range(s.own[0].num_free):
            s.work[i] = s.free[i]
    found = True
    ps = job.first_pod_set
    while ps != NONE and found:
        pod_set = w.pod_sets[ps]
        wanted = pod_set.count - pod_set.num_done - pod_set.num_bound - pod_set.num_releasing
        if wanted > 0:
            first = own.num_choices
            found = choose_for_pod_set(w, s, slot, ps, wanted, partition, is_now and not several)
            if several:
                put_choices(w, s, slot, first, -1)
        ps = pod_set.next
    if several and not is_now:
        put_choices(w, s, slot, 0, 1)
    return found


@helper
def put_choices(w: Any, s: Any, slot: int, first: int, sign: int) -> None:
    """Take (-1) from `s.work` what the choices from `first` on ask for, or give it back (1)."""
    width = s.own[0].num_resources + 1
    for i in range(first, s.own[0].num_choices):
        choice = s.choices[i]
        ps = w.jobs[slot].first_pod_set
        while w.pod_sets[ps].index != choice.pod_set:
            ps = w.pod_sets[ps].next
        for r in range(width - 1):
            if (w.pod_sets[ps].asked >> r) & 1:
                amount = sign * choice.pods * w.pod_sets[ps].request[r]
                s.work[choice.node * width + r] += amount
                if r == w.params.gpu_resource:
                    s.work[choice.node * width + width - 1] += amount


@helper
def choose_for_pod_set(w: Any, s: Any, slot: int, ps: int, wanted: int, partition: int, is_now: bool) -> bool:
    """Nodes for one pod set; where the world enforces quotas, of one flavor that has quota left."""
    job = w.jobs[slot]
    pod_set = w.pod_sets[ps]
    if w.params.quota != Quota.ENFORCED:
        return choose_of_flavor(w, s, slot, ps, wanted, partition, is_now, NONE)
    for i in range(len(pod_set.flavors)):
        flavor = pod_set.flavors[i]
        if flavor == NONE:
            return False
        if flavor >= w.num_flavors:
            continue
        if pod_set.num_admitted > 0:
            if not is_admitted_to(w, pod_set, flavor):
                continue
        elif not quota_suffices(w, job, pod_set, wanted, flavor):
            continue
        if choose_of_flavor(w, s, slot, ps, wanted, partition, is_now, flavor):
            return True
    return False


@helper
def is_admitted_to(w: Any, pod_set: Any, flavor: int) -> bool:
    """Whether an admitted pod set may run on nodes of a flavor."""
    for r in range(w.params.num_resources):
        admitted = pod_set.admitted_flavor[r]
        if (pod_set.asked >> r) & 1 and admitted != flavor and cell_of(w, admitted, r) != NONE:
            return False
    return True


@helper
def choose_of_flavor(
    w: Any, s: Any, slot: int, ps: int, wanted: int, partition: int, is_now: bool, flavor: int
) -> bool:
    """The same for nodes of one flavor, NONE = any."""
    own = s.own[0]
    job = w.jobs[slot]
    pod_set = w.pod_sets[ps]
    exclusive, whole, fixed, listed, allowed = demands_of(s, slot, partition)
    gpu = w.params.gpu_resource
    asks_for_gpus = gpu != NONE and (pod_set.asked >> gpu) & 1 != 0 and pod_set.request[gpu] > 0
    # GPU jobs whose tasks per node are fixed are cut down to what they need: all usable nodes count the same
    counts_alike = asks_for_gpus and fixed and (whole or wanted == 1)
    width = own.num_resources + 1
    total = 0
    for n in range(w.num_nodes):
        fit = 0
        if has_node(s.candidates, n) and (allowed == NONE or has_node(s.nodelists[allowed * own.words :], n)):
            fit = pods_on(w, s, job, pod_set, n, is_now, exclusive, flavor)
        size = fit
        if counts_alike:
            size = 1
        elif own.cpu != NONE:
            size = w.nodes[n].idle[own.cpu] if is_now else s.work[n * width + own.cpu]
        s.fit[n] = min(fit, 1 if whole or exclusive else wanted)
        s.size[n] = size
        total += s.fit[n]
    if total < wanted:
        return False
    if job.topology_wish != Shape.NO_WISH and not keep_to_domain(w, s, job, wanted):
        return False
    if listed != NONE:
        for n in range(w.num_nodes):
            if has_node(s.nodelists[listed * own.words :], n):
                if s.fit[n] == 0:
                    return False
                if wanted > 0 and not choose(s, pod_set.index, n, min(s.fit[n], wanted)):
                    return False
                wanted -= min(s.fit[n], wanted)
                s.fit[n] = 0
    if s.partitions[partition].lln:
        return choose_least_loaded(w, s, pod_set.index, wanted)
    return choose_consecutive(w, s, pod_set.index, wanted)


@helper
def demands_of(s: Any, slot: int, partition: int) -> Any:
    """(nodes for itself alone, one pod per node, tasks per node fixed, nodes it must have, nodes it may have) of a job.

    Sets of nodes by their row of `nodelists`, NONE where nothing was said.
    """
    request = s.requests[s.slots[slot].request]
    exclusive = bool(s.partitions[partition].exclusive) or bool(request.exclusive)
    return exclusive, request.whole_nodes, request.tasks_are_fixed, int(request.nodelist), int(request.allowed)


@helper
def keep_to_domain(w: Any, s: Any, job: Any, wanted: int) -> bool:
    """topology/tree: keep the lowest switch under which the job fits; False if a required one does not exist."""
    for n in range(w.num_nodes):
        w.fit[n] = s.fit[n]
    if not narrow_to_domain(w, job.topology, job.topology_tier, wanted):
        return job.topology_wish == Shape.PREFERRED
    for n in range(w.num_nodes):
        s.fit[n] = w.fit[n]
    return True


@helper
def choose(s: Any, pod_set: int, n: int, pods: int) -> bool:
    """Write down a choice; False if there are too many."""
    own = s.own[0]
    if own.num_choices >= len(s.choices):
        return False
    choice = s.choices[own.num_choices]
    choice.pod_set = pod_set
    choice.node = n
    choice.pods = pods
    own.num_choices += 1
    s.chosen[n >> 6] |= 1 << (n & 63)
    return True


@helper
def choose_consecutive(w: Any, s: Any, pod_set: int, wanted: int) -> bool:
    """Consecutive best fit: of the lowest weight, the smallest run of usable nodes that suffices, else the largest;
    inside it the tightest node if one is enough, else nodes in index order; then the next run.
    """
    while wanted > 0:
        best = NONE
        best_end = 0
        best_size = 0
        best_suffices = False
        best_weight = 0
        n = 0
        while n < w.num_nodes:
            if s.fit[n] == 0:
                n += 1
                continue
            first = n
            pods = 0
            size = 0
            weight = s.node_weight[n]
            while n < w.num_nodes and s.fit[n] > 0 and s.node_weight[n] == weight:
                pods += s.fit[n]
                size += s.size[n]
                n += 1
            suffices = pods >= wanted
            if best != NONE and weight != best_weight:
                is_better = weight < best_weight
            elif suffices == best_suffices and best != NONE:
                is_better = size < best_size if suffices else size > best_size
            else:
                is_better = best == NONE or suffices
            if is_better:
                best = first
                best_end = n
                best_size = size
                best_suffices = suffices
                best_weight = weight
        if best == NONE:
            return False
        tightest = NONE
        for n in range(best, best_end):
            if s.fit[n] >= wanted and (tightest == NONE or s.size[n] < s.size[tightest]):
                tightest = n
        if tightest != NONE:
            return choose(s, pod_set, tightest, wanted)
        for n in range(best, best_end):
            pods = min(s.fit[n], wanted)
            if pods > 0 and not choose(s, pod_set, n, pods):
                return False
            wanted -= pods
            s.fit[n] = 0
    return True


@helper
def choose_least_loaded(w: Any, s: Any, pod_set: int, wanted: int) -> bool:
    """LLN: of the lowest weight, the node with the most idle CPUs for its size first."""
    cpu = s.own[0].cpu
    while wanted > 0:
        best = NONE
        best_load = -1.0
        for n in range(w.num_nodes):
            node = w.nodes[n]
            if s.fit[n] > 0:
                load = node.idle[cpu] / node.capacity[cpu] if cpu != NONE and node.capacity[cpu] > 0 else 0.0
                is_lighter = best != NONE and s.node_weight[n] < s.node_weight[best]
                if is_lighter or (load > best_load and (best == NONE or s.node_weight[n] == s.node_weight[best])):
                    best = n
                    best_load = load
        if best == NONE:
            return False
        pods = min(s.fit[best], wanted)
        if not choose(s, pod_set, best, pods):
            return False
        wanted -= pods
        s.fit[best] = 0
    return True


@helper
def write_start(w: Any, s: Any, slot: int, partition: int, out: Any) -> bool:
    """Write the transaction that starts a job where `s.choices` says; False if the decision is full."""
    own = s.own[0]
    exclusive, _, _, _, _ = demands_of(s, slot, partition)
    first = out.num_commands
    ps = w.jobs[slot].first_pod_set
    while w.params.quota == Quota.ENFORCED and ps != NONE:
        if w.pod_sets[ps].num_admitted == 0 and not write_admission(w, s, slot, ps, out):
            out.num_commands = first
            return False
        ps = w.pod_sets[ps].next
    for i in range(own.num_choices):
        at = _new_command(out, Op.PLACE, slot)
        if at == NONE:
            out.num_commands = first
            return False
        command = out.commands[at]
        command.pod_set = s.choices[i].pod_set
        command.node = s.choices[i].node
        command.pods = s.choices[i].pods
        command.whole_node = exclusive
    s.slots[slot].partition = partition
    return True


@helper
def write_admission(w: Any, s: Any, slot: int, ps: int, out: Any) -> bool:
    """The command that reserves quota for a pod set, in the flavor of the nodes chosen for it."""
    pods = 0
    flavor = NONE
    for i in range(s.own[0].num_choices):
        if s.choices[i].pod_set == w.pod_sets[ps].index:
            pods += s.choices[i].pods
            flavor = w.nodes[s.choices[i].node].flavor
    if pods == 0:
        return True
    at = _new_command(out, Op.ADMIT, slot)
    if at == NONE:
        return False
    command = out.commands[at]
    command.pod_set = w.pod_sets[ps].index
    command.pods = pods
    for r in range(w.params.num_resources):
        command.flavor[r] = flavor
    return True
