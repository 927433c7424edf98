"""The answers side by side, as HTML. Every character of a question or an answer is escaped."""

from html import escape
from typing import Final

from rotatek.compare.columns import UNCOMPRESSED
from rotatek.page.ask.card import card, is_cut, live_bytes
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
WAITING: Final = "Ask, and both answers appear here side by side."


def cards(run: Run | None, *, on_cpu: bool, caution: str = "") -> str:
    """One card a column, side by side where there is room; `caution` below them."""
    if run is None:
        return f'<div class="rk-empty">{WAITING}</div>'
    columns = "".join(card(column, run, on_cpu=on_cpu) for column in run.columns.values())
    notes = "".join(f'<p class="rk-note">{escape(note)}</p>' for note in _notes(run))
    care = f'<p class="rk-caution" role="note">{escape(caution)}</p>' if caution else ""
    return f'<div class="rk-cards" data-count="{len(run.columns)}">{columns}</div>{care}{notes}'


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
    if chosen.diverged_at is None:
        return f"{chosen.title} gives the same answer, token for token, in {share} of the bytes."
    return (
        f"{chosen.title} answers in {share} of the bytes and first differs at token "
        f"{chosen.diverged_at + 1} of {len(chosen.pieces)}."
    )
