"""The documents: short where they should be, and every link, file, command and import is there."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.reference import Narrow
from rotatek import Settings
from rotatek.methods.channels import CHANNELS, LayerStates
from rotatek.methods.tokens import TOKENS

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TEXTS = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("assets/*/README.md")}
    - {ROOT / "CHANGELOG.md"}  # what it says of the past stays as it was
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN = "<!-- test: run -->\n```python\n"
PATH = re.compile(r"(?:[\w.*-]+/)+(?:[\w*-]+\.\w+)?")
BASES = (ROOT, ROOT / "rotatek")  # architecture.md names modules as they stand in the package

pytestmark = pytest.mark.unversioned
every_text = pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.relative_to(ROOT).as_posix())


def spans(path: Path) -> list[str]:
    """Inline code."""
    return re.findall(r"`([^`\n]+)`", FENCED.sub("", path.read_text()))


def commands(path: Path) -> Iterator[str]:
    """Lines of code: inline, indented, or in a block that is not Python."""
    text = path.read_text()
    yield from spans(path)
    yield from re.findall(r"^ {4}(\S.*)", text, re.MULTILINE)
    for language, block in FENCED.findall(text):
        if language != "python":
            yield from block.splitlines()


def python_blocks() -> list[tuple[str, str]]:
    """(name of the text, code)."""
    found = [(path.name, block) for path in TEXTS for block in FENCED.findall(path.read_text())]
    return [(name, code) for name, (language, code) in found if language == "python"]


def anchors(path: Path) -> set[str]:
    """Headings as links name them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def test_the_readme_is_short_and_begins_with_what_spaces_need() -> None:
    text = README.read_text()
    assert text.count("\n") <= 150
    _, header, body = text.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in header.splitlines())
    assert fields["sdk"] == "gradio" and (ROOT / fields["app_file"]).exists()
    assert len(fields["short_description"]) <= 60
    assert body.startswith("\n# RotateK\n")


@every_text
def test_links_point_somewhere(path: Path) -> None:
    text = FENCED.sub("", path.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@every_text
def test_files_that_are_named_exist(path: Path) -> None:
    for span in spans(path):
        if PATH.fullmatch(span) and not span.startswith("artifacts/"):
            assert any(any(base.glob(span.rstrip("/"))) for base in BASES), span


@every_text
def test_commands_exist(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in commands(path):
        for module in re.findall(r"python -m (\w[\w.]*\w)", line):
            assert module == "pip" or find_spec(module), line
        for word in re.findall(r"(?:^|python -m )rotatek ([a-z]+)\b", line):
            assert (ROOT / "rotatek" / "cli" / f"{word}.py").exists(), line
        for script in re.findall(r"\b(?:python|sh) ([\w./-]+\.(?:py|sh))\b", line):
            assert (ROOT / script).exists(), line
        for target in re.findall(r"(?:^|\s)make ([a-z-]+)(?=\s|$)", line):
            assert target in targets, line


@pytest.mark.parametrize(("name", "code"), python_blocks())
def test_python_parses_and_its_imports_resolve(name: str, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "rotatek":
            module = import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names), name


def test_every_option_is_in_the_table_of_methods() -> None:
    text = (ROOT / "docs" / "methods.md").read_text()
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    for registry in (TOKENS, CHANNELS):
        for key, owners in registry.options().items():
            for method, option in owners:
                if method not in registry.own.values():
                    continue
                _, _, of, field, _, takes, _ = rows[key].split("|")
                assert method.label in of and field.strip() == f"`{option.name}`"
                assert all(f"`{value}`" in takes for value in option.values)


def test_the_example_of_a_method_works() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    code = text.split(RUN)[1].split("```")[0]
    made: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "docs/architecture.md", "exec"), made)
    settings = Settings(channels=made["Largest"](keep=0.25))
    keys, alive = torch.randn(1, 2, 10, 16), torch.ones(1, 32, dtype=torch.bool)
    states = LayerStates(keys, keys, torch.tensor([10]), torch.randn(1, 4, 32, 16), alive, 0)
    stored = settings.channels.compress(states).read()
    assert isinstance(stored, Narrow) and stored.keys.shape == (1, 2, 10, 4)
    assert settings.nominal_kv == 0.625
