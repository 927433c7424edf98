"""Things for sale or hire on cards and in lists: asked mostly which of them it is, by a figure."""

import random
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.content.cards import TAGS, Deck, Field
from pocket.content.tables import figures
from pocket.document import Document, Question
from pocket.layouts.pillow import card_lists
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.pillow.titles import put_title
from pocket.layouts.style import PageStyle
from pocket.questions.cards import deck_questions
from pocket.questions.paraphrases import denied, put

GOODS: Final = (
    ("product", "products", words.product), ("article", "articles", words.product),
    ("room", "rooms", lambda r: words.some(r, 1, 2)),
    ("tour", "tours", lambda r: words.some(r, 2, 3)),
    ("plan", "plans", lambda r: words.some(r, 1, 2)), ("dish", "dishes", words.product),
    ("book", "books", words.title), ("hotel", "hotels", words.company),
    ("car", "cars", lambda r: f"{lexicon.word(r).capitalize()} {r.randint(1, 900)}"),
    ("course", "courses", lambda r: words.some(r, 1, 3)), ("offer", "offers", words.label),
    ("game", "games", lambda r: words.some(r, 1, 2)), ("drink", "drinks", words.product),
    ("model", "models", formats.code), ("destination", "destinations", words.label),
)  # fmt: skip
PRICES: Final = (
    "{v}",
    "{v}",
    "{v}",
    "from {v}",
    "only {v}",
    "{v} each",
    "Price {v}",
    "now {v}",
    "{k}: {v}",
)
# label: units, how it is written, range, decimals
Written = tuple[tuple[str, ...], tuple[str, ...], tuple[float, float], int]
FIGURES: Final[dict[str, Written]] = {
    "score": (("", "/5", " of 5"), ("{v}", "rated {v}", "{k} {v}", "{k}: {v}"), (1, 5), 1),
    "reviews": (("",), ("{v} reviews", "({v} reviews)", "{k}: {v}"), (1, 4000), 0),
    "stock": (("",), ("{v} in stock", "{k}: {v}", "{v} left"), (1, 300), 0),
    "weight": ((" kg", " g", " lb"), ("{v}", "{k}: {v}"), (1, 60), 1),
    "discount": (("%",), ("{v} off", "-{v}"), (1, 80), 0),
    "duration": ((" days", " h", " min"), ("{v}", "{k}: {v}"), (1, 90), 0),
    "distance": ((" km", " m", " mi"), ("{v}", "{v} away"), (1, 800), 0),
    "places": (("",), ("{v} places", "{k}: {v}"), (1, 120), 0),
}
SUPERLATIVES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "score": (("best rated", "top rated"), ("worst rated", "lowest rated")),
    "weight": (("heaviest",), ("lightest",)),
    "duration": (("longest",), ("shortest",)),
    "distance": (("farthest", "most distant"), ("nearest", "closest")),
}
WHICH: Final = (
    "Which {n} is the {w}?", "What is the {w} {n}?", "the {w} {n}?", "Which is the {w}?",
    "Which of the {p} is {w}?", "{w} {n}",
)  # fmt: skip
SECOND: Final = ("Which {n} is the second {w}?", "What is the second {w} {n}?", "second {w} {n}?")
MANY: Final = {
    True: ("How many {p} cost more than {v}?", "number of {p} above {v}"),
    False: ("How many {p} cost less than {v}?", "number of {p} below {v}"),
}


def deck(rng: random.Random, n: int, most: int) -> Deck:
    """`n` things with a price and up to `most` - 1 other figures, in any order."""
    noun, plural, name = rng.choice(GOODS)
    cash, top = words.money(rng), rng.choice((20, 90, 500, 4000))
    costs = [round(rng.uniform(top / 20, top), 2) for _ in range(n)]
    fields = [Field("price", rng.choice(PRICES), [cash(v) for v in costs], costs)]
    for label in rng.sample(tuple(FIGURES), rng.randint(min(1, most - 1), most - 1)):
        units, patterns, (low, high), digits = FIGURES[label]
        made, unit = [round(rng.uniform(low, high), digits) for _ in range(n)], rng.choice(units)
        texts = [f"{v:.{digits}f}{unit}" for v in made]
        fields.append(Field(label, rng.choice(patterns), texts, made))
    if len(fields) < most and rng.random() < 0.3:
        column = figures(rng, n)
        rng.shuffle(column)
        label = words.some(rng, 1, 1)
        if label.lower() not in (f.label for f in fields):
            fields.append(Field(label, "{k}: {v}", [t for t, _ in column], [v for _, v in column]))
    if rng.random() < 0.5:
        rng.shuffle(fields)
    few = rng.sample(TAGS, 3)
    tags = [rng.choice(few) for _ in range(n)] if rng.random() < 0.2 else []
    return Deck(noun, plural, words.unique(rng, name, n), fields, tags)


