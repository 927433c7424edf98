"""The package outside, and fresh processes in which it is installed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
METADATA = "Metadata-Version: 2.1\nName: own-methods\nVersion: 1.0\n"
ENTRY_POINTS = """\
[rotatek.channels]
loudest = own_methods:Loudest

[rotatek.tokens]
stride = own_methods:Stride
"""


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the package as an installer would leave it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(Path(__file__).with_name("own_methods.py"), folder)
    about = folder / "own_methods-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(METADATA)
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture(scope="session")
def with_package(package: Path) -> Callable[..., str]:
    """Runs Python's own arguments in a fresh process that has the package; what it prints."""

    def run(*words: str) -> str:
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(package), str(ROOT))),
            "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "COLUMNS": "100",
        }  # fmt: skip
        env.pop("TRITON_INTERPRET", None)
        done = subprocess.run(
            [sys.executable, *words],
            cwd=package, env=env, capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.fixture
def said(with_package: Callable[..., str]) -> Callable[[str], str]:
    """The output of lines of code in such a process."""
    return lambda code: with_package("-c", code)


@pytest.fixture(scope="session")
def receipt() -> str:
    """A picture that the embedded model can read."""
    return str(ROOT / "assets" / "examples" / "receipt.png")
