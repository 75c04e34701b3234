"""The training run: configuration, world, agent, learning, evaluation, report. `train.py` calls `main`."""

from __future__ import annotations

import importlib
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gangline.agents.keeper import Keeper, Stopped
from gangline.envs import config as configs
from gangline.envs.config import WorldConfig, from_mapping, load_world, merged
from gangline.envs.errors import GanglineError, unknown_name

HELP = """Train an agent, then compare it with baselines on held-out jobs.

  python train.py                                     a first run: 64 GPUs, generated jobs
  python train.py env=philly64 workload=philly workload.path=philly.csv
  python train.py env=small agent.total_steps=500000 seed=3
  python train.py env=small seeds=3                   three agents, with seeds 0, 1 and 2, in one table
  python train.py agent=ppo agent.clone=fair_reclaim   our own PPO, imitating a hand rule first (docs/agents.md)
  python train.py agent=mappo env=tenants_small       one agent per tenant
  python train.py experiment=smoke                    seconds, to see that everything works
  python train.py engine=rllib num_env_runners=8 address=auto env.time.mode=tick      on a Ray cluster (docs/rllib.md)
  python train.py resume=runs/2026-01-31_12-00-00     go on from the last checkpoint, exactly (Ctrl-C saves one)

Groups, chosen by name (configs/<group>/<name>.yaml):
{groups}
Anything in them can be overridden with dots: env.cluster.nodes, env.action.min_run_h, env.reward.weights.neg_idle,
workload.load, agent.learning_rate, evaluation.traces, scheduler.easy.rule, seed, seeds, run_dir.
"""


@dataclass(frozen=True)
class EvaluationConfig:
    """Held-out episodes that everybody plays."""

    traces: int = 5
    first_trace: int = 1_000_000  # seeds from here on; training draws others
    window: str | tuple[str, str] | None = "test"  # of a dated trace; generated jobs are held out by their seeds
    load: float | None = 0.9
    every_policy: bool = True


@dataclass(frozen=True)
class TrainConfig:
    """One run of `train.py`."""

    env: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)  # baseline -> its options
    agent: dict[str, Any] = field(default_factory=dict)
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: int = 0
    seeds: int = 1  # how many agents: with seed, seed + 1, ...; each has a folder of its own in the run's
    run_dir: str | None = None  # None = runs/<date and time>
    resume: str | None = None  # folder of a run that was stopped: go on from its last checkpoint
    checkpoint_every_s: float = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run with command-line overrides; returns the exit code: 0, or 2 for bad input (one line says what)."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    if any(a in ("-h", "--help") for a in arguments):
        console.print(HELP.format(groups=_groups()), highlight=False, markup=False)
        return 0
    try:
        run(compose(arguments), list(arguments), console)
    except GanglineError as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"train.py: stopped{'; ' + str(stop) if str(stop) else ''}", file=sys.stderr)
        return 130
    return 0


def _groups() -> str:
    lines = []
    for group in ("env", "workload", "scheduler", "agent", "experiment"):
        names = sorted(p.stem for p in configs.folder(group).glob("*.yaml"))
        lines.append(f"  {group + '=':<12} {', '.join(names)}")
    return "\n".join(lines) + "\n"


