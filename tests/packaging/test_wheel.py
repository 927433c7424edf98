"""The wheel, built as a release builds it and installed where no checkout can be seen."""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import rotatek

pytestmark = [pytest.mark.slow, pytest.mark.unversioned]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "CITATION.cff",
    "LICENSE", "rotatek", "kernels", "viz", "assets",
)  # fmt: skip
LARGEST = 70_000_000  # bytes of a wheel: two embedded models, and little else
MADE_FOR_INSIDE = re.compile(r"(kernels|viz)(\.\w+)+")  # a module's name, as a string to import

# What a program does with the library: its own model, `generate` with the cache, a figure.
PROGRAM = """
import json, numpy, torch, rotatek, rotatek.paths
from pathlib import Path
from rotatek.viz import spectrum
engine = rotatek.Engine("pocket")
request = rotatek.make_request(rotatek.open_image(Path("picture.png")), "What is the total?", 16)
prompt = engine.vlm.prompt(request)
inputs = {"input_ids": prompt.ids, **prompt.pixels.tensors}
inputs["attention_mask"] = torch.ones_like(prompt.ids)
inputs["mm_token_type_ids"] = prompt.visual.int()
options = {"max_new_tokens": 16, "do_sample": False}
sizes = []
for keep in (1.0, 0.25):
    settings = rotatek.Settings.from_dict({"keep_channels": keep})
    cache = rotatek.RotateKCache(engine.vlm.model, inputs, settings)
    engine.vlm.model.generate(**inputs, **options, cache=cache)
    sizes.append(cache.bytes().total)
*_, last = engine.answer(request, settings)
covariance = last.trace.layers[0].covariance[0]
drawing = spectrum.draw(numpy.linalg.eigvalsh(covariance)[::-1], 32)
print(json.dumps({
    "from": [rotatek.__file__, spectrum.__file__, str(rotatek.paths.assets())],
    "sizes": sizes, "answer": last.answer, "reading": drawing.reading,
}))
"""

# Every module by its name. Three need what the wheel does not bring: lmms-eval.
IMPORTS = """
import importlib, json, pkgutil, sys
import transformers, rotatek
failed = {}
for module in pkgutil.walk_packages(rotatek.__path__, "rotatek."):
    if "lmms" in module.name or "plugin" in module.name or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except Exception as error:
        failed[module.name] = repr(error)
tops = sorted({name.partition(".")[0] for name in sys.modules} & {"kernels", "viz", "tests", "app"})
print(json.dumps({"failed": failed, "tops": tops}))
"""


class Installed(NamedTuple):
    """The built files, and a program that runs with the installed wheel."""

    wheel: Path
    sdist: Path
    run: Callable[..., "subprocess.CompletedProcess[str]"]


def away(*command: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command as a stranger would, without the tests' own environment."""
    ours = ("PYTHONPATH", "TRITON_INTERPRET")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True,
        encoding="utf-8", timeout=280,
    )  # fmt: skip


def checked(*command: object, cwd: Path) -> str:
    result = away(*command, cwd=cwd)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """sdist and wheel from a copy of the sources, installed in an environment of its own.

    The dependencies are those of the running environment, whose site-packages are added as plain
    folders: a .pth file inside them, such as that of the editable checkout, is not followed.
    """
    folder = tmp_path_factory.mktemp("wheel")
    source, dist, elsewhere = folder / "source", folder / "dist", folder / "elsewhere"
    source.mkdir()
    elsewhere.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source / name)
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source)
    checked(*build, cwd=elsewhere)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")

    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    checked(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=elsewhere)
    (package,) = (folder / "venv").rglob("site-packages/rotatek")
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (package.parent / "dependencies.pth").write_text("\n".join(folders), encoding="utf-8")

    def run(script: str, *words: object) -> "subprocess.CompletedProcess[str]":
        return away(python.with_name(script), *words, cwd=elsewhere)

    shutil.copy(ROOT / "assets" / "examples" / "receipt.png", elsewhere / "picture.png")
    return Installed(wheel, sdist, run)


