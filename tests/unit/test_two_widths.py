"""Layers whose heads differ in width share one budget of bits, as Gemma 4's do."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from kernels.planes import Planes
from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.state_layers import key_layers
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.cache_file import ALIGNED
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import decode_one_token, prefill
from rotatek.engine.engine import Engine
from rotatek.inputs.request import make_request
from rotatek.methods.calibration import PREFILL, Calibrator
from rotatek.methods.channels import RotateK, byte_budget
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.bit_allocation import BitDemand, allot_bytes, allot_groups
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import Embedded, VisionLanguageModel, collate
from rotatek.pictures import Pictures
from tests.families import tiny_gemma4, tiny_smolvlm
from tests.fixtures import Picture, tokens_of
from tests.unit.test_left_alone import GREEDY, asked, untouched
from tests.unit.test_serving import asked_at_once
from tests.unit.test_times_smaller import NEAR, states, stores, weight

MODELS: dict[str, Any] = {
    "borrowed layers": tiny_gemma4,
    "a window, and fewer wide heads": partial(
        tiny_gemma4, window=40, shared=0, attention_k_eq_v=True, num_global_key_value_heads=1
    ),
}
BITS = {
    "bits": Settings.of(bits=1.5),
    "few bits": Settings.of(bits=0.5),
    "smaller": Settings.of(smaller=4),
    "8-bit text": Settings.of(bits=2, text_dtype="int8", text_window=16),
    "fastv": Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.5, bits=2),
    "layer by layer": Settings.of(bits=2, allot="layers"),
}
NEW = 8


@pytest.fixture(scope="module", params=MODELS)
def vlm(request: pytest.FixtureRequest) -> VisionLanguageModel:
    return MODELS[request.param]()


@pytest.fixture(autouse=True)
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers end at their limit alone."""
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())


def shown(vlm: VisionLanguageModel, picture: Picture, number: int = 0) -> Embedded:
    size = ((100, 80), (60, 150), (150, 60))[number]
    question = "what is it? " * (number % 2 + 1)
    return vlm.embed(vlm.prompt(make_request(picture(*size, seed=number), question, NEW)))


def filled(vlm: VisionLanguageModel, embedded: Embedded, settings: Settings) -> RotateKCache:
    cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    prefill(vlm, embedded, cache)
    return cache


def sides(cache: RotateKCache) -> list[Planes]:
    visuals = [layer.store.visual for layer in key_layers(cache)]
    return [planes for one in visuals for planes in (one.key_planes, one.value_planes)]


# The budget


def test_a_wide_head_earns_what_a_narrow_one_of_that_spectrum_earns() -> None:
    """Its further channels have nothing to gain; budgets count the numbers that are there."""
    torch.manual_seed(0)
    loss = torch.rand(3, 2, 2, 64).sort(-1, descending=True).values
    wide = torch.cat([loss, torch.zeros(3, 2, 2, 64)], -1)
    tokens = torch.tensor([[300, 120]] * 3)
    both = [BitDemand(loss, tokens, 68, 64), BitDemand(wide, tokens, 68, 128)]
    alike = [BitDemand(loss, tokens, 68, 64), BitDemand(loss, tokens, 68, 128)]
    for found, wanted in (
        (allot_groups(both, 1.0), allot_groups(alike, 1.0)),
        (allot_bytes(both, torch.tensor([9e4, 5e4])), allot_bytes(alike, torch.tensor([9e4, 5e4]))),
    ):
        assert torch.equal(found[0], wanted[0]) and not found[1][..., 4:].any()
        assert torch.equal(found[1][..., :4], wanted[1])
    narrow = [each._replace(loss=each.loss[..., :32], width=32) for each in both]
    spent = sum(int(each.sum()) for each in allot_groups([narrow[0], both[1]], 1.0))
    few = 2 * 3 * 2 * (32 + 128) // 16  # groups' bits at a mean of one, were tokens alike
    assert 0.9 * few <= spent <= 1.1 * few


def test_the_mean_is_that_of_all_numbers(vlm: VisionLanguageModel, picture: Picture) -> None:
    cache = filled(vlm, shown(vlm, picture), BITS["bits"])
    spent = numbers = 0
    for layer in key_layers(cache):
        visual, width = layer.store.visual, layer.store.visual.mean.shape[-1]
        tokens = int(visual.lengths.sum())
        for planes in (visual.key_planes, visual.value_planes):
            spent += 2 * int(planes.counts.sum()) * tokens
            numbers += planes.counts.shape[1] * width * tokens
    assert {layer.store.visual.mean.shape[-1] for layer in key_layers(cache)} == {32, 64}
    assert 0.9 * 1.5 <= spent / numbers <= 1.5


