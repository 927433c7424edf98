"""Questions about sets of cards."""

import random
from typing import Final

from pocket.content import lexicon
from pocket.content.cards import Deck, Field
from pocket.document import Question
from pocket.questions.templates import ORDINALS, absent, ask, yes_no

TOP: Final = (
    "Which {n} has the highest {c}?", "highest {c}?", "Which {n} has the most {c}?",
    "which {n} has the largest {c}", "Who or what leads by {c}?",
    "{c}: which is the highest",
)  # fmt: skip
FOOT: Final = (
    "Which {n} has the lowest {c}?", "lowest {c}?", "Which {n} has the least {c}?",
    "which {n} has the smallest {c}", "{c}: which is the lowest",
    "min {c}: which {n}?",
)  # fmt: skip
DEAREST: Final = ("Which {n} costs the most?", "dearest {n}?", "Which {n} is the most expensive?")
CHEAPEST: Final = ("Which {n} costs the least?", "cheapest {n}?", "Which {n} is the cheapest?")
ALSO: Final = ("What is the {w} {c}?", "{w} {c} in figures", "How much is the {w} {c}?")
TAGGED: Final = ("Which {n} is marked {t}?", "which one is {t}", "Which {n} has the tag {t}?")
MANY: Final = ("How many {p} are marked {t}?", "how many are {t}", "number of {p} marked {t}?")


def deck_questions(rng: random.Random, title: str, made: Deck, budget: int) -> list[Question]:
    """Questions about cards; a transcription of more than `budget` bytes is not asked for."""
    names, n = made.names, len(made.names)
    out = [ask(rng, "title", title)] if title else []
    if not n:
        return out
    for field in made.fields:
        out += _field_questions(rng, made, field)
    text = (f"# {title}\n\n" if title else "") + made.markdown()
    if len(text.encode()) <= budget:
        out.append(ask(rng, "page", text, kind="transcribe"))
    out.append(ask(rng, "count", str(n), n=rng.choice((made.plural, "cards", "entries"))))
    if n <= 14:
        out.append(ask(rng, "list", ", ".join(names), n=rng.choice((made.plural, "names"))))
    i = rng.randrange(min(n, len(ORDINALS)))
    out.append(ask(rng, "nth", names[i], k=ORDINALS[i], n=rng.choice((made.noun, "card"))))
    out.append(ask(rng, "nth", names[-1], k="last", n=rng.choice((made.noun, "card"))))
    out.append(yes_no(rng, "present", True, f=rng.choice(names)))
    other = lexicon.invented(rng, 3)
    if not any(other in name.lower() for name in names):
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "cell", f=other, g=made.fields[0].label.lower()))
    for tag in sorted(set(made.tags)):
        times = made.tags.count(tag)
        out.append(Question("count", rng.choice(MANY).format(p=made.plural, t=tag), str(times)))
        if times == 1:
            name = names[made.tags.index(tag)]
            out.append(Question("reverse", rng.choice(TAGGED).format(n=made.noun, t=tag), name))
    if made.tags:
        i = rng.randrange(n)
        out.append(ask(rng, "cell", made.tags[i], f=names[i], g=rng.choice(("tag", "status"))))
    return out


def _field_questions(rng: random.Random, made: Deck, field: Field) -> list[Question]:
    """Look-ups and comparisons in one figure of the cards."""
    label, n, out = field.label.lower(), len(made.names), list[Question]()
    for i in rng.sample(range(n), min(3, n)):
        form = "price" if label == "price" and rng.random() < 0.6 else "cell"
        slots = {"f": made.names[i], "g": label}
        out.append(ask(rng, form, field.texts[i], kind="value", **slots))
        if sum(field.texts[i] in x for f in made.fields for x in f.texts) == 1:
            slots = {"n": made.noun, "g": label, "v": field.texts[i]}
            out.append(ask(rng, "which_row", made.names[i], kind="reverse", **slots))
    if n < 2:
        return out
    order = sorted(range(n), key=field.values.__getitem__)
    ends = (("highest", order[-1], order[-2], (*TOP, *DEAREST * (label == "price"))),
            ("lowest", order[0], order[1], (*FOOT, *CHEAPEST * (label == "price"))))  # fmt: skip
    for kind, end, beside, asked in ends:
        if field.values[end] != field.values[beside]:
            for text in rng.sample(asked, 2):
                out.append(Question(kind, text.format(n=made.noun, c=label), made.names[end]))
            text = rng.choice(ALSO).format(w=kind, c=label)
            out.append(Question(kind, text, field.texts[end]))
    a, b = rng.sample(range(n), 2)
    if field.values[a] != field.values[b]:
        more = field.values[a] > field.values[b]
        slots = {"f": f"the {label} of {made.names[a]}", "g": f"that of {made.names[b]}"}
        text = rng.choice(("Is {f} higher than {g}?", "is {f} greater than {g}"))
        out.append(Question("yes_no", text.format(**slots), "yes" if more else "no"))
    return out
