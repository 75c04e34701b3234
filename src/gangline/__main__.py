"""The `gangline` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gangline.envs.errors import GanglineError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit code: 0, or 2 for bad input (one line says what)."""
    parser = argparse.ArgumentParser(
        prog="gangline", description="Schedule shared GPU clusters: worlds, rules, rewards."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("worlds", help="list the world presets")
    commands.add_parser("schedulers", help="list the baselines and their options")
    rewards = commands.add_parser(
        "rewards", help="print each reward term under FIFO, DRF and a reclaim rule, and its spread between them"
    )
    rewards.add_argument("--world", default="small", help="a preset or a YAML file (default: small)")
    rewards.add_argument("--traces", type=int, default=3, help="episodes to play (default: 3)")
    rewards.add_argument("--seed", type=int, default=0, help="seed of the first episode (default: 0)")
    rewards.add_argument("overrides", nargs="*", help="settings as key=value, for example workload.path=philly.csv")
    picture = commands.add_parser("picture", help="play an episode by a simple rule and draw who held which GPU")
    picture.add_argument("--world", default="small", help="a preset or a YAML file (default: small)")
    picture.add_argument("--seed", type=int, default=0, help="seed of the episode (default: 0)")
    picture.add_argument("--steps", type=int, default=500, help="decisions to play (default: 500)")
    picture.add_argument("--out", default="cluster.png", help="PNG file to write (default: cluster.png)")
    picture.add_argument("overrides", nargs="*", help="settings as key=value")
    replay = commands.add_parser("replay", help="run a Slurm site's own jobs under other rules")
    replay.add_argument("sacct", help="output of sacct -P (docs/files.md)")
    replay.add_argument("--slurm-conf", required=True, help="slurm.conf of the site, gres.conf beside it")
    replay.add_argument("--accounts", help="output of sacctmgr show assoc -P, or of sacctmgr dump")
    replay.add_argument("--qos", help="output of sacctmgr show qos -P")
    replay.add_argument(
        "--schedulers", default="fifo,easy,drf_greedy,slurm", help="names, as gangline schedulers lists them"
    )
    replay.add_argument("overrides", nargs="*", help="options of the sacct loader as key=value")
    options = parser.parse_args(arguments)
    try:
        if options.command == "worlds":
            _print_worlds()
        elif options.command == "schedulers":
            _print_schedulers()
        elif options.command == "picture":
            _draw_picture(options)
        elif options.command == "replay":
            from gangline.agents.replay import print_replay

            schedulers = [name for name in options.schedulers.split(",") if name]
            print_replay(
                options.sacct,
                options.slurm_conf,
                options.accounts,
                options.qos,
                schedulers,
                _settings(options.overrides),
            )
        else:
            from gangline.agents.reward_spread import print_reward_spread

            print_reward_spread(options.world, _settings(options.overrides), options.traces, options.seed)
    except GanglineError as error:
        print(f"gangline: {error}", file=sys.stderr)
        return 2
    return 0


def _print_worlds() -> None:
    from gangline.envs.config import folder, load_world, preset_names

    for name in preset_names():
        config = load_world(name)
        gpus = sum(run.count * run.gpus for run in config.cluster.nodes)
        first_line = (folder("env") / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        print(f"{name:<12} {gpus:>6} GPUs  {first_line}")


def _print_schedulers() -> None:
    import importlib
    import inspect

    from gangline.baselines.base import scheduler_names

    for name in scheduler_names():
        module = importlib.import_module(f"gangline.baselines.{name}")
        options = ", ".join(str(p) for p in inspect.signature(module.build).parameters.values())
        print(f"{name:<14} {(module.__doc__ or '').strip().splitlines()[0]}")
        print(f"{'':<14} options: {options}")


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


def _settings(overrides: Sequence[str]) -> dict[str, object]:
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