@pytest.mark.parametrize("times", [4, 8, 16])
@pytest.mark.parametrize("tokens", [280, 1100])
def test_live_bytes_are_within_three_percent_of_what_was_asked(times: int, tokens: int) -> None:
    """Five layers of narrow heads to one of wide ones, as Gemma 4 has them."""
    shapes = [(6, 2, 4, 128)] * 5 + [(6, 1, 4, 256)]
    layers = [states(i, [tokens], shape, torch.bfloat16) for i, shape in enumerate(shapes)]
    whole = sum(2 * kv * d * 2 * tokens for _, kv, _, d in shapes)
    assert whole / weight(stores(RotateK(smaller=times), layers)) == pytest.approx(times, rel=NEAR)


def test_bits_do_not_depend_on_how_a_model_writes_its_scale(picture: Picture) -> None:
    """Queries twice as large under half the scale are the same attention."""
    counts: list[list[Tensor]] = []
    for times in (1.0, 2.0):
        vlm = tiny_gemma4(shared=0)
        for layer in vlm.model.get_decoder().layers:
            layer.self_attn.q_norm.weight.data *= times
            layer.self_attn.scaling /= times
        cache = filled(vlm, shown(vlm, picture), BITS["bits"])
        counts.append([planes.counts for planes in sides(cache)])
    assert all(map(torch.equal, *counts))


def test_queries_are_recorded_at_the_scale_of_scores(picture: Picture) -> None:
    """Over sqrt(d) they give the attention of the model, whose own scale is 1."""
    vlm, found = tiny_gemma4(shared=0), list[LayerStates]()
    embedded = shown(vlm, picture)
    cache = RotateKCache(vlm.model, embedded.inputs(), BITS["bits"])
    for layer in key_layers(cache):
        layer.filling.recorder = type("", (), {"record": staticmethod(found.append)})()
    asking: list[Tensor] = []
    first = vlm.model.get_decoder().layers[1].self_attn
    first.q_norm.register_forward_hook(lambda _, __, out: asking.append(out))
    prefill(vlm, embedded, cache)
    assert first.scaling == 1
    own = asking[0].transpose(1, 2)[:, :, -1].norm(dim=-1)  # rotation keeps lengths
    assert torch.allclose(found[1].queries[:, :, -1].norm(dim=-1) / 64**0.5, own, rtol=1e-4)


# Answers


@pytest.mark.parametrize("options", [{"keep_channels": 1.0}, {"bits": 16.0}])
def test_all_of_it_is_plain_transformers(
    vlm: VisionLanguageModel, picture: Picture, options: dict[str, float]
) -> None:
    model, inputs = untouched(vlm), asked(vlm, picture)
    cache = RotateKCache(model, inputs, Settings.of(**options))
    out = model.generate(**inputs, **with_cache(model, cache), **GREEDY)
    assert torch.equal(out, model.generate(**inputs, **GREEDY))


def test_eight_bits_are_near(vlm: VisionLanguageModel, picture: Picture) -> None:
    embedded = shown(vlm, picture)
    caches = [filled(vlm, embedded, one) for one in (BASELINE_LIKE, Settings.of(bits=8))]
    token, place = torch.tensor([7]), embedded.next_position
    full, eight = (decode_one_token(vlm, token, place, cache, None) for cache in caches)
    assert float((full - eight).norm() / full.norm()) < 0.02


BASELINE_LIKE = Settings.of(channels="full", keep_channels=1.0)


@pytest.mark.parametrize("name", BITS)
def test_a_batch_is_its_prompts(vlm: VisionLanguageModel, picture: Picture, name: str) -> None:
    prompts = [shown(vlm, picture, number) for number in range(3)]
    batch = collate(prompts)
    together = filled(vlm, batch, BITS[name])
    token = torch.tensor([7, 7, 7])
    found = decode_one_token(vlm, token, batch.next_position, together, None)
    for row, single in enumerate(prompts):
        alone = filled(vlm, single, BITS[name])
        wanted = decode_one_token(vlm, token[:1], single.next_position, alone, None)
        assert torch.allclose(found[row], wanted[0], atol=1e-2), row  # a digit may round away


@pytest.mark.parametrize("graphs", [False, True])
def test_answers_under_load_are_those_given_alone(
    vlm: VisionLanguageModel, picture: Picture, recorded: list, graphs: bool
) -> None:
    """Rows of every form come and go; a captured step serves them."""
    work = [
        (
            make_request(picture(90 + 20 * n, 120, seed=n), f"question {n} " * (1 + n % 3), 4 + n),
            {name: BITS[name]} | ({"plain": BASELINE} if n == 2 else {}),
        )
        for n, name in enumerate([*BITS, "bits", "bits"])
    ]
    alone = [tokens_of(list(Engine(vlm).compare(*one))) for one in work]
    engine = Engine(vlm)
    engine.graphs = engine.scheduler.graphs = graphs
    assert asked_at_once(engine, work) == alone
    assert bool(recorded) == graphs and engine.state().live_bytes == 0


