"""Figures of a run: complete, equal to its bytes and its trace, and quick."""

import base64
import json
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image
from transformers.cache_utils import DynamicCache

from rotatek import Engine, Settings, errors, make_request
from rotatek.engine.passes import prefill
from rotatek.errors import SettingError
from rotatek.inspect import trace_analysis
from rotatek.inspect.trace import Trace
from rotatek.methods.channels import CHANNELS, RotateK
from rotatek.methods.channels.what_if import WhatIf
from rotatek.methods.settings import titled
from rotatek.methods.tokens import TOKENS
from rotatek.page.inspect import drawings, events
from rotatek.page.inspect.events import HeadEvents, choose_head
from rotatek.page.markup import packed
from rotatek.page.page_context import PageContext
from rotatek.page.settings import columns_of, values_of
from rotatek.service.service import Run, Service
from tests.families import tiny_gemma4
from tests.fixtures import Picture, present
from tests.served import service_of
from viz import budget, head_heatmap, keys, theme

TRACE = Trace((), (), 0, ())
CHOSEN = Settings.of(tokens="fastv", keep_tokens=0.5, keep_channels=0.25)


@pytest.fixture(scope="module")
def run(service: Service, image: Image.Image) -> Run:
    *_, last = service.ask("tiny", image, "Which?", titled(CHOSEN, []), 6)
    return last


def form(**changed: Any) -> dict[str, Any]:
    """The settings' widgets at half of the channels, or as changed."""
    return values_of(Settings.of(keep_channels=0.5)) | changed


def figures(payload: str) -> dict[str, Any]:
    return json.loads(payload)["figures"]


class Asked(NamedTuple):
    """Who measures a run's heads."""

    events: HeadEvents
    run: Run

    def measure(self, shows: str = "damage", **changed: Any) -> list[dict[str, Any]]:
        return list(self.events.measure(self.run, shows, 0, 0, session="me", **form(**changed)))


def test_budget_bars_add_up_to_the_badges(run: Run) -> None:
    drawn = drawings.budget_drawing(run).figure
    for index, column in enumerate(run.columns.values()):
        held = sum(float(trace["x"][index]) for trace in drawn.data)
        assert held == pytest.approx(present(column.finished).metrics["kv_bytes"], rel=5e-3)
    visual = {trace["name"]: trace["x"][0] for trace in drawn.data}
    filled = present(next(iter(run.columns.values())).prefilled)
    a_token = filled.kv_bytes_full // filled.prompt_tokens
    assert visual["visual K"] == visual["visual V"] == filled.visual_tokens * a_token / 2


def test_every_head_can_be_drawn_at_every_width(run: Run) -> None:
    layers, heads = present(run.trace).shape
    for layer in range(layers):
        sent = figures(events.redraw(run, "energy", layer, layer % heads, 0, **form())["drawn"])
        assert sent.keys() == {*events.TITLES, *drawings.mask_frames()} - {"kept"}
        for drawn in sent.values():
            assert drawn["data"] and drawn["reading"]
            go.Figure(data=drawn["data"], layout=drawn["layout"])  # plotly checks each entry
    for sparsity in (0.0, 0.97):
        for weighting in ("paper", "none"):
            settings = form(keep_channels=sparsity, weighting=weighting)
            for quantity in head_heatmap.QUANTITIES:
                assert events.redraw(run, quantity, 0, 0, 0, **settings)
    far = events.redraw(run, "energy", 99, 99, 99, **form())["drawn"]  # a crafted client's layer
    assert f"Layer {layers - 1}" in figures(far)["map"]["reading"]


def test_layers_with_fewer_heads_show_theirs(picture: Picture) -> None:
    """In Gemma 4 full layers may have fewer Key heads than those with a window."""
    vlm = tiny_gemma4(shared=0, attention_k_eq_v=True, num_global_key_value_heads=1)
    service = service_of(Engine(vlm))
    image = picture(168, 112)
    *_, run = service.ask("tiny", image, "Which?", titled(Settings.of(keep_channels=0.5), []), 6)
    trace, plain = present(run.trace), DynamicCache(config=vlm.model.config)
    assert trace.shape == (6, 2) and [trace.heads(layer) for layer in range(6)] == [2, 1] * 3
    prompt = vlm.prompt(make_request(image, "Which?", 6))
    prefill(vlm, vlm.embed(prompt), plain)
    for layer, head in np.ndindex(trace.shape):
        if head == trace.heads(layer):
            both = partial(events.redraw, run, "energy"), partial(events.step_through, run)
            for changed in both:
                with pytest.raises(SettingError, match="head must be a number below 1, as layer"):
                    changed(layer, head, 0, **form())
            continue
        keys = plain.layers[layer].keys[0, head, prompt.visual[0]]
        view = present(events.view_of(run, (layer, head, 0), form()))
        seen = trace_analysis.head_view(trace, layer, head, view.method)
        assert np.allclose(seen.raw, keys.abs(), atol=2e-2)
        assert seen.rotated.shape == seen.raw.shape and view.k == keys.shape[-1] / 2
        sent = figures(events.redraw(run, "error", layer, head, 0, **form())["drawn"])
        assert f"Layer {layer}, head {head}:" in sent["map"]["reading"]
    assert len(Asked(HeadEvents(PageContext(service)), run).measure()) == 6 + 1
    for quantity in head_heatmap.QUANTITIES:
        drawn = drawings.head_map(present(events.view_of(run, (0, 0, 0), form())), quantity).figure
        assert np.isnan(drawn.data[0]["z"]).tolist() == [[False] * 6, [False, True] * 3]
        assert {"nothing here"} == set(drawn.data[0]["customdata"][1, 1::2])


