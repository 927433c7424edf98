"""Pieces of HTML that every part of the page is made of, and how figures reach the browser: frames
that stay, one JSON payload, and plotly from this server. What a visitor wrote is escaped.

`assets/figures.js` draws: Gradio's own plot component builds every figure anew, a second for ten of
them; plotly's `react` changes what is there.
"""

import base64
import gzip
import io
import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import gradio as gr
import numpy as np
import plotly
from PIL import Image
from starlette.requests import Request
from starlette.responses import Response

from viz import Drawing

PLOTLY_URL: Final = f"rotatek/plotly-{version('plotly')}.min.js"
YEAR_S: Final = 31_536_000
MASTHEAD: Final = (
    '<div class="rk-mast"><p class="rk-name"><span class="rk-logo" aria-hidden="true">'
    "<i></i><i></i><i></i><i></i></span>RotateK</p>"
    "<h1>Ask a picture. Keep a quarter of its memory.</h1></div>"
)
NARROWER: Final = {"int64": "i4", "uint64": "u4", "float64": "f4", "bool": "u1"}


def line(text: str, *, whole: bool = False) -> str:
    """A status line; empty text leaves it blank. whole: over as many lines as it takes, for a
    sentence that says what to do, where the other is cut so that nothing below it moves."""
    more = " rk-whole" if whole else ""
    return f'<p class="rk-status{more}" role="status">{escape(text)}</p>'


def aside(text: str) -> str:
    """A quiet explanation."""
    return f'<p class="rk-aside">{escape(text)}</p>'


def section(title: str, text: str) -> str:
    """The heading of a part of the page."""
    return f'<div class="rk-section"><h2>{escape(title)}</h2><p>{escape(text)}</p></div>'


def message_box(elem_id: str, taker: str = "rotatek") -> gr.HTML:
    """An unseen component that draws nothing; taker: the script's object whose `take` is called
    with every new value."""
    return gr.HTML(
        "",
        html_template="<i></i>",
        js_on_load=(
            f"const take = () => window.{taker}.take(props.value); watch('value', take); take();"
        ),
        elem_id=elem_id,
        elem_classes="rk-unseen",
    )


def message(**content: Any) -> str:
    """JSON that differs from the last message, so that the browser notices it."""
    return json.dumps(content | {"at": time.time_ns()})


def as_uri(image: Image.Image, side: int) -> str:
    """A picture of at most `side` pixels for the browser."""
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    small.save(file, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def footer(models: Sequence[str]) -> str:
    """What the page is and is not, and which models answer."""
    return (
        '<p class="rk-foot">The embedded models are small, learned to read from drawn documents '
        "and know nothing of photographs. The one with SmolLM2 declines pictures without words; it "
        "still invents answers about photographs with lettering. Bytes are those of live tensors; "
        "nominal shares follow the paper and leave out text, bases and masks. "
        f"Running here: {escape(', '.join(models))}.</p>"
    )


def payload(drawings: Mapping[str, Drawing], pictures: Mapping[str, str] | None = None) -> str:
    """Drawings by name as the text that `figures.js` takes; pictures: data URIs that a figure's
    image may name as `rk:name`, which the browser keeps."""
    figures = {
        name: {**drawn.figure._asdict(), "reading": drawn.reading, "summary": drawn.summary}
        for name, drawn in drawings.items()
    }
    sent = {"figures": packed(figures), "pictures": dict(pictures or {})}
    return json.dumps(sent, separators=(",", ":"))


def packed(value: Any) -> Any:
    """`value` ready for `json.dumps`: no numpy scalars, no entries of None, and arrays as plotly's
    base64, never as digits."""
    if isinstance(value, np.ndarray):
        return _packed_array(value) if value.dtype.kind in "biuf" and value.size else value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: packed(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [packed(entry) for entry in value]
    return value


def _packed_array(values: np.ndarray) -> dict[str, str]:
    """plotly's typed array. Eight-byte numbers travel as four: a screen has no use for more."""
    kind = NARROWER.get(values.dtype.name, f"{values.dtype.kind}{values.dtype.itemsize}")
    sent = np.ascontiguousarray(values.astype(f"<{kind}")).tobytes()
    body = {"dtype": kind, "bdata": base64.b64encode(sent).decode("ascii")}
    if values.ndim > 1:
        body["shape"] = ", ".join(str(length) for length in values.shape)
    return body


def frame(name: str, title: str) -> str:
    """A figure's place: caption, buttons to carry it away, and where it is drawn."""
    buttons = "".join(
        f'<button type="button" data-save="{kind}" data-figure="{name}" '
        f'aria-label="{escape(title)}: save as {kind.upper()}">{kind.upper()}</button>'
        for kind in ("png", "html")
    )
    return (
        f'<div class="rk-figure" id="{name}"><div class="rk-caption" id="{name}-caption">'
        f'<div class="rk-save">{buttons}</div><h3>{escape(title)}</h3>'
        '<p class="rk-see"></p><p class="rk-summary"></p></div>'
        f'<div id="{name}-plot"><div class="rk-plot"></div></div></div>'
    )


def rows_of(names: Sequence[str], most: int = 3) -> list[list[str]]:
    """`names` in as few rows of at most `most` as there need be, the longer rows first."""
    rows = -(-len(names) // most)
    short, longer = divmod(len(names), max(rows, 1))
    ends = [row * short + min(row, longer) for row in range(rows + 1)]
    return [list(names[a:b]) for a, b in zip(ends, ends[1:], strict=False)]


def sheet(titles: Mapping[str, str], rows: Sequence[Sequence[str]], elem_id: str) -> gr.HTML:
    """Frames in rows of one, two or three (`rows_of`), for names and their `titles`."""
    wide = {1: "rk-one", 2: "rk-two", 3: "rk-three"}
    html = "".join(
        f'<div class="{wide[len(row)]}">' + "".join(frame(n, titles[n]) for n in row) + "</div>"
        for row in rows
    )
    return gr.HTML(f'<div class="rk-sheet">{html}</div>', js_on_load=None, elem_id=elem_id)


@cache
def plotly_source() -> tuple[bytes, bytes]:
    """plotly's script as its Python package ships it: as it is, and compressed."""
    source = (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_bytes()
    return source, gzip.compress(source, 9)


def serve_plotly(request: Request) -> Response:
    """The script, for good: its address holds its version."""
    headers = {"Cache-Control": f"public, max-age={YEAR_S}, immutable", "Vary": "Accept-Encoding"}
    zipped = "gzip" in request.headers.get("accept-encoding", "")
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return Response(plotly_source()[zipped], media_type="text/javascript", headers=headers)
