"""What is drawn of a run: complete, in step with its bytes and its trace, and quick."""

import json
import time
import urllib.request
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rotatek.channels.spark import Spark
from rotatek.page import inside, lens, plots
from rotatek.page.run import Run, columns_for
from rotatek.page.service import Service
from rotatek.settings import Settings
from viz import headmap

CHOSEN = Settings.of(tokens="fastv", keep_tokens=0.5, keep_channels=0.25)


@pytest.fixture(scope="module")
def run(service: Service) -> Run:
    noise = np.random.default_rng(3).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((168, 112))
    *_, last = service.ask("tiny", image, "Which?", columns_for(CHOSEN, []), 6)
    return last


AT = (0.5, "paper", 0.0, False, "model")  # as `lens.settings_at` takes them


def figures(payload: str) -> dict[str, Any]:
    return json.loads(payload)["figures"]


def test_budget_bars_add_up_to_the_badges(run: Run) -> None:
    drawn = inside.budget_drawing(run).figure
    for index, column in enumerate(run.columns.values()):
        held = sum(float(trace["x"][index]) for trace in drawn.data)
        assert held == pytest.approx(column.finished.metrics["kv_bytes"], rel=5e-3)
    visual = {trace["name"]: trace["x"][0] for trace in drawn.data}
    assert visual["visual K"] == visual["visual V"] == run.full_visual_bytes / 2


def test_every_head_can_be_drawn_at_every_width(run: Run) -> None:
    layers, heads = run.trace.shape
    for layer in range(layers):
        sent = figures(lens.redraw(run, "energy", layer, layer % heads, 0, *AT))
        assert sent.keys() == lens.FIGURES.keys() - {"kept"}
        assert all(drawn["data"] and drawn["reading"] for drawn in sent.values())
    for sparsity in (0.0, 0.97):
        for weighting in ("paper", "none", "consistent"):
            for quantity in headmap.QUANTITIES:
                lens.redraw(run, quantity, 0, 0, 0, sparsity, weighting, 0.5, True, "model")
    far = figures(lens.redraw(run, "energy", 99, 99, 99, *AT))  # a crafted client's layer
    assert f"Layer {layers - 1}" in far["map"]["reading"]


def test_the_picture_travels_once_and_later_figures_name_it(run: Run) -> None:
    *_, sent = lens.overview(run)
    (name,) = json.loads(sent)["pictures"]
    later = lens.redraw(run, "energy", 1, 0, 0, *AT)
    assert figures(sent).keys() == {"budget", "kept"}
    for drawn in (figures(sent)["kept"], figures(later)["attention"]):
        assert drawn["layout"]["images"][0]["source"] == f"rk:{name}"
    assert json.loads(later)["pictures"] == {} and len(later) < 400_000


@pytest.mark.alone
def test_redrawing_is_quick(run: Run) -> None:
    lens.redraw(run, "energy", 0, 0, 0, *AT)
    taken = []
    for layer in (1, 2, 3):
        started = time.perf_counter()
        lens.redraw(run, "energy", layer, 1, 0, *AT)
        taken.append(time.perf_counter() - started)
    assert min(taken) < 0.1


def test_the_answer_can_be_stepped_through(run: Run) -> None:
    pieces, steps = inside.answer_tokens(run, run.trace)
    assert steps == list(range(len(steps))) and len(steps) >= len(pieces) == 6
    seen = set()
    for step in range(len(steps)):
        sent, said = lens.relook(run, 1, 0, step, *AT)
        assert figures(sent).keys() == {"attention", "compressed", "scores"}
        assert f"token {step + 1} of 6" in said and said.count("<mark>") == 1
        seen.add(json.dumps(figures(sent)["attention"]["data"]))
    assert len(seen) == len(steps)


def test_an_answer_is_never_markup_beside_its_slider() -> None:
    html = lens.words(["<b>", "a<script>", "&"], [0, 2], 1)
    assert "&lt;b&gt;a&lt;script&gt;<mark>&amp;</mark>" in html
    assert "<mark>\u00b7</mark>" in lens.words(["", "a"], [0], 0)  # a token without letters


def test_energy_curves_rise_to_one_and_rotation_leads(run: Run) -> None:
    view = run.trace.head(1, 0, CHOSEN)
    curves = inside.energy_curves(run.trace.layers[1], 0, view, CHOSEN)
    for name, curve in curves.items():
        assert curve[0] == 0 and curve[-1] == pytest.approx(1, abs=1e-3)
        assert name == "spark" or (np.diff(curve) >= -1e-6).all()
    assert (curves["rotatek"] >= curves["think"] - 5e-3).all()


def test_spark_s_curve_is_that_of_its_own_store(run: Run) -> None:
    layer, head = run.trace.layers[1], 0
    keys = torch.from_numpy(layer.keys[head].astype(np.float32))[None, None]
    group = layer.queries.shape[0] // layer.keys.shape[0]
    queries = torch.from_numpy(layer.queries[:group].astype(np.float32))[None]
    alive = torch.ones(1, queries.shape[2], dtype=torch.bool)
    lengths = torch.tensor([keys.shape[2]])
    settings = Settings.of(channels="spark", keep_channels=0.25)
    store = Spark().compress(LayerStates(keys, keys, lengths, queries, alive, 1), settings)
    error = (store.read().keys - keys)[0, 0].numpy()
    whole, ones = keys[0, 0].numpy(), np.ones(keys.shape[3])
    spread = np.square(whole - whole.mean(0)).sum()
    kept = 1 - np.square(error - error.mean(0)).sum() / spread
    curve = inside.spark_curve(whole, inside.group_norms(layer, head), ones, keys.shape[3] // 4)
    assert curve[keys.shape[3] // 4] == pytest.approx(kept, abs=1e-3)


def test_map_agrees_with_the_trace(run: Run) -> None:
    energies = inside.spectra(run, run.trace, CHOSEN)[2, 1]
    view = run.trace.head(2, 1, CHOSEN)
    assert np.allclose(energies / energies.sum(), view.spectrum, atol=1e-4)


@pytest.mark.parametrize("cell", ["", "1", "1,2", "a,b,c", "1,2,3,4", "-1,0,3", "1" * 40 + ",0,1"])
def test_a_click_that_is_none_changes_nothing(cell: str) -> None:
    assert all(not isinstance(value, int) for value in lens.pick(cell))
    assert lens.pick("3,1,1700000000000") == (3, 1)


def test_nothing_is_drawn_before_there_is_a_run() -> None:
    assert not isinstance(lens.redraw(None, "energy", 0, 0, 0, *AT), str)
    assert not any(isinstance(value, str) for value in lens.relook(None, 0, 0, 0, *AT))
    assert not any(isinstance(value, str) for value in lens.overview(None))


def test_plotly_is_served_from_here_compressed_and_for_good(address: str) -> None:
    request = urllib.request.Request(
        f"{address}{plots.PLOTLY_URL}", headers={"Accept-Encoding": "gzip"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        body = answer.read()
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["Content-Encoding"] == "gzip"
    assert len(body) < 2_000_000 and body == plots.plotly_source()[1]
    with urllib.request.urlopen(f"{address}{plots.PLOTLY_URL}", timeout=10) as answer:
        assert answer.read() == plots.plotly_source()[0]
