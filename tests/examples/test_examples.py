"""Every example says what its docstring promises, on the CPU, in a process outside the tests."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(
    path for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")
)
SAID = {
    "generate.py": ["uncompressed", "KV 0.25", "20.10"],
    "compare.py": ["baseline", "only", "Museum visitors 2025"],
    "ask_a_folder.py": ["1 pages", "receipt.png", "20.10"],
    "evaluate_own_method.py": ["Loudest channels", "RotateK", "same answers, %"],
    "upload_to_heatmap.ipynb": ["uncompressed", "compressed", "channels kept"],
}
# Each with its arguments, as if it were alone; a notebook's cells as Jupyter would run them, from
# its own folder.
RUN = """
import json, os, pathlib, runpy, sys
for path, *given in json.loads(sys.argv[1]):
    print("=====", path, flush=True)
    if path.endswith(".py"):
        sys.argv[:] = [path, *given]
        runpy.run_path(path, run_name="__main__")
        continue
    os.chdir(pathlib.Path(path).parent)
    space = {"__name__": "__main__"}
    for cell in json.loads(pathlib.Path(path).read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "cell", "exec"), space)
    assert len(space["figure"].data) == 2 and len(space["curves"].data) == 1
    assert space["figure"].to_json()
"""

pytestmark = [pytest.mark.slow, pytest.mark.unversioned]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each example prints: all in one process, without a GPU or the network."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("pictures", "suite"):
        (folder / name).mkdir()
        shutil.copy(ROOT / "assets" / "examples" / "receipt.png", folder / name)
    row = {"image": "receipt.png", "question": "What is the total?", "answers": ["20.10"]}
    row |= {"metric": "anls", "category": "documents", "split": "handmade"}
    (folder / "suite" / "questions.jsonl").write_text(json.dumps(row) + "\n")
    given = {"ask_a_folder.py": ["pictures"], "evaluate_own_method.py": ["suite"]}
    jobs = [[str(path), *given.get(path.name, [])] for path in EXAMPLES]
    env = os.environ | {
        "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)
    }  # fmt: skip
    env.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(jobs)], cwd=folder, env=env, capture_output=True,
        text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    parts = (part.partition("\n") for part in done.stdout.split("===== ")[1:])
    return {Path(path).name: text for path, _, text in parts}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path, said: dict[str, str]) -> None:
    assert all(words in said[path.name] for words in SAID[path.name]), said[path.name]
