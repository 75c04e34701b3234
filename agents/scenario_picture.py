"""The picture of a scenario: a panel for each case, who held which GPU above, what became of the jobs below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.agents.timeline import RUNS, STUCK, WAITS, Timeline
from gangline.envs.core.spec import HOUR_MS
from gangline.envs.errors import GanglineError
from gangline.envs.rendering import COLORS

if TYPE_CHECKING:
    from gangline.agents.scenario import Played

COLUMNS = 1400  # pixels of time
FEW_JOBS = 14  # with so many each has a line of its own
FEW_GPUS = 96  # with so many jobs are named
VERY_FEW_GPUS = 32  # with so many each has a line
NO_PROGRESS = "#111111"
WAITING = "#d9d9d9"


def write_picture(title: str, cases: Sequence[Played], out: str) -> str:
    """Draw the cases one below the other, on one time axis.

    Raises:
        GanglineError: there is no matplotlib, or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise GanglineError('pictures need matplotlib, expected pip install "gangline[train]"') from None
    few = all(len(p.names) <= FEW_JOBS for p in cases)
    heights = [part for p in cases for part in _heights(p, few)]
    drawing = Figure(figsize=(11, 1.2 + sum(heights)), layout="constrained", dpi=110)
    axes = drawing.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    end_h = max(p.timeline.end_ms for p in cases) / HOUR_MS
    paint = _Paint.of(cases, few)
    for i, played in enumerate(cases):
        _draw_gpus(axes[2 * i], played, paint, end_h, few)
        (_draw_jobs if few else _draw_waiting)(axes[2 * i + 1], played, paint)
    axes[-1].set_xlabel("hours")
    axes[-1].set_xlim(0, end_h)
    drawing.suptitle(title, fontsize=13)
    drawing.legend(handles=paint.handles(few), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    try:
        FigureCanvasAgg(drawing).print_png(out)
    except OSError as error:
        raise GanglineError(f"picture {out}: {error.strerror}, expected a file that can be written") from None
    return out


def _heights(played: Played, few: bool) -> tuple[float, float]:
    """Inches of the two plots of a case."""
    gpus = len(played.timeline.holders[0])
    return (min(2.4, 0.9 + 0.04 * gpus), 0.45 + 0.17 * len(played.names) if few else 0.9)


@dataclass(frozen=True)
class _Paint:
    """Colours, the same in every panel: of teams, or of jobs where there is one team only.

    Attributes:
        names: what is told apart, in the order of COLORS.
        by_job: the names are those of jobs.
    """

    names: tuple[str, ...]
    by_job: bool

    @classmethod
    def of(cls, cases: Sequence[Played], few: bool) -> _Paint:
        """For the cases of a picture."""
        teams = {p.tenants[int(k)] for p in cases for k in p.timeline.tenants}
        if few and len(teams) == 1:
            return cls(tuple(dict.fromkeys(name for p in cases for name in p.names)), True)
        return cls(tuple(sorted(teams)), False)

    def of_row(self, played: Played) -> np.ndarray:
        """(num_jobs,) index of each job's colour."""
        timeline = played.timeline
        names = timeline.names if self.by_job else [played.tenants[int(k)] for k in timeline.tenants]
        return np.array([self.names.index(name) for name in names], int)

    def handles(self, few: bool) -> list[Any]:
        """What the legend explains."""
        from matplotlib.patches import Patch

        own = [] if self.by_job else [Patch(facecolor=_color(i), label=name) for i, name in enumerate(self.names)]
        stuck = Patch(facecolor=NO_PROGRESS, label="held, but no progress: the job is not complete")
        waits = [Patch(facecolor=WAITING, label="waits")] if few else []
        return [*own, stuck, *waits]


def _color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def _draw_gpus(axes: Any, played: Played, paint: _Paint, end_h: float, few: bool) -> None:
    """A row for each GPU; black where it is held by a job that makes no progress."""
    from matplotlib.colors import ListedColormap

    timeline = played.timeline
    times = np.linspace(0, timeline.end_ms, COLUMNS, endpoint=False)
    instants = np.searchsorted(timeline.times_ms, times, side="right") - 1
    of_row = paint.of_row(played)
    pixels = np.stack([_pixels(timeline, i, of_row) for i in range(len(timeline.times_ms))])
    picture = np.where(instants[:, None] >= 0, pixels[np.maximum(instants, 0)], 0).T
    colors = ["white", NO_PROGRESS, *(_color(k) for k in range(len(paint.names)))]
    num_gpus = len(picture)
    axes.imshow(
        picture,
        cmap=ListedColormap(colors),
        vmin=-0.5,
        vmax=len(colors) - 0.5,
        aspect="auto",
        interpolation="nearest",
        extent=(0, timeline.end_ms / HOUR_MS, num_gpus, 0),
    )
    edges = np.cumsum([node.amounts.get("gpu", 0) // 1000 for node in played.spec.nodes])
    if num_gpus <= FEW_GPUS:
        axes.hlines(edges[:-1], 0, end_h, color="0.4", lw=0.6)
        if num_gpus <= VERY_FEW_GPUS and few:
            for gpu in range(num_gpus):
                axes.axhline(gpu, color="white", lw=0.4)
    if num_gpus <= FEW_GPUS and few:
        _part_jobs(axes, timeline)
        _label_jobs(axes, timeline)
    axes.set_ylim(num_gpus, 0)
    axes.set_yticks([0, num_gpus], ["0", str(num_gpus)])
    axes.set_ylabel("GPUs", fontsize=9)
    says = f": {played.case.says}" if played.case.says else ""
    axes.set_title(f"{played.label}{says}", loc="left", fontsize=10)


def _pixels(timeline: Timeline, i: int, colors: np.ndarray) -> np.ndarray:
    """(num_gpus,) 0 free, 1 held without progress, 2 + colour of the job."""
    holders = timeline.holders[i]
    rows = np.maximum(holders, 0)
    held = np.where(timeline.phases[i][rows] == STUCK, 1, 2 + colors[rows])
    return np.where(holders < 0, 0, held)  # type: ignore[no-any-return]


def _part_jobs(axes: Any, timeline: Timeline) -> None:
    """A line where a job follows another on the same GPU."""
    for before, after, time_ms in zip(timeline.holders, timeline.holders[1:], timeline.times_ms[1:], strict=False):
        gpus = np.flatnonzero((before != after) & (before >= 0) & (after >= 0))
        axes.vlines(np.full(len(gpus), time_ms / HOUR_MS), gpus, gpus + 1, color="white", lw=1.2)


def _label_jobs(axes: Any, timeline: Timeline) -> None:
    """The name of each job in the middle of its longest stretch, where it has room."""
    for row, name in enumerate(timeline.names):
        spans = timeline.spans(row, RUNS, STUCK)
        if not spans:
            continue
        begin, end = max(spans, key=lambda span: span[1] - span[0])
        if (end - begin) / max(timeline.end_ms / HOUR_MS, 1e-9) < 0.04:
            continue
        held = np.flatnonzero(timeline.holders[timeline.at(round((begin + end) / 2 * HOUR_MS))] == row)
        blocks = np.split(held, np.flatnonzero(np.diff(held) > 1) + 1)
        if len(held):
            middle = max(blocks, key=len).mean() + 0.5
            axes.text((begin + end) / 2, middle, name, ha="center", va="center", fontsize=7.5, color="white")


def _draw_jobs(axes: Any, played: Played, paint: _Paint) -> None:
    """A line for each job: grey while it waits, black while it holds GPUs without progress, its team's colour else."""
    timeline = played.timeline
    colors = paint.of_row(played)
    for row in range(len(timeline.names)):
        for phase, color in (
            (WAITS, WAITING),
            (STUCK, NO_PROGRESS),
            (RUNS, _color(int(colors[row]))),
        ):
            spans = [(begin, end - begin) for begin, end in timeline.spans(row, phase)]
            axes.broken_barh(spans, (row - 0.38, 0.76), facecolors=color)
    labels = [f"{name} ({gpus:g})" for name, gpus in zip(timeline.names, timeline.gpus, strict=True)]
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)
    axes.set_ylabel("job (GPUs)", fontsize=9)


def _draw_waiting(axes: Any, played: Played, paint: _Paint) -> None:
    """GPUs that waiting jobs ask for, team by team."""
    timeline = played.timeline
    times = np.array([*timeline.times_ms, timeline.end_ms]) / HOUR_MS
    colors = paint.of_row(played)
    wanted = np.zeros((len(paint.names), len(times)))
    for i, phase in enumerate(timeline.phases):
        waits = phase == WAITS
        wanted[:, i] = np.bincount(colors[waits], timeline.gpus[waits], minlength=len(paint.names))
    wanted[:, -1] = wanted[:, -2] if len(times) > 1 else 0
    axes.stackplot(times, wanted, colors=[_color(k) for k in range(len(paint.names))], step="post", alpha=0.8)
    axes.set_ylabel("GPUs\nwaited for", fontsize=9)
    axes.set_ylim(bottom=0)
