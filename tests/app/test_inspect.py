"""Figures of a run: complete, equal to its bytes and its trace, and quick."""

import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import gradio as gr
import numpy as np
import pytest
from PIL import Image
from transformers.cache_utils import DynamicCache

from rotatek.compare.columns import titled
from rotatek.engine.decode import prefill
from rotatek.engine.engine import Engine
from rotatek.inputs.request import make_request
from rotatek.inputs.token_grid import Grid
from rotatek.inspect import trace_analysis
from rotatek.inspect.trace import Trace
from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.spark import SparK
from rotatek.methods.settings import Settings
from rotatek.page.binding import Widgets
from rotatek.page.form import values_of
from rotatek.page.inspect import drawings, events, widgets
from rotatek.service.model_list import Model
from rotatek.service.run import Run
from rotatek.service.service import Service
from tests.families import tiny_gemma4
from tests.fixtures import Picture, present
from tests.unit.test_trace import FirstChannels
from viz import head_heatmap

TRACE = Trace((), (), 0, (), 2)
CHOSEN = Settings.of(tokens="fastv", keep_tokens=0.5, keep_channels=0.25)


@pytest.fixture(scope="module")
def run(service: Service) -> Run:
    noise = np.random.default_rng(3).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((168, 112))
    *_, last = service.ask("tiny", image, "Which?", titled(CHOSEN, []), 6)
    return last


def form(**changed: Any) -> dict[str, Any]:
    """The settings' widgets at half of the channels, or as changed."""
    return values_of(Settings.of(keep_channels=0.5)) | changed


def figures(payload: str) -> dict[str, Any]:
    return json.loads(payload)["figures"]


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
        assert sent.keys() == widgets.titles().keys() - {"kept"}
        assert all(drawn["data"] and drawn["reading"] for drawn in sent.values())
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
    service = Service([Model("tiny", "Tiny", "nowhere")], lambda source: Engine(vlm))
    image = picture(168, 112)
    *_, run = service.ask("tiny", image, "Which?", titled(Settings.of(keep_channels=0.5), []), 6)
    trace, plain = present(run.trace), DynamicCache(config=vlm.model.config)
    assert trace.shape == (6, 2) and [trace.heads(layer) for layer in range(6)] == [2, 1] * 3
    prompt = vlm.prompt(make_request(image, "Which?", 6))
    prefill(vlm, vlm.embed(prompt), plain)
    for layer, head in np.ndindex(trace.shape):
        if head == trace.heads(layer):
            for changed in (events.redraw, events.step_through):
                shows = ("energy",) if changed is events.redraw else ()
                with pytest.raises(gr.Error, match="head must be a number below 1, as layer"):
                    changed(run, *shows, layer, head, 0, **form())
            continue
        keys = plain.layers[layer].keys[0, head, prompt.visual[0]]
        view = present(events.view_of(run, (layer, head, 0), form()))
        seen = trace_analysis.head_view(trace, layer, head, view.method, view.k)
        assert np.allclose(seen.raw, keys.abs(), atol=2e-2)
        assert seen.rotated.shape == seen.raw.shape and view.k == keys.shape[-1] / 2
        sent = figures(events.redraw(run, "error", layer, head, 0, **form())["drawn"])
        assert f"Layer {layer}, head {head}:" in sent["map"]["reading"]
    for quantity in head_heatmap.QUANTITIES:
        drawn = drawings.head_map(present(events.view_of(run, (0, 0, 0), form())), quantity).figure
        assert np.isnan(drawn.data[0]["z"]).tolist() == [[False] * 6, [False, True] * 3]
        assert {"no such head"} == set(drawn.data[0]["customdata"][1, 1::2])


def test_the_picture_travels_once_and_later_figures_name_it(run: Run) -> None:
    sent = events.overview(run)["overview"]
    (name,) = json.loads(sent)["pictures"]
    later = events.redraw(run, "energy", 1, 0, 0, **form())["drawn"]
    assert figures(sent).keys() == {"budget", "kept"}
    for drawn in (figures(sent)["kept"], figures(later)["attention"]):
        assert drawn["layout"]["images"][0]["source"] == f"rk:{name}"
    assert json.loads(later)["pictures"] == {} and len(later) < 400_000


def named(*grids: Grid) -> tuple[list[str], str]:
    trace = replace(TRACE, grids=grids)
    return drawings.frames_of(trace), events.frame_slider(trace)["label"]


def test_views_of_a_picture_are_told_from_pictures() -> None:
    one = Grid(2, 2)
    assert named(one)[0] == []
    assert named(one, Grid(4, 4)) == (["view 1 of 2", "view 2 of 2"], "View of the picture")
    later = replace(one, picture=1)
    assert named(one, later) == (["picture 1", "picture 2"], "Picture")
    mixed = ["picture 1", "view 1 of picture 2", "view 2 of picture 2"]
    assert named(one, later, later) == (mixed, "Picture")


def test_the_chosen_method_s_own_options_are_drawn(run: Run) -> None:
    view = present(events.view_of(run, (0, 0, 0), form(channels="spark", recovery="mean")))
    spark = view.methods["spark"]
    assert isinstance(spark, SparK) and spark.recovery == "mean" and view.chosen.name == "spark"
    assert view.method == CHANNELS.default().with_keep(0.5) and view.k == 16
    whole = present(events.view_of(run, (0, 0, 0), form(channels="full")))
    assert whole.method == view.method  # the rotation, as its own widgets have it


def test_every_method_has_a_mask_also_one_of_another_package(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = dict(CHANNELS.all) | {FirstChannels.name: FirstChannels}
    monkeypatch.setitem(vars(CHANNELS), "all", MappingProxyType(more))
    with gr.Blocks():
        widgets.add_inspection(Widgets())
    frame = drawings.mask_frame("first")
    assert widgets.titles()[frame] == "First channels: what it keeps"
    assert sum(widgets.frame_rows(), []).count(frame) == 1
    sent = figures(events.redraw(run, "energy", 1, 0, 0, **form())["drawn"])
    assert {frame, *map(drawings.mask_frame, ("rotatek", "think", "spark"))} <= sent.keys()
    assert "First channels keeps" in sent[frame]["reading"]
