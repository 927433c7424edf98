"""The page's words as HTML. Every character of a question or an answer is escaped."""

from html import escape

from rotatek.budget import channels_kept, tokens_kept
from rotatek.page.run import BASELINE, Column, Run, beyond
from rotatek.page.steps import strip
from rotatek.settings import Settings
from viz.theme import colour, percent, size

CPU_NOTE = (
    "Measured on a CPU, where latency proves nothing about compression: read the bytes and the "
    "answers, and leave the speed to the GPU figures."
)
FASTV_NOTE = (
    "FastV chose which tokens stay by the first question; a later one may need others, which are "
    "gone."
)
CUT_NOTE = (
    "An answer took all the tokens it may have. For the rest, allow more under More and ask again."
)
INSIDE = (
    "Look inside",
    "One head at a time. Move the layer and the head, or choose a cell of the map; move channel "
    "sparsity above and watch what is kept. Everything is drawn from this image and question.",
)
BEYOND = (
    "The paper compresses Keys by one width for all heads. RotateK can also rotate and cut the "
    "Values, give each head the channels its spectrum earns under the same budget, and store what "
    "is left in 8 bits. Nominal shares count channels, not bits; on a small image the bases can "
    "weigh more than they save, which the bytes below show."
)
WAITING = "Ask, and both answers appear here side by side."


def answers(run: Run | None, *, on_cpu: bool, caution: str = "") -> str:
    """One card a column, side by side where there is room; `caution` below them."""
    if run is None:
        return f'<div class="rk-empty">{WAITING}</div>'
    cards = "".join(_card(column, run) for column in run.columns.values())
    notes = "".join(f'<p class="rk-note">{escape(note)}</p>' for note in _notes(run, on_cpu))
    care = f'<p class="rk-caution" role="note">{escape(caution)}</p>' if caution else ""
    return f'<div class="rk-cards" data-count="{len(run.columns)}">{cards}</div>{care}{notes}'


def _notes(run: Run, on_cpu: bool) -> list[str]:
    """What to bear in mind with these answers."""
    fastv = any(
        c.settings.prunes_tokens and c.settings.tokens == "fastv" for c in run.columns.values()
    )
    notes = [FASTV_NOTE] if fastv and run.previous is not None else []
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
        f'data-state="{state}" style="--c: {colour(column.method)}">'
        '<header><span class="rk-dot" aria-hidden="true"></span>'
        f'<h3 aria-level="2">{escape(column.title)}</h3>'
        f"<span class='rk-sub'>{escape(_sparsity(column.settings))}</span></header>"
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


def _sparsity(settings: Settings) -> str:
    parts = []
    if settings.prunes_tokens:
        parts.append(f"{percent(1 - settings.keep_tokens)} of tokens dropped")
    if settings.channels != "full" and settings.keep_channels < 1:
        parts.append(f"{percent(1 - settings.keep_channels)} of Key channels dropped")
    if settings.values == "rotate":
        parts.append(f"{percent(1 - settings.keep_values)} of Value channels dropped")
    if settings.cache_dtype != "model":
        parts.append("8 bits a number")
    return ", ".join(parts) or "nothing dropped"


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
    if column.title == BASELINE:
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
    if chosen.finished is None or chosen.title == BASELINE:
        return "Done."
    metrics = chosen.finished.metrics
    share = percent(metrics["kv_bytes"] / max(metrics["kv_bytes_full"], 1))
    if chosen.diverged_at is None:
        return f"{chosen.title} gives the same answer, token for token, in {share} of the bytes."
    return (
        f"{chosen.title} answers in {share} of the bytes and first differs at token "
        f"{chosen.diverged_at + 1} of {len(chosen.pieces)}."
    )


def line(text: str) -> str:
    """A status line; empty text leaves it blank."""
    return f'<p class="rk-status" role="status">{escape(text)}</p>'


def token_reading(settings: Settings, tokens: int | None) -> str:
    """`keeps 230 of 576 tokens`; before an image is known, the share alone."""
    if not settings.prunes_tokens:
        return _reading(f"keeps all {tokens} tokens" if tokens else "keeps every visual token")
    if not tokens:
        return _reading(f"keeps {percent(settings.keep_tokens)} of the visual tokens")
    return _reading(f"keeps {tokens_kept(tokens, settings.keep_tokens)} of {tokens} tokens")


def channel_reading(settings: Settings, width: int) -> str:
    """`keeps 32 of 128 channels`."""
    if settings.channels == "full":
        return _reading(f"keeps all {width} channels")
    kept = channels_kept(width, settings.keep_channels)
    if settings.widths == "adaptive":
        return _reading(f"keeps {kept} of {width} channels on average")
    return _reading(f"keeps {kept} of {width} channels")


def beyond_reading(settings: Settings, width: int, heads: tuple[int, int] | None) -> str:
    """`keeps 64 of 128 Value channels`, and what adaptive widths come to.

    heads: the fewest and the most Key channels that a head of the present image gets, if known.
    """
    if settings.channels != "rotatek":
        return _reading("works with RotateK only")
    parts = [f"keeps all {width} Value channels"]
    if settings.values == "rotate":
        parts = [f"keeps {channels_kept(width, settings.keep_values)} of {width} Value channels"]
    if settings.widths == "adaptive":
        kept = channels_kept(width, settings.keep_channels)
        spread = f", {heads[0]} to {heads[1]} on this image" if heads else ""
        parts.append(f"heads keep {kept} Key channels on average{spread}")
    if settings.cache_dtype != "model":
        parts.append("8 bits a number")
    return _reading("; ".join(parts))


def budget_reading(settings: Settings) -> str:
    """The nominal budget that both sliders come to."""
    share, past = nominal_kv(settings), beyond(settings)
    more = f' <span class="rk-past">beyond the paper: {escape(past)}</span>' if past else ""
    return (
        f'<p class="rk-budget"><b>{percent(share)}</b> of the visual KV cache, nominally {more}'
        f'<span class="rk-meter" aria-hidden="true"><i style="width:{100 * share:.1f}%"></i></span>'
        "</p>"
    )


def _reading(text: str) -> str:
    return f'<p class="rk-reading">{escape(text)}</p>'


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
