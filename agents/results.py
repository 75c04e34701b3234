"""What the runs of a benchmark say together: `read` a folder, `write` results.json, .parquet, .md, `print_ranking`.

Runs are compared load by load and trace by trace, a policy by its group of seeds. A folder that is not full yet gives
what it has, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from gangline.agents import statistics
from gangline.agents.benchmark import PRIVATE, load_name, write_whole
from gangline.agents.private_clusters import sharing_incentive
from gangline.agents.statistics import Interval
from gangline.envs.errors import GanglineError
from gangline.envs.metrics import METRICS

Better = Literal["higher", "lower", "none"]
RANKED_BY = "score"
COLUMNS = (  # metric and heading of the ranking; seconds are shown as hours
    ("productive_utilization", "service"),
    ("over_share", "over-share"),
    ("idle_with_demand", "idle"),
    ("wait_so_far_mean_s", "mean wait"),
    ("jct_so_far_mean_s", "mean JCT"),
    ("jct_so_far_weighted_s", "JCT, weighted"),
    ("wasted_lost_gpu_h", "lost"),
    ("preemptions_per_1000_jobs", "stops/1000"),
    ("starved_jobs", "starved"),
)
LEGEND = (
    "Interquartile means over traces; [95 % stratified bootstrap interval]; P = probability of a better score than the "
    "baseline's on the same trace.\nscore = service - over-share; service = kept GPU time / capacity; over-share = GPU "
    "time held beyond the fair share while others lack theirs;\nidle = GPUs that nobody held although wanted; weighted "
    "= by the GPU time asked for; starved = waited longer than 24 h and 10 run times."
)


@dataclass(frozen=True)
class Unit:
    """Unit of a metric, which direction is better, and what it says."""

    unit: str
    better: Better
    is_headline: bool = False
    meaning: str = ""


UNITS: dict[str, Unit] = {
    **{name: Unit(m.unit, m.better, m.is_headline, m.compute.__doc__ or "") for name, m in METRICS.items()},
    "sharing_incentive": Unit(
        *("share", "higher", False),
        "Share of tenants whose GPU-hour-weighted JCT is no longer than in a cluster of their own. metrics 5.",
    ),
    "sharing_worst_ratio": Unit("ratio", "lower", False, "The longest of those times over that of its own cluster."),
}

Values = dict[str, dict[int, np.ndarray]]  # group -> trace -> (num_seeds,)


@dataclass(frozen=True)
class Comparison:
    """The runs of a folder.

    Attributes:
        folder: where they lie.
        about: `benchmark.json`.
        runs: contents of the runs' files, in the order of the settings; `values` of each has every metric of UNITS.
        missing: runs that are not there yet.
    """

    folder: Path
    about: dict[str, Any]
    runs: list[dict[str, Any]]
    missing: int

    @property
    def groups(self) -> list[str]:
        """What is compared, in the order given."""
        return list(dict.fromkeys(actor["group"] for actor in self.about["actors"]))

    @property
    def loads(self) -> list[float | None]:
        """Loads, in the order given."""
        return list(self.about["loads"]) or [None]

    @property
    def baseline(self) -> str:
        """The group that the others are measured against."""
        return str(self.about["baseline"])

    def values(self, load: float | None, metric: str) -> Values:
        """A metric's values at a load; runs without a value are left out."""
        return self._values.get((load, metric), {})

    @cached_property
    def _values(self) -> dict[tuple[float | None, str], Values]:
        found: dict[tuple[float | None, str], dict[str, dict[int, list[float]]]] = {}
        for run in self.runs:
            for metric, value in run["values"].items():
                if value is not None:
                    by_group = found.setdefault((run["load"], metric), {})
                    by_group.setdefault(run["group"], {}).setdefault(run["trace"], []).append(float(value))
        return {
            key: {g: {t: np.array(v) for t, v in sorted(traces.items())} for g, traces in by_group.items()}
            for key, by_group in found.items()
        }

    def interval(self, load: float | None, metric: str, group: str) -> Interval | None:
        """Interquartile mean of a group with its interval."""
        key = (load, metric, group)
        if key not in self._intervals:
            values = self.values(load, metric).get(group, {})
            self._intervals[key] = statistics.bootstrap(list(values.values()))
        return self._intervals[key]

    @cached_property
    def _intervals(self) -> dict[tuple[float | None, str, str], Interval | None]:
        return {}

    def against_baseline(self, load: float | None, metric: str, group: str) -> Interval | None:
        """Interquartile mean of the paired differences; of log ratios for times (1 s is added to both)."""
        values = self.values(load, metric)
        ours, theirs = values.get(group, {}), values.get(self.baseline, {})
        return statistics.paired_difference(ours, theirs, in_logarithms=UNITS[metric].unit == "s")

    def chance(self, load: float | None, metric: str, group: str, other: str | None = None) -> float | None:
        """Probability that a group is better than another (None: the baseline) in a metric."""
        values = self.values(load, metric)
        ours, theirs = values.get(group, {}), values.get(other or self.baseline, {})
        return statistics.probability_of_improvement(ours, theirs, lower_is_better=UNITS[metric].better == "lower")

    def ranked(self, load: float | None) -> list[str]:
        """Groups by score, best first; those without one at the end."""

        def key(group: str) -> float:
            interval = self.interval(load, RANKED_BY, group)
            return np.inf if interval is None else -interval.value

        return sorted(self.groups, key=key)

    def status(self) -> str:
        """How much of it is there."""
        total = len(self.runs) + self.missing
        if self.missing:
            return f"INCOMPLETE: {len(self.runs)} of {total} runs are there; what is compared may have other traces"
        return f"complete: {total} runs"


