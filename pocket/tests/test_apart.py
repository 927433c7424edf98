"""The pocket's commands and suites are found by their names.

That the library does without it is held by `tests/unit/test_floors.py`, for every import, and by
`tests/packaging/test_wheel.py`, which imports every module where there is none.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

import pocket
from pocket.evaluation.suite import SPLITS
from rotatek.evaluation.suite import EMBEDDED, Suite, embedded

ROOT = Path(__file__).resolve().parents[2]
POCKET = ROOT / "pocket"
COMMANDS = re.findall(r"`python -m ([\w.]+)`", pocket.__doc__ or "")


def test_every_embedded_suite_is_found_by_its_name() -> None:
    assert EMBEDDED.keys() == SPLITS.keys()
    for name in EMBEDDED:
        drawn: Suite = embedded(name)(name, 2, 0, lambda *_: None)
        assert len(drawn.items) == 2 and drawn.name == f"{name} (seed 0)"


def test_the_package_names_every_command_there_is() -> None:
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for path in POCKET.rglob("*.py")
        if any(
            isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
            for node in ast.parse(path.read_text()).body
        )
    }
    assert modules == set(COMMANDS)


@pytest.mark.parametrize("name", ["training", "evaluation"])
def test_the_commands_say_what_they_take(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module(f"pocket.{name}.__main__").main
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0 and f"python -m pocket.{name}" in said
    assert "{qwen2_5_vl,smol}" in said
