"""Questions about charts."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from rotatek.pocket.content import words
from rotatek.pocket.content.charts import ChartData, ranked
from rotatek.pocket.document import Question
from rotatek.pocket.questions.templates import absent, ask, careless, yes_no


def chart_questions(
    rng: random.Random, data: ChartData, shown: bool, coloured: bool = True
) -> list[Question]:
    """Questions about a chart; values are asked for only where they are written (`shown`)."""
    out = [ask(rng, "kind", data.kind)]
    single = len(data.series) == 1
    cats = data.categories
    n = len(cats)
    if data.title:
        out.append(ask(rng, "title", data.title))
    for label, axis in ((data.x_label, "x"), (data.y_label, "y")):
        if label:
            out.append(ask(rng, "axis", label, f=axis, kind="title"))
    noun = rng.choice(("category", "one", "entry", "group", "label"))
    for _ in range(4 if shown or data.coarse else 0):
        s, c = rng.randrange(len(data.series)), rng.randrange(n)
        if single and rng.random() < 0.4:
            unit, name = data.unit.lower(), cats[c]
            text = rng.choice(
                (
                    f"What is the {unit} for {name}?",
                    f"{unit} in {name}?",
                    f"What was the {unit} of {name}?",
                    f"How much {unit} does {name} have?",
                    f"what {unit} does {name} show",
                )
            )
            out.append(Question("value", careless(rng, text), data.text(s, c)))
        elif single:
            out.append(ask(rng, "value", data.text(s, c), f=cats[c]))
        else:
            out.append(
                ask(rng, "value2", data.text(s, c), f=data.series[s], g=cats[c], kind="value")
            )
    out += _comparisons(rng, data, shown, noun)
    if data.about is not None:
        out += _natural(rng, data, data.about, shown)
    if not single:
        s = rng.randrange(len(data.series))
        out.append(
            ask(rng, "count", str(len(data.series)), n=rng.choice(("series", "legend entries")))
        )
        out.append(ask(rng, "legend", ", ".join(data.series), kind="list"))
        if coloured:
            colour = data.colours[s][0]
            out.append(ask(rng, "colour", colour, f=data.series[s]))
            s = rng.randrange(len(data.series))
            colour = data.colours[s][0]
            out.append(ask(rng, "by_colour", data.series[s], n="series", c=colour, kind="colour"))
    out.append(
        ask(
            rng,
            "count",
            str(n),
            n=rng.choice(("categories", "groups"))
            if not single or "bar" not in data.kind
            else rng.choice(("bars", "categories")),
        )
    )
    if n <= 8:
        out.append(ask(rng, "list", ", ".join(cats), n=rng.choice(("categories", "labels"))))
    other = words.label(rng)
    everything = " ".join((*cats, *data.series, data.title)).lower()
    if other.lower() not in everything:
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "value", f=other))
    out.append(yes_no(rng, "present", True, f=rng.choice(cats)))
    if shown and n * len(data.series) <= 24:
        head = (
            ["", *data.series]
            if not single
            else [data.unit if data.y_label == data.unit else "Category", "Value"]
        )
        rows = [[cats[c], *(data.text(s, c) for s in range(len(data.series)))] for c in range(n)]
        head[0] = "Category"
        lines = [head, ["---"] * len(head), *rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        out.append(
            Question(
                "transcribe",
                rng.choice(
                    (
                        "Give the data as a Markdown table.",
                        "Convert the chart to a table.",
                        "chart to table",
                        "Write the values as a table.",
                        "transcribe the chart as a table",
                    )
                ),
                text,
            )
        )
    return out


def _natural(
    rng: random.Random, data: ChartData, about: Mapping[str, Any], shown: bool
) -> list[Question]:
    """Questions as people ask about this subject."""
    out, cats = list[Question](), data.categories
    single = len(data.series) == 1
    forms = about["value"] if single else about.get("value2", ())
    for _ in range(3 if forms and (shown or data.coarse) else 0):
        s, c = rng.randrange(len(data.series)), rng.randrange(len(cats))
        text = rng.choice(forms).replace("{c}", cats[c]).replace("{s}", data.series[s])
        out.append(Question("value", careless(rng, text), data.text(s, c)))
    if single:
        order, low, high = ranked(data.values[0], shown)
        for form, told, best in (("most", high, order[-1]), ("least", low, order[0])):
            if told:
                kind = "highest" if form == "most" else "lowest"
                out.append(Question(kind, careless(rng, rng.choice(about[form])), cats[best]))
    return out


def _comparisons(rng: random.Random, data: ChartData, shown: bool, noun: str) -> list[Question]:
    """Highest and lowest, of everything and of a series, ranks, and which entry has a value."""
    s = rng.randrange(len(data.series))
    row, cats, out = data.values[s], data.categories, list[Question]()
    order, low, high = ranked(row, shown)
    slots = {"n": noun, "m": data.unit.lower(), "s": data.series[s]}
    of = "" if len(data.series) == 1 else "_of"
    if high:
        out.append(ask(rng, "highest" + of, cats[order[-1]], kind="highest", **slots))
        if shown:
            top = data.text(s, order[-1])
            out.append(ask(rng, "highest_value" + of, top, kind="value", **slots))
    if low:
        out.append(ask(rng, "lowest" + of, cats[order[0]], kind="lowest", **slots))
    if len(row) > 3 and low and high and ranked([row[i] for i in order[:-1]], shown)[2]:
        out.append(ask(rng, "second" + of, cats[order[-2]], kind="highest", **slots))
    if len(row) > 1:
        a, b = rng.sample(range(len(row)), 2)
        if ranked([row[a], row[b]], shown)[2]:
            name = f"{data.series[s]} for " if of else ""
            pair = {"f": name + cats[a], "g": cats[b]}
            out.append(yes_no(rng, "greater", row[a] > row[b], **pair))
    if len(data.series) > 1 and ranked([r[order[0]] for r in data.values], shown)[2]:
        c = order[0]
        best = max(range(len(data.values)), key=lambda i: data.values[i][c])
        out.append(ask(rng, "series_at", data.series[best], kind="highest", f=cats[c]))
    texts = [t for line in data.texts[: len(data.series)] for t in line]
    once = [i for i in range(len(row)) if texts.count(data.text(s, i)) == 1]
    for i in rng.sample(once, min(2, len(once))) if shown else ():
        out.append(ask(rng, "reverse" + of, cats[i], kind="reverse", v=data.text(s, i), **slots))
    if shown and len(row) > 2 and not of:
        i = rng.choice(order[1:-1])
        above = str(sum(v > row[i] for v in row))
        out.append(ask(rng, "above", above, kind="count", v=data.text(s, i), **slots))
    return out


Asker = Callable[[list[str]], list[Question]]  # from the texts inside the picture


def asker(rng: random.Random, data: ChartData, shown: bool, coloured: bool = True) -> Asker:
    """Questions, once it is known which texts are inside the picture."""

    def build(texts: list[str]) -> list[Question]:
        everything = set(texts)
        data.title, data.x_label, data.y_label = (
            text if text in everything else "" for text in (data.title, data.x_label, data.y_label)
        )
        if not set(data.categories) <= everything or not set(data.series[:2]) <= everything | {
            data.unit
        }:
            return [ask(rng, "kind", data.kind)]
        written = {t for row in data.texts for t in row}
        return chart_questions(rng, data, shown and written <= everything, coloured)

    return build
