"""A page of several parts, as most pages of programs are: facts of a topic beside figures.

Such a page is hard for what surrounds an answer: other names, figures and headings.
"""

import random
import re
from collections import Counter
from dataclasses import replace
from typing import Final

from pocket.document import Question
from pocket.layouts.html import cards, charts, programs
from pocket.layouts.html.parts import Made, Template
from pocket.layouts.html.topics import leaflet
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT

# parts whose questions name what they ask for, so that they are clear beside any other part
FIGURES: Final[tuple[Template, ...]] = (
    cards.gallery, cards.roster, cards.ranking, charts.columns, charts.meters, charts.pie,
    programs.stats,
)  # fmt: skip
ABOUT_ONE: Final = ("fact", "value", "cell", "reverse", "yes_no", "highest", "lowest", "colour")
GENERAL: Final = re.compile(  # asked of figures, it may be about any part
    r"max|min|peak|high|low|larg|small|big|best|worst|second|lead|"
    r"image|picture|shown|there|see|mention|appear|contain|find"
)
NARROW: Final = 520  # pixels: less has one column
GAP: Final = 16
SHORTEST: Final = 190  # ... of a part's height, so that a chart can be read
OF_FIGURES: Final = 4  # questions, at most, about a part that is not the topic's
LARGEST: Final = 14.0  # pixels of the type, at most, so that several parts fit


def composed(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A topic's facts among two to four parts in columns."""
    count = rng.randint(2, 4)
    columns = 1 if style.width < NARROW else rng.choice((2, 2, 3))
    rows = -(-count // columns)
    inner = replace(
        style,
        width=int((style.width - 2 * style.margin) / columns - GAP),
        height=max(SHORTEST, int((style.height - 2 * style.margin) / rows - GAP)),
        size=min(style.size, LARGEST),
        margin=0,
    )
    parts = [leaflet, *rng.sample(FIGURES, count - 1)]
    rng.shuffle(parts)
    made = [part(rng, inner, size) for part in parts]
    box = rng.choice(("", "class=card", "class=card"))
    cells = "".join(f"<div {box} style='min-width:0'>{body}</div>" for body, _ in made)
    wide = " ".join(f"{rng.uniform(0.8, 1.3):.2f}fr" for _ in range(columns))
    rules = f"font-size:{inner.size:.1f}px;gap:{GAP}px;align-items:start"
    body = f"<div class=grid style='{rules};grid-template-columns:{wide}'>{cells}</div>"
    asked = []
    for part, (_, questions) in zip(parts, made, strict=True):
        kept = [q for q in questions if q.kind in ABOUT_ONE and q.answer != ABSENT]
        if part is not leaflet:
            kept = [q for q in kept if not GENERAL.search(q.text.lower())]
            kept = rng.sample(kept, min(OF_FIGURES, len(kept)))
        asked += kept
    return body, _once(asked)


def _once(questions: list[Question]) -> list[Question]:
    """Those that are asked of one part alone."""
    texts = [q.text.lower().rstrip("?. ") for q in questions]
    seen = Counter(texts)
    return [q for q, text in zip(questions, texts, strict=True) if seen[text] == 1]
