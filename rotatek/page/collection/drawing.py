"""The collection as HTML: tiles, the table of answers, and the cost of reading pages again.

Every character of a file's name, a question or an answer is escaped.
"""

import csv
import io
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from rotatek.inspect.doubt import doubted
from rotatek.page import markup
from rotatek.page.ask.answers import words_of
from rotatek.page.collection.pages import CollectedPage, Collection, Question
from rotatek.pictures import Answer
from viz.theme import percent, size

EMPTY: Final = "Each page that you drop appears here, with its bytes before and after."
UNASKED: Final = "Ask, and every page answers here: the surest first."
DOUBTED: Final = "Check these answers against their pages: the model is not sure of them."
FORMULAE: Final = ("=", "+", "-", "@", "\t", "\r")
COLUMNS: Final = (
    "page", "question", "answer", "confidence", "doubted", "error", "visual_tokens",
    "uncompressed_bytes", "stored_bytes",
)  # fmt: skip


def tiles(collection: Collection) -> str:
    """A tile for each page, then the files that could not be read."""
    pages, bad = collection.pages, collection.bad
    if not pages and not bad:
        return f'<div class="rk-empty rk-low">{EMPTY}</div>'
    shown = "".join(_tile(number, page) for number, page in enumerate(pages))
    refused = "".join(
        f"<li><b>{escape(label)}</b> {escape(sentence)}</li>" for label, sentence in bad
    )
    return f'<ul class="rk-tiles">{shown}</ul>' + (
        f'<ul class="rk-bad" aria-label="Not read">{refused}</ul>' if refused else ""
    )


def _tile(number: int, page: CollectedPage) -> str:
    label, before = escape(page.label, quote=True), size(page.picture.full_bytes)
    after = size(page.picture.cache_bytes)
    return (
        f'<li><button type="button" data-page="{number}" title="{label}">'
        f'<img src="{page.thumbnail}" alt=""><span class="rk-name-of">{label}</span>'
        f'<span class="rk-bytes">{before} → <b>{after}</b></span>'
        "</button></li>"
    )


def reading(collection: Collection) -> str:
    """One line on the pages that are stored."""
    if not collection.pages:
        return ""
    count, (before, after) = len(collection.pages), collection.sizes
    pages = "1 page" if count == 1 else f"{count} pages"
    return f"{pages}: {size(before)} became {size(after)}, 1/{before / max(after, 1):.0f}."


def is_doubted(collection: Collection, answer: Answer) -> bool:
    """Whether an answer is to be checked against its page."""
    return not answer.error and doubted(collection.model, answer.confidence)


def table(collection: Collection) -> str:
    """Answers beside small pictures, the surest first."""
    asked, ranked = collection.asked, collection.ranked
    if asked is None or not ranked:
        return f'<div class="rk-empty rk-low">{UNASKED}</div>'
    doubts = [is_doubted(collection, answer) for *_, answer in ranked]
    body = "".join(_row(*one, doubt) for one, doubt in zip(ranked, doubts, strict=True))
    note = f'<p class="rk-note">{DOUBTED}</p>' if any(doubts) else ""
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Page", "Answer", "Confidence"))
    return (
        f'<table class="rk-found"><caption class="rk-summary">{escape(asked.text)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"
    )


def _row(number: int, page: CollectedPage, answer: Answer, doubt: bool) -> str:
    label = escape(page.label, quote=True)
    if answer.error:
        said, sure = f'<span class="rk-failure">{escape(answer.error)}</span>', ""
    else:
        said = escape(answer.text) or '<span class="rk-soft">no answer</span>'
        mark = ' <span class="rk-doubt">check</span>' if doubt else ""
        sure = f'<span class="rk-sure">{percent(answer.confidence)}</span>{mark}'
    return (
        f'<tr data-page="{number}"><th scope="row"><button type="button" data-page="{number}" '
        f'title="{label}"><img src="{page.thumbnail}" alt=""><span>{label}</span></button></th>'
        f"<td>{said}</td><td>{sure}</td></tr>"
    )


def as_csv(collection: Collection) -> str:
    """One line for each page, as in the table; text that a spreadsheet would take for a formula is
    made plain."""
    asked = "" if collection.asked is None else collection.asked.text
    rows = list[Sequence[Any]]([COLUMNS])
    for _, page, said in collection.ranked:
        doubt, picture = "yes" if is_doubted(collection, said) else "no", page.picture
        rows.append((
            page.label, asked, said.text, f"{said.confidence:.4f}", doubt, said.error,
            picture.visual_tokens, picture.full_bytes, picture.cache_bytes,
        ))  # fmt: skip
    out = io.StringIO()
    writer = csv.writer(out)
    for row in rows:
        writer.writerow([f"'{one}" if str(one).startswith(FORMULAE) else one for one in row])
    return out.getvalue()


def twice(collection: Collection) -> str:
    """Seconds and bytes of the last question beside those of reading every page again."""
    asked, count = collection.asked, len(collection.pages)
    if asked is None or not asked.seconds:
        return ""
    before, after = collection.sizes
    again = None if asked.afresh is None else asked.afresh * count
    longest = max(asked.seconds, again or 0.0)
    ways = _way("Asked from the store", asked.seconds, longest, f"{size(after)} held", "stored")
    if again is None:
        ways += (
            '<div data-way="again"><h3>Read again</h3><p class="rk-took">…</p>'
            "<p>one page is being read again, to compare</p></div>"
        )
    else:
        times = f", times {count}" if count > 1 else ""
        one = f"Measured on {asked.of}: {_seconds(asked.afresh or 0)}{times}"
        ways += _way("Read again", again, longest, f"{size(before)} uncompressed. {one}", "again")
    return f'<div class="rk-twice" role="status">{ways}</div>'


def _way(title: str, seconds: float, longest: float, said: str, name: str) -> str:
    share = 100 * seconds / max(longest, 1e-9)
    return (
        f'<div data-way="{name}" data-seconds="{seconds:.3f}"><h3>{title}</h3>'
        f'<p class="rk-took">{_seconds(seconds)}</p>'
        f'<div class="rk-bar" aria-hidden="true"><i style="width:{share:.1f}%"></i></div>'
        f"<p>{escape(said)}</p></div>"
    )


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 2 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min"


def opened(page: CollectedPage, asked: Question | None, pieces: Sequence[str] = ()) -> str:
    """The text beside a large page: its name, the question and the answer, whose words can be
    chosen where the text of each token is given."""
    picture, answer = page.picture, page.answer
    said = ""
    if answer is not None and asked is not None:
        words = "".join(
            f'{escape(word.space)}<span class="rk-word" data-first="{word.first}" '
            f'data-last="{word.last}">{escape("".join(word.pieces))}</span>'
            for word in words_of(pieces)
        )
        length = "short" if len(answer.text) <= 24 else "medium"
        text = words or escape(answer.text or answer.error)
        said = (
            f'<p class="rk-asked">{escape(asked.text)}</p><div class="rk-answer" tabindex="0" '
            f'role="group" aria-label="The answer" data-length="{length}">{text}</div>'
        )
    held = f"{size(picture.full_bytes)} became {size(picture.cache_bytes)}"
    hint = "Choose a word to see where it looked." if pieces else ""
    return (
        f'<article class="rk-card" data-column="page" data-state="done"><header><h3 '
        f'aria-level="2">{escape(page.label)}</h3></header>{said}'
        f'<p class="rk-lit" role="status">{hint}</p>{markup.aside(held)}</article>'
    )
