"""The answers side by side, as HTML. Every character of a question or an answer is escaped."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from html import escape
from typing import Final, NamedTuple

from rotatek.engine.events import Answer, Likely
from rotatek.inspect.doubt import any_photo, doubt
from rotatek.methods.channels.what_if import WhatIf
from rotatek.methods.settings import UNCOMPRESSED
from rotatek.page.binding import Shown
from rotatek.page.markup import line
from rotatek.page.settings import dropped
from rotatek.service.service import Run
from viz.theme import percent, size

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
BEFORE: Final = 2  # steps that are shown before the one where answers part
END: Final = "the end"
FIDELITY: Final = (
    "Fidelity is the share of tokens that are the uncompressed ones, each weighed by e to the "
    "minus KL."
)
CPU_NOTE: Final = (
    "Measured on a CPU, where latency proves nothing about compression: read the bytes and the "
    "answers, and leave the speed to the GPU figures."
)
KERNELS: Final = {"triton": "fused Triton kernel", "reference": "plain PyTorch"}
PARTED: Final = "the first token that differs from the uncompressed answer"
SHORT, MEDIUM = 24, 140  # characters up to which an answer is set larger


def cards(run: Run | None, *, on_cpu: bool) -> Shown:
    """A card for each of the three columns, and the further ones with notes on all of them."""
    if run is None:
        empty = (f'<div class="rk-empty">{words}</div>' for words in WAITING)
        return {f"card_{number}": html for number, html in enumerate(empty)} | {"further": ""}
    first, *rest = run.columns.values()
    kinds = ((one, one.settings) for one in rest)
    bits = (one for one, s in kinds if s.channels.times_smaller and not s.prunes_tokens)
    smaller = next(bits, None)
    own = next((one for one in rest[:1] if one is not smaller), None)
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


def note(run: Run) -> str:
    """One calm sentence where the uncompressed answer of a finished run is doubted, or none."""
    done = run.reference.finished
    if done is None or not done.new_tokens or run.stopped:
        return ""
    confidence = float(done.metrics["confidence"])
    known = partial(run.remember, ("photo",), lambda: any_photo([run.pixels]))
    return doubt(run.model, done.answer, confidence, known)


def _notes(run: Run) -> list[str]:
    """Notes on these answers."""
    columns = run.columns.values()
    cautions = [one.settings.tokens.caution for one in columns if one.settings.prunes_tokens]
    notes = [*dict.fromkeys(filter(None, cautions))] if run.previous is not None else []
    if any(grid.trimmed for one in columns if one.prefilled for grid in one.prefilled.grids):
        notes.append(TRIMMED_NOTE)
    if run.sampling.draws:
        notes.append(DRAWN_NOTE.format(run.sampling.temperature, run.sampling.seed))
    if any(is_cut(column, run) for column in columns):
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


class Word(NamedTuple):
    """Tokens `first` to `last` of an answer, and the white space before them."""

    space: str
    pieces: tuple[str, ...]
    first: int
    last: int


class Place(NamedTuple):
    """A token of an answer, from 0: where it parts from another, or where the call was closest."""

    at: int
    parts: bool


def card(column: Answer, run: Run, *, on_cpu: bool) -> str:
    """One column's HTML, whether complete or not."""
    done = column.finished is not None or column.failure is not None or run.stopped
    title, said = escape(column.title, quote=True), escape(dropped(column.settings))
    count, first = len(column.answer), run.reference
    length = "short" if count <= SHORT else "medium" if count <= MEDIUM else "long"
    verdict, sentence = judged(column, run)
    kind = f' data-verdict="{verdict}"' if verdict else ""
    is_compared = column is not first and column.finished and first.finished
    parts = parting(column, first) if is_compared else ""
    return (
        f'<article class="rk-card" data-column="{title}" data-state="{"done" if done else "live"}" '
        f'style="--c: {escape(column.method.colour, quote=True)}">'
        '<header><span class="rk-dot" aria-hidden="true"></span>'
        f'<h3 aria-level="2">{escape(column.title)}</h3>'
        f'<span class="rk-sub">{said}</span></header>'
        f'{_earlier(column, run)}<div class="rk-answer" tabindex="0" role="group" '
        f'aria-label="{title}: the answer" data-length="{length}">{_answer(column)}</div>'
        f'<p class="rk-verdict"{kind}>{escape(sentence)}</p>'
        f"{parts}{_held(column)}{_figures(column, run, on_cpu)}</article>"
    )


def is_cut(column: Answer, run: Run) -> bool:
    """Whether the answer took all the tokens it may have."""
    done = column.finished
    return done is not None and not run.stopped and done.new_tokens >= run.max_new_tokens


def _earlier(column: Answer, run: Run) -> str:
    """The turns before this one, and this one's question."""
    *before, now = run.turns
    if not before:
        return ""
    told = "".join(
        f'<p class="rk-asked">{escape(turn.question)}</p>'
        f'<p class="rk-told">{escape(turn.columns[column.title].answer.strip())}</p>'
        for turn in before
    )
    return (
        f'<div class="rk-turns" tabindex="0" role="group" aria-label="Earlier"><div>{told}'
        f'<p class="rk-asked">{escape(now.question)}</p></div></div>'
    )


