"""Vision MLPs whose columns no tensor core reads at once are padded, and say the same."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from rotatek.inputs.request import make_request
from rotatek.models import loading
from tests.fixtures import Picture
from tests.tiny import tiny_qwen


def _narrowed(columns: int) -> tuple:
    """A tiny model whose vision MLPs have so many columns, and pixels."""
    vlm = tiny_qwen()
    for block in vlm.model.model.visual.blocks:
        for name, shape in (("gate_proj", (columns, 64)), ("up_proj", (columns, 64))):
            setattr(block.mlp, name, nn.Linear(shape[1], shape[0]))
        block.mlp.down_proj = nn.Linear(columns, 64)
    return vlm, [block.mlp for block in vlm.model.model.visual.blocks]


@pytest.mark.parametrize(("columns", "padded"), [(44, 64), (72, 72), (90, 128)])
@torch.inference_mode()
def test_columns_are_padded_to_whole_tiles(columns: int, padded: int, picture: Picture) -> None:
    vlm, mlps = _narrowed(columns)
    pixels = vlm.look(make_request(picture(90, 120, seed=1), "what?", 1))
    before = vlm.features(pixels)
    vlm.optimise_for_gpu()
    assert {mlp.gate_proj.out_features for mlp in mlps} == {padded}
    assert {tuple(mlp.down_proj.weight.shape) for mlp in mlps} == {(64, padded)}
    assert {mlp.up_proj.bias.numel() for mlp in mlps} == {padded}
    torch.testing.assert_close(vlm.features(pixels), before)
    vlm.optimise_for_gpu()  # again changes nothing
    assert {mlp.gate_proj.out_features for mlp in mlps} == {padded}


def test_layers_of_another_kind_stay() -> None:
    """Weights of four bits are no matrix that can be padded."""
    vlm, mlps = _narrowed(44)

    class FourBit(nn.Linear):
        """As bitsandbytes' layers, which are Linear ones by name."""

    for mlp in mlps:
        mlp.up_proj = FourBit(64, 44)
    vlm.optimise_for_gpu()
    assert {mlp.gate_proj.out_features for mlp in mlps} == {44}


@pytest.mark.parametrize(("device", "times"), [("cpu", 0), ("cuda", 1)])
def test_loading_suits_a_gpu(device: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor layers and weights stay as they are in the checkpoint."""
    suited: list[str] = []
    where = SimpleNamespace(
        device=torch.device(device),
        optimise_for_gpu=lambda: suited.append(device),
        check=lambda: None,
    )
    images = SimpleNamespace(from_pretrained=lambda *_, **__: None)
    family = SimpleNamespace(adapter=lambda *_: where, images=images)
    monkeypatch.setattr(loading, "family_of", lambda _: family)
    assert loading.load("pocket", "cpu") is where
    assert suited == times * [device]
