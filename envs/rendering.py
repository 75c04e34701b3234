"""Pictures of a world: as text (`text_view`), or drawn (`figure`): every GPU's Gantt chart, the queue, the tenants."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.envs.core.types import NONE, ONE_GPU, JobState, NodeState, PodState
from gangline.envs.core.world import World
from gangline.envs.errors import GanglineError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MOST_NODES = 64
MOST_JOBS = 12


def text_view(world: World) -> str:
    """The cluster at this instant.

    A GPU is `.` (free), its tenant's letter (whole), the letter in lower case (shared), `x` (node down).
    """
    world.refresh()
    w = world.record
    lines = [f"t = {world.now_ms / 3_600_000:.2f} h"]
    lines += [_node_line(world, n) for n in range(min(int(w["num_nodes"]), MOST_NODES))]
    if int(w["num_nodes"]) > MOST_NODES:
        lines.append(f"... and {int(w['num_nodes']) - MOST_NODES} more nodes")
    lines += _queue_lines(world)
    lines += _tenant_lines(world)
    return "\n".join(lines)


def _node_line(world: World, n: int) -> str:
    node = world.record["nodes"][n]
    cells = ["x" if node["state"] == NodeState.DOWN else "."] * int(node["num_gpus"])
    at = int(node["first_pod"])
    while at != NONE:
        pod = world.record["pods"][at]
        tenant = int(world.record["jobs"][int(pod["job"])]["tenant"])
        letter = LETTERS[tenant % len(LETTERS)]
        shared = int(pod["gpu_milli"]) < ONE_GPU
        for g in range(len(cells)):
            if int(pod["gpu_mask"]) >> g & 1 and pod["state"] in (PodState.BOUND, PodState.RELEASING):
                cells[g] = letter.lower() if shared else letter
        at = int(pod["next_on_node"])
    return f"{world.names.nodes[n]:>12} |{''.join(cells)}|"


def _queue_lines(world: World) -> list[str]:
    w = world.record
    jobs = w["jobs"][: int(w["jobs_used"])]
    waiting = jobs[np.isin(jobs["state"], (JobState.QUEUED, JobState.ADMITTED))]
    waiting = waiting[np.argsort(waiting["submit_ms"], kind="stable")]
    lines = [f"queue: {len(waiting)} jobs, {int(w['gpus_waiting']) / ONE_GPU:g} GPUs"]
    for job in waiting[:MOST_JOBS]:
        age_h = (world.now_ms - int(job["submit_ms"])) / 3_600_000
        lines.append(
            f"  {world.job_name(int(job['row'])):>12}  {world.names.tenants[int(job['tenant'])]:<10}"
            f" {int(job['gpus_wanted']) / ONE_GPU:>5g} GPU  waits {age_h:.2f} h"
        )
    if len(waiting) > MOST_JOBS:
        lines.append(f"  ... and {len(waiting) - MOST_JOBS} more")
    return lines


def _tenant_lines(world: World) -> list[str]:
    w = world.record
    lines = ["tenants:   holds / fair share / entitled   (GPUs)"]
    for k, name in enumerate(world.names.tenants):
        t = w["tenants"][k]
        held, fair, entitled = (int(t[f]) / ONE_GPU for f in ("held", "fair", "entitled"))
        lines.append(f"  {LETTERS[k % len(LETTERS)]} {name:<10} {held:>6g} / {fair:>6g} / {entitled:>6g}")
    return lines


class History:
    """Who held which GPU since the episode began, as seen at each decision: what the Gantt chart is drawn from.

    Attributes:
        times_ms: clock of each entry.
        holders: (num_gpus,) int16 of each entry: tenant, FREE, or DOWN.
    """

    MOST_ENTRIES = 4000

    def __init__(self) -> None:
        self.times_ms: list[int] = []
        self.holders: list[np.ndarray] = []

    def note(self, world: World) -> None:
        """Add the present state; the oldest entries go when there are too many."""
        now = gpu_holders(world)
        if self.times_ms and self.times_ms[-1] == world.now_ms:
            self.holders[-1] = now
        else:
            self.times_ms.append(world.now_ms)
            self.holders.append(now)
        if len(self.times_ms) > self.MOST_ENTRIES:
            del self.times_ms[0], self.holders[0]


class Screen:
    """What an environment shows in its render mode; for pictures it remembers the episode.

    Raises:
        GanglineError: there is no such mode.
    """

    def __init__(self, mode: str | None) -> None:
        if mode is not None and mode not in RENDER_MODES:
            raise GanglineError(f"render_mode is {mode!r}, expected one of {list(RENDER_MODES)}")
        self.mode = mode
        self._history = History()
        self._window: Any = None

    def begin(self, world: World) -> None:
        """An episode has begun."""
        self._history = History()
        self.note(world)

    def note(self, world: World) -> None:
        """Remember who holds which GPU, for pictures; in `human` mode, show it."""
        if self.mode in ("rgb_array", "human"):
            self._history.note(world)
        if self.mode == "human":
            if self._window is None:
                self._window = Window()
            self._window.show(rgb_array(world, self._history))

    def render(self, world: World) -> str | np.ndarray | None:
        """The cluster now: text, pixels (height, width, 3) uint8, or None (a window, or no render mode)."""
        if self.mode == "ansi":
            return text_view(world)
        if self.mode == "rgb_array":
            return rgb_array(world, self._history)
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None


RENDER_MODES = ("ansi", "rgb_array", "human")
FREE, DOWN = -1, -2
MOST_GPU_ROWS = 512
COLORS = (  # Okabe and Ito's palette first: told apart by colour-blind readers too
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7f7f",
    "#8c564b", "#17becf", "#9467bd", "#bcbd22", "#393b79", "#637939", "#843c39", "#7b4173",
)  # fmt: skip


def gpu_holders(world: World) -> np.ndarray:
    """(num_gpus,) int16: tenant that holds each GPU (the largest part of it), FREE, or DOWN; node by node."""
    w = world.record
    count = int(w["num_nodes"])
    nodes = w["nodes"][:count]
    first = np.concatenate([[0], np.cumsum(nodes["num_gpus"])])
    holders = np.full(int(first[-1]), FREE, np.int16)
    for n in np.flatnonzero(nodes["state"] == NodeState.DOWN):
        holders[first[n] : first[n + 1]] = DOWN
    pods = w["pods"][: int(w["pods_used"])]
    live = pods[np.isin(pods["state"], (PodState.BOUND, PodState.RELEASING))]
    tenants = w["jobs"]["tenant"][live["job"]]
    for g in range(16):
        holds = (live["gpu_mask"] >> g & 1).astype(bool)
        holders[first[live["node"][holds]] + g] = tenants[holds]
    return holders


def figure(world: World, history: History) -> Any:
    """Matplotlib figure: a Gantt chart of every GPU, the queue over its age, tenants' shares beside entitlements."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise GanglineError('pictures need matplotlib, expected pip install "gangline[train]"') from None
    drawing = Figure(figsize=(11, 6.5), layout="constrained")
    gantt, queue, shares = (drawing.add_subplot(grid) for grid in _grids(drawing))
    _draw_gantt(gantt, world, history)
    _draw_queue(queue, world)
    _draw_shares(shares, world)
    return drawing