def _answer(column: Answer) -> str:
    if column.failure is not None:
        return f'<span class="rk-failure">{escape(column.failure)}</span>'
    return "".join(_word(word, column.diverged_at) for word in words_of(column.pieces))


def _word(word: Word, diverged: int | None) -> str:
    """A word that can be chosen, the first token that differs marked in it."""
    space, pieces = escape(word.space), [escape(piece) for piece in word.pieces]
    if diverged is not None and word.first <= diverged <= word.last:
        at = min(diverged - word.first, len(pieces) - 1)
        if at == 0 and space and not pieces[0]:
            space = f'<mark title="{PARTED}">{space}</mark>'
        else:
            pieces[at] = f'<mark title="{PARTED}">{pieces[at] or "∅"}</mark>'
    text = "".join(pieces)
    span = f'<span class="rk-word" data-first="{word.first}" data-last="{word.last}">{text}</span>'
    return space + (span if text else "")


def judged(column: Answer, run: Run) -> tuple[str | None, str]:
    """The verdict, None while there is none, and its sentence."""
    if column.failure is not None:
        return None, ""
    cut = f", cut at {run.max_new_tokens} tokens" if is_cut(column, run) else ""
    if column.title == UNCOMPRESSED:
        return None, f"The reference{cut}"
    reference = run.reference
    if column.finished is None or reference.finished is None:
        return None, "Stopped" if run.stopped else ""
    alike = column.finished.answer.strip() == reference.finished.answer.strip()
    said = f"{'The same' if alike else 'A different'} answer"
    held, full = live_bytes(column)
    share = f" in {percent(held / max(full, 1))} of the bytes"
    if isinstance(column.settings.channels, WhatIf):
        share = "; its Keys save no bytes"
    return "same" if alike else "different", f"{said}{share}{cut}"


def _held(column: Answer) -> str:
    """Live bytes as numbers and a bar, and how close the answer stays in one number."""
    if column.kv_bytes is None:
        return '<div class="rk-held"><p><span>…</span></p><div class="rk-bar"></div></div>'
    held, full = live_bytes(column)
    number, close = fidelity(column), ""
    if column.title != UNCOMPRESSED and number is not None and column.finished is not None:
        close = f'<span class="rk-fidelity">fidelity <b>{percent(number)}</b></span>'
    share = 100 * min(held / max(full, 1), 1)
    return (
        f'<div class="rk-held" data-badge="kv"><p><span><b>{escape(size(held))}</b>'
        f'<span class="rk-full"> of {escape(size(full))}</span></span>{close}</p>'
        f'<div class="rk-bar" aria-hidden="true"><i style="width:{share:.1f}%"></i></div></div>'
    )


def live_bytes(column: Answer) -> tuple[int, int]:
    """Live bytes of a filled column, and those of an uncompressed cache of the same tokens."""
    filled, done = column.prefilled, column.finished
    if done is not None:  # the cache has grown by the answer
        return done.metrics["kv_bytes"], done.metrics["kv_bytes_full"]
    return column.kv_bytes or 0, 0 if filled is None else filled.kv_bytes_full


def _figures(column: Answer, run: Run, on_cpu: bool) -> str:
    """What ran, the parts of the fidelity, and the column's times: closed until opened."""
    said = [_ran(column, run.reference)]
    if column.title != UNCOMPRESSED and column.same:
        said += [reading(column), FIDELITY]
    said += [column.missed, CPU_NOTE if on_cpu else ""]
    words = "".join(f"<p>{escape(text)}</p>" for text in said if text)
    nominal, took, filled = "…", "…", column.prefilled
    if filled is not None:
        nominal = f"{percent(filled.nominal_kv)}<small>visual part</small>"
        detail = "<small>question only</small>" if len(run.turns) > 1 else ""
        took = f"{filled.prefill_ms:.0f} ms{detail}"
    badges = ("nominal", "nominal KV", nominal), ("prefill", "prefill", took)
    shown = "".join(
        f'<div data-badge="{key}"><dt>{name}</dt><dd>{value}</dd></div>'
        for key, name, value in badges
    )
    return (
        '<details class="rk-why"><summary>Figures</summary>'
        f'<dl class="rk-badges">{shown}</dl>{words}</details>'
    )


def _ran(column: Answer, reference: Answer) -> str:
    """`2.08 MB became 0.92 MB; plain PyTorch; 12.1 ms a token, uncompressed 10.9.`"""
    filled, done = column.prefilled, column.finished
    if filled is None or done is None:
        return ""
    held, full = live_bytes(column)
    ms = f"{done.decode_ms_per_token:.1f} ms a token"
    if column is reference and column.settings.is_baseline:
        return f"{size(held)}; transformers' own attention; {ms}."
    own = reference.finished
    beside = "" if own is None else f", uncompressed {own.decode_ms_per_token:.1f}"
    return f"{size(full)} became {size(held)}; {KERNELS[filled.attention]}; {ms}{beside}."


