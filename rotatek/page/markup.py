"""Pieces of HTML that every part of the page is made of. What a visitor wrote is escaped."""

from html import escape


def line(text: str) -> str:
    """A status line; empty text leaves it blank."""
    return f'<p class="rk-status" role="status">{escape(text)}</p>'


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


def masthead(facts: list[str]) -> str:
    """The top of the page: what this is, and what it runs on."""
    chips = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    return (
        '<div class="rk-mast"><div><p class="rk-name"><span class="rk-logo" aria-hidden="true">'
        "<i></i><i></i><i></i><i></i></span>RotateK</p>"
        "<h1>Ask a picture. Keep a quarter of its memory.</h1>"
        "<p class='rk-lead'>A vision-language model remembers an image as thousands of Keys and "
        "Values. RotateK turns each head&#8217;s Keys until a few channels carry everything, and "
        "stores only those. Compare its answer with the uncompressed one, then look inside.</p>"
        f'</div><ul class="rk-chips" aria-label="running on">{chips}</ul></div>'
    )


def footer() -> str:
    """What the page is, and what it is not."""
    return (
        '<p class="rk-foot">The embedded model is small, was trained on drawn documents and knows '
        "nothing of photographs. Bytes are those of live tensors; nominal shares follow the paper "
        "and leave out text, bases and masks.</p>"
    )
