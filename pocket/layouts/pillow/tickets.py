"""Boarding passes and event tickets: kept out of training, to measure what is new to the model."""

import random

from pocket.content import formats, words
from pocket.content.colours import ink_on
from pocket.document import Document
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.fields import field_questions
from pocket.questions.templates import absent, ask


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A ticket with a coloured stub: fields in rows of unequal width, a bar code."""
    canvas, t, m = blank_page(style), style.theme, style.margin
    title = rng.choice(("Boarding pass", "Train ticket", "Concert ticket", "Museum entry", "Ferry"))
    stub = style.width * rng.uniform(0.08, 0.16)
    canvas.box(m / 2, m / 2, style.width - m / 2, style.height - m / 2, t.panel, t.rule, radius=12)
    canvas.box(m / 2, m / 2, m / 2 + stub, style.height - m / 2, t.accent, radius=12)
    x0, y = m + stub + 6, float(m)
    head, key_face = (
        style.heading.bold(style.size * 1.4),
        style.family.regular(max(10, style.size * 0.75)),
    )
    value_face = style.family.bold(style.size)
    if head.width(title) < style.width - x0 - m:
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
        "Date": formats.date,
        "Boarding": formats.clock,
        "Class": lambda r: r.choice(("Economy", "Business", "First", "Standard")),
        "Flight": formats.code,
        "Coach": lambda r: str(r.randint(1, 18)),
        "Price": lambda r: words.money(r)(r.uniform(5, 400)),
        "Row": lambda r: str(r.randint(1, 60)),
        "Booking": formats.code,
        "Platform": lambda r: str(r.randint(1, 22)),
        "Venue": words.company,
    }
    shown: list[tuple[str, str]] = []
    keys = rng.sample(tuple(pool), rng.randint(5, len(pool)))
    x, pitch = x0, (key_face.line + value_face.line) * 1.25
    for key in keys:
        value = pool[key](rng)
        width = max(key_face.width(key), value_face.width(value)) + style.size
        if x + width > style.width - m:
            x, y = x0, y + pitch
        if y + pitch > style.height - m or x + width > style.width - m:
            continue
        canvas.text(x, y, key.upper() if rng.random() < 0.0 else key, key_face, t.muted)
        canvas.text(x, y + key_face.line, value, value_face, t.ink)
        shown.append((key, value))
        x += width
    y += pitch
    if y + 30 < style.height - m:
        while x0 < style.width - m - 4:
            step = rng.randint(1, 4)
            canvas.box(x0, y, x0 + step - 1, min(y + 40, style.height - m), fill=ink_on(t.panel))
            x0 += step + rng.randint(1, 4)
    out = field_questions(rng, title, shown)
    missing = next(k for k in pool if k not in dict(shown)) if len(shown) < len(pool) else "waiter"
    out.append(absent(rng, "field", f=missing.lower()))
    out += [ask(rng, "field", v, f=k) for k, v in shown[:3]]
    return canvas.document(out)
