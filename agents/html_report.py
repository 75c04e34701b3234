"""`gangline report`: a benchmark as one HTML file that needs no server and no network.

The page draws itself with plotly from the data put into it (`page/page.js`), a section when it comes into sight. What
is put in is reduced before: quantiles instead of jobs, means of stretches of time, of the GPUs' blocks the longest.
Names of jobs, tenants and schedulers are text wherever they stand: `_script_safe` here, `esc` and text nodes there.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gangline.agents.benchmark import QUANTILES, load_name, write_whole
from gangline.agents.results import LEGEND, RANKED_BY, UNITS, Comparison
from gangline.envs.errors import GanglineError
from gangline.envs.metrics import SIZE_CLASSES
from gangline.envs.timeline import CLUSTER_AREAS

MOST_BYTES_OF_BLOCKS = 3_000_000
BYTES_OF_A_BLOCK = 32
NUM_STRETCHES = 120  # of a series
MOST_GPU_ROWS = 1024
_PARTS = ("kept", "kept_bad", "hang", "lost", "overhead", "suspended", "releasing", "surplus")


def write(comparison: Comparison, file: Path) -> None:
    """Write the page; whole or not at all.

    Raises:
        GanglineError: plotly is not installed, or the file cannot be written.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise GanglineError('a report needs plotly, expected pip install "gangline[report]"') from None
    folder = Path(__file__).parent / "page"
    text = {name: (folder / f"page.{name}").read_text(encoding="utf-8") for name in ("html", "css", "js")}
    data = data_of(comparison)
    parts = {
        "@TITLE@": html.escape(data["title"]),
        "@STYLE@": text["css"],
        "@DATA@": _script_safe(data),
        "@PLOTLY@": get_plotlyjs().replace("</script", "<\\/script"),
        "@SCRIPT@": text["js"],
    }
    page = text["html"]
    pieces = []
    for mark, content in parts.items():  # each once and in order: what is put in is never looked through again
        before, _, page = page.partition(mark)
        pieces += [before, content]
    try:
        write_whole(file, "".join([*pieces, page]))
    except OSError as error:
        raise GanglineError(f"report {file}: {error.strerror}, expected a file that can be written") from None


def _script_safe(data: Any) -> str:
    """JSON for inside a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def data_of(c: Comparison) -> dict[str, Any]:
    """Everything that the page draws."""
    about = c.about
    name = Path(about["world_name"]).name
    gpus = sum(n["count"] * n["gpus"] for n in about["world"]["cluster"]["nodes"])
    drawn = {(run["load"], run["group"]): run for run in reversed(c.runs) if "series" in run}
    return {
        "title": f"{name}: {len(c.groups)} schedulers, {gpus} GPUs, {len(about['traces'])} traces",
        "status": c.status(),
        "complete": c.missing == 0,
        "runs": len(c.runs),
        "command": about["command"],
        "versions": ", ".join(f"{name} {version}" for name, version in about["versions"].items()),
        "hashes": "; ".join(f"SHA-256 of {name} {value}" for name, value in about["hashes"].items()),
        "legend": LEGEND,
        "loads": [_load(load) for load in c.loads],
        "groups": c.groups,
        "baseline": c.baseline,
        "drawn_trace": about["traces"][0],
        "quantiles": QUANTILES.tolist(),
        "classes": _classes(c),
        "metrics": {name: entry for name, entry in _metrics(c) if entry["values"]},
        "chances": {_load(load): _chances(c, load) for load in c.loads},
        "split": _by_load_and_group(c, _split),
        "distributions": _by_load_and_group(c, _distributions),
        "flows": _by_load_and_group(c, _flows),
        "timings": _by_load_and_group(c, lambda runs: _timings(c.folder, runs)),
        "series": _drawn(c, {key: _series(run) for key, run in drawn.items()}),
        "gantt": _drawn(c, dict(_gantts(c, drawn))),
    }


def _load(load: float | None) -> str:
    return "own" if load is None else f"{load:g}"


def _classes(c: Comparison) -> list[str]:
    """Classes of jobs in a fixed order: all, sizes, tenants."""
    found = {name: None for run in c.runs for name in run["distributions"]}
    sizes = [f"size {name}" for name in SIZE_CLASSES]
    return [name for name in ("all", *sizes) if name in found] + [name for name in found if name.startswith("tenant ")]


def _metrics(c: Comparison) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, unit in UNITS.items():
        values: dict[str, dict[str, list[float]]] = {}
        for load in c.loads:
            for group in c.groups:
                interval = c.interval(load, name, group)
                if interval is not None:
                    mean = float(np.concatenate(list(c.values(load, name)[group].values())).mean())
                    numbers = [interval.value, interval.low, interval.high, interval.count, mean]
                    values.setdefault(_load(load), {})[group] = [float(f"{v:.6g}") for v in numbers]
        meaning = " ".join(unit.meaning.split("\n\n")[0].split()).replace("`", "")
        yield name, {"unit": unit.unit, "better": unit.better, "meaning": meaning, "values": values}


def _chances(c: Comparison, load: float | None) -> list[list[float | None]]:
    """P(row better than column) in the score."""
    return [[None if a == b else c.chance(load, RANKED_BY, a, b) for b in c.groups] for a in c.groups]


def _by_load_and_group(c: Comparison, reduce: Any) -> dict[str, dict[str, Any]]:
    """`reduce` of the runs of each load and group that there are."""
    found: dict[str, dict[str, Any]] = {}
    for load in c.loads:
        for group in c.groups:
            runs = [run for run in c.runs if run["load"] == load and run["group"] == group]
            reduced = reduce(runs) if runs else None
            if reduced is not None:
                found.setdefault(_load(load), {})[group] = reduced
    return found


def _split(runs: list[dict[str, Any]]) -> dict[str, float] | None:
    """Mean shares of all GPU time: the parts of what was held, and what was idle."""
    rows = []
    for run in runs:
        report = run["report"]
        window = report["window"]
        room = window["gpus"] * 1000 * (window["stop_ms"] - window["start_ms"])
        if room <= 0:
            continue
        time = report["gpu_time"]
        row = {part: time[part] / room for part in _PARTS}
        row["kept"] += min(time["undecided"], 0) / room  # kept of what was held before the window
        row["undecided"] = max(time["undecided"], 0) / room
        row["idle_with_demand"] = report["metrics"]["idle_with_demand"]["value"] or 0.0
        row["idle"] = max(0.0, 1 - time["held"] / room - row["idle_with_demand"])
        rows.append(row)
    if not rows:
        return None
    return {part: float(f"{np.mean([row[part] for row in rows]):.6g}") for part in rows[0]}


def _distributions(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Quantiles of all runs' jobs together, by class: those of the mixture of the runs' quantiles."""
    pooled = {}
    for name in {name: None for run in runs for name in run["distributions"]}:
        parts = [run["distributions"][name] for run in runs if name in run["distributions"]]
        pooled[name] = {
            "jobs": sum(part["jobs"] for part in parts),
            **{q: _mixture([p[q] for p in parts], [p["jobs"] for p in parts]) for q in ("wait_h", "slowdown")},
        }
    return pooled


