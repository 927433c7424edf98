"""The library does not need the pocket's training, and its commands are few."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pocket
from pocket.evaluation.suite import SPLITS
from rotatek.evaluation.suite import EMBEDDED, Suite, embedded

ROOT = Path(__file__).resolve().parents[2]
POCKET = ROOT / "pocket"
COMMANDS = re.findall(r"`python -m ([\w.]+)`", pocket.__doc__ or "")
GUARDED = (
    ".page",
    ".pocket",
    ".__main__",
    "lmms_model",
    "lmms_manifest",
)  # need more, or are apart


@pytest.mark.slow
def test_the_library_imports_without_it() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "rotatek").rglob("*.py"))
    ]
    library = [name for name in names if not any(word in name for word in GUARDED)]
    code = (
        "import importlib, sys\n"
        "sys.modules['pocket'] = None\n"
        f"for name in {library}: importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


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
    assert "{qwen2_5_vl,llava_next,smol}" in said