def test_the_picture_travels_once_and_later_figures_name_it(run: Run) -> None:
    sent = events.overview(run)["overview"]
    (name,) = json.loads(sent)["pictures"]
    later = events.redraw(run, "energy", 1, 0, 0, **form())["drawn"]
    assert figures(sent).keys() == {"budget", "kept"}
    for drawn in (figures(sent)["kept"], figures(later)["attention"]):
        assert drawn["layout"]["images"][0]["source"] == f"rk:{name}"
    assert json.loads(later)["pictures"] == {} and len(later) < 400_000


def test_measuring_is_stopped_and_refused_in_a_sentence(service: Service, run: Run) -> None:
    fresh, events_ = replace(run, memory={}), HeadEvents(PageContext(service))
    for shown in events_.measure(fresh, "damage", 0, 0, session="me", **form()):
        if "2 of 8" in shown["damage_said"]:
            events_.stop(session="me")
    assert errors.Stopped.sentence in shown["damage_said"] and not service.busy()

    class Elsewhere(Engine):
        """As where the model is in another process."""

    vlm = service.engine("tiny").vlm
    far = service_of(Elsewhere(vlm))
    *_, last = Asked(HeadEvents(PageContext(far)), fresh).measure()
    assert errors.DamageElsewhere.sentence in last["damage_said"]


def test_chosen_heads_make_a_column() -> None:
    one = choose_head("leave", 3, 1, [])["what_if"]["value"]
    two = choose_head("leave", 0, 1, one)["what_if"]
    assert two["value"] == ["leave:3.1", "leave:0.1"] and two["visible"]
    assert two["choices"][0][0] == "Layer 3, head 1 whole"
    *_, leave = columns_of(CHOSEN, 4, (), two["value"]).items()
    like = RotateK(keep=0.25)
    heads = frozenset({(0, 1), (3, 1)})
    assert leave == ("FastV + RotateK (0.1, 3.1 whole)",
                     Settings(CHOSEN.tokens, WhatIf(like, heads, whole=True)))  # fmt: skip
    only = choose_head("only", 2, 0, two["value"])["what_if"]["value"]
    *_, column = columns_of(CHOSEN, 4, (), only).values()
    assert only == ["only:2.0"] and column == Settings(channels=WhatIf(like, frozenset({(2, 0)})))
    for bad in (["leave:3"], ["leave:1.1", "only:1.1"], ["../etc"]):
        with pytest.raises(SettingError):
            columns_of(CHOSEN, 4, (), bad)


# -- colours, key maps and arrays --------------------------------------------------------------

COLOURS = sorted(
    {theme.NEUTRAL}
    | {method.colour for method in CHANNELS.own.values()}
    | {pruner.colour for pruner in TOKENS.own.values()}
)


def luminance(hex_colour: str) -> float:
    channel = np.array([int(hex_colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_lines_and_numbers_can_be_read_on_both_grounds_and_on_the_bars() -> None:
    lines = [theme.INK, theme.SECOND, keys.LOUD, *COLOURS]
    pairs = [(line, ground, 3.0) for line in lines for ground in ("#ffffff", "#0d1117")]
    for one, other, least in [*pairs, *((a, b, 4.5) for _, a, b in budget.PARTS.values())]:
        dark, light = sorted((luminance(one), luminance(other)))
        assert (light + 0.05) / (dark + 0.05) >= least, (one, other)


def test_a_key_map_of_2880_tokens_stays_small_and_loses_no_peak() -> None:
    raw = np.zeros((2880, 128), dtype=np.float32)
    raw[1717, 77] = 5.0
    drawing, _ = keys.draw_pair(raw, raw, 128)
    shown = drawing.figure.data[0]["z"]
    assert shown.dtype == np.uint8 and shown.shape == (keys.MAX_ROWS, 128)
    assert shown[:, 77].max() == 255 and (shown > 0).sum() == 1
    assert len(json.dumps(packed(drawing.figure._asdict()))) < 70_000
    row = int(shown[:, 77].argmax())
    trace = drawing.figure.data[0]
    assert abs(trace["y0"] + row * trace["dy"] - 1717) <= trace["dy"]


@pytest.mark.parametrize("kind", ["uint8", "int64", "float64", "bool", ">f4", "int16"])
@pytest.mark.parametrize("shape", [(7,), (3, 5)])
def test_arrays_travel_as_bytes_and_arrive_whole(kind: str, shape: tuple[int, ...]) -> None:
    values = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(kind)
    sent = packed(values)
    assert isinstance(sent, dict)
    arrived = np.frombuffer(base64.b64decode(sent["bdata"]), dtype="<" + sent["dtype"])
    assert arrived.itemsize <= 4
    assert np.array_equal(arrived.reshape(shape), values)
    assert sent.get("shape", f"{len(values)}") == ", ".join(map(str, shape))
