"""The house rules that a machine can check: floors, prints, state, paths, lengths, names."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(
    path
    for folder in ("rotatek", "kernels", "viz")
    for path in (ROOT / folder).rglob("*.py")
    if not {"__pycache__", "tests"} & {*path.relative_to(ROOT).parts}
) + [path for path in [ROOT / "app.py"] if path.exists()]


# Each module may import from its own floor or any lower one. Longest prefix wins; the package
# itself is no prefix: a new module of its names its floor.
FLOORS = {
    "rotatek.errors": 0,
    "rotatek.paths": 0,
    "rotatek.bridge": 1,
    "rotatek.inputs": 1,
    "rotatek.methods": 2,
    "rotatek.cache": 3,
    "rotatek.inspect": 4,
    "rotatek.models": 4,
    "rotatek.engine": 5,
    "rotatek.evaluation": 6,
    "rotatek.pictures": 6,
    "rotatek.service": 6,
    "rotatek.page": 7,
    "rotatek.server": 7,
    "rotatek.cluster": 8,
    "rotatek.cli": 9,
    "rotatek.__main__": 10,
    "app": 10,
}
PAGE_FLOOR = FLOORS["rotatek.page"]
KERNELS_MAY_IMPORT = {"torch", "triton", "kernels"} | set(sys.stdlib_module_names)
VIZ_MAY_IMPORT = {"numpy", "viz"} | set(sys.stdlib_module_names)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor(module: str) -> int | None:
    if module == "rotatek":
        return 0
    prefix = module
    while prefix and prefix != "rotatek":
        if prefix in FLOORS:
            return FLOORS[prefix]
        prefix = prefix.rpartition(".")[0]
    return None


def imports(path: Path) -> Iterator[str]:
    """Every imported module; `from package import module` counts as package.module."""
    package = (
        module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    )
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                candidate = f"{base}.{alias.name}"
                file = ROOT / Path(*candidate.split("."))
                known = file.with_suffix(".py").exists() or file.is_dir()
                yield candidate if known else base


@pytest.mark.unversioned
@pytest.mark.parametrize("path", SHIPPED, ids=relative)
def test_imports_point_down(path: Path) -> None:
    # The package loads its public names when they are asked for, from wherever they are.
    own = max(FLOORS.values()) if module_name(path) == "rotatek" else floor(module_name(path))
    for name in imports(path):
        top = name.partition(".")[0]
        if path.is_relative_to(ROOT / "kernels"):
            assert top in KERNELS_MAY_IMPORT, f"kernels must not import {name}"
        elif path.is_relative_to(ROOT / "viz"):
            assert top in VIZ_MAY_IMPORT, f"viz must not import {name}"
        elif top in ("rotatek", "benchmarks"):
            target = floor(name)
            assert own is not None, f"{relative(path)} has no floor: add it to FLOORS"
            assert target is not None and target <= own, (
                f"{relative(path)} imports {name}, above it"
            )
        elif top == "ray":
            assert path.is_relative_to(ROOT / "rotatek" / "cluster"), f"Ray is in {relative(path)}"
        elif top in ("viz", "app", "gradio", "plotly"):
            assert own is not None and own >= PAGE_FLOOR, f"{relative(path)} must not import {name}"


def requirement_lines() -> set[str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def test_requirements_agree_with_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert requirement_lines() == {
        *project["dependencies"],
        *project["optional-dependencies"]["app"],
    }
    assert "torchvision" not in "".join(requirement_lines())


def test_nothing_heavy_or_private_is_tracked() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    present = [path for path in files if path.exists()]
    large = [relative(p) for p in present if p.stat().st_size > 10_000_000]
    assert not large, f"a Space refuses plain files above 10 MB: {large}"
    assert sum(p.stat().st_size for p in present) < 62_000_000