def test_the_wheel_holds_one_package_and_its_data(installed: Installed) -> None:
    size = installed.wheel.stat().st_size
    assert size < LARGEST, f"{size:,} bytes"
    with zipfile.ZipFile(installed.wheel) as archive:
        names = archive.namelist()
        top = archive.read(next(n for n in names if n.endswith("top_level.txt"))).decode()
    assert top.split() == ["rotatek"]
    version = f"rotatek-{rotatek.__version__}"
    assert {name.partition("/")[0] for name in names} == {"rotatek", f"{version}.dist-info"}
    inside = {name.removeprefix("rotatek/") for name in names}
    scripts = ("style.css", "page.js", "figures.js")
    for name in (*scripts, "examples/index.json"):
        assert f"assets/{name}" in inside
    for model in ("pocket", "pocket-smol"):
        own = {path.name for path in (ROOT / "assets" / model).glob("*")}
        assert {f"assets/{model}/{name}" for name in own} <= inside
    unwanted = ("pocket/", "benchmarks/attention", "assets/fonts")
    assert not [name for name in inside if name.startswith(unwanted)]


def test_no_module_imports_a_package_of_the_checkout(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        modules = {n: archive.read(n) for n in archive.namelist() if n.endswith(".py")}
    assert "rotatek/kernels/dispatch.py" in modules and "rotatek/viz/head_heatmap.py" in modules
    for name, source in modules.items():
        for node in ast.walk(ast.parse(source)):
            found = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found = [node.module or ""]
            tops = {module.partition(".")[0] for module in found}
            assert not tops & {"kernels", "viz", "tests", "app"}, f"{name}: {found}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not MADE_FOR_INSIDE.fullmatch(node.value), f"{name}: {node.value!r}"


def test_the_source_archive_builds_that_wheel(installed: Installed) -> None:
    """`python -m build` makes the wheel from the archive, so what is in one was in the other."""
    with tarfile.open(installed.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "kernels/dispatch.py", "assets/pocket/config.json", "CHANGELOG.md"} <= names
    assert not [name for name in names if name.startswith(("pocket/", "tests/"))]


def test_an_index_takes_both(installed: Installed, tmp_path: Path) -> None:
    files = (installed.wheel, installed.sdist)
    said = checked(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=tmp_path)
    assert said.count("PASSED") == 2
    with zipfile.ZipFile(installed.wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/METADATA"))
        _, _, readme = archive.read(name).decode().partition("\n\n")
    assert readme.startswith("# RotateK\n")
    assert "](assets/" not in readme


def test_ask_answers_from_the_wheel(installed: Installed) -> None:
    question = "What is the name of the shop?"
    result = installed.run("rotatek", "ask", "picture.png", question)
    assert (result.returncode, result.stdout) == (0, "Harbour Café\n"), result.stderr
    assert result.stderr == ""


def test_a_program_generates_and_draws_from_the_wheel(installed: Installed) -> None:
    result = installed.run("python", "-c", PROGRAM)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    for path in said["from"]:
        assert "site-packages" in path and not Path(path).is_relative_to(ROOT)
    whole, quarter = said["sizes"]
    assert 0 < quarter < whole
    assert "20.10" in said["answer"]
    assert said["reading"]


def test_every_module_can_be_imported_and_no_name_is_taken(installed: Installed) -> None:
    """With transformers, which searches for a package named kernels."""
    result = installed.run("python", "-c", IMPORTS)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert said["tops"] == []
    assert said["failed"] == {}


def test_imports_are_changed_where_python_finds_them() -> None:
    spec = importlib.util.spec_from_file_location("setup_script", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    source = (
        '"""é: from kernels import this."""\n'
        "import viz, kernels.reference as truth\n"
        "from kernels import dispatch  # from viz\n"
        "from . import viz as own\n"
        "if True: from viz.theme import size; x = 'import kernels'\n"
        "from kernels_of_others import y\n"
    )
    expected = (
        '"""é: from kernels import this."""\n'
        "import rotatek.viz as viz, rotatek.kernels.reference as truth\n"
        "from rotatek.kernels import dispatch  # from viz\n"
        "from . import viz as own\n"
        "if True: from rotatek.viz.theme import size; x = 'import kernels'\n"
        "from kernels_of_others import y\n"
    )
    assert script.renamed(source.encode(), "module.py").decode() == expected
    assert script.renamed(expected.encode(), "module.py").decode() == expected
    for unclear in (b"import kernels.reference\n", b"from  kernels import dispatch\n"):
        with pytest.raises(SyntaxError, match="line 1: write"):
            script.renamed(unclear, "module.py")
