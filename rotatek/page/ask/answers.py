"""The answers side by side, as HTML. Every character of a question or an answer is escaped."""

from html import escape
from typing import Final

from rotatek.compare.columns import UNCOMPRESSED
from rotatek.page.ask.agreement import strip
from rotatek.page.ask.readings import dropped
from rotatek.page.markup import line
from rotatek.page.state import Column, Run
from viz.theme import percent, size

CPU_NOTE: Final = (
    "Measured on a CPU, where latency proves nothing about compression: read the bytes and the "
    "answers, and leave the speed to the GPU figures."
)
CUT_NOTE: Final = (
    "An answer took all the tokens it may have. For the rest, allow more under More and ask again."
)
WAITING: Final = "Ask, and both answers appear here side by side."


def cards(run: Run | None, *, on_cpu: bool, caution: str = "") -> str:
    """One card a column, side by side where there is room; `caution` below them."""
    if run is None:
        return f'<div class="rk-empty">{WAITING}</div>'
    columns = "".join(_card(column, run) for column in run.columns.values())
    notes = "".join(f'<p class="rk-note">{escape(note)}</p>' for note in _notes(run, on_cpu))
    care = f'<p class="rk-caution" role="note">{escape(caution)}</p>' if caution else ""
    return f'<div class="rk-cards" data-count="{len(run.columns)}">{columns}</div>{care}{notes}'


def _notes(run: Run, on_cpu: bool) -> list[str]:
    """What to bear in mind with these answers."""
    settings = [column.settings for column in run.columns.values()]
    cautions = [one.tokens.caution for one in settings if one.prunes_tokens]
    notes = [*dict.fromkeys(filter(None, cautions))] if run.previous is not None else []
    if any(_cut(column, run) for column in run.columns.values()):
        notes.append(CUT_NOTE)
    return [*notes, CPU_NOTE] if on_cpu else notes


def _cut(column: Column, run: Run) -> bool:
    """Whether the answer took all the tokens it may have."""
    done = column.finished
    return done is not None and not run.stopped and done.new_tokens >= run.max_new_tokens


def _card(column: Column, run: Run) -> str:
    done = column.finished is not None or column.failure is not None or run.stopped
    state = "done" if done else "live"
    return (
        f'<article class="rk-card" data-column="{escape(column.title, quote=True)}" '
        f'data-state="{state}" style="--c: {escape(column.method.colour, quote=True)}">'
        '<header><span class="rk-dot" aria-hidden="true"></span>'
        f'<h3 aria-level="2">{escape(column.title)}</h3>'
        f"<span class='rk-sub'>{escape(dropped(column.settings))}</span></header>"
        f'{_earlier(column, run)}<div class="rk-answer">{_answer(column)}</div>'
        f'<p class="rk-verdict">{escape(_verdict(column, run))}</p>{strip(column)}'
        f'<dl class="rk-badges">{_badges(column, len(run.turns))}</dl></article>'
    )


def _earlier(column: Column, run: Run) -> str:
    """The turns before this one, and this one's question."""
    *before, now = run.turns
    if not before:
        return ""
    told = "".join(
        f'<p class="rk-asked">{escape(turn.question)}</p>'
        f'<p class="rk-told">{escape(turn.columns[column.title].answer.strip())}</p>'
        for turn in before
    )
    return f'<div class="rk-turns">{told}<p class="rk-asked">{escape(now.question)}</p></div>'


def _answer(column: Column) -> str:
    if column.failure is not None:
        return f'<span class="rk-failure">{escape(column.failure)}</span>'
    at = column.diverged_at
    if at is None:
        return escape(column.answer)
    before, first, after = (
        escape("".join(part))
        for part in (column.pieces[:at], column.pieces[at : at + 1], column.pieces[at + 1 :])
    )
    return (
        f'{before}<mark title="the first token that differs from the uncompressed answer">'
        f"{first or '∅'}</mark>{after}"
    )


def _verdict(column: Column, run: Run) -> str:
    if column.failure is not None:
        return ""
    cut = f", cut at {run.max_new_tokens} tokens" if _cut(column, run) else ""
    if column.title == UNCOMPRESSED:
        return f"the reference{cut}"
    if column.diverged_at is not None:
        return f"first differs at token {column.diverged_at + 1}{cut}"
    if column.finished is not None:
        return f"token for token the same{cut}"
    return "stopped" if run.stopped else ""


def _badges(column: Column, turn: int) -> str:
    filled = column.prefilled
    if filled is None:
        return _badge("KV cache", "…") + _badge("prefill", "…") + _badge("per token", "…")
    held, full = filled.kv_bytes, filled.kv_bytes_full
    detail = "question only" if turn > 1 else ""
    per_token = None
    if column.finished is not None:  # the cache has grown by the answer
        held, full = (column.finished.metrics[name] for name in ("kv_bytes", "kv_bytes_full"))
        per_token = column.finished.decode_ms_per_token
    return (
        _badge("KV cache", size(held), f"{percent(held / max(full, 1))} of full", "kv")
        + _badge("nominal KV", percent(filled.nominal_kv), "visual part", "nominal")
        + _badge("prefill", f"{filled.prefill_ms:.0f} ms", detail, "prefill")
        + _badge("per token", "…" if per_token is None else f"{per_token:.1f} ms", "", "decode")
    )


def _badge(name: str, value: str, detail: str = "", key: str = "") -> str:
    small = f"<small>{escape(detail)}</small>" if detail else ""
    return f'<div data-badge="{key}"><dt>{escape(name)}</dt><dd>{escape(value)}{small}</dd></div>'


def status(run: Run) -> str:
    """One line on where the run is; read out by screen readers when it changes."""
    return line(f"{run.notice} {_progress(run)}".strip())


def _progress(run: Run) -> str:
    columns = list(run.columns.values())
    if run.stopped:
        return "Stopped."
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
    metrics = chosen.finished.metrics
    share = percent(metrics["kv_bytes"] / max(metrics["kv_bytes_full"], 1))
    if chosen.diverged_at is None:
        return f"{chosen.title} gives the same answer, token for token, in {share} of the bytes."
    return (
        f"{chosen.title} answers in {share} of the bytes and first differs at token "
        f"{chosen.diverged_at + 1} of {len(chosen.pieces)}."
    )
