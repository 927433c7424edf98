"""Offline bases: made from many prompts, saved, and used in place of the online ones."""

from pathlib import Path

import pytest
import torch

from rotatek.bridge.state_layers import key_layers
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import prefill
from rotatek.errors import CalibrationUnusable
from rotatek.inputs.request import make_request
from rotatek.methods.calibration import Calibrator
from rotatek.methods.rotation import load_bases
from rotatek.methods.settings import Settings
from rotatek.models import Embedded, VisionLanguageModel
from tests.families import EVERY
from tests.fixtures import Picture
from tests.greedy import decode


def _run(
    vlm: VisionLanguageModel,
    embedded: Embedded,
    settings: Settings,
    recorder: Calibrator | None = None,
) -> tuple[list[int], RotateKCache]:
    cache = RotateKCache(vlm.model, embedded.inputs(), settings, recorder=recorder)
    logits, _ = prefill(vlm, embedded, cache)
    tokens = [s.tokens[0] for s in decode(vlm, embedded, cache, logits, 6)]
    return tokens, cache


@pytest.mark.parametrize(("family", "layers"), [("qwen2_5_vl", 4), ("qwen3_5", 2)])
def test_calibrated_on_itself_equals_online(
    family: str, layers: int, picture: Picture, tmp_path: Path
) -> None:
    vlm = EVERY[family]()
    embedded = vlm.embed(vlm.prompt(make_request(picture(200, 150), "what?", 6)))
    online = Settings.of(keep_channels=0.25, solver="eigh")
    calibrator = Calibrator()
    wanted, cache = _run(vlm, embedded, online, calibrator)
    path = tmp_path / "bases.safetensors"
    calibrator.save(path, vlm.name)
    bases = load_bases(path, layers)
    assert calibrator.samples == 1
    for layer, basis in zip(key_layers(cache), bases, strict=True):
        mine = layer.store.visual.basis[0]
        assert torch.allclose(mine @ mine.mT, basis[..., :8] @ basis[..., :8].mT, atol=1e-3)
    said, _ = _run(vlm, embedded, Settings.of(keep_channels=0.25, calibration=str(path)))
    assert said == wanted


def test_what_is_no_calibration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationUnusable):
        load_bases(tmp_path / "missing.safetensors", 4)
    (tmp_path / "noise.safetensors").write_bytes(b"noise" * 9)
    with pytest.raises(CalibrationUnusable):
        load_bases(tmp_path / "noise.safetensors", 4)
    with pytest.raises(CalibrationUnusable):
        Calibrator().save(tmp_path / "x.safetensors", "none")
