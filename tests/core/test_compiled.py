"""The cache of compiled code depends on every source that is compiled into it."""

import ast
from pathlib import Path

import pytest

from gangline.envs.core.compiled import _imported_files

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*(ROOT / "envs").rglob("*.py"), *(ROOT / "baselines").rglob("*.py")])


def imported(path: Path) -> set[Path]:
    """Modules of the package that a file imports, read from its syntax tree."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gangline."):
            base = (node.module or "").removeprefix("gangline.").replace(".", "/")
            found |= {ROOT / f"{base}.py", *(ROOT / base / f"{alias.name}.py" for alias in node.names)}
    return {path for path in found if path.is_file()}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_import_line_is_seen(path):
    assert set(_imported_files(path.resolve())) == imported(path)
