"""One run of a trace: `gangline replay --trace FILE --format F --scheduler S`: progress, metrics, jobs/s, a picture.

All jobs of the file run on the cluster of a world, from the first arrival to the last end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from gangline.agents.benchmark import series_of
from gangline.agents.results import shown
from gangline.baselines import base
from gangline.envs import metrics
from gangline.envs.cluster_env import Batch
from gangline.envs.config import EpisodeConfig, WorkloadConfig, WorldConfig, load_world, to_mapping
from gangline.envs.core.spec import HOUR_MS
from gangline.envs.core.types import ONE_GPU
from gangline.envs.errors import GanglineError, unknown_name
from gangline.envs.metrics import METRICS, SIZE_CLASSES, Report, Window
from gangline.envs.recording import Recording
from gangline.envs.rendering import COLORS
from gangline.envs.workloads import traces

DEFAULT_WORLD = {"philly": "philly"}  # whose cluster a format's jobs ran on


@dataclass(frozen=True)
class Replay:
    """A run that has ended: its report, what that was computed from, and the wall time of the run alone."""

    report: Report
    window: Window
    tenants: tuple[str, ...]
    num_jobs: int
    seconds: float


def world_for(file: str, kind: str, world: str | None, overrides: Mapping[str, Any]) -> WorldConfig:
    """The cluster of a world with all jobs of a file.

    Raises:
        GanglineError: an unknown format, or no world for it.
    """
    if kind not in traces.formats():
        raise unknown_name("trace format", kind, traces.formats())
    name = world or DEFAULT_WORLD.get(kind)
    if name is None:
        raise GanglineError(f"format {kind!r} says nothing of the cluster, expected --world NAME or FILE")
    config = load_world(name)
    workload = WorkloadConfig(name=kind, path=file, load=None, window=None, claims=config.workload.claims)
    if config.workload.name == kind:
        workload = replace(workload, options=config.workload.options)
    else:  # its tenants have other names
        config = replace(config, tenants=replace(config.tenants, weights=None))
    config = replace(config, workload=workload, episode=EpisodeConfig(None, 0.0, random_start=False))
    return load_world(to_mapping(config), **overrides)


def run(config: WorldConfig, scheduler: str, console: Console) -> Replay:
    """Replay every job under a scheduler, with a bar."""
    built = base.build(scheduler)
    batch = Batch(config, 1, keep_log=True)
    episode = batch.reset_one(0, 0, {})
    batch.warm(0)
    world = batch.world_of(0)
    built.compiled(batch.size)
    start = metrics.snapshot(world)
    recording = Recording(world)
    recording.run(built, world.now_ms)  # compiles
    rows = episode.trace.rows
    last_ms = max(1, int(rows["submit_ms"][-1]) - episode.offset_ms) if len(rows) else 1
    began = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    more = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, *more, console=console, refresh_per_second=4) as bar:
        item = bar.add_task(f"replaying under {scheduler}", total=last_ms)

        def tell(now_ms: int) -> None:
            bar.update(item, completed=min(now_ms, last_ms))

        recording.run(built, tell=tell)
        bar.update(item, completed=last_ms)
    seconds = time.perf_counter() - began
    recording.close()
    window = metrics.window_of(world, start, recording=recording)
    report = metrics.report_of(window, batch.names.tenants)
    return Replay(report, window, tuple(batch.names.tenants), len(rows), seconds)


def print_replay(replay: Replay, console: Console) -> None:
    """The metrics with units and counts, then the rate."""
    report = replay.report
    table = Table()
    for heading, side in (("metric", "left"), ("value", "right"), ("unit", "left"), ("over", "left")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for name, value in report.values.items():
        metric = METRICS[name]
        unit = "h" if metric.unit == "s" else metric.unit
        over = "" if metric.over is None else f"{report.counts[metric.over]:,} {metric.over}"
        text = shown(None if value is None else float(value), metric.unit)
        table.add_row(f"[bold]{name}[/bold]" if metric.is_headline else name, text, unit, over)
    console.print(table)
    parts = {name: value / metrics.GPU_H for name, value in report.gpu_time.items() if value and name != "held"}
    held = report.gpu_time["held"] / metrics.GPU_H
    sums = " + ".join(f"{name} {value:,.1f}" for name, value in parts.items()) or "0"
    sign = "=" if report.identity_holds else "IS NOT"
    console.print(f"GPU-h held {held:,.1f} {sign} {sums}", highlight=False)
    rate = replay.num_jobs / replay.seconds if replay.seconds else 0.0
    console.print(f"{replay.num_jobs:,} jobs in {replay.seconds:.2f} s, recorded: {rate:,.0f} jobs/s", highlight=False)


def draw(replay: Replay, file: Path, title: str) -> None:
    """A picture: who held the GPUs, what waited, where the GPU time went, how long jobs of each size waited.

    Raises:
        GanglineError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise GanglineError('pictures need matplotlib, expected pip install "gangline[report]"') from None
    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(title.replace("$", r"\$"), fontsize=11, x=0.01, ha="left")
    axes = figure.subplots(2, 2, width_ratios=[2, 1])
    line = replay.window.timeline
    if line is not None and line.stop_ms > line.start_ms:
        series = series_of(line, replay.tenants)
        _draw_holders(axes[0, 0], series)
        _draw_queue(axes[1, 0], series)
    _draw_parts(axes[0, 1], replay)
    _draw_waits(axes[1, 1], replay.window)
    try:
        figure.savefig(file, dpi=130)
    except (OSError, ValueError) as error:
        raise GanglineError(
            f"picture {file}: {error}, expected a .png, .pdf or .svg file that can be written"
        ) from None