def _mixture(quantiles: list[list[float]], weights: list[int]) -> list[float]:
    """Quantiles of a mixture of distributions, each given by its quantiles."""
    values = np.concatenate([np.asarray(q, float) for q in quantiles])
    inner = np.full(len(QUANTILES), 1.0)
    inner[[0, -1]] = 0.5  # the ends stand for half a step
    mass = np.concatenate([inner / inner.sum() * weight for weight in weights])
    order = np.argsort(values, kind="stable")
    values, mass = values[order], mass[order]
    place = (np.cumsum(mass) - mass / 2) / mass.sum()
    found = np.interp(QUANTILES, place, values)
    found[0], found[-1] = values[0], values[-1]
    return [float(f"{v:.4g}") for v in found]


def _flows(runs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Mean matrices over runs that were recorded."""
    recorded = [run for run in runs if "lent_gpu_h" in run]
    if not recorded:
        return None

    def mean(name: str) -> list[list[float]]:
        matrix = np.mean([np.array(run[name], float).reshape(n, n) for run in recorded], axis=0)
        return [[float(f"{v:.4g}") for v in row] for row in matrix]

    tenants = list(recorded[0]["report"]["tenants"])
    n = len(tenants)
    return {"tenants": tenants, "lent": mean("lent_gpu_h"), "stopped": mean("stopped_gpus")}


def _timings(folder: Path, runs: list[dict[str, Any]]) -> list[float | None] | None:
    """Means over runs of the wall times, [p50, p99 (ms), seconds of a run, its jobs per second]; they lie apart."""
    files = [folder / "timings" / load_name(r["load"]) / str(r["trace"]) / f"{r['actor']}.json" for r in runs]
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    found = [timing for timing in found if timing["count"] and timing["total_s"] > 0]
    if not found:
        return None
    numbers = [(t["p50_ms"], t["p99_ms"], t["total_s"], t["jobs"] / t["total_s"]) for t in found]
    return [float(f"{v:.3g}") for v in np.mean(np.array(numbers, float), axis=0)]


# ---------------------------------------------------------------------------------------------------------------
# The run that is drawn: the first trace of each load
# ---------------------------------------------------------------------------------------------------------------


def _drawn(c: Comparison, found: dict[tuple[float | None, str], Any]) -> dict[str, dict[str, Any]]:
    return {
        _load(load): {group: found[load, group] for group in c.groups if (load, group) in found} for load in c.loads
    }


def _series(run: dict[str, Any]) -> dict[str, Any]:
    """GPUs over time, of each tenant and of the cluster."""
    series = run["series"]
    edges = np.array(series["edges_h"], float)
    step = max(1, -(-(len(edges) - 1) // NUM_STRETCHES))
    is_empty = edges[-1] <= 0

    def fewer(values: Any) -> list[float]:
        return [] if is_empty else [float(f"{np.mean(values[i : i + step]):.4g}") for i in range(0, len(values), step)]

    return {
        "hours": [] if is_empty else [float(f"{h:.5g}") for h in edges[:-1:step]],
        "tenants": series["tenants"],
        "held": [fewer(row) for row in series["held"]],
        "fair": [fewer(row) for row in series["fair"]],
        "entitled": [float(f"{np.mean(row):.5g}") if len(row) else 0.0 for row in series["nominal"]],
        "cluster": {name: fewer(series["cluster"][name]) for name in CLUSTER_AREAS},
    }


def _gantts(c: Comparison, drawn: dict[tuple[float | None, str], dict[str, Any]]) -> Iterator[tuple[Any, Any]]:
    files = {}
    for (load, group), run in drawn.items():
        file = c.folder / "runs" / load_name(load) / str(run["trace"]) / f"{run['actor']}.parquet"
        if file.exists():
            files[load, group] = file
    most = MOST_BYTES_OF_BLOCKS // BYTES_OF_A_BLOCK // max(len(files), 1)
    for key, file in files.items():
        window = drawn[key]["report"]["window"]
        hours = (window["stop_ms"] - window["start_ms"]) / 3_600_000
        yield key, _blocks(file, most, hours, list(drawn[key]["report"]["tenants"]))


def _blocks(file: Path, most: int, hours: float, tenants: list[str]) -> dict[str, Any]:
    """The blocks of a Gantt chart: stretches of GPUs of a node that a pod held, the longest ones; hours and GPU rows.

    A GPU that pods share is drawn as several blocks of it, one over the other.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    about = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    node_gpus = np.array(json.loads(about["node_gpus"]), np.int64)
    first_row = np.concatenate([[0], np.cumsum(node_gpus)])
    column = {name: table[name].to_numpy() for name in ("row", "node", "gpu_mask", "kind", "begin_ms", "end_ms")}
    tenant_names = table["tenant"].to_pylist()
    job_names = table["job"].to_pylist()
    place = {name: k for k, name in enumerate(tenants)}
    in_window = column["begin_ms"] < hours * 3_600_000
    in_window &= first_row[column["node"]] < MOST_GPU_ROWS
    sizes = np.array([int(mask).bit_count() for mask in column["gpu_mask"]], np.int64)
    keys = list(zip(column["row"].tolist(), column["begin_ms"].tolist(), strict=True))
    gang: dict[tuple[int, int], int] = {}
    for key, size in zip(keys, sizes.tolist(), strict=True):
        gang[key] = gang.get(key, 0) + size
    chosen = np.flatnonzero(in_window & (sizes > 0))
    length = column["end_ms"] - column["begin_ms"]
    left_out = max(0, len(chosen) - most)
    if left_out:
        chosen = np.sort(chosen[np.argsort(-length[chosen], kind="stable")[:most]])
    plain = all(name == f"job-{row}" for name, row in zip(job_names, column["row"].tolist(), strict=True))
    fields = ("begin", "length", "gpu", "count", "tenant", "kind", "job", "node", "gang")
    blocks: dict[str, list[Any]] = {name: [] for name in fields}
    known: dict[str, int] = {}
    for i in chosen.tolist():
        for low, count in _stretches(int(column["gpu_mask"][i])):
            job = int(column["row"][i]) if plain else known.setdefault(job_names[i], len(known))
            values = (
                round(column["begin_ms"][i] / 3_600_000, 3),
                round(length[i] / 3_600_000, 4),
                int(first_row[column["node"][i]]) + low,
                count,
                place[tenant_names[i]],
                int(column["kind"][i]),
                job,
                int(column["node"][i]),
                gang[keys[i]],
            )
            for name, value in zip(fields, values, strict=True):
                blocks[name].append(value)
    return {
        **blocks,
        "names": None if plain else list(known),
        "tenants": tenants,
        "nodes": json.loads(about["nodes"]),
        "gpus": int(min(first_row[-1], MOST_GPU_ROWS)),
        "hours": float(f"{hours:.6g}"),
        "left_out": left_out,
    }


def _stretches(mask: int) -> Iterator[tuple[int, int]]:
    """(first GPU, how many) of each run of set bits."""
    low = 0
    while mask >> low:
        if mask >> low & 1:
            count = 1
            while mask >> (low + count) & 1:
                count += 1
            yield low, count
            low += count
        else:
            low += 1
