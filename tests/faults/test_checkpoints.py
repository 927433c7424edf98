"""Checkpoints that are damaged, incomplete or foreign: each is refused in a sentence, and none
runs code of its own."""

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rotatek import errors
from rotatek.models import load
from rotatek.models.loading import card_line
from tests.tiny import save_small_pocket


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with random weights, in two shards as the shipped one is in several."""
    path = tmp_path_factory.mktemp("saved")
    save_small_pocket(path)
    return path


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def shard(path: Path) -> Path:
    return sorted(path.glob("*.safetensors"))[0]


def cut(path: Path) -> None:
    shard(path).write_bytes(shard(path).read_bytes()[:100_000])


def scribble(path: Path) -> None:
    data = bytearray(shard(path).read_bytes())
    data[:8] = b"\xff" * 8
    shard(path).write_bytes(data)


def empty(path: Path) -> None:
    shard(path).write_bytes(b"")


def typed(kind: str) -> Callable[[Path], object]:
    return lambda path: (path / "config.json").write_text(f'{{"model_type": "{kind}"}}')


BROKEN: dict[str, tuple[Callable[[Path], object], type[errors.UserError], str]] = {
    "no folder": (shutil.rmtree, errors.WeightsMissing, "There is no model"),
    "no weights": (lambda path: shard(path).unlink(), errors.WeightsMissing, "not all there"),
    "no configuration": (
        lambda path: (path / "config.json").unlink(), errors.WeightsMissing, "There is no model",
    ),
    "half a configuration": (
        lambda path: (path / "config.json").write_text('{"model_ty'),
        errors.WeightsMissing,
        "not all there",
    ),
    "cut weights": (cut, errors.WeightsDamaged, ""),
    "scribbled weights": (scribble, errors.WeightsDamaged, ""),
    "empty weights": (empty, errors.WeightsDamaged, ""),
    "a model that sees nothing": (typed("bert"), errors.ModelUnsupported, "no image-text-to-text"),
    "a type of tomorrow": (typed("tomorrow_vl"), errors.ModelUnsupported, "a newer transformers"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_checkpoints(name: str, copy: Path) -> None:
    damage, kind, says = BROKEN[name]
    damage(copy)
    with pytest.raises(errors.UserError) as caught:
        load(copy, "cpu")
    said = caught.value.message
    assert type(caught.value) is kind and says in said
    assert "Traceback" not in said and "0x" not in said and str(copy.parent) not in said


def test_code_of_a_checkpoint_is_neither_run_nor_offered(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default transformers asks at the terminal."""
    asked: list[str] = []

    def agree(text: str = "") -> str:
        asked.append(text)
        return "y"

    monkeypatch.setattr("builtins.input", agree)
    own = {"auto_map": {"AutoConfig": "own.Own", "AutoTokenizer": ["own.Own", "own.Own"]}}
    (copy / "own.py").write_text("raise SystemExit")
    file = copy / "tokenizer_config.json"
    named = {**json.loads(file.read_text()), **own, "tokenizer_class": "OwnTokenizer"}
    file.write_text(json.dumps(named))
    with contextlib.suppress(errors.UserError):
        load(copy, "cpu")
    (copy / "config.json").write_text(json.dumps({"model_type": "own", **own}))
    for look in (load, card_line):
        with pytest.raises(errors.ModelUnsupported, match="a checkpoint's own code is not run"):
            look(str(copy))
    assert not asked