def _draw_holders(axes: Any, series: dict[str, Any]) -> None:
    """GPUs held by each tenant, one on another; the line is what is up."""
    hours = np.array(series["edges_h"][:-1])
    held = np.array(series["held"])
    order = np.argsort(-held.sum(1), kind="stable")
    labels = [str(series["tenants"][k]).replace("$", r"\$") for k in order]
    colors = [COLORS[k % len(COLORS)] for k in order]
    axes.stackplot(hours, held[order], labels=labels, colors=colors, step="post", lw=0)
    axes.step(hours, series["cluster"]["up"], where="post", color="black", lw=0.8)
    axes.set_ylabel("GPUs held")
    axes.set_xlabel("hours")
    axes.legend(fontsize=6, ncols=3, loc="upper right", framealpha=0.7)


def _draw_queue(axes: Any, series: dict[str, Any]) -> None:
    """Jobs waiting, and GPUs that are fragmented."""
    hours = series["edges_h"][:-1]
    axes.step(hours, series["cluster"]["waiting"], where="post", color=COLORS[5], lw=1)
    axes.set_ylabel("jobs waiting")
    axes.set_xlabel("hours")
    axes.grid(alpha=0.3)


def _draw_parts(axes: Any, replay: Replay) -> None:
    """Where the GPU time went."""
    window, time_ = replay.window, replay.report.gpu_time
    parts = {name: value / (ONE_GPU * HOUR_MS) for name, value in time_.items() if name != "held" and value > 0}
    room = window.gpus * window.length_ms / (ONE_GPU * HOUR_MS)
    parts["nobody's"] = max(0.0, room - time_["held"] / (ONE_GPU * HOUR_MS))
    axes.barh(list(parts), list(parts.values()), color=COLORS[0])
    axes.invert_yaxis()
    axes.set_xlabel("GPU-h")


def _draw_waits(axes: Any, window: Window) -> None:
    """How long jobs waited, by size."""
    wait_h = window.wait_so_far_ms / HOUR_MS
    size = metrics.size_class_of(window.jobs)
    for i, name in enumerate(SIZE_CLASSES):
        own = np.sort(wait_h[size == i])
        if len(own):
            share = np.arange(1, len(own) + 1) / len(own)
            axes.plot(np.maximum(own, 0.01), share, label=f"{name} GPUs: {len(own):,}", color=COLORS[i])
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("hours waited (0.01 and less at the left edge)")
    axes.set_ylabel("share of the jobs")
    axes.grid(alpha=0.3)
    if len(window.jobs):
        axes.legend(fontsize=7, loc="lower right")


def replay_file(
    file: str, kind: str, schedulers: Sequence[str], world: str | None, overrides: Mapping[str, Any], picture: Path
) -> None:
    """The command: a run of each scheduler, printed and drawn."""
    console = Console()
    config = world_for(file, kind, world, overrides)
    for name in schedulers:
        base.build(name)
    for name in schedulers:
        replay = run(config, name, console)
        print_replay(replay, console)
        own = picture if len(schedulers) == 1 else picture.with_stem(f"{picture.stem}_{name}")
        draw(replay, own, f"{Path(file).name} under {name}")
        console.print(str(own), highlight=False, markup=False)