def rgb_array(world: World, history: History) -> np.ndarray:
    """(height, width, 3) uint8: the figure as pixels."""
    drawing = figure(world, history)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(drawing)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _grids(drawing: Any) -> list[Any]:
    grid = drawing.add_gridspec(2, 2, height_ratios=[2.2, 1])
    return [grid[0, :], grid[1, 0], grid[1, 1]]


def _color(tenant: int) -> str:
    return COLORS[tenant % len(COLORS)]


def _draw_gantt(axes: Any, world: World, history: History) -> None:
    """Rows are GPUs, node by node; colours are tenants; white is free, black a node that is down."""
    from matplotlib.colors import ListedColormap

    axes.set_title("who holds which GPU", loc="left", fontsize=10)
    if not history.times_ms:
        return
    holders = np.stack([*history.holders, history.holders[-1]], axis=1)
    if len(holders) > MOST_GPU_ROWS:
        holders = holders[np.linspace(0, len(holders) - 1, MOST_GPU_ROWS).astype(int)]
    hours = np.array([*history.times_ms, max(world.now_ms, history.times_ms[-1] + 1)]) / 3_600_000
    hours = np.concatenate([hours, [hours[-1] + 1e-9]])
    palette = ListedColormap(["black", "white", *(_color(k) for k in range(len(world.names.tenants)))])
    axes.pcolormesh(
        hours,
        np.arange(len(holders) + 1),
        holders + 2,
        cmap=palette,
        vmin=-0.5,
        vmax=len(world.names.tenants) + 1.5,
        rasterized=True,
    )
    edges = np.cumsum(world.record["nodes"]["num_gpus"][: int(world.record["num_nodes"])])
    if edges[-1] <= MOST_GPU_ROWS:
        axes.hlines(edges[:-1], hours[0], hours[-1], color="0.6", lw=0.4)
    axes.set_ylim(len(holders), 0)
    axes.set_ylabel("GPU, node by node")
    axes.set_xlabel("hours")