def draw(rng: random.Random, style: PageStyle) -> Document:
    """Cards in a grid, or one below the other as strips."""
    canvas = blank_page(style)
    title, y = put_title(rng, canvas, style)
    arrange = card_lists.strips if style.width > 300 and rng.random() < 0.35 else card_lists.grid
    made = arrange(rng, canvas, style, y, deck)
    general = deck_questions(rng, title, made, style.budget)
    kept = [q for q in general if q.kind not in ("highest", "lowest", "absent")]
    return canvas.document(kept + questions(rng, made))


def questions(rng: random.Random, made: Deck) -> list[Question]:
    """Which thing has the highest, the lowest or a given figure, and figures of things."""
    out, n = list[Question](), len(made.names)
    if not n:
        return out
    for field in made.fields:
        label = field.label.lower()
        for i in rng.sample(range(n), min(2, n)):
            form = "price" if label == "price" and rng.random() < 0.6 else "of"
            out.append(put(rng, form, field.texts[i], "value", f=made.names[i], g=label))
        if n > 1:
            out += _extremes(rng, made, field)
    other = words.product(rng)
    if not words.overlaps(other, made.names):
        out.append(denied(rng, "price", f=other))
    return out


def _extremes(rng: random.Random, made: Deck, field: Field) -> list[Question]:
    """The name of the thing with the highest and the lowest `field`; pairs; how many beyond."""
    label, out, names = field.label.lower(), list[Question](), made.names
    order = sorted(range(len(names)), key=field.values.__getitem__)
    slots = {"n": made.noun, "p": made.plural, "g": label}
    sold = label == "price"
    ends = (("highest", order[::-1], "dearest" if sold else "most", "most expensive"),
            ("lowest", order, "cheapest" if sold else "least", "cheapest"))  # fmt: skip
    for end, (kind, rank, form, word) in enumerate(ends):
        if field.values[rank[0]] == field.values[rank[1]]:
            continue
        for _ in range(2 if sold else 1):
            out.append(put(rng, form, names[rank[0]], kind, **slots))
        if label in SUPERLATIVES:
            text = rng.choice(WHICH).format(w=rng.choice(SUPERLATIVES[label][end]), **slots)
            out.append(Question(kind, text, names[rank[0]]))
        if sold:
            text = rng.choice(("How much is the {w} {n}?", "What does the {w} {n} cost?"))
            text = text.format(w=word, **slots)
            out.append(Question(kind, text, field.texts[rank[0]]))
        if sold and len(rank) > 2 and len({field.values[i] for i in rank[:3]}) == 3:
            text = rng.choice(SECOND).format(w=word, **slots)
            out.append(Question(kind, text, names[rank[1]]))
    a, b = rng.sample(range(len(names)), 2)
    if sold and field.values[a] != field.values[b]:
        cheaper = rng.random() < 0.5
        text = f"Is {names[a]} {'cheaper' if cheaper else 'more expensive'} than {names[b]}?"
        out.append(Question("yes_no", text, "yes" if (field.values[a] < field.values[b]) == cheaper
                            else "no"))  # fmt: skip
        mid, above = rng.choice(order), rng.random() < 0.5
        beyond = sum(v > field.values[mid] if above else v < field.values[mid]
                     for v in field.values)  # fmt: skip
        text = rng.choice(MANY[above]).format(v=field.texts[mid], **slots)
        out.append(Question("count", text, str(beyond)))
    return out
