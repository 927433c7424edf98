"""Every example runs in a fresh process on the CPU, and says what its docstring promises."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SAID = {
    "generate.py": ["uncompressed", "KV 0.25", "20.10"],
    "compare.py": ["baseline", "only", "Museum visitors 2025"],
    "ask_a_folder.py": ["8 pages", "Harbour", "20.10"],
    "evaluate_own_method.py": ["Loudest channels", "RotateK", "same answers, %"],
    "upload_to_heatmap.ipynb": ["uncompressed", "compressed", "channels kept"],
}

pytestmark = [pytest.mark.slow, pytest.mark.unversioned]


def outside(*words: str, folder: Path) -> str:
    """The output of a fresh process, started in `folder`, without a GPU or the network."""
    env = os.environ | {
        "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)
    }  # fmt: skip
    env.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def code_of(notebook: Path) -> list[str]:
    """The code cells of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_runs(script: Path, tmp_path: Path) -> None:
    lines = script.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60 and f"    python examples/{script.name}" in lines[2]
    said = outside(str(script), folder=tmp_path)
    assert all(words in said for words in SAID[script.name]), said


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebooks_cells_run(notebook: Path, tmp_path: Path) -> None:
    """One after the other in one process, as Jupyter would, from the notebook's own folder."""
    cells = tmp_path / "cells.json"
    cells.write_text(json.dumps(code_of(notebook)), encoding="utf-8")
    code = (
        "import json, pathlib\n"
        "space = {'__name__': '__main__'}\n"
        f"for cell in json.loads(pathlib.Path({str(cells)!r}).read_text()):\n"
        "    exec(compile(cell, 'cell', 'exec'), space)\n"
        "assert len(space['figure'].data) == 2 and len(space['curves'].data) == 1\n"
        "assert space['figure'].to_json()\n"
    )
    said = outside("-c", code, folder=notebook.parent)
    assert all(words in said for words in SAID[notebook.name]), said