def _draw_queue(axes: Any, world: World) -> None:
    """A mark per waiting job: how long it has waited, how many GPUs it wants."""
    w = world.record
    jobs = w["jobs"][: int(w["jobs_used"])]
    waiting = jobs[np.isin(jobs["state"], (JobState.QUEUED, JobState.ADMITTED))]
    ages = (world.now_ms - waiting["submit_ms"]) / 3_600_000
    axes.scatter(
        ages,
        waiting["gpus_wanted"] / ONE_GPU,
        c=[_color(int(k)) for k in waiting["tenant"]] or None,
        s=22,
        edgecolors="black",
        linewidths=0.3,
    )
    axes.set_title(f"queue: {len(waiting)} jobs, {int(w['gpus_waiting']) / ONE_GPU:g} GPUs", loc="left", fontsize=10)
    axes.set_xlabel("hours waited")
    axes.set_ylabel("GPUs wanted")
    axes.set_yscale("symlog", base=2, linthresh=1)
    most = max(2.0, float(waiting["gpus_wanted"].max(initial=0)) / ONE_GPU)
    steps = [0.5, *2.0 ** np.arange(0, np.ceil(np.log2(most)) + 1)]
    axes.set_yticks(steps, [f"{step:g}" for step in steps])
    axes.set_ylim(0, 1.3 * most)
    axes.grid(alpha=0.3)


def _draw_shares(axes: Any, world: World) -> None:
    """A bar per tenant: GPUs held; a line for its fair share now, a dot for its entitlement."""
    world.refresh()
    tenants = world.record["tenants"][: len(world.names.tenants)]
    places = np.arange(len(tenants))
    axes.bar(
        places, tenants["held"] / ONE_GPU, color=[_color(int(k)) for k in places], edgecolor="black", linewidth=0.4
    )
    fair = tenants["fair"] / ONE_GPU
    axes.hlines(fair, places - 0.45, places + 0.45, color="black", lw=2, label="fair share now")
    axes.plot(places, tenants["entitled"] / ONE_GPU, "o", mfc="white", mec="black", ms=5, label="entitled")
    axes.set_xticks(places, world.names.tenants, rotation=45, ha="right", fontsize=8)
    axes.set_ylabel("GPUs")
    axes.set_title("tenants: GPUs held", loc="left", fontsize=10)
    axes.legend(fontsize=8, frameon=False)


class Window:
    """A window that shows pictures one after another; closing it does not stop the run."""

    def __init__(self) -> None:
        import matplotlib.pyplot as plt

        plt.ion()
        self._plt = plt
        self._figure, axes = plt.subplots(figsize=(11, 6.5), num="Gangline")
        axes.set_axis_off()
        self._figure.subplots_adjust(0, 0, 1, 1)
        self._axes = axes
        self._image: Any = None

    def show(self, pixels: np.ndarray) -> None:
        """Show a picture, (height, width, 3) uint8."""
        if self._image is None:
            self._image = self._axes.imshow(pixels)
        else:
            self._image.set_data(pixels)
        self._figure.canvas.draw_idle()
        self._figure.canvas.flush_events()

    def close(self) -> None:
        """Close the window."""
        self._plt.close(self._figure)