def read(folder: Path) -> Comparison:
    """The runs of a benchmark's folder.

    Raises:
        GanglineError: no benchmark, or a file that is not what a run writes.
    """
    try:
        about = json.loads((folder / "benchmark.json").read_text(encoding="utf-8"))
        actors = [str(actor["name"]) for actor in about["actors"]]
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        raise GanglineError(
            f"{folder} holds no benchmark.json, expected the --out folder of gangline benchmark"
        ) from None
    runs = []
    missing = 0
    for load in list(about["loads"]) or [None]:
        for trace in about["traces"]:
            place = folder / "runs" / load_name(load) / str(trace)
            private = _load(place / f"{PRIVATE}.json")
            for actor in actors:
                run = _load(place / f"{actor}.json")
                if run is None:
                    missing += 1
                else:
                    runs.append({**run, "values": _values_of(run, private)})
    return Comparison(folder, about, runs, missing)


def _load(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        raise GanglineError(f"{file} cannot be read; remove it and give the command again") from None
    return dict(content)


def _values_of(run: dict[str, Any], private: dict[str, Any] | None) -> dict[str, float | None]:
    """Every metric of UNITS."""
    try:
        values = {name: entry["value"] for name, entry in run["report"]["metrics"].items() if name in UNITS}
        tenants = run["report"]["tenants"]
    except (KeyError, TypeError, AttributeError):
        raise GanglineError(f"the file of run {run.get('actor')!r} is not what a benchmark writes, remove it") from None
    share = worst = None
    if private is not None:
        alone = {n: np.inf if t == "never" else t for n, t in private["jct_weighted_s"].items()}
        share, worst = sharing_incentive(tenants, alone)
    return {**values, "sharing_incentive": share, "sharing_worst_ratio": worst}


# ---------------------------------------------------------------------------------------------------------------
# Writing
# ---------------------------------------------------------------------------------------------------------------


def write(comparison: Comparison, folder: Path) -> None:
    """Write what the runs say.

    `results.json`: settings, and statistics of every metric; `results.parquet`: a row for each value of each run;
    `results.md`: the rankings, for a README.
    """
    content = {
        **comparison.about,
        "complete": comparison.missing == 0,
        "runs": len(comparison.runs),
        "missing": comparison.missing,
        "units": {name: {"unit": u.unit, "better": u.better, "headline": u.is_headline} for name, u in UNITS.items()},
        "ranked_by": RANKED_BY,
        "loads_compared": [
            {"load": load, "ranking": comparison.ranked(load), "groups": dict(_statistics(comparison, load))}
            for load in comparison.loads
        ],
    }
    write_whole(folder / "results.json", json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    _write_parquet(comparison, folder / "results.parquet")
    write_whole(folder / "results.md", markdown(comparison))


def _statistics(comparison: Comparison, load: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
    for group in comparison.groups:
        entries: dict[str, Any] = {}
        for metric in UNITS:
            interval = comparison.interval(load, metric, group)
            if interval is None:
                entries[metric] = None
                continue
            values = np.concatenate(list(comparison.values(load, metric)[group].values()))
            against = comparison.against_baseline(load, metric, group)
            entries[metric] = {
                "iqm": interval.value,
                "low": interval.low,
                "high": interval.high,
                "count": interval.count,
                "mean": float(values.mean()),
                "median": float(np.median(values)),
                "against_baseline": None if against is None else asdict(against),
                "probability_of_improvement": comparison.chance(load, metric, group),
            }
        yield group, entries


def _write_parquet(comparison: Comparison, file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [(run, metric, value) for run in comparison.runs for metric, value in run["values"].items()]
    names = ("group", "actor", "seed", "load", "measured_load", "trace")
    columns: dict[str, Any] = {name: [run[name] for run, _, _ in rows] for name in names}
    columns |= {"metric": [metric for _, metric, _ in rows], "unit": [UNITS[metric].unit for _, metric, _ in rows]}
    columns["value"] = [None if value is None else float(value) for _, _, value in rows]
    types = {"seed": pa.int64(), "trace": pa.int64()} | dict.fromkeys(("load", "measured_load", "value"), pa.float64())
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    part = file.with_name(f"{file.name}.part-own")
    pq.write_table(pa.table(columns, schema=schema), part, compression="zstd")
    part.replace(file)


MARKDOWN_COLUMNS = (
    *COLUMNS[:4],
    ("wait_p95_s", "p95 wait"),
    *COLUMNS[4:],
    ("unfinished_jobs", "unfinished"),
)


def markdown(comparison: Comparison) -> str:
    """The rankings as Markdown, with the command that made them."""
    lines = ["```bash", comparison.about["command"], "```", "", comparison.status() + "."]
    for load in comparison.loads:
        titles = ["scheduler", "score (share)", f"P(> {comparison.baseline})"]
        units = ["h" if UNITS[metric].unit == "s" else UNITS[metric].unit for metric, _ in MARKDOWN_COLUMNS]
        titles += [f"{title} ({unit})" for (_, title), unit in zip(MARKDOWN_COLUMNS, units, strict=True)]
        lines += ["", f"Load {load:g}:" if load is not None else "The world's own load:", ""]
        lines += [_markdown_row(titles), "|---|" + "---:|" * (len(titles) - 1)]
        for group in comparison.ranked(load):
            score, chance = comparison.interval(load, RANKED_BY, group), comparison.chance(load, RANKED_BY, group)
            cells = [group, "-" if score is None else f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"]
            cells.append("-" if chance is None or group == comparison.baseline else f"{chance:.2f}")
            for metric, _ in MARKDOWN_COLUMNS:
                interval = comparison.interval(load, metric, group)
                cells.append(shown(None if interval is None else interval.value, UNITS[metric].unit))
            lines.append(_markdown_row(cells))
    return "\n".join([*lines, "", LEGEND.replace("\n", " ")]) + "\n"


def _markdown_row(cells: list[str]) -> str:
    """A row of a table; what a name holds is text."""
    safe = [cell.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|") for cell in cells]
    return "| " + " | ".join(safe) + " |"


# ---------------------------------------------------------------------------------------------------------------
# The ranking
# ---------------------------------------------------------------------------------------------------------------


def print_ranking(comparison: Comparison, console: Console) -> None:
    """A table for each load, the best score first."""
    console.print(comparison.status(), markup=False, highlight=False)
    for load in comparison.loads:
        console.print(ranking(comparison, load))
    console.print(LEGEND, style="dim", markup=False, highlight=False)


def ranking(comparison: Comparison, load: float | None) -> Table:
    """The ranking of a load."""
    where = "" if load is None else f", load {load:g}"
    measured = [run["measured_load"] for run in comparison.runs if run["load"] == load and run["measured_load"]]
    where += f" (measured {min(measured):.3f} to {max(measured):.3f})" if measured else ""
    title = f"{Path(comparison.about['world_name']).name}{where}, {len(comparison.about['traces'])} traces"
    table = Table(title=title, title_justify="left")
    table.add_column("scheduler", overflow="fold")
    table.add_column("score [dim]\\[95 %][/dim]\n[dim]share[/dim]", justify="right", no_wrap=True)
    table.add_column(f"P\n[dim]> {_escape(comparison.baseline)}[/dim]", justify="right")
    for metric, heading in COLUMNS:
        unit = "h" if UNITS[metric].unit == "s" else UNITS[metric].unit
        table.add_column(f"{heading}\n[dim]{unit}[/dim]", justify="right", no_wrap=True)
    for group in comparison.ranked(load):
        score = comparison.interval(load, RANKED_BY, group)
        chance = comparison.chance(load, RANKED_BY, group)
        text = "-" if score is None else f"{score.value:.3f} [dim]\\[{score.low:.3f}, {score.high:.3f}][/dim]"
        cells = [text, "-" if chance is None or group == comparison.baseline else f"{chance:.2f}"]
        for metric, _ in COLUMNS:
            interval = comparison.interval(load, metric, group)
            cells.append(shown(None if interval is None else interval.value, UNITS[metric].unit))
        table.add_row(_escape(group), *cells)
    return table


def shown(value: float | None, unit: str) -> str:
    """A number for a table: shares with three digits, seconds as hours, counts in thousands."""
    if value is None:
        return "-"
    if unit == "s":
        return f"{value / 3600:,.2f}"
    if unit in ("share", "index", "ratio", "factor"):
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:,.1f}"


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
