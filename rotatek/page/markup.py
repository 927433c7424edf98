"""Pieces of HTML that every part of the page is made of. What a visitor wrote is escaped."""

from collections.abc import Sequence
from html import escape


def line(text: str, *, whole: bool = False) -> str:
    """A status line; empty text leaves it blank. whole: over as many lines as it takes, for a
    sentence that says what to do, where the other is cut so that nothing below it moves."""
    more = " rk-whole" if whole else ""
    return f'<p class="rk-status{more}" role="status">{escape(text)}</p>'


def aside(text: str) -> str:
    """A quiet explanation."""
    return f'<p class="rk-aside">{escape(text)}</p>'


def caption(title: str, reading: str = "", summary: str = "") -> str:
    """A figure's heading and one-sentence reading; the summary is for screen readers."""
    hidden = f'<p class="rk-summary">{escape(summary)}</p>' if summary else ""
    return (
        f'<div class="rk-caption"><h3>{escape(title)}</h3>'
        f'<p class="rk-see">{escape(reading)}</p>{hidden}</div>'
    )


def section(title: str, text: str) -> str:
    """The heading of a part of the page."""
    return f'<div class="rk-section"><h2>{escape(title)}</h2><p>{escape(text)}</p></div>'


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
