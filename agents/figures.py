"""`gangline figures`: a benchmark for papers, each figure one small function that draws on a matplotlib figure.

Colours are Okabe and Ito's, told apart by colour-blind readers; schedulers differ in their mark or dash too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gangline.agents.html_report import data_of
from gangline.agents.results import Comparison
from gangline.envs.errors import GanglineError
from gangline.envs.rendering import COLORS

MARKS = "oDsP^X*hpv<>"
DASHES = ("-", "--", ":", "-.")
WIDTH = 6.5  # inches: a page's text
PARTS = (  # of the GPU time: name, heading, colour, hatch
    ("kept", "productive", "#0072b2", ""),
    ("kept_bad", "kept, ended badly", "#56b4e9", "//"),
    ("undecided", "undecided", "#9ecae1", ".."),
    ("hang", "hang", "#d55e00", "xx"),
    ("lost", "lost", "#cc79a7", "\\\\"),
    ("overhead", "overhead", "#e69f00", "--"),
    ("suspended", "suspended", "#b8a500", "++"),
    ("releasing", "releasing", "#8c564b", "||"),
    ("surplus", "surplus", "#7f7f7f", ".."),
    ("idle_with_demand", "idle with demand", "#444444", "//"),
    ("idle", "idle", "#dddddd", ""),
)
HEADLINES = (
    *("productive_utilization", "over_share", "deficit", "idle_with_demand"),
    *("jct_so_far_mean_s", "wait_p95_s", "wasted_lost_gpu_h", "preemptions_per_1000_jobs"),
)


def write_all(comparison: Comparison, folder: Path, kind: str) -> Iterator[Path]:
    """Draw every figure that there is something for; yields the files.

    Raises:
        GanglineError: matplotlib is not installed, no run is there, or the folder cannot be written to.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise GanglineError('figures need matplotlib, expected pip install "gangline[report]"') from None
    if not comparison.runs:
        raise GanglineError(f"{comparison.folder} holds no run yet, expected at least one; give the benchmark again")
    data = data_of(comparison)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in FIGURES.items():
            for load in data["loads"]:
                figure = Figure(figsize=(WIDTH, 0.62 * WIDTH), layout="constrained")
                if draw(figure, data, load):
                    file = folder / f"{name}{'' if len(data['loads']) == 1 else f'_load_{load}'}.{kind}"
                    part = file.with_suffix(f".part.{kind}")
                    figure.savefig(part, dpi=200, metadata=_metadata(kind))
                    part.replace(file)
                    yield file
    except OSError as error:
        raise GanglineError(f"{folder}: {error.strerror}, expected a folder that can be written to") from None


def _metadata(kind: str) -> dict[str, Any]:
    """No date, so that the same results give the same file."""
    return {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})


def frontier(figure: Any, data: Any, load: str) -> bool:
    """Productive service against over-share, with intervals."""
    axes = figure.add_subplot()
    found = False
    for group in data["groups"]:
        x, y = (_interval(data, name, load, group) for name in ("over_share", "productive_utilization"))
        if x is None or y is None:
            continue
        found = True
        axes.errorbar(x[0], y[0], xerr=_bars(x), yerr=_bars(y), label=_text(group), **_mark(data, group))
    axes.set_xlabel("over-share (share of the cluster)")
    axes.set_ylabel("productive service (share of the cluster)")
    axes.grid(alpha=0.3)
    if found:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return found


