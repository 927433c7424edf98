"""Questions about keys and values, in one column or side by side."""

import random
from typing import Final

from pocket.content import words
from pocket.content.fields import FIELDS
from pocket.document import Question
from pocket.questions.templates import ORDINALS, absent, ask, yes_no

WHERE: Final = {
    "right": ("Which field is to the right of {f}?", "what stands right of {f}",
              "Which field follows {f} in its row?"),
    "left": ("Which field is to the left of {f}?", "what stands left of {f}",
             "Which field comes before {f} in its row?"),
}  # fmt: skip
VALUES: Final = (
    "List all values.", "list the values in order", "Which values are given?",
    "Read the values only.",
)  # fmt: skip
LARGEST: Final = (
    "Which figure is the highest?", "Which field has the highest value?", "highest figure?",
    "which one is the largest", "What has the highest value?",
)  # fmt: skip
SMALLEST: Final = (
    "Which figure is the lowest?", "Which field has the lowest value?", "lowest figure?",
    "which one is the smallest", "What has the lowest value?",
)  # fmt: skip


def field_questions(rng: random.Random, title: str, shown: list[tuple[str, str]]) -> list[Question]:
    """Questions about a sheet of fields."""
    out = []
    names = {k.lower() for k, _ in shown}
    for key, value in rng.sample(shown, min(6, len(shown))):
        out.append(
            ask(rng, "field", value, f=key if rng.random() < 0.4 else key.lower().rstrip("."))
        )
    missing = [k for k in FIELDS if not any(k.lower() in n or n in k.lower() for n in names)]
    strange = words.some(rng, 1, 2)
    if not any(strange.lower() in n or n in strange.lower() for n in names):
        missing += [strange] * len(missing)
    out.append(absent(rng, "field", f=rng.choice(missing).lower().rstrip(".")))
    if title:
        out.append(ask(rng, "title", title))
    if shown:
        key, value = rng.choice(shown)
        out.append(yes_no(rng, "present", True, f=f"a field called {key}"))
        out.append(yes_no(rng, "present", False, f=f"a field called {rng.choice(missing)}"))
        others = [v for _, v in shown]
        once = [pair for pair in shown if others.count(pair[1]) == 1]
        for key, value in rng.sample(once, min(2, len(once))):
            out.append(ask(rng, "names", key, kind="reverse", v=value))
        if len(shown) <= 10:
            out.append(ask(rng, "list", ", ".join(k for k, _ in shown), n="fields"))
        if 2 <= len(shown) <= 12:
            out.append(ask(rng, "count", str(len(shown)), n="fields"))
        text = "\n".join(f"{k}: {v}" for k, v in shown)
        head = f"# {title}\n\n" if title else ""
        out.append(ask(rng, "page", head + text, kind="transcribe"))
    return out


def grid_questions(
    rng: random.Random, title: str, rows: list[list[tuple[str, str]]], numbers: list[float]
) -> list[Question]:
    """Questions about fields in rows; `numbers` (or none) are the values in reading order."""
    shown = [pair for row in rows for pair in row]
    out = field_questions(rng, title, shown)
    values = [v for _, v in shown]
    for key, value in rng.sample(shown, min(3, len(shown))):
        out.append(ask(rng, "field", value, f=key))
        if values.count(value) == 1:
            out.append(ask(rng, "names", key, kind="reverse", v=value))
    out += _order(rng, shown)
    for row in rows:
        if len(row) > 1 and rng.random() < 0.5:
            i = rng.randrange(len(row) - 1)
            side, here, there = rng.choice((("right", i, i + 1), ("left", i + 1, i)))
            text = rng.choice(WHERE[side]).format(f=row[here][0])
            out.append(Question("find", text, row[there][0]))
    if len(numbers) == len(shown) > 1:
        out += _extremes(rng, shown, numbers)
    return out


def _order(rng: random.Random, shown: list[tuple[str, str]]) -> list[Question]:
    """Questions that count and list."""
    out, n = list[Question](), len(shown)
    if 10 < n <= 18:
        out.append(ask(rng, "list", ", ".join(k for k, _ in shown), n="fields"))
    if n > 12:
        out.append(ask(rng, "count", str(n), n="fields"))
    if 2 <= n <= 12:
        out.append(Question("list", rng.choice(VALUES), ", ".join(v for _, v in shown)))
    if n > 1:
        i = rng.randrange(min(n, len(ORDINALS)))
        out.append(ask(rng, "nth", shown[i][0], k=ORDINALS[i], n="field"))
        out.append(ask(rng, "nth", shown[-1][0], k="last", n="field"))
    return out


def _extremes(
    rng: random.Random, shown: list[tuple[str, str]], numbers: list[float]
) -> list[Question]:
    order, out = sorted(range(len(numbers)), key=numbers.__getitem__), list[Question]()
    if numbers[order[-1]] > numbers[order[-2]]:
        key, value = shown[order[-1]]
        out.append(Question("highest", rng.choice(LARGEST), key))
        out.append(ask(rng, "highest_value", value, kind="value", n="figure"))
    if numbers[order[0]] < numbers[order[1]]:
        out.append(Question("lowest", rng.choice(SMALLEST), shown[order[0]][0]))
    return out
