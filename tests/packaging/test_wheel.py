"""The wheel, built as a release builds it and installed where no checkout can be seen."""

import json
import os
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

# What a program does with the library: its own model, `generate` with the cache, a figure. Then it
# imports every module by its name, but those of lmms-eval, which the wheel does not bring.
PROGRAM = """
import importlib, json, numpy, pkgutil, sys, torch, rotatek, rotatek.paths
from pathlib import Path
from rotatek.viz import keys
vlm = rotatek.load("pocket")
request = rotatek.make_request(rotatek.open_image(Path("picture.png")), "What is the total?", 16)
prompt = vlm.prompt(request)
inputs = {"input_ids": prompt.ids, **prompt.pixels.tensors}
inputs["attention_mask"] = torch.ones_like(prompt.ids)
inputs["mm_token_type_ids"] = prompt.visual.int()
cache = rotatek.RotateKCache(vlm.model, inputs, rotatek.Settings.of(keep_channels=0.25))
ids = vlm.model.generate(**inputs, max_new_tokens=16, do_sample=False, cache=cache)
drawing = keys.draw_spectrum(numpy.arange(128.0)[::-1], 32)
failed = {}
for module in pkgutil.walk_packages(rotatek.__path__, "rotatek."):
    if "lmms" in module.name or "plugin" in module.name or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except Exception as error:
        failed[module.name] = repr(error)
print(json.dumps({
    "from": [rotatek.__file__, keys.__file__, str(rotatek.paths.assets())],
    "share": cache.bytes().total / vlm.full_bytes(ids.shape[1]), "reading": drawing.reading,
    "answer": vlm.tokenizer.decode(ids[0, prompt.ids.shape[1]:]), "failed": failed,
    "tops": sorted({n.partition(".")[0] for n in sys.modules} & {"kernels", "viz", "tests", "app"}),
}))
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


def test_the_files_hold_one_package_and_its_data(installed: Installed, tmp_path: Path) -> None:
    """`python -m build` makes the wheel from the archive, and an index takes both."""
    size = installed.wheel.stat().st_size
    assert size < LARGEST, f"{size:,} bytes"
    with zipfile.ZipFile(installed.wheel) as archive:
        names = archive.namelist()
        top = archive.read(next(n for n in names if n.endswith("top_level.txt"))).decode()
        told = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    assert top.split() == ["rotatek"]
    version = f"rotatek-{rotatek.__version__}"
    assert {name.partition("/")[0] for name in names} == {"rotatek", f"{version}.dist-info"}
    inside = {name.removeprefix("rotatek/") for name in names}
    for name in ("style.css", "page.js", "figures.js", "examples/index.json"):
        assert f"assets/{name}" in inside
    for model in ("pocket", "pocket-smol"):
        own = {path.name for path in (ROOT / "assets" / model).glob("*")}
        assert {f"assets/{model}/{name}" for name in own} <= inside
    with tarfile.open(installed.sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "kernels/dispatch.py", "assets/pocket/config.json"} <= inside
    assert not [name for name in inside if name.startswith("tests/")]
    _, _, readme = told.partition("\n\n")
    assert readme.startswith("# RotateK\n") and "](assets/" not in readme
    files = (installed.wheel, installed.sdist)
    said = checked(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=tmp_path)
    assert said.count("PASSED") == 2


def test_ask_answers_from_the_wheel(installed: Installed) -> None:
    question = "What is the name of the shop?"
    result = installed.run("rotatek", "ask", "picture.png", question)
    assert (result.returncode, result.stdout) == (0, "Harbour Café\n"), result.stderr
    assert result.stderr == ""


def test_a_program_generates_draws_and_imports_every_module(installed: Installed) -> None:
    """With transformers, which searches for a package named kernels."""
    result = installed.run("python", "-c", PROGRAM)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    for path in said["from"]:
        assert "site-packages" in path and not Path(path).is_relative_to(ROOT)
    assert 0 < said["share"] < 0.8 and "20.10" in said["answer"] and said["reading"]
    assert said["tops"] == [] and said["failed"] == {}