def compose(arguments: Sequence[str]) -> TrainConfig:
    """The configuration of a command line: Hydra composes the groups, every key is checked by name.

    Raises:
        GanglineError: unknown group, name or key, or a value of the wrong kind.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    root = configs.folder("env").parent.resolve()
    groups = {p.name: sorted(q.stem for q in p.glob("*.yaml")) for p in root.iterdir() if p.is_dir()}
    overrides = []
    for argument in _in_long_form(arguments):
        key, equals, value = argument.partition("=")
        if not equals:
            raise GanglineError(f"argument {argument!r}, expected key=value, for example env=philly64 (see --help)")
        if key in groups and "." not in key:
            if value not in groups[key]:
                raise unknown_name(key, value, groups[key])
            overrides.append(argument)
        else:
            overrides.append(f"++{key}={value}")
    try:
        with initialize_config_dir(str(root), version_base="1.3"):
            composed = hydra_compose("train", overrides)
        values = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise GanglineError(" ".join(str(error).split())) from None
    assert isinstance(values, dict)
    return from_mapping(TrainConfig, {str(k): v for k, v in values.items()})


def _in_long_form(arguments: Sequence[str]) -> Iterator[str]:
    """`engine=rllib` and what goes with it, as settings of the agent."""
    engines = [a.partition("=")[2] for a in arguments if a.partition("=")[0] == "engine"]
    for name in engines:
        configs.one_of("engine", name, ("rllib",))
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "engine":
            yield "agent=rllib"
        elif key in ("num_env_runners", "address"):
            if not engines:
                raise GanglineError(f"{key}={value} without engine=rllib, expected both")
            yield f"agent.{argument}"
        else:
            yield argument


def world_of(config: TrainConfig) -> WorldConfig:
    """The training world: the environment's settings with the workload's on top."""
    return load_world(merged(config.env, {"workload": config.workload} if config.workload else {}))


def held_out(config: TrainConfig, world: WorldConfig) -> WorldConfig:
    """The world of the evaluation: other weeks of a real trace, other seeds of generated jobs, at one load."""
    over: dict[str, Any] = {"load": config.evaluation.load}
    if world.workload.path is not None and world.workload.window is not None:
        over["window"] = config.evaluation.window
    return load_world(merged(configs.to_mapping(world), {"workload": over}))


def run(config: TrainConfig, arguments: list[str], console: Console) -> Path:
    """Train, evaluate, report; returns the run's folder."""
    from gangline.agents import evaluate, report
    from gangline.baselines import base
    from gangline.envs.cluster_env import Batch

    if config.resume is not None:
        config = resumed(config, arguments)
    if config.seed < 0:
        raise GanglineError(f"seed is {config.seed}, expected a whole number of at least 0")
    if config.evaluation.traces < 1:
        raise GanglineError(f"evaluation.traces is {config.evaluation.traces}, expected at least 1")
    if config.seeds < 1:
        raise GanglineError(f"seeds is {config.seeds}, expected how many agents to train: at least 1")
    world = world_of(config)
    test_world = held_out(config, world)
    baselines = {name: base.build(name, **(options or {})) for name, options in config.scheduler.items()}
    algorithm, settings = _algorithm(config.agent)
    first = Batch(world, 1)  # finds fault with the settings before anything is written
    Batch(test_world, 1)
    if hasattr(algorithm, "check"):
        algorithm.check(world, **settings)
    folder = Path(config.resume) if config.resume is not None else _new_folder(config)
    if config.resume is None:
        _write_config(config, folder)
    console.print(f"run folder: {folder}")
    _compile(first, baselines, console)

    places = seed_folders(config, folder)
    for seed, place in places.items():
        if not (place / "model.zip").exists():
            _train_one(config, world, algorithm, settings, seed, place, console)
    report.draw_curves({f"seed {seed}": place for seed, place in places.items()}, folder / "learning.png")

    actors: dict[str, Any] = dict(baselines)
    for seed, place in places.items():
        name = "trained" if len(places) == 1 else f"trained, seed {seed}"
        actors[name] = evaluate.policy_of(algorithm.load(place / "model.zip"))
    traces = [config.evaluation.first_trace + i for i in range(config.evaluation.traces)]
    runs = []
    with _progress(console) as bar:
        task = bar.add_task("comparing", total=len(actors) * len(traces), score="")
        for one in evaluate.compare(test_world, actors, traces):
            runs.append(one)
            bar.update(task, advance=1, score=one.scheduler)
    title = f"{len(traces)} held-out traces, {_described(test_world)}"
    report.print_table(runs, console, title)
    about = {"command": ["train.py", *arguments], "seeds": list(places), "world": configs.to_mapping(test_world)}
    report.write_results(runs, folder / "results.json", about)
    report.draw(runs, folder / "frontier.png", title)
    for name in ("results.json", "frontier.png", "learning.png"):
        console.print(f"{folder / name}")
    return folder


def seed_folders(config: TrainConfig, folder: Path) -> dict[int, Path]:
    """Where each agent of a run is kept, by its seed: a single one in the run's own folder."""
    if config.seeds == 1:
        return {config.seed: folder}
    return {seed: folder / f"seed-{seed}" for seed in range(config.seed, config.seed + config.seeds)}


def _train_one(
    config: TrainConfig,
    world: WorldConfig,
    algorithm: Any,
    settings: dict[str, Any],
    seed: int,
    place: Path,
    console: Console,
) -> None:
    """Train the agent of one seed, from the beginning or from its checkpoint, and save it."""
    place.mkdir(exist_ok=True)
    started = time.perf_counter()
    keeper = Keeper(place, config.checkpoint_every_s, resume=(place / "checkpoint.pt").exists())
    with _progress(console) as bar:
        task = bar.add_task(f"training, seed {seed}", total=settings["total_steps"], score="")

        def tell(steps: int, score: float | None) -> None:
            bar.update(task, completed=steps, score="" if score is None else f"score {score:.3f}")

        with _stops_at_the_next_update(keeper):
            try:
                model = algorithm.train(world, seed=seed, report=tell, log_dir=place, keeper=keeper, **settings)
            except Stopped:
                folder = place if config.seeds == 1 else place.parent
                raise KeyboardInterrupt(f"go on with: python train.py resume={folder}") from None
    seconds = time.perf_counter() - started
    trained = model.num_timesteps - keeper.steps_before
    console.print(f"trained {trained:,} steps in {seconds:.0f} s: {trained / seconds:,.0f} steps/s")
    algorithm.save(model, place / "model.zip")


