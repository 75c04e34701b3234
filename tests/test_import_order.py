"""Imports follow the flow of data and never turn back.

config -> workload -> state -> observation -> action -> transactions -> transition -> reward -> metrics -> report.

Every import statement counts, also one inside a function or under `TYPE_CHECKING`. Loading a module by the name that
a config gives (a scheduler, a workload) is no import statement.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "gangline": "src/gangline",
    "gangline.envs": "envs",
    "gangline.baselines": "baselines",
    "gangline.agents": "agents",
    "gangline.configs": "configs",
}

CORE = ("errors", "core")
WORLD = (*CORE, "config", "files", "workloads")
WINDOW = (  # between a world and whoever acts in it
    "worlds",
    "observation",
    "agent",
    "action",
    "transition",
    "reward",
    "recording",
    "timeline",
    "metrics",
    "rendering",
    "stepping",
)

# layer: (its modules, the layers it may import besides itself)
LAYERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "errors": (("gangline.envs.errors",), ()),
    "core": (("gangline.envs.core",), ("errors",)),
    "files": (("gangline.envs.files",), CORE),
    "config": (("gangline.envs.config", "gangline.configs"), CORE),
    "workloads": (("gangline.envs.workloads",), (*CORE, "config", "files")),
    "observation": (("gangline.envs.observation",), CORE),
    "transition": (("gangline.envs.transition",), CORE),
    "reward": (("gangline.envs.reward",), (*CORE, "transition")),
    "agent": (("gangline.envs.agent",), (*CORE, "transition", "reward")),
    "action": (("gangline.envs.action",), (*CORE, "agent")),
    "stepping": (
        ("gangline.envs.stepping", "gangline.envs.read_ahead"),
        (*CORE, "agent", "observation", "action", "transition", "reward"),
    ),
    "worlds": (("gangline.envs.worlds",), WORLD),
    "recording": (("gangline.envs.recording",), CORE),
    "timeline": (("gangline.envs.timeline",), (*CORE, "recording")),
    "metrics": (("gangline.envs.metrics",), (*CORE, "recording", "timeline")),
    "rendering": (("gangline.envs.rendering",), CORE),
    "primitives": (("gangline.baselines.primitives",), CORE),
    "baselines": (("gangline.baselines",), (*CORE, "primitives", "files")),
    "conformance": (("gangline.baselines.conformance",), (*CORE, "primitives", "baselines")),
    "faces": (
        ("gangline.envs.cluster_env", "gangline.envs.multi_agent_env", "gangline.envs.vector_env"),
        (*WORLD, *WINDOW),
    ),
    "agents": (("gangline.agents",), (*WORLD, *WINDOW, "faces", "primitives", "baselines", "names")),
    "names": (("gangline", "gangline.envs"), ("errors",)),  # imported whenever anything is: only what costs nothing
    "command": (("gangline.__main__",), ("*",)),
}
WHOLE_PACKAGES = ("gangline", "gangline.envs")  # as a prefix these would take in everything: only the module itself


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def layer_of(module: str) -> str | None:
    """The layer with the longest matching name; None if the table has none."""
    best = {
        name: layer
        for layer, (names, _) in LAYERS.items()
        for name in names
        if module == name or (name not in WHOLE_PACKAGES and module.startswith(name + "."))
    }
    return best[max(best, key=len)] if best else None


def imported(module: str, source: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """(line, module) of each import in `source`; only modules of the project, and bare names as they stand."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                child = f"{base}.{alias.name}"
                yield node.lineno, child if child in MODULES else base


def wrong_turns(module: str, source: str, is_package: bool = False) -> list[str]:
    """Imports that the table does not allow, in words."""
    layer = layer_of(module)
    if layer is None:
        return [f"{module} is in no layer of tests/test_import_order.py"]
    allowed = {layer, *LAYERS[layer][1]}
    wrong = []
    for line, target in imported(module, source, is_package):
        top = target.split(".")[0]
        if f"gangline.{top}" in FOLDERS:
            wrong.append(f"{module}:{line} imports bare {target}, expected gangline.{target}")
        elif top == "gangline" and "*" not in allowed and layer_of(target) not in allowed:
            wrong.append(f"{module}:{line} ({layer}) imports {target} ({layer_of(target)})")
    return wrong


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_arrow(module: str) -> None:
    path = MODULES[module]
    assert wrong_turns(module, path.read_text(), path.name == "__init__.py") == []


def test_the_table_has_no_cycle() -> None:
    done: set[str] = set()
    left = {layer: set(allowed) for layer, (_, allowed) in LAYERS.items() if allowed != ("*",)}
    while left:
        ready = [layer for layer, allowed in left.items() if allowed <= done]
        assert ready, f"layers that import each other: {sorted(left)}"
        done.update(ready)
        for layer in ready:
            del left[layer]


@pytest.mark.parametrize(
    ("module", "source", "want"),
    [
        ("gangline.envs.core.quota", "from gangline.envs.core.types import NONE\nimport numpy", 0),
        ("gangline.envs.core.quota", "from gangline.envs import action", 1),
        ("gangline.envs.core.quota", "def f():\n    from ..workloads import base", 1),
        ("gangline.envs.core.quota", "import envs.core.types", 1),
        ("gangline.envs.observation", "from gangline.envs.action import HEADS", 1),
        ("gangline.envs.reward", "from .cluster_env import ClusterEnv", 1),
        ("gangline.envs.workloads.toy", "from gangline.envs.core.trace import JobTrace", 0),
        ("gangline.baselines.kueue", "from .primitives import order\nfrom gangline.envs.core import quota", 0),
        ("gangline.baselines.kueue", "from gangline.agents import evaluate", 1),
        ("gangline.baselines.primitives.order", "from gangline.baselines import kueue", 1),
        ("gangline.envs.forgotten", "", 1),
    ],
)
def test_wrong_turns_are_seen(module: str, source: str, want: int) -> None:
    assert len(wrong_turns(module, source)) == want, wrong_turns(module, source)
