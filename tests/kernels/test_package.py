"""The package goes by any name: in an installed wheel it is not called `kernels`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.dispatch import SOLVERS
from kernels.fused_dispatch import WORKS

FOLDER = Path(__file__).parents[2] / "kernels"


def module_names(tree: ast.AST) -> Iterator[str]:
    """Modules that a file imports absolutely, and strings that are the name of one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^[\w.]+$", node.value)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_no_file_names_its_own_package(path: Path) -> None:
    found = module_names(ast.parse(path.read_text()))
    assert not [name for name in found if re.match(r"(rotatek\.)?kernels(\.|$)", name)]


def defined(module: str) -> set[str]:
    """Functions of a module of the package."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_what_is_loaded_on_a_gpu_alone_exists() -> None:
    """Dispatchers import Triton's modules by name, at the first call on a GPU; a name that is gone
    would only be seen there, where plain PyTorch takes over."""
    loaded = 0
    for path in (FOLDER / "dispatch.py", FOLDER / "fused_dispatch.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            source = ast.unparse(function)
            for module in re.findall(r"launch = importlib.import_module\('\.(\w+)'", source):
                loaded += 1
                assert set(re.findall(r"return launch\.(\w+)", source)) <= defined(module)
    works = re.findall(r"import_module\('\.(\w+)', __package__\), work", ast.unparse(
        ast.parse((FOLDER / "fused_dispatch.py").read_text())
    ))  # fmt: skip
    assert loaded == 3 and [set(WORKS) <= defined(module) for module in works] == [True]
    assert all(work in defined(module[1:]) for work, module in SOLVERS.items())