@pytest.mark.parametrize(
    ("made", "times"),
    [(tiny_smolvlm, 2), (MODELS["a window, and fewer wide heads"], 4)],
    ids=["one width", "two"],
)
def test_keys_without_rows_beside_values_with_them_are_served_together(
    made: Any, times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of the side that has rows of a basis lie in a pool of their own, as those rows do."""
    monkeypatch.setattr(byte_budget, "WIDE", 0)
    vlm, settings, work = made(), Settings.of(smaller=times), []
    for n in range(3):
        noise = np.random.default_rng(n).integers(0, 255, (220, 200 + 20 * n, 3), dtype=np.uint8)
        request = make_request(Image.fromarray(noise), f"question {n} " * (1 + n), NEW)
        work.append((request, {"k": settings}))
    embedded = vlm.embed(vlm.prompt(work[0][0]))
    kept = [layer.store.unturned for layer in key_layers(filled(vlm, embedded, settings))]
    assert set(kept) == {"k"}
    alone = [tokens_of(list(Engine(vlm).compare(*one))) for one in work]
    assert asked_at_once(Engine(vlm), work) == alone


def test_a_replayed_generation_says_the_same(
    vlm: VisionLanguageModel, picture: Picture, recorded: list
) -> None:
    inputs, said = asked(vlm, picture), []
    for graph in (False, True):
        cache = RotateKCache(vlm.model, inputs, BITS["bits"])
        cache.graph = graph
        said.append(vlm.model.generate(**inputs, **with_cache(vlm.model, cache), **GREEDY))
    assert torch.equal(*said) and len(recorded) == 1


def test_axes_of_a_calibration_serve_both_widths(
    vlm: VisionLanguageModel, picture: Picture, tmp_path: Path
) -> None:
    learned, path, embedded = Calibrator(), tmp_path / "axes.safetensors", shown(vlm, picture)
    inputs = embedded.inputs()
    prefill(vlm, embedded, RotateKCache(vlm.model, inputs, PREFILL, recorder=learned))
    learned.save(path, vlm.name)
    settings = Settings.of(bits=1.5, calibration=str(path))
    own, shared = (filled(vlm, embedded, one) for one in (BITS["bits"], settings))
    assert {planes.basis.shape[1] for planes in sides(shared)} == {32, 64}
    assert shared.bytes().total < own.bytes().total
    requests = [(make_request(picture(100, 80), "what? " * n, NEW), {"k": settings})
                for n in (1, 2)]  # fmt: skip
    alone = [tokens_of(list(Engine(vlm).compare(*one))) for one in requests]
    assert asked_at_once(Engine(vlm), requests) == alone


# What goes on from a cache


@torch.inference_mode()
def test_a_cache_goes_on_from_a_file_and_from_a_copy(
    vlm: VisionLanguageModel, picture: Picture, tmp_path: Path
) -> None:
    embedded = shown(vlm, picture)
    cache = filled(vlm, embedded, BITS["bits"])
    cache.save(tmp_path / "file")
    twins = [cache, cache.fork(), RotateKCache.load(tmp_path / "file", vlm.model)]
    plain, copied, loaded = ([t for _, t in one.tensors()] for one in twins)
    assert storage_bytes(plain) == storage_bytes(copied)
    gaps = storage_bytes(loaded) - storage_bytes(plain)  # a file's tensors share storages
    assert 0 <= gaps < ALIGNED * len(loaded)
    token, place = torch.tensor([7]), embedded.next_position
    first, *others = (decode_one_token(vlm, token, place, one, None) for one in twins)
    assert all(torch.equal(first, other) for other in others)


def test_a_stored_picture_answers_as_its_own_cache(
    vlm: VisionLanguageModel, picture: Picture, tmp_path: Path
) -> None:
    said = []
    for _ in range(2):  # made, then opened again
        pictures = Pictures(Engine(vlm), BITS["bits"], tmp_path / "store")
        name = pictures.add(picture(150, 120))
        said.append(pictures.ask([name], "what is it?", NEW))
    assert said[0] == said[1] and said[0]


# Bytes


@pytest.mark.parametrize("name", BITS)
def test_live_bytes_are_those_of_the_tensors(
    vlm: VisionLanguageModel, picture: Picture, name: str
) -> None:
    cache = filled(vlm, shown(vlm, picture), BITS[name])
    total = cache.bytes().total
    held = [*(tensor for _, tensor in cache.tensors()), *cache.marks()]
    assert total == storage_bytes(held)
