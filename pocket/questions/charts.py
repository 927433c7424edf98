"""Questions about charts."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from pocket.content import words
from pocket.content.charts import ChartData, ranked
from pocket.document import Question
from pocket.questions.templates import absent, ask, careless, worded, yes_no

VALUES: Final = (
    "What is the {m} for {f}?", "{m} in {f}?", "What was the {m} of {f}?",
    "How much {m} does {f} have?", "what {m} does {f} show",
)  # fmt: skip
AS_TABLE: Final = (
    "Give the data as a Markdown table.", "Convert the chart to a table.", "chart to table",
    "Write the values as a table.", "transcribe the chart as a table",
)  # fmt: skip
MOST_VALUES: Final = 24  # of a chart that is to be written as a table


def chart_questions(
    rng: random.Random, data: ChartData, shown: bool, coloured: bool = True
) -> list[Question]:
    """Questions about a chart.

    Args:
        rng: Says which, and in which words.
        data: What the chart shows.
        shown: Whether its values are written; only then are they asked for.
        coloured: Whether its series have colours to be named.
    """
    out = [ask(rng, "kind", data.kind)]
    cats, n = data.categories, len(data.categories)
    if data.title:
        out.append(ask(rng, "title", data.title))
    for label, axis in ((data.x_label, "x"), (data.y_label, "y")):
        if label:
            out.append(ask(rng, "axis", label, f=axis, kind="title"))
    noun = rng.choice(("category", "one", "entry", "group", "label"))
    out += [_value(rng, data) for _ in range(4 if shown or data.coarse else 0)]
    out += _comparisons(rng, data, shown, noun)
    if data.about is not None:
        out += _natural(rng, data, data.about, shown)
    single = len(data.series) == 1
    if not single:
        out += _legend(rng, data, coloured)
    bars = ("bars", "categories") if single and "bar" in data.kind else ("categories", "groups")
    out.append(ask(rng, "count", str(n), n=rng.choice(bars)))
    if n <= 8:
        out.append(ask(rng, "list", ", ".join(cats), n=rng.choice(("categories", "labels"))))
    other = words.label(rng)
    everything = " ".join((*cats, *data.series, data.title)).lower()
    if other.lower() not in everything:
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "value", f=other))
    out.append(yes_no(rng, "present", True, f=rng.choice(cats)))
    if shown and n * len(data.series) <= MOST_VALUES:
        out.append(worded(rng, "transcribe", _markdown(data), *AS_TABLE))
    return out


def _value(rng: random.Random, data: ChartData) -> Question:
    """One value, by its category, and its series where there are several."""
    s, c = rng.randrange(len(data.series)), rng.randrange(len(data.categories))
    name, answer = data.categories[c], data.text(s, c)
    if len(data.series) > 1:
        return ask(rng, "value2", answer, f=data.series[s], g=name, kind="value")
    if rng.random() < 0.4:
        text = rng.choice(VALUES).format(m=data.unit.lower(), f=name)
        return Question("value", careless(rng, text), answer)
    return ask(rng, "value", answer, f=name)


def _legend(rng: random.Random, data: ChartData, coloured: bool) -> list[Question]:
    """Questions for the number of series, their names, and their colours."""
    s, names = rng.randrange(len(data.series)), data.series
    out = [ask(rng, "count", str(len(names)), n=rng.choice(("series", "legend entries")))]
    out.append(ask(rng, "legend", ", ".join(names), kind="list"))
    if coloured:
        out.append(ask(rng, "colour", data.colours[s][0], f=names[s]))
        s = rng.randrange(len(names))
        slots = {"n": "series", "c": data.colours[s][0]}
        out.append(ask(rng, "by_colour", names[s], kind="colour", **slots))
    return out


def _markdown(data: ChartData) -> str:
    """The chart's values as a table: a row a category."""
    head = ["Category", *(data.series if len(data.series) > 1 else ["Value"])]
    count = range(len(data.series))
    rows = [[name, *(data.text(s, c) for s in count)] for c, name in enumerate(data.categories)]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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
