"""The documents: links, commands, imports, options, variables and results are as they say."""

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.reference import Narrow
from rotatek import Settings
from rotatek.cli.main import parser_for
from rotatek.evaluation import report
from rotatek.methods.channels import LayerStates
from rotatek.page.results import read

ROOT = Path(__file__).resolve().parents[2]
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "how-it-works.md"
RESULTS, DEPLOY = ROOT / "docs" / "results.md", ROOT / "DEPLOY.md"
TEXTS = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("assets/*/README.md")}
    | {ROOT / "examples" / "README.md"}
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"(?:[\w.*-]+/)+(?:[\w*-]+\.\w+)?")
BASES = (ROOT, ROOT / "rotatek")  # the guide names modules as they stand in the package

pytestmark = pytest.mark.unversioned
every_text = pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.relative_to(ROOT).as_posix())


def spans(path: Path) -> list[str]:
    """Inline code."""
    return re.findall(r"`([^`\n]+)`", FENCED.sub("", path.read_text()))


def commands(path: Path) -> Iterator[str]:
    """Lines of shell, one command each: inline, or in a block that is not Python."""
    blocks = [block for name, block in FENCED.findall(path.read_text()) if name == "bash"]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    for line in [*spans(path), *lines]:
        yield from line.partition("#")[0].split("&&")


def python_blocks(*paths: Path) -> list[tuple[str, str]]:
    """(name of the text, code)."""
    found = [(path.name, block) for path in paths for block in FENCED.findall(path.read_text())]
    return [(name, code) for name, (language, code) in found if language == "python"]


def anchors(path: Path) -> set[str]:
    """Headings as links name them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def tables(path: Path) -> Iterator[list[list[str]]]:
    """Cells of every table, the heads first."""
    for block in re.findall(r"(?:^\|.*\n)+", path.read_text(), re.MULTILINE):
        heads, _, *rows = block.splitlines()
        yield [[cell.strip() for cell in row.strip("|").split("|")] for row in (heads, *rows)]


def test_the_readme_begins_with_what_spaces_need() -> None:
    _, header, body = README.read_text().split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in header.splitlines())
    assert fields["sdk"] == "gradio" and (ROOT / fields["app_file"]).exists()
    assert len(fields["short_description"]) <= 60
    assert body.startswith("\n# RotateK\n")


@every_text
def test_links_point_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", path.read_text())):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@every_text
def test_files_that_are_named_exist(path: Path) -> None:
    for span in spans(path):
        if PATH.fullmatch(span) and not span.startswith("build/"):
            assert any(any(base.glob(span.rstrip("/"))) for base in BASES), span


@every_text
def test_commands_parse_and_the_files_that_they_read_exist(path: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in commands(path):
        words = shlex.split(line)
        for module in re.findall(r"python -m (\w[\w.]*\w)", line):
            assert module in ("pip", "lmms_eval") or find_spec(module), line
        if words[:3] == ["python", "-m", "rotatek"]:
            parser_for(words[3:]).parse_args(words[3:])
        elif words[:3] == ["python", "-m", "benchmarks"]:
            parser = argparse.ArgumentParser()
            parser.add_argument("name")
            parser.add_argument("--json")
            if "--help" not in words:
                import_module(f"benchmarks.{words[3].replace('-', '_')}").arguments(parser)
                parser.parse_args(words[3:])
        elif words[:1] == ["rotatek"] and words[1:]:
            assert (ROOT / "rotatek" / "cli" / f"{words[1]}.py").exists(), line
        elif "make" in words:
            for target in words[words.index("make") + 1 :]:
                assert target in targets, line
        for name in words:
            if name.startswith(("assets/", "deploy/", "examples/", "tests/")):
                assert any(ROOT.glob(name)), line


@pytest.mark.parametrize(("name", "code"), python_blocks(*TEXTS))
def test_python_parses_and_its_imports_resolve(name: str, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "rotatek":
            module = import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names), name


def test_the_methods_that_are_written_out_work() -> None:
    keys, alive = torch.randn(1, 2, 10, 64), torch.ones(1, 32, dtype=torch.bool)
    states = LayerStates(keys, keys, torch.tensor([10]), torch.randn(1, 4, 32, 64), alive, 0)
    for path, kept in ((README, 32), (GUIDE, 16)):
        code = next(code for _, code in python_blocks(path) if "ChannelMethod)" in code)
        made: dict[str, Any] = {"__name__": "example"}
        exec(compile(code, path.name, "exec"), made)
        settings = Settings(channels=made["Largest"]())
        stored = settings.channels.compress(states).read()
        loud = keys.square().sum(2).topk(kept).indices.sort().values
        assert isinstance(stored, Narrow)
        assert torch.equal(stored.keys, keys.gather(-1, loud[:, :, None].expand(-1, -1, 10, -1)))


@pytest.mark.parametrize("path", [README, RESULTS], ids=lambda path: path.name)
def test_results_are_those_of_the_file_of_answers(path: Path) -> None:
    """Follow-up questions' figures."""
    file, checked = ROOT / "assets" / "results" / "answers.csv.gz", 0
    known = {(one.model, one.setting): one for mine in read(file).values() for one in mine}
    parts = {"bytes": "bytes", "score, %": "score", "same, %": "same", "KL": "kl"}
    for heads, *rows in tables(path):
        for cells in rows if heads[0] == "setting" else ():
            for head, cell in zip(heads[1:], cells[1:], strict=True):
                model, _, kind = head.rpartition(": ")
                found = known.get((model or "pocket", cells[0]))
                if found is None or not cell or kind not in parts:
                    continue
                value = getattr(found, parts[kind]) * (100 if "%" in kind else 1)
                digits = len(cell.partition(".")[2])
                assert abs(float(cell) - value) <= 0.501 * 10**-digits, (cells[0], head)
                checked += 1
    assert checked >= 18
    if path == README:
        text, usual = path.read_text(), known["pocket", "RotateK, smaller 4"]
        assert f"{100 * usual.same:.1f} % of `pocket`'s" in text
        assert f"{usual.questions} follow-up questions" in text
    else:
        assert report.figure(report.rows(file)) == (file.parent / "figure.svg").read_text()
