"""The package goes by any name: in an installed wheel it is not called `kernels`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.dispatch import LAUNCHERS

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
    assert all(function in defined(module[1:]) for function, module in LAUNCHERS.items())
    tree = ast.parse((FOLDER / "dispatch.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    runs = [node.args[2] for node in calls if ast.unparse(node.func) == "self._run"]
    parts = [part for node in runs for part in ast.walk(node)]
    named = {part.value for part in parts if isinstance(part, ast.Constant)}
    functions = {"attend_triton", "attend_rows", "window_attention"}
    assert len(runs) == 4 and named == functions
