"""What gets installed: the wheel holds the tree under the one name `gangline`, and no bare name gets in."""

import importlib.metadata
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {  # folder -> where it lands in the wheel
    "src/gangline": "gangline",
    "envs": "gangline/envs",
    "baselines": "gangline/baselines",
    "agents": "gangline/agents",
    "configs": "gangline/configs",
}
BARE_NAMES = ("envs", "baselines", "agents", "configs")
OLDEST_SETUPTOOLS = 77


def in_tree(*suffixes: str) -> set[str]:
    """Files with one of these suffixes, by the name they should have in the wheel."""
    return {
        f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, target in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes
    }


def of_tree(name: str) -> bool:
    """Is this wheel entry a file of the tree?"""
    return any(
        name.startswith(target + "/") and (ROOT / folder / name[len(target) + 1 :]).is_file()
        for folder, target in FOLDERS.items()
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree, so that no stale build folder gets into it."""
    if int(importlib.metadata.version("setuptools").split(".")[0]) < OLDEST_SETUPTOOLS:
        pytest.skip(f"building the wheel needs setuptools >= {OLDEST_SETUPTOOLS}")
    pytest.importorskip("build")
    copy = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, copy],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_is_the_tree(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    info = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert {name.split("/")[0] for name in names - info} == {"gangline"}
    want = in_tree(".py", ".yaml", ".conf", ".txt", ".html", ".css", ".js") | {"gangline/py.typed"}
    assert want - names == set(), "in the tree, but not in the wheel"
    assert [name for name in sorted(names - info) if not of_tree(name)] == [], "in the wheel, but not in the tree"
    assert any(name.endswith("licenses/LICENSE") for name in info)


def test_the_wheel_imports_without_the_tree(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = "import sys; sys.path.insert(0, 'site'); import gangline.envs, gangline.baselines, gangline.configs\n"
    code += "print(gangline.__file__); print(gangline.configs.__file__)"
    out = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    for line in out.stdout.split():
        assert line.startswith(str(tmp_path / "site")) or line.startswith("site"), line


def test_every_package_is_listed() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {name: Path(folder).as_posix() for name, folder in setup["package-dir"].items()} == {
        target.replace("/", "."): folder for folder, target in FOLDERS.items()
    }
    found = {name.removesuffix("/__init__.py").replace("/", ".") for name in in_tree(".py") if "__init__" in name}
    assert sorted(setup["packages"]) == sorted(found)


def test_no_bare_name_is_imported() -> None:
    """Run from the root, where a bare `import envs` would work and load a second copy."""
    code = "import sys, gangline, gangline.envs, gangline.baselines, gangline.agents, gangline.configs\n"
    code += f"print([name for name in sys.modules if name.split('.')[0] in {BARE_NAMES}])"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "[]"
