"""Averaged models: who stays in the mean, and what is written."""

import json
from pathlib import Path

import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from pocket.models.config import build_model, model_config, save_model
from pocket.training import averaging
from pocket.training.options import arguments
from pocket.training.running_mean import RunningMean
from pocket.training.smol_trainer import SmolTrainer
from rotatek.models.assembly import stored


class Distance:
    """A loss that is least where the weights are 0."""

    def loss(self, weights: list[torch.Tensor]) -> float:
        return sum(float(w.square().sum()) for w in weights)


def test_a_model_stays_if_the_mean_with_it_is_better() -> None:
    values = {"far": (4.0, 0.0), "right": (1.0, -1.0), "left": (-1.0, -1.1), "up": (0.2, 1.9)}
    models = {name: [torch.tensor(v)] for name, v in values.items()}
    chosen, losses = averaging.greedy(models, Distance())
    assert chosen == ["right", "left", "up"]
    assert losses["right + left + up"] == min(losses.values())
    assert losses["right + left + up + far"] > losses["right + left + up"]
    assert averaging.greedy({"one": models["far"]}, Distance())[0] == ["one"]


@pytest.mark.slow
@pytest.mark.unversioned  # what is saved is read by a test of its own
def test_the_mean_is_written_and_its_loss_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = model_config(2, 2, 256, 128)
    folders = [tmp_path / name for name in "ab"]
    for seed, folder in enumerate(folders):
        model = build_model(config, 1)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.1 * seed)
        save_model(model, folder)
    options = ["--tiny", "--batches", "2", "--cost", "160"]
    averaging.main([str(tmp_path / "mean"), *map(str, folders), *options])
    told = json.loads(capsys.readouterr().err.strip().splitlines()[-1])
    assert set(told["averaged"]) <= set(map(str, folders))
    assert len(told["answer_loss"]) == 3
    least = min(told["answer_loss"].values())
    assert least == told["answer_loss"][" + ".join(told["averaged"])]
    averaging.main([str(tmp_path / "all"), *map(str, folders), "--all", "--tiny"])
    told = json.loads(capsys.readouterr().err.strip().splitlines()[-1])
    assert told == {"averaged": [*map(str, folders)], "answer_loss": {}}
    *given, untried = (
        Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        for folder in (*folders, tmp_path / "all")
    )
    half = [(a + b) / 2 for a, b in zip(*(m.parameters() for m in given), strict=True)]
    for a, b in zip(half, untried.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0.07, atol=2e-3)  # stored in eight bits
    made = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "mean")
    assert sum(p.numel() for p in made.parameters()) == sum(p.numel() for p in model.parameters())


def test_a_share_of_another_model_is_mixed_in(tmp_path: Path) -> None:
    config = model_config(2, 2, 256, 128)
    for name in "ab":
        save_model(build_model(config, ord(name)), tmp_path / name)
    mixed = ["--all", "--tiny", "--beside", str(tmp_path / "b"), "0.25"]
    averaging.main([str(tmp_path / "out"), str(tmp_path / "a"), *mixed])
    own, other, out = (
        Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / name, dtype=torch.float32)
        for name in ("a", "b", "out")
    )
    for a, b, made in zip(own.parameters(), other.parameters(), out.parameters(), strict=True):
        assert torch.allclose(0.75 * a + 0.25 * b, made, rtol=0.07, atol=2e-3)


def test_parts_of_the_third_model_are_averaged(tmp_path: Path) -> None:
    for seed in (1, 2):
        trainer = SmolTrainer(
            arguments(["--family", "smol", "--tiny", "--out", str(tmp_path), "--seed", str(seed)]),
            0,
            1,
        )
        with torch.no_grad():
            for p in trainer.model.parameters():
                p.add_(torch.randn_like(p) * 0.1 * seed)
        trainer.write(trainer.model, tmp_path / str(seed))
    folders = [tmp_path / name for name in "12"]
    averaging.main(
        [str(tmp_path / "out"), *map(str, folders), "--family", "smol", "--tiny", "--all"]
    )
    one, other, made = (stored(folder) for folder in (*folders, tmp_path / "out"))
    for name, value in made.items():
        half = (one[name].float() + other[name].float()) / 2
        assert torch.allclose(half, value.float(), rtol=0.07, atol=2e-3)


def test_a_running_mean_is_of_the_last_steps() -> None:
    weight = torch.zeros(1)
    mean = RunningMean([weight], 0.25)
    for step in range(1, 401):
        weight.fill_(float(step))
        mean.add()
    assert 300 < float(mean.mean[0]) < 340  # a power of the step, whose mean lags by a fifth
    again = RunningMean([weight], 0.25)
    again.resume(mean.state())
    with again.in_place():
        assert torch.equal(weight, mean.mean[0])
    assert float(weight) == 400
    constant = RunningMean([torch.ones(3)], 0.1)
    constant.add()
    assert torch.equal(constant.mean[0], torch.ones(3))
