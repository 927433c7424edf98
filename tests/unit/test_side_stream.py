"""When bits are measured, allotted and packed: beside the model's work, and behind all of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rotatek.cache import side_stream
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.shared_prefill import SharedPrefill
from rotatek.engine.decode import prefill
from rotatek.engine.prefill import plan_for
from rotatek.errors import CacheNotStorable, ModeUnsupported
from rotatek.inputs.request import make_request
from rotatek.methods.channels import mixed_precision
from rotatek.methods.channels import rotatek as method_file
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import KeepAll
from rotatek.models import Embedded, VisionLanguageModel
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

BITS = Settings.of(bits=2)


class Stream:
    """Takes a CUDA stream's place, and notes who waits."""

    def __init__(self, name: str, done: list[str]) -> None:
        self.name, self.done = name, done

    def wait_stream(self, other: "Stream") -> None:
        self.done.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def vlm() -> VisionLanguageModel:
    return tiny_qwen()


@pytest.fixture
def prompt(vlm: VisionLanguageModel, picture: Picture) -> Embedded:
    return vlm.embed(vlm.prompt(make_request(picture(150, 120), "what?", 4)))


@pytest.fixture
def done(vlm: VisionLanguageModel, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens in a prefill, in order, as on a GPU."""
    found: list[str] = []
    main, side = Stream("main", found), Stream("side", found)
    read: list[Tensor] = []

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        found.append(f"on {stream.name}")
        yield
        found.append(f"off {stream.name}")

    def noted(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **more: Any) -> Any:
            found.append(name)
            return run(*given, **more)

        return wrapped

    def measured(stores: Any, *given: Any) -> Any:
        """Everything that is read is kept from being overwritten."""
        kept = {id(tensor) for tensor in read}
        for store in stores:
            assert all(id(tensor) in kept for tensor in store.pending.tensors())
            assert id(store.pending.keys) in kept and id(store.pending.text.keys) in kept
        return measure(stores, *given)

    measure = mixed_precision.measure
    monkeypatch.setattr(side_stream, "stream_beside", lambda device: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: read.append(tensor))
    monkeypatch.setattr(method_file.RotateK, "measures_aside", True)
    monkeypatch.setattr(method_file, "TOGETHER", 2)
    monkeypatch.setattr(method_file, "measure", noted("measure", measured))
    monkeypatch.setattr(method_file, "allotted", noted("allot", mixed_precision.allotted))
    monkeypatch.setattr(mixed_precision, "_planes", noted("pack", mixed_precision._planes))
    model: Any = vlm.model
    for number, layer in enumerate(model.get_decoder().layers):
        layer.mlp.register_forward_pre_hook(noted(f"mlp {number}", lambda *_: None))
    model.lm_head.register_forward_pre_hook(noted("head", lambda *_: None))
    return found


ASIDE = ["side waits for main", "on side"]
LAST = ["mlp 3", "head"]


def test_layers_are_measured_beside_the_model_and_packed_behind_it(
    vlm: VisionLanguageModel, prompt: Embedded, done: list[str]
) -> None:
    prefill(vlm, prompt, RotateKCache(vlm.model, prompt.inputs(), BITS))
    assert done == [
        *ASIDE, "off side", "mlp 0",
        *ASIDE, "measure", "off side", "mlp 1",
        *ASIDE, "off side", "mlp 2",
        *ASIDE, "measure", "allot", "off side",
        *LAST, "main waits for side", "pack",
    ]  # fmt: skip


@pytest.mark.parametrize("timed", [True, False])
def test_what_is_timed_stays_on_the_models_stream(
    vlm: VisionLanguageModel, prompt: Embedded, done: list[str], timed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(method_file, "measure", mixed_precision.measure)
    plan = plan_for(vlm, prompt, KeepAll())
    members = [RotateKCache(vlm.model, prompt.inputs(), BITS, plan=plan) for _ in range(2)]
    prefill(vlm, prompt, SharedPrefill(plan, members, timed=timed))
    assert ("on side" not in done) is timed
    assert done[done.index("head") :].count("pack") == done.count("pack") == 2
    one, other = ([t for _, t in member.tensors()] for member in members)
    assert all(map(torch.equal, one, other))


@pytest.mark.usefixtures("done")
def test_layers_measured_a_few_at_a_time_are_stored_the_same(
    vlm: VisionLanguageModel, prompt: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def filled() -> list[Tensor]:
        cache = RotateKCache(vlm.model, prompt.inputs(), BITS)
        prefill(vlm, prompt, cache)
        return [tensor for _, tensor in cache.tensors()]

    apart = filled()
    monkeypatch.setattr(method_file, "measure", mixed_precision.measure)
    monkeypatch.setattr(side_stream, "stream_beside", lambda device: None)
    for mine, its in zip(apart, filled(), strict=True):
        if mine.is_floating_point():
            assert torch.allclose(mine.double(), its.double(), rtol=1e-4, atol=1e-6)
        else:  # another order of sums may round a digit to its neighbour
            assert (mine != its).double().mean() < 0.01


def test_a_prefill_whose_head_fails_is_refused_until_it_is_reset(
    vlm: VisionLanguageModel, prompt: Embedded, tmp_path: Path
) -> None:
    model: Any = vlm.model

    def fail(*_: Any) -> None:
        raise RuntimeError("no memory")

    cache = RotateKCache(vlm.model, prompt.inputs(), BITS)
    hook = model.lm_head.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        prefill(vlm, prompt, cache)
    hook.remove()
    with pytest.raises(ModeUnsupported, match="broke off"):
        prefill(vlm, prompt, cache)
    with pytest.raises(CacheNotStorable):
        cache.save(tmp_path / "cache")
    cache.reset()
    prefill(vlm, prompt, cache)
    whole = RotateKCache(vlm.model, prompt.inputs(), BITS)
    prefill(vlm, prompt, whole)
    pairs = zip(cache.tensors(), whole.tensors(), strict=True)
    assert all(torch.equal(mine, its) for (_, mine), (_, its) in pairs)