def _described(world: WorldConfig) -> str:
    workload = world.workload
    source = workload.name if workload.path is not None else f"{workload.name} (generated)"
    gpus = sum(n.count * n.gpus for n in world.cluster.nodes)
    load = "" if workload.load is None else f", load {workload.load}"
    return f"{gpus} GPUs, {source}{load}, claims {workload.claims}"


def _algorithm(agent: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The agent's module and its settings, checked against its `train`."""
    import inspect

    settings = dict(agent)
    name = settings.pop("name", "maskable_ppo")
    if not isinstance(name, str):
        raise GanglineError(f"agent.name is {name!r}, expected a module of yours, as agent.name=my_package.my_agent")
    try:
        module = importlib.import_module(name if "." in name else f"gangline.agents.{name}")
        known = inspect.signature(module.train).parameters
    except (ImportError, AttributeError) as error:
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "ray":
            raise GanglineError(
                'engine=rllib needs ray, expected pip install "gangline[rllib]" (docs/rllib.md)'
            ) from None
        if isinstance(error, ImportError) and error.name in ("torch", "sb3_contrib", "stable_baselines3"):
            raise GanglineError(f'training needs {error.name}, expected pip install "gangline[train]"') from None
        raise GanglineError(f"agent {name!r} cannot be used ({error}), expected a module with train()") from None
    for key in settings:
        if key not in known or key in ("world", "seed", "report", "log_dir", "keeper"):
            raise unknown_name(f"setting of agent {name!r}", key, [k for k in known if k not in ("world", "report")])
    if not isinstance(settings.get("total_steps"), int) or settings["total_steps"] < 1:
        raise GanglineError(
            f"agent.total_steps is {settings.get('total_steps')!r}, expected a whole number of at least 1"
        )
    return module, settings


def resumed(config: TrainConfig, arguments: list[str]) -> TrainConfig:
    """The configuration of the run to go on with; another one given beside `resume` is refused by name.

    Raises:
        GanglineError: no such run, a finished one, or settings that differ from it.
    """
    folder = Path(str(config.resume))
    try:
        saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        raise GanglineError(f"resume={folder}: no config.json there, expected the folder of a run") from None
    if (folder / "results.json").exists():
        raise GanglineError(f"resume={folder}: the run has ended and holds results, expected one that was stopped")
    if not any(folder.glob("**/checkpoint.pt")):
        raise GanglineError(f"resume={folder}: no checkpoint there, expected a run that was stopped while training")
    free = ("resume", "run_dir", "checkpoint_every_s")
    given = [key for key in (a.partition("=")[0] for a in arguments) if key not in free]
    now, then = _flat(json.loads(json.dumps(configs.to_mapping(config)))), _flat(saved)
    for key in (*now, *(k for k in then if k not in now)):
        asked_for = any(key == g or key.startswith(f"{g}.") or g == "experiment" for g in given)
        if asked_for and key not in free and now.get(key) != then.get(key):
            raise GanglineError(
                f"resume={folder}: {key} is {now.get(key)!r}, the run has {then.get(key)!r}; leave it out"
            )
    return replace(from_mapping(TrainConfig, saved), resume=str(folder), checkpoint_every_s=config.checkpoint_every_s)


def _flat(values: dict[str, Any], where: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{where}{key}."))
        else:
            flat[f"{where}{key}"] = value
    return flat


@contextmanager
def _stops_at_the_next_update(keeper: Any) -> Iterator[None]:
    """Ctrl-C asks training to save a checkpoint and stop; a second one ends it at once."""

    def ask(number: int, frame: Any) -> None:
        if keeper.stop:
            raise KeyboardInterrupt
        keeper.stop = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _write_config(config: TrainConfig, folder: Path) -> None:
    part = folder / "config.part"
    part.write_text(json.dumps(configs.to_mapping(config), indent=1), encoding="utf-8")
    part.replace(folder / "config.json")


def _new_folder(config: TrainConfig) -> Path:
    folder = Path(config.run_dir) if config.run_dir else Path("runs") / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    if (folder / "results.json").exists():
        raise GanglineError(f"run folder {folder} holds results already, expected another run_dir")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < 10_000_000:
            raise GanglineError(f"run folder {folder}: the disk is full, expected 10 MB free")
    except OSError as error:
        raise GanglineError(f"run folder {folder}: {error.strerror}") from None
    return folder


def _compile(batch: Any, baselines: dict[str, Any], console: Console) -> None:
    """Compile the simulator and the baselines once, with a message: the first time takes a while."""
    started = time.perf_counter()
    with console.status("compiling the simulator (once after installation, then cached)"):
        batch.reset_one(0, 0, {})
        batch.begin(0, 1)
        batch.step(0, 1)
        for scheduler in baselines.values():
            scheduler.compiled(batch.size)
    seconds = time.perf_counter() - started
    if seconds > 5:
        console.print(f"compiled the simulator in {seconds:.0f} s; the result is cached")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[score]}"),
        console=console,
        refresh_per_second=2,
    )
