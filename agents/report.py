"""What a comparison looks like: the table on the terminal, `results.json`, the picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gangline.agents import learning_curve
from gangline.agents.evaluate import Run
from gangline.envs.metrics import METRICS

# metric and heading; the units stand below the headings, seconds are shown as hours
COLUMNS = (
    ("productive_utilization", "service"),
    ("over_share", "over-share"),
    ("unproductive_with_demand", "idle"),
    ("wait_so_far_mean_s", "mean wait"),
    ("wait_p95_s", "p95 wait"),
    ("jct_so_far_mean_s", "mean JCT"),
    ("wasted_lost_gpu_h", "lost"),
    ("preemptions_per_1000_jobs", "stops/1000"),
    ("unfinished_jobs", "left"),
)


LEGEND = (
    "service = kept GPU time / capacity; over-share = GPU time held beyond the fair share while others lack theirs;\n"
    "idle = GPUs without progress although wanted; lost = work since the last checkpoint;\nleft = unfinished jobs"
)


def means(runs: Sequence[Run]) -> dict[str, dict[str, float | None]]:
    """Mean over traces of every metric, by scheduler; None where no run has a value."""
    table: dict[str, dict[str, float | None]] = {}
    for name in dict.fromkeys(r.scheduler for r in runs):
        own = [r.report.values for r in runs if r.scheduler == name]
        table[name] = {}
        for metric in METRICS:
            values = [v[metric] for v in own if v[metric] is not None]
            table[name][metric] = float(np.mean(values)) if values else None  # type: ignore[arg-type]
    return table


def print_table(runs: Sequence[Run], console: Console, title: str) -> None:
    """Schedulers by productive service, best first; the better end of every column is marked."""
    table = Table(title=title, title_justify="left", caption=LEGEND, caption_justify="left")
    table.add_column("scheduler")
    for metric, label in COLUMNS:
        unit = "h" if METRICS[metric].unit == "s" else METRICS[metric].unit
        table.add_column(f"{label}\n[dim]{unit}[/dim]", justify="right", no_wrap=True)
    rows = means(runs)
    best = {m: _best(m, rows) for m, _ in COLUMNS}
    for name in sorted(rows, key=lambda n: -(rows[n]["productive_utilization"] or 0.0)):
        cells = []
        for metric, _ in COLUMNS:
            value = rows[name][metric]
            text = _number(value, METRICS[metric].unit)
            cells.append(f"[bold]{text}[/bold]" if value is not None and value == best[metric] else text)
        table.add_row(name, *cells)
    console.print(table)


def _best(metric: str, rows: dict[str, dict[str, float | None]]) -> float | None:
    values = [v for r in rows.values() if (v := r[metric]) is not None]
    if not values or METRICS[metric].better == "none":
        return None
    return max(values) if METRICS[metric].better == "higher" else min(values)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return f"{value / 3600:,.2f}"
    return f"{value:.4f}" if unit == "share" else f"{value:,.0f}"


def write_results(runs: Sequence[Run], path: Path, about: dict[str, Any]) -> None:
    """Everything measured, as JSON: settings, then every run with every metric. Written whole or not at all."""
    content = {
        **about,
        "means": means(runs),
        "runs": [{"scheduler": r.scheduler, "trace": r.trace, "load": r.load, **r.report.to_dict()} for r in runs],
    }
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")
    part.replace(path)


def draw_curves(folders: Mapping[str, Path], path: Path) -> None:
    """The learning curves: mean return of the last 50 episodes against steps, one line per agent."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for name, folder in folders.items():
        points = learning_curve.read(folder)
        axes.plot([steps for steps, _ in points], [score for _, score in points], label=name, lw=1.6)
    axes.set_xlabel("steps")
    axes.set_ylabel("mean return of the last 50 episodes")
    axes.set_title("learning", loc="left", fontsize=11)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.grid(alpha=0.3)
    if len(folders) > 1:
        axes.legend(fontsize=9, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw(runs: Sequence[Run], path: Path, title: str) -> None:
    """The frontier: productive service against over-share, one mark per scheduler with its spread over traces."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    names = list(dict.fromkeys(r.scheduler for r in runs))
    colors = plt.get_cmap("tab10").colors  # type: ignore[attr-defined]
    marks = "oDvP^X<s>p*h"
    for i, name in enumerate(names):
        own = [r.report.values for r in runs if r.scheduler == name]
        x = np.array([v["over_share"] for v in own], float)
        y = np.array([v["productive_utilization"] for v in own], float)
        spread = np.sqrt(max(len(own), 1))
        axes.errorbar(
            x.mean(),
            y.mean(),
            xerr=x.std() / spread,
            yerr=y.std() / spread,
            fmt=marks[i % len(marks)],
            ms=9,
            color=colors[i % len(colors)],
            mec="black",
            mew=0.6,
            elinewidth=0.8,
            alpha=0.95,
            label=name,
        )
    axes.set_xlabel(
        "over-share: GPU time held beyond the fair share while others lack theirs / cluster - less is fairer"
    )
    axes.set_ylabel("productive service (share of the cluster) - more is better")
    axes.set_title(title, loc="left", fontsize=11)
    axes.xaxis.label.set_fontsize(8.5)
    axes.grid(alpha=0.3)
    figure.legend(fontsize=9, loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
