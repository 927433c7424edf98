"""The answers side by side, as HTML. Every character of a question or an answer is escaped."""

from html import escape
from typing import Final

from rotatek.engine.events import Answer
from rotatek.inspect.doubt import any_photo, doubt
from rotatek.methods.columns import UNCOMPRESSED
from rotatek.page.ask.card import card, is_cut, live_bytes, place
from rotatek.page.binding import Shown
from rotatek.page.markup import line
from rotatek.service.run import Run
from viz.theme import percent

CUT_NOTE: Final = (
    "An answer took all the tokens it may have: allow more under Model and length, and ask again."
)
TRIMMED_NOTE: Final = (
    "The picture is larger than the model sees at once, so its blank margins were left out."
)
DRAWN_NOTE: Final = "Drawn at temperature {:g} with the seed {}, the same for every column."
WAITING: Final = (
    "Ask, and the uncompressed answer appears here.",
    "Here the answer from what the sliders below keep.",
    "And here the one from the smallest cache.",
)
SAME: Final = "These settings drop nothing: the answer is the uncompressed one."


def cards(run: Run | None, *, on_cpu: bool) -> Shown:
    """A card for each of the three columns, and the further ones with notes on all of them."""
    if run is None:
        empty = (f'<div class="rk-empty">{words}</div>' for words in WAITING)
        return {f"card_{number}": html for number, html in enumerate(empty)} | {"further": ""}
    first, *rest = run.columns.values()
    own = next((one for one in rest[:1] if not _is_smaller(one)), None)
    smaller = next((one for one in rest if _is_smaller(one)), None)
    shown: list[Answer | None] = [first, own, smaller]
    html = [
        f'<div class="rk-empty">{SAME}</div>' if one is None else card(one, run, on_cpu=on_cpu)
        for one in shown
    ]
    more = "".join(card(one, run, on_cpu=on_cpu) for one in rest if one not in (own, smaller))
    further = f'<div class="rk-cards">{more}</div>' if more else ""
    caution = note(run)
    if caution:
        further += f'<p class="rk-caution" role="note">{escape(caution)}</p>'
    further += "".join(f'<p class="rk-note">{escape(words)}</p>' for words in _notes(run))
    return {f"card_{number}": one for number, one in enumerate(html)} | {"further": further}


def _is_smaller(column: Answer) -> bool:
    """Whether it is the third column's kind."""
    settings = column.settings
    return settings.channels.times_smaller is not None and not settings.prunes_tokens


def note(run: Run) -> str:
    """One calm sentence where the uncompressed answer of a finished run is doubted, or none."""
    done = run.reference.finished
    if done is None or not done.new_tokens or run.stopped:
        return ""

    def is_of_photo() -> bool:
        return bool(run.remember(("photo",), lambda: any_photo([run.pixels])))

    return doubt(run.model, done.answer, float(done.metrics["confidence"]), is_of_photo)


def _notes(run: Run) -> list[str]:
    """Notes on these answers."""
    settings = [column.settings for column in run.columns.values()]
    cautions = [one.tokens.caution for one in settings if one.prunes_tokens]
    notes = [*dict.fromkeys(filter(None, cautions))] if run.previous is not None else []
    seen = [column.prefilled.grids for column in run.columns.values() if column.prefilled]
    if any(grid.trimmed for grids in seen for grid in grids):
        notes.append(TRIMMED_NOTE)
    if run.sampling.draws:
        notes.append(DRAWN_NOTE.format(run.sampling.temperature, run.sampling.seed))
    if any(is_cut(column, run) for column in run.columns.values()):
        notes.append(CUT_NOTE)
    return notes


def status(run: Run) -> str:
    """One line on where the run is; read out by screen readers when it changes."""
    return line(f"{run.notice} {_progress(run)}".strip())


def _progress(run: Run) -> str:
    columns = list(run.columns.values())
    if run.stopped:
        return "Stopped."
    if run.place:
        return f"Waiting for memory: number {run.place} in line…"
    if any(column.failure for column in columns):
        return "Not answered."
    if not all(column.finished for column in columns):
        ready = sum(column.prefilled is not None for column in columns)
        waiting = ready < len(columns)
        filling = "Feeding the question…" if run.previous else "Filling the caches…"
        return filling if waiting else "Answering side by side…"
    chosen = run.chosen
    if chosen.finished is None or chosen.title == UNCOMPRESSED:
        return "Done."
    held, full = live_bytes(chosen)
    share = percent(held / max(full, 1))
    found = place(chosen, columns[0])
    if found is None or not found.parts:
        return f"{chosen.title} gives the same answer, token for token, in {share} of the bytes."
    return f"{chosen.title} answers in {share} of the bytes; token {found.at + 1} is another one."
