"""Pieces of HTML that every part of the page is made of. What a visitor wrote is escaped.

Messages to the scripts in `assets/` are the values of unseen components.
"""

import base64
import io
import json
import time
from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr
from PIL import Image


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


def masthead() -> str:
    """The top of the page: what this is, in one line."""
    return (
        '<div class="rk-mast"><p class="rk-name"><span class="rk-logo" aria-hidden="true">'
        "<i></i><i></i><i></i><i></i></span>RotateK</p>"
        "<h1>Ask a picture. Keep a quarter of its memory.</h1></div>"
    )


def footer(models: Sequence[str]) -> str:
    """What the page is and is not, and which models answer."""
    return (
        '<p class="rk-foot">The embedded models are small, learned to read from drawn documents '
        "and know nothing of photographs. The one with SmolLM2 declines pictures without words; it "
        "still invents answers about photographs with lettering. Bytes are those of live tensors; "
        "nominal shares follow the paper and leave out text, bases and masks. "
        f"Running here: {escape(', '.join(models))}.</p>"
    )
