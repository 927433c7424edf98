"""Departure boards and score boards: kept out of training, like tickets."""

import random

from pocket.content import formats, words
from pocket.content.colours import shade
from pocket.content.tables import Grid
from pocket.document import Document
from pocket.layouts.fonts import pick_family
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.tables import table_questions


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A dark board of rows in bright type, without rules."""
    ground = rng.choice(((12, 12, 16), (10, 22, 60), (20, 40, 30), (40, 10, 14)))
    canvas, m = blank_page(style, ground), style.margin
    family = pick_family(rng, style.split, western=False, mono=rng.random() < 0.5)
    face, head = family.bold(style.size), family.regular(max(10, style.size * 0.9))
    ink, dim = shade(rng, rng.choice(("yellow", "white", "orange", "cyan"))), (150, 160, 175)
    sport = rng.random() < 0.4
    headers = (
        ["Team", "Played", "Points"] if sport else ["Time", "Destination", "Platform", "Status"]
    )
    pitch = face.line * rng.uniform(1.25, 1.8)
    n = max(1, min(10, int((style.height - 2 * m) / pitch) - 1))
    rows = []
    for name in words.unique(rng, lambda r: r.choice(words.CITIES), n):
        if sport:
            rows.append([name, str(rng.randint(1, 38)), str(rng.randint(0, 99))])
        else:
            rows.append(
                [
                    formats.clock(rng),
                    name,
                    str(rng.randint(1, 24)),
                    rng.choice(("On time", "Delayed", "Boarding", "Cancelled")),
                ]
            )
    widths = [
        max(face.width(r[i]) for r in [headers, *rows]) + style.size * 1.2
        for i in range(len(headers))
    ]
    while sum(widths) > style.width - 2 * m and len(widths) > 2:
        headers, widths = headers[:-1], widths[:-1]
        rows = [r[:-1] for r in rows]
    if not sport:  # rows are asked for by destination
        headers = [headers[1], headers[0], *headers[2:]]
        rows = [[r[1], r[0], *r[2:]] for r in rows]
        widths = [widths[1], widths[0], *widths[2:]]
    for r, row in enumerate([headers, *rows]):
        x = float(m)
        for i, text in enumerate(row):
            canvas.text(x, m + r * pitch, text, face if r else head, ink if r else dim)
            x += widths[i]
    values = {
        i: [float(r[i]) for r in rows]
        for i in range(len(headers))
        if headers[i] in ("Points", "Played")
    }
    return canvas.document(table_questions(rng, Grid(headers, rows, values), ""))