def words_of(pieces: Iterable[str]) -> list[Word]:
    """Tokens grouped into words: white space before or after a token ends one. Space behind the
    last word is a word of no tokens."""
    words: list[Word] = []
    held: list[str] = []
    space, first, count = "", 0, 0
    for number, piece in enumerate(pieces):
        text, count = piece.lstrip(), number + 1
        if len(text) < len(piece) and any(held):
            words.append(Word(space, tuple(held), first, number - 1))
            space, held = "", []
        if not held:
            first = number
        space, body = space + piece[: len(piece) - len(text)], text.rstrip()
        held.append(body)
        if len(body) < len(text):
            words.append(Word(space, tuple(held), first, number))
            space, held = text[len(body) :], []
    if held or space:
        words.append(Word(space, tuple(held), first if held else count, count - 1))
    return words


def place(column: Answer, reference: Answer) -> Place | None:
    """Where a finished answer parts from the reference's; where it does not, the token whose
    probability was nearest to another one's. None where probabilities are not known."""
    if column.diverged_at is not None:
        return Place(column.diverged_at, True)
    if len(column.pieces) < len(reference.pieces):
        return Place(len(column.pieces), True)
    margins = [math.exp(own[0].logprob) - _rival(own) for own in column.likely if len(own) > 1]
    if not margins:
        return None
    return Place(min(range(len(margins)), key=margins.__getitem__), False)


def _rival(likely: Sequence[Likely]) -> float:
    """The probability of the likeliest other token; likely: the chosen one, then the likeliest."""
    chosen, *best = likely
    return max((math.exp(one.logprob) for one in best if one.code != chosen.code), default=0.0)


def parting(column: Answer, reference: Answer) -> str:
    """One line as HTML, and behind it the likeliest tokens of both at that step and before it."""
    found = place(column, reference)
    if found is None:
        return ""
    both = [_at(one, found.at) for one in (reference, column)]
    there, here = (_said(likely[:1]) or END for likely in both)
    line = f"Parts at token {found.at + 1}: {there} there, {here} here"
    if not found.parts:
        shares = math.exp(both[1][0].logprob), _rival(both[1])
        closest = " against ".join(map(_share, shares))
        line = f"Same to the end; closest at token {found.at + 1}: {closest}"
    steps = range(max(0, found.at - BEFORE), found.at + 1)
    rows = "".join(
        f'<tr><th scope="row"><button type="button" data-token="{step}" '
        f'aria-label="Show token {step + 1}">{step + 1}</button></th>'
        + "".join(f"<td>{_said(_at(one, step)[1:]) or END}</td>" for one in (reference, column))
        + "</tr>"
        for step in steps
    )
    return (
        f'<details class="rk-parting" data-parts="{str(found.parts).lower()}">'
        f"<summary>{line}</summary><table><thead><tr>"
        '<th scope="col">token</th><th scope="col">likeliest there</th>'
        f'<th scope="col">here</th></tr></thead><tbody>{rows}</tbody></table></details>'
    )


def _at(column: Answer, step: int) -> tuple[Likely, ...]:
    """What was likely at a step; nothing behind the end."""
    return column.likely[step] if step < len(column.likely) else ()


def _said(likely: Sequence[Likely]) -> str:
    """`<b>20.10</b> (.61)` of each."""
    words = (
        f"<b>{escape(one.text.strip() or ('␣' if one.text else '∅'))}</b> "
        f"({_share(math.exp(one.logprob))})"
        for one in likely
    )
    return "<br>".join(words)


def _share(probability: float) -> str:
    """`.61`."""
    if 0 < probability < 0.005:
        return "under .01"
    text = f"{probability:.2f}"
    return text.removeprefix("0") if probability < 0.995 else "1"


def reading(column: Answer) -> str:
    """`The same token in 87 % of places; logit KL 0.012 nats a token, 0.34 at most.`"""
    parts = [f"The same token in {percent(sum(column.same) / max(len(column.same), 1))} of places"]
    known = [kl for kl in column.kl if kl is not None]
    if known:
        mean, worst = sum(known) / len(known), max(known)
        until = " until they part" if len(known) < len(column.kl) else ""
        parts.append(f"logit KL {_nats(mean)} nats a token{until}, {_nats(worst)} at most")
    return "; ".join(parts) + "."


def fidelity(column: Answer) -> float | None:
    """Share of tokens that are the uncompressed ones, each weighed by e^-KL where it is known: in
    [0, 1]; None before the first token."""
    if not column.same:
        return None
    weights = (1.0 if kl is None else math.exp(-kl) for kl in column.kl)
    return sum(w for w, same in zip(weights, column.same, strict=True) if same) / len(column.same)


def _nats(kl: float) -> str:
    """Two digits, and no more of them than can be read."""
    return f"{kl:.2g}" if kl >= 1e-3 else "below 0.001"
