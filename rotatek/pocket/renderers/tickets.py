"""Boarding passes and event tickets: kept out of training, to measure what is new to the model."""

from __future__ import annotations

import random

from .. import words
from ..document import Document
from ..questions import absent, ask
from ..theme import on
from .forms import questions
from .look import Look


def draw(rng: random.Random, look: Look) -> Document:
    """A ticket with a coloured stub: fields in rows of unequal width, a bar code."""
    canvas, t, m = look.canvas(), look.theme, look.margin
    title = rng.choice(("Boarding pass", "Train ticket", "Concert ticket", "Museum entry", "Ferry"))
    stub = look.width * rng.uniform(0.08, 0.16)
    canvas.box(m / 2, m / 2, look.width - m / 2, look.height - m / 2, t.panel, t.rule, radius=12)
    canvas.box(m / 2, m / 2, m / 2 + stub, look.height - m / 2, t.accent, radius=12)
    x0, y = m + stub + 6, float(m)
    head, key_face = (
        look.heading.bold(look.size * 1.4),
        look.family.regular(max(10, look.size * 0.75)),
    )
    value_face = look.family.bold(look.size)
    if head.width(title) < look.width - x0 - m:
        canvas.text(x0, y, title, head, t.ink)
        y += head.line * 1.3
    else:
        title = ""
    pool = {
        "Passenger": words.person,
        "From": lambda r: r.choice(words.CITIES),
        "Seat": lambda r: f"{r.randint(1, 40)}{r.choice('ABCDEF')}",
        "To": lambda r: r.choice(words.CITIES),
        "Gate": lambda r: f"{r.choice('ABCDE')}{r.randint(1, 60)}",
        "Date": words.date,
        "Boarding": words.clock,
        "Class": lambda r: r.choice(("Economy", "Business", "First", "Standard")),
        "Flight": words.code,
        "Coach": lambda r: str(r.randint(1, 18)),
        "Price": lambda r: words.money(r)(r.uniform(5, 400)),
        "Row": lambda r: str(r.randint(1, 60)),
        "Booking": words.code,
        "Platform": lambda r: str(r.randint(1, 22)),
        "Venue": words.company,
    }
    shown: list[tuple[str, str]] = []
    keys = rng.sample(tuple(pool), rng.randint(5, len(pool)))
    x, pitch = x0, (key_face.line + value_face.line) * 1.25
    for key in keys:
        value = pool[key](rng)
        width = max(key_face.width(key), value_face.width(value)) + look.size
        if x + width > look.width - m:
            x, y = x0, y + pitch
        if y + pitch > look.height - m or x + width > look.width - m:
            continue
        canvas.text(x, y, key.upper() if rng.random() < 0.0 else key, key_face, t.muted)
        canvas.text(x, y + key_face.line, value, value_face, t.ink)
        shown.append((key, value))
        x += width
    y += pitch
    if y + 30 < look.height - m:
        while x0 < look.width - m - 4:
            step = rng.randint(1, 4)
            canvas.box(x0, y, x0 + step - 1, min(y + 40, look.height - m), fill=on(t.panel))
            x0 += step + rng.randint(1, 4)
    out = questions(rng, title, shown)
    missing = next(k for k in pool if k not in dict(shown)) if len(shown) < len(pool) else "waiter"
    out.append(absent(rng, "field", f=missing.lower()))
    out += [ask(rng, "field", v, f=k) for k, v in shown[:3]]
    return canvas.document(out)
