"""The package goes by any name: in an installed wheel it is not called `kernels`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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
