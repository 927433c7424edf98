"""Figures: they match the data, stay small, and have colours that everyone can distinguish."""

import base64
import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest

from rotatek.methods.channels import CHANNELS, RotateK, SparK
from rotatek.methods.tokens import TOKENS
from rotatek.page.plot_transport import packed, packed_array
from viz import budget, frontier, head_heatmap, image_overlay, keys, scores, spectrum, theme

COLOURS = sorted(
    {theme.NEUTRAL}
    | {method.colour for method in CHANNELS.own.values()}
    | {pruner.colour for pruner in TOKENS.own.values()}
)
BASIC_TRACES = {"heatmap", "scatter", "bar"}


def make_keys(n: int = 200, d: int = 128) -> np.ndarray:
    """Low-rank Keys with two loud channels, 40 and 100."""
    noise = np.random.default_rng(0)
    low = noise.normal(size=(n, 6)) @ noise.normal(size=(6, d))
    low[:, 40] += 30.0
    low[:, 100] -= 25.0
    return low.astype(np.float32)


def rotate(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centred Keys in their eigenbasis, and the eigenvalues, largest first."""
    centred = raw - raw.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    return centred @ vectors[:, ::-1], values[::-1]


def every_drawing() -> dict[str, theme.Drawing]:
    raw = make_keys()
    rotated, values = rotate(raw)
    noise = np.random.default_rng(1)
    under = image_overlay.Backdrop("rk:picture", 120, 200)
    curve = np.linspace(0, 1, 129)
    part = np.array([0.2, 0.4])
    before, after = keys.draw_pair(raw, rotated, 32)
    return {
        "raw": before,
        "rotated": after,
        "mask": keys.draw_mask(noise.random((200, 128)) < 0.25, SparK),
        "spectrum": spectrum.draw(values, 32),
        "spectrum with level": spectrum.draw(values, 32, level=1e-3),
        "map": head_heatmap.draw(noise.random((6, 2)), "energy", 1, 0),
        "kept": image_overlay.draw_kept(under, noise.random((6, 10)) < 0.5),
        "attention": image_overlay.draw_attention(under, noise.random((6, 10)) / 100),
        "budget": budget.draw({"A": {"visual_keys": 10, "text": 3}, "B": {"visual_keys": 5}}),
        "scores": scores.draw(curve, curve + 0.1, RotateK),
        "frontier": frontier.draw(
            [frontier.Line(RotateK, part, part, part - 0.1, part + 0.1)], 0.95
        ),
    }


@pytest.mark.parametrize("name,drawing", every_drawing().items())
def test_every_figure_is_transparent_basic_and_described(name: str, drawing: theme.Drawing) -> None:
    go.Figure(data=drawing.figure.data, layout=drawing.figure.layout)  # plotly checks each entry
    sent = json.loads(json.dumps(packed(drawing.figure._asdict())))
    assert {trace["type"] for trace in sent["data"]} <= BASIC_TRACES
    assert sent["layout"]["paper_bgcolor"] == sent["layout"]["plot_bgcolor"] == "rgba(0,0,0,0)"
    assert sent["layout"]["height"] >= 120
    assert drawing.reading.endswith(".") and 20 < len(drawing.reading) < 260
    assert len(drawing.summary) > 40
    assert not re.search(r"nan|inf\b", drawing.reading + drawing.summary)


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
    sent = packed_array(values)
    assert isinstance(sent, dict)
    arrived = np.frombuffer(base64.b64decode(sent["bdata"]), dtype="<" + sent["dtype"])
    assert arrived.itemsize <= 4
    assert np.array_equal(arrived.reshape(shape), values)
    assert sent.get("shape", f"{len(values)}") == ", ".join(map(str, shape))
