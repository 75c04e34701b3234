"""The `gangline` command: one function adds a subcommand's arguments, the one below it runs it."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.envs.errors import GanglineError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit code: 0, 1 if what was checked did not hold, 2 for bad input (one line)."""
    parser = argparse.ArgumentParser(
        prog="gangline", description="Schedule shared GPU clusters: worlds, rules, rewards."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        _add_worlds,
        _add_schedulers,
        _add_rewards,
        _add_picture,
        _add_replay,
        _add_benchmark,
        _add_report,
        _add_figures,
        _add_conformance,
        _add_speed,
        _add_scenario,
    ):
        add(commands)
    options = parser.parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return int(options.run(options) or 0)
    except GanglineError as error:
        print(f"gangline: {error}", file=sys.stderr)
        return 2


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A line of our own for what a file made us pass over; without the place in our code."""
    kind = "" if issubclass(category, UserWarning) else f"{category.__name__}: "
    print(f"gangline: {kind}{message}", file=sys.stderr)


def _add_worlds(commands: Any) -> None:
    commands.add_parser("worlds", help="list the world presets").set_defaults(run=_print_worlds)


def _print_worlds(options: argparse.Namespace) -> None:
    from gangline.envs.config import folder, load_world, preset_names

    for name in preset_names():
        config = load_world(name)
        gpus = sum(run.count * run.gpus for run in config.cluster.nodes)
        first_line = (folder("env") / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        print(f"{name:<12} {gpus:>6} GPUs  {first_line}")


def _add_schedulers(commands: Any) -> None:
    commands.add_parser("schedulers", help="list the baselines and their options").set_defaults(run=_print_schedulers)


def _print_schedulers(options: argparse.Namespace) -> None:
    import importlib
    import inspect

    from gangline.baselines.base import module_of, scheduler_names

    for name in scheduler_names():
        module = importlib.import_module(module_of(name))
        settings = ", ".join(str(p) for p in inspect.signature(module.build).parameters.values())
        print(f"{name:<14} {(module.__doc__ or '').strip().splitlines()[0]}")
        print(f"{'':<14} options: {settings}")


def _add_rewards(commands: Any) -> None:
    rewards = commands.add_parser(
        "rewards", help="print each reward term under FIFO, DRF and a reclaim rule, and its spread between them"
    )
    rewards.add_argument("--world", default="small", help="a preset or a YAML file (default: small)")
    rewards.add_argument("--traces", type=int, default=3, help="episodes to play (default: 3)")
    rewards.add_argument("--seed", type=int, default=0, help="seed of the first episode (default: 0)")
    rewards.add_argument("overrides", nargs="*", help="settings as key=value, for example workload.path=philly.csv")
    rewards.set_defaults(run=_print_rewards)


def _print_rewards(options: argparse.Namespace) -> None:
    from gangline.agents.reward_spread import print_reward_spread

    print_reward_spread(options.world, _settings(options.overrides), options.traces, options.seed)


def _add_picture(commands: Any) -> None:
    picture = commands.add_parser("picture", help="play an episode by a simple rule and draw who held which GPU")
    picture.add_argument("--world", default="small", help="a preset or a YAML file (default: small)")
    picture.add_argument("--seed", type=int, default=0, help="seed of the episode (default: 0)")
    picture.add_argument("--steps", type=int, default=500, help="decisions to play (default: 500)")
    picture.add_argument("--out", default="cluster.png", help="PNG file to write (default: cluster.png)")
    picture.add_argument("overrides", nargs="*", help="settings as key=value")
    picture.set_defaults(run=_draw_picture)


def _draw_picture(options: argparse.Namespace) -> None:
    """Start what fits, oldest first; make room where that is all that is possible; wait else."""
    import numpy as np

    from gangline.envs.cluster_env import GpuClusterEnv

    env = GpuClusterEnv(options.world, render_mode="rgb_array", **_settings(options.overrides))
    _, info = env.reset(seed=options.seed)
    for _ in range(options.steps):
        legal = np.flatnonzero(info["action_mask"])
        *_, terminated, truncated, info = env.step(int(legal[1]) if len(legal) > 1 else 0)
        if terminated or truncated:
            break
    pixels = env.render()
    from matplotlib import image

    try:
        image.imsave(options.out, np.asarray(pixels))
    except OSError as error:
        raise GanglineError(f"picture {options.out}: {error.strerror}, expected a file that can be written") from None
    print(f"{options.out}: {info['time_s'] / 3600:.1f} h of {options.world}, seed {options.seed}")


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser("replay", help="run a trace, or a Slurm site's own jobs, under other rules")
    replay.add_argument("sacct", nargs="?", help="output of sacct -P (docs/files.md), with --slurm-conf")
    replay.add_argument("--slurm-conf", help="slurm.conf of the site, gres.conf beside it")
    replay.add_argument("--accounts", help="output of sacctmgr show assoc -P, or of sacctmgr dump")
    replay.add_argument("--qos", help="output of sacctmgr show qos -P")
    replay.add_argument("--trace", help="a trace file instead: metrics, jobs/s and a picture (docs/benchmark.md)")
    replay.add_argument("--format", default="philly", help="of the trace: philly, swf, sacct, ... (default: philly)")
    replay.add_argument("--world", help="whose cluster: a preset or a YAML file (default for philly: philly)")
    replay.add_argument("--picture", type=Path, default=Path("replay.png"), help="file to draw (default: replay.png)")
    replay.add_argument(
        *("--schedulers", "--scheduler"),
        help="names, as gangline schedulers lists them (default: fifo,easy,drf_greedy,slurm; of a trace: easy)",
    )
    replay.add_argument("--volcano-conf", help="volcano-scheduler.conf, or its ConfigMap, for volcano")
    replay.add_argument(
        "--volcano-queues", nargs="+", default=(), help="manifests of Queues named as the tenants, for volcano"
    )
    replay.add_argument("overrides", nargs="*", help="settings of the world, or of the sacct loader, as key=value")
    replay.set_defaults(run=_print_replay)


def _print_replay(options: argparse.Namespace) -> None:
    default = "easy" if options.trace else "fifo,easy,drf_greedy,slurm"
    schedulers = [name for name in (default if options.schedulers is None else options.schedulers).split(",") if name]
    if options.trace is not None:
        from gangline.agents.trace_replay import replay_file

        settings = _settings([*([options.sacct] if options.sacct else []), *options.overrides])
        replay_file(options.trace, options.format, schedulers, options.world, settings, options.picture)
        return
    from gangline.agents.replay import print_replay

    if options.sacct is None or options.slurm_conf is None:
        raise GanglineError("replay has no jobs, expected --trace FILE --format F, or sacct's output and --slurm-conf")
    print_replay(
        options.sacct,
        options.slurm_conf,
        options.accounts,
        options.qos,
        schedulers,
        _settings(options.overrides),
        volcano_conf=options.volcano_conf,
        volcano_queues=options.volcano_queues,
    )


def _add_benchmark(commands: Any) -> None:
    benchmark = commands.add_parser(
        "benchmark", help="compare schedulers and trained policies on the same traces; goes on where it was stopped"
    )
    benchmark.add_argument("--world", default="small", help="a preset or a YAML file (default: small)")
    benchmark.add_argument("--schedulers", default="", help="names, as gangline schedulers lists them, with commas")
    benchmark.add_argument("--policies", nargs="+", default=[], metavar="RUN", help="folders of training runs")
    benchmark.add_argument("--loads", default="", help="offered loads, with commas (default: the world's own)")
    benchmark.add_argument("--traces", type=int, default=10, help="episodes at each load (default: 10)")
    benchmark.add_argument("--seed", type=int, default=0, help="seed of the first episode (default: 0)")
    benchmark.add_argument("--baseline", help="what the others are measured against (default: the first scheduler)")
    benchmark.add_argument(
        "--drain-h", type=float, default=720.0, help="hours after the horizon in which jobs may end (default: 720)"
    )
    benchmark.add_argument("--workers", type=int, help="processes (default: one for each core)")
    benchmark.add_argument("--address", help="of a Ray cluster that plays instead: auto, or host:port (docs/rllib.md)")
    benchmark.add_argument("--out", required=True, help="folder of the results")
    benchmark.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the world")
    benchmark.add_argument("overrides", nargs="*", help="the same, at the end")
    benchmark.set_defaults(run=_run_benchmark)


def _run_benchmark(options: argparse.Namespace) -> int:
    from rich.console import Console

    from gangline.agents import benchmark

    try:
        loads = [float(load) for load in options.loads.split(",") if load]
    except ValueError:
        raise GanglineError(f"loads is {options.loads!r}, expected numbers with commas, as .7,.9,1.1") from None
    runs = [run for run in options.policies if "=" not in run]
    settings = benchmark.Settings(
        world=options.world,
        overrides=_settings([*options.set, *options.overrides, *(r for r in options.policies if "=" in r)]),
        schedulers=[name for name in options.schedulers.split(",") if name],
        policies=runs,
        loads=loads,
        traces=options.traces,
        seed=options.seed,
        baseline=options.baseline,
        drain_h=options.drain_h,
        out=options.out,
    )
    workers = benchmark.default_workers() if options.workers is None else options.workers
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        return benchmark.run(settings, workers, console, options.address)
    except KeyboardInterrupt:
        print("gangline: stopped; the same command goes on where it was", file=sys.stderr)
        return 130


def _add_report(commands: Any) -> None:
    report = commands.add_parser("report", help="draw a benchmark as one HTML file that needs no network")
    report.add_argument("folder", type=Path, help="--out folder of gangline benchmark")
    report.add_argument("--out", type=Path, help="file to write (default: report.html in the folder)")
    report.set_defaults(run=_write_report)


def _write_report(options: argparse.Namespace) -> None:
    from gangline.agents import html_report, results

    file = options.out or options.folder / "report.html"
    comparison = results.read(options.folder)
    html_report.write(comparison, file)
    print(f"{file}: {file.stat().st_size / 1e6:.1f} MB, {comparison.status()}")


def _add_figures(commands: Any) -> None:
    figures = commands.add_parser("figures", help="draw a benchmark for papers, with matplotlib")
    figures.add_argument("folder", type=Path, help="--out folder of gangline benchmark")
    figures.add_argument("--format", default="pdf", choices=("pdf", "png", "svg"), help="default: pdf")
    figures.add_argument("--out", type=Path, help="folder to write to (default: figures in the folder)")
    figures.set_defaults(run=_write_figures)


def _write_figures(options: argparse.Namespace) -> None:
    from gangline.agents import figures, results

    folder = options.out or options.folder / "figures"
    for file in figures.write_all(results.read(options.folder), folder, options.format):
        print(file)


def _add_conformance(commands: Any) -> None:
    conformance = commands.add_parser(
        "conformance", help="run recorded decisions of a real system through its baseline"
    )
    conformance.add_argument("system", help="whose decisions: slurm, volcano, kueue")
    conformance.add_argument("folder", type=Path, help="folder of JSON files with recorded cases")
    conformance.set_defaults(run=_print_conformance)


def _print_conformance(options: argparse.Namespace) -> int:
    """Exit code 1 if a case failed."""
    from gangline.baselines.conformance.cases import print_report

    return int(print_report(options.system, options.folder) > 0)


def _add_speed(commands: Any) -> None:
    speed = commands.add_parser("speed", help="measure this machine: steps, resets, replays, compiling, starting")
    speed.add_argument("--trace", help="Philly as CSV; without it the replays are left out")
    speed.add_argument("--json", action="store_true", help="print JSON instead of a table")
    speed.add_argument("--peers", action="store_true", help="also other environments, where they are installed")
    speed.add_argument("--no-compile", action="store_true", help="leave out compiling from nothing (a minute)")
    speed.add_argument("--schedulers", default="", help="measure only what these do, names between commas")
    speed.add_argument("--seconds", type=float, default=2.0, help="how long each rate is measured (default: 2)")
    speed.set_defaults(run=_measure_speed)


def _measure_speed(options: argparse.Namespace) -> None:
    import json

    from gangline.agents import speed

    found = speed.measure(
        options.trace,
        peers=options.peers,
        compiles=not options.no_compile,
        schedulers=[name for name in options.schedulers.split(",") if name],
        least_s=options.seconds,
        tell=lambda what: print(f"measuring: {what}", file=sys.stderr, flush=True),
    )
    print(json.dumps(found.as_dict(), indent=1) if options.json else speed.write_table(found))


def _add_scenario(commands: Any) -> None:
    scenario = commands.add_parser("scenario", help="worked questions about shared clusters, played before and after")
    actions = scenario.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list the scenarios")
    listing.add_argument("--names", action="store_true", help="names only")
    listing.set_defaults(run=_list_scenarios)
    for which, what in (("run", "play the story, before and after"), ("compare", "set more schedulers side by side")):
        part = actions.add_parser(which, help=what)
        part.add_argument("name", help="a scenario of the list, or a YAML file")
        part.add_argument("--out", help=f"PNG file to write (default: NAME-{which}.png)")
        part.add_argument("--seed", type=int, default=0, help="of jobs that come as a stream (default: 0)")
        part.set_defaults(run=_play_scenario)


def _list_scenarios(options: argparse.Namespace) -> None:
    from gangline.agents.scenario import print_list

    print_list(options.names)


def _play_scenario(options: argparse.Namespace) -> None:
    from gangline.agents.scenario import print_part

    print_part(options.name, options.action, options.out, options.seed, lambda line: print(line, flush=True))


def _settings(overrides: Sequence[str]) -> dict[str, object]:
    """Arguments `key=value` as a mapping; values are read as YAML."""
    import yaml

    settings: dict[str, object] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise GanglineError(f"argument {override!r}, expected key=value")
        settings[key] = yaml.safe_load(value)
    return settings


if __name__ == "__main__":
    sys.exit(main())
