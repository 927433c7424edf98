"""Equal live bytes: what is predicted is what is held, and every method meets the budget."""

import json
from pathlib import Path
from typing import Any

import pytest

from rotatek.cli import main as command
from rotatek.compare.equal_bytes import (
    NEAR,
    SLACK,
    Scale,
    Shape,
    matched_live,
    measured,
    predicted,
    settings_for_budget,
)
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS, Kivi, RotateK, ThinK
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.tokens import FastV, KeepAll, VisionZip
from rotatek.models import Prompt, VisionLanguageModel
from tests.fixtures import Picture

BIG = Shape(((4, 128),) * 28, visual=2880, text=60, itemsize=2)
FORMS: list[dict[str, Any]] = [
    {"channels": "kivi", "number_bits": "2"}, {"channels": "turboquant", "number_bits": "3"},
    {"channels": "think"}, {"channels": "spark"},
    {"channels": "spark", "recovery": "mean"}, {"keep_channels": 0.25},
]  # fmt: skip


def prompt_of(vlm: VisionLanguageModel, picture: Picture) -> Prompt:
    return vlm.prompt(make_request(picture(260, 220, seed=2), "what is the total?", 3))


@pytest.mark.parametrize("pruner", [KeepAll(), FastV(keep=0.5)], ids=repr)
def test_bytes_are_predicted_exactly(
    vlm: VisionLanguageModel, picture: Picture, pruner: Any
) -> None:
    prompt = prompt_of(vlm, picture)
    shape, methods = Shape.of(vlm, prompt), [Settings.of(**form).channels for form in FORMS]
    found = measured(vlm, prompt, pruner, methods)
    for method, held in zip(methods, found, strict=True):
        assert abs(predicted(Settings(pruner, method), shape) - held) <= 16, method
    assert predicted(BASELINE, shape) == vlm.full_bytes(prompt.ids.shape[1])


def test_adapting_forms_are_weighed_between_measured_points(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    prompt = prompt_of(vlm, picture)
    form = RotateK(bits=1)
    scale = Scale(vlm, prompt, [form])
    (held,) = measured(vlm, prompt, KeepAll(), [form])
    assert scale(Settings(channels=form)) == pytest.approx(held, rel=0.05)
    assert scale(Settings(channels=ThinK())) == predicted(Settings(channels=ThinK()), scale.shape)


@pytest.mark.parametrize("times", [2, 4, 8, 16, 32])
def test_every_method_meets_a_budget(times: int) -> None:
    def weigh(settings: Settings) -> float:
        return predicted(settings, BIG)

    target = BIG.budget(times)
    for name, kind in CHANNELS.items():
        least = kind().with_share(0.0) if not kind.drops_channels else kind().with_keep(0.25)
        found = settings_for_budget(least, [FastV(), VisionZip()], target, weigh)
        assert weigh(found) <= NEAR * target, name
        if found.prunes_tokens or kind.drops_channels:  # only what has steps may stay well below
            assert weigh(found) >= 0.9 * target, name
        assert found.prunes_tokens == (weigh(Settings(channels=least)) > SLACK * target)


def test_what_has_steps_keeps_the_nearest_below() -> None:
    def weigh(settings: Settings) -> float:
        return predicted(settings, BIG)

    for bits in ("2", "3", "4"):
        exact = weigh(Settings(channels=Kivi(bits=bits)))
        for target in (exact, exact * 1.05, exact / 1.01):
            found = settings_for_budget(Kivi(bits="2"), [FastV()], target, weigh)
            assert found == Settings(channels=Kivi(bits=bits))


def test_columns_of_equal_live_bytes(vlm: VisionLanguageModel, picture: Picture) -> None:
    prompt = prompt_of(vlm, picture)
    chosen = Settings.of(keep_channels=0.25)
    (target,) = measured(vlm, prompt, KeepAll(), [chosen.channels])
    columns = matched_live(chosen, target, Scale(vlm, prompt), recovery="mean")
    assert columns["rotatek"] == chosen and columns["baseline"] == BASELINE
    assert columns["spark"].as_dict()["recovery"] == "mean"
    assert {"kivi", "turboquant", "think"} < columns.keys()
    for name, settings in columns.items():
        if name != "baseline":
            (held,) = measured(vlm, prompt, settings.pruning, [settings.channels])
            assert held <= 1.1 * target, name


def test_the_command_compares_at_equal_live_bytes(
    vlm: VisionLanguageModel,
    picture: Picture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("rotatek.models.load", lambda *_, **__: vlm)
    picture(260, 220, seed=2).save(tmp_path / "picture.png")
    words = ["compare", str(tmp_path / "picture.png"), "what?", "--equal", "live", "--json"]
    assert command.main([*words, "--max-new-tokens", "2", "--keep-channels", "0.25"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ours = next(row["kv_bytes"] for row in rows if row["method"] == "rotatek")
    assert len(rows) >= 8
    assert all(row["kv_bytes"] <= 1.05 * ours for row in rows if row["method"] != "baseline")
    assert command.main([*words, "--channels", "full"]) == 2
    assert "nothing to compare" in capsys.readouterr().err