def intervals(figure: Any, data: Any, load: str) -> bool:
    """The headline metrics, each with its interval, one panel each."""
    names = [name for name in HEADLINES if load in data["metrics"].get(name, {}).get("values", {})]
    groups = data["groups"]
    figure.set_size_inches(WIDTH, 0.6 + (0.5 + 0.16 * len(groups)) * -(-len(names) // 2))
    for i, name in enumerate(names):
        axes = figure.add_subplot(-(-len(names) // 2), 2, i + 1)
        scale, unit = (3600, "h") if data["metrics"][name]["unit"] == "s" else (1, data["metrics"][name]["unit"])
        for place, group in enumerate(reversed(groups)):
            value = _interval(data, name, load, group)
            if value is not None:
                scaled = [v / scale for v in value[:3]]
                axes.errorbar(scaled[0], place, xerr=_bars(scaled), **{**_mark(data, group), "ms": 5})
        axes.set_yticks(range(len(groups)), [_text(g) for g in reversed(groups)] if i % 2 == 0 else [""] * len(groups))
        axes.set_title(f"{name.removesuffix('_s').replace('_', ' ')} ({unit})", fontsize=8, loc="left")
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    return bool(names)


def gpu_time(figure: Any, data: Any, load: str) -> bool:
    """Where the GPU time went, a stacked bar for each scheduler."""
    rows = data["split"].get(load, {})
    axes = figure.add_subplot()
    names = [group for group in reversed(data["groups"]) if group in rows]
    left = np.zeros(len(names))
    for part, label, color, hatch in PARTS:
        values = np.array([rows[group][part] for group in names])
        if (values > 5e-5).any():
            axes.barh(
                range(len(names)), values, left=left, label=label, color=color, hatch=hatch, edgecolor="white", lw=0
            )
            left += values
    axes.set_yticks(range(len(names)), [_text(name) for name in names])
    axes.set_xlabel("share of all GPU time")
    if names:
        figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return bool(names)


def waits(figure: Any, data: Any, load: str) -> bool:
    """Distribution of waits over all jobs."""
    return _distribution(figure, data, load, "wait_h", "wait (h), 0.01 and less at the left edge", 0.01)


def slowdowns(figure: Any, data: Any, load: str) -> bool:
    """Distribution of bounded slowdowns over all jobs."""
    return _distribution(figure, data, load, "slowdown", "bounded slowdown", 1.0)


def _distribution(figure: Any, data: Any, load: str, quantity: str, label: str, floor: float) -> bool:
    axes = figure.add_subplot()
    found = False
    for group in data["groups"]:
        pooled = data["distributions"].get(load, {}).get(group, {}).get("all")
        if pooled is not None:
            found = True
            axes.plot(np.maximum(pooled[quantity], floor), data["quantiles"], label=_text(group), **_line(data, group))
    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("share of the jobs")
    axes.grid(alpha=0.3)
    if found:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return found


def shares(figure: Any, data: Any, load: str) -> bool:
    """GPUs held by each tenant over time beside its fair share and entitlement, under the best-ranked scheduler."""
    runs = data["series"].get(load, {})
    ranked = sorted(runs, key=lambda group: -(_interval(data, "score", load, group) or [-np.inf])[0])
    if not ranked or not runs[ranked[0]]["hours"]:
        return False
    run = runs[ranked[0]]
    count = len(run["tenants"])
    rows = -(-count // 3)
    figure.set_size_inches(WIDTH, 0.5 + 1.05 * rows)
    for k, tenant in enumerate(run["tenants"]):
        axes = figure.add_subplot(rows, min(count, 3), k + 1)
        axes.fill_between(run["hours"], run["held"][k], step="post", color=COLORS[k % len(COLORS)], alpha=0.6, lw=0)
        axes.step(run["hours"], run["fair"][k], where="post", color="black", lw=0.9)
        axes.axhline(run["entitled"][k], color="0.4", ls="--", lw=0.9)
        axes.set_title(_text(tenant), fontsize=7, loc="left", pad=2)
        axes.tick_params(labelsize=6)
    figure.suptitle(f"{_text(ranked[0])}: GPUs held (filled), fair share (line), entitled (dashed); hours", fontsize=8)
    return True


def fragmentation(figure: Any, data: Any, load: str) -> bool:
    """GPUs that are idle where the usual jobs cannot use them, over time."""
    axes = figure.add_subplot()
    found = False
    for group, run in data["series"].get(load, {}).items():
        if run["hours"]:
            found = True
            values = np.array(run["cluster"]["fragmented"])
            axes.step(run["hours"], values, where="post", label=_text(group), **_line(data, group))
    axes.set_xlabel("hours")
    axes.set_ylabel("fragmented GPUs")
    axes.grid(alpha=0.3)
    if found:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return found


def flows(figure: Any, data: Any, load: str) -> bool:
    """GPUs taken from preempted jobs, by who lost and who got them, under the scheduler that preempts most."""
    runs = data["flows"].get(load, {})
    most = max(runs, key=lambda group: float(np.sum(runs[group]["stopped"])), default=None)
    if most is None or not np.sum(runs[most]["stopped"]):
        return False
    axes = figure.add_subplot()
    names = [_text(tenant) for tenant in runs[most]["tenants"]]
    image = axes.imshow(np.array(runs[most]["stopped"]), cmap="cividis")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_xlabel("got the GPUs")
    axes.set_ylabel("was stopped")
    axes.set_title(f"{_text(most)}: GPUs, mean of the traces", fontsize=8, loc="left")
    figure.colorbar(image, ax=axes)
    return True


def gantt(figure: Any, data: Any, load: str) -> bool:
    """Who held which GPU: the best-ranked scheduler above the baseline."""
    runs = data["gantt"].get(load, {})
    ranked = sorted(runs, key=lambda group: -(_interval(data, "score", load, group) or [-np.inf])[0])
    chosen = list(dict.fromkeys([*ranked[:1], *([data["baseline"]] if data["baseline"] in runs else [])]))
    if not chosen:
        return False
    figure.set_size_inches(WIDTH, 0.4 + 2.3 * len(chosen))
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    for i, group in enumerate(chosen):
        run = runs[group]
        axes = figure.add_subplot(len(chosen), 1, i + 1)
        corners = zip(run["begin"], run["gpu"], run["length"], run["count"], strict=True)
        boxes = [Rectangle((begin, gpu), length, count) for begin, gpu, length, count in corners]
        colors = [COLORS[tenant % len(COLORS)] for tenant in run["tenant"]]
        axes.add_collection(
            PatchCollection(boxes, facecolors=colors, edgecolors="white", linewidths=0.1, rasterized=True)
        )
        axes.set_xlim(0, max(run["hours"], 1e-6))
        axes.set_ylim(run["gpus"], 0)
        axes.set_ylabel("GPU")
        axes.set_title(_text(group), fontsize=9, loc="left")
    axes.set_xlabel("hours")
    return True


# ---------------------------------------------------------------------------------------------------------------
# Pieces
# ---------------------------------------------------------------------------------------------------------------


def _interval(data: Any, metric: str, load: str, group: str) -> list[float] | None:
    found: list[float] | None = data["metrics"].get(metric, {}).get("values", {}).get(load, {}).get(group)
    return found


def _bars(interval: list[float]) -> list[list[float]]:
    """Lengths of the error bars; a value outside its interval by rounding has none there."""
    value, low, high = interval[:3]
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


def _mark(data: Any, group: str) -> dict[str, Any]:
    index = data["groups"].index(group)
    shape = {"fmt": MARKS[index % len(MARKS)], "color": COLORS[index % len(COLORS)], "ms": 7}
    return {**shape, "mec": "black", "mew": 0.5, "elinewidth": 0.8, "capsize": 2}


def _line(data: Any, group: str) -> dict[str, Any]:
    index = data["groups"].index(group)
    return {"color": COLORS[index % len(COLORS)], "ls": DASHES[index // 8 % len(DASHES)], "lw": 1.4}


def _text(name: str) -> str:
    """A name as it stands: matplotlib reads formulas between dollar signs."""
    return str(name).replace("$", r"\$")


# Every figure. To add one: a function above that returns whether there was something to draw, a line here.
FIGURES: dict[str, Callable[[Any, Any, str], bool]] = {
    "frontier": frontier,
    "intervals": intervals,
    "gpu_time": gpu_time,
    "waits": waits,
    "slowdowns": slowdowns,
    "shares": shares,
    "fragmentation": fragmentation,
    "flows": flows,
    "gantt": gantt,
}
