"""Charts drawn by matplotlib, in its own styles (imported only when a chart is asked for)."""

import logging
import random
from functools import lru_cache
from typing import Any, Final

import numpy as np
from PIL import Image

from pocket.content import formats, topic, words
from pocket.content.charts import ChartData, ChartMaker, chart_maker, make_chart
from pocket.content.colours import NAMED, series_colours
from pocket.document import Document, Question
from pocket.glyphs import CLASS_OF
from pocket.layouts import fonts
from pocket.layouts.matplotlib import charts
from pocket.layouts.style import PageStyle
from pocket.questions.charts import Asker, asker
from pocket.questions.templates import ask

STYLES: Final = (
    "default", "default", "default", "ggplot", "seaborn-v0_8-whitegrid", "seaborn-v0_8-darkgrid",
    "bmh", "fivethirtyeight", "dark_background", "classic", "seaborn-v0_8-white", "Solarize_Light2",
    "grayscale", "seaborn-v0_8-pastel", "tableau-colorblind10",
)  # fmt: skip


def draw_topic(rng: random.Random, style: PageStyle) -> Document:
    """One by matplotlib, which takes ten times as long."""
    return charts.draw(rng, style, chart_maker(rng.choice(topic.charts())))


@lru_cache(maxsize=1)
def _font_names() -> dict[str, str]:
    """Make the project's fonts known to matplotlib; family -> the name it uses."""
    from matplotlib import font_manager  # noqa: PLC0415 - needed for charts only

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # weights are in the name
    names: dict[str, str] = {}
    for slug, path in sorted(fonts.slugs().items(), key=lambda item: "bold" in item[0]):
        font_manager.fontManager.addfont(str(path))
        names.setdefault(
            fonts.family(slug), font_manager.FontProperties(fname=str(path)).get_name()
        )
    return names


def draw(rng: random.Random, style: PageStyle, maker: ChartMaker = make_chart) -> Document:
    """One matplotlib figure: bars, lines, pie, scatter, or stacked bars."""
    import matplotlib  # noqa: PLC0415 - needed for charts only
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.style import context  # noqa: PLC0415

    matplotlib.rcParams["savefig.facecolor"] = "auto"
    named = rng.choice(STYLES)
    dpi = rng.choice((72, 80, 100, 100, 110, 130))
    with context(named):
        matplotlib.rcParams["axes.unicode_minus"] = False
        matplotlib.rcParams["font.size"] = (
            rng.uniform(8.5, 12) * 100 / dpi * rng.choice((1, 1, 1.2))
        )
        if rng.random() < 0.5:
            matplotlib.rcParams["font.family"] = _font_names()[style.family.name]
        figure = Figure(figsize=(style.width / dpi, style.height / dpi), dpi=dpi)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_subplot(111)
        ways = (_bars, _bars, _lines, _lines, _pie, _stacked, _scatter)
        way = rng.choice(ways if maker is make_chart else ways[:-1])
        out = way(rng, style, axes, maker)
        if rng.random() < 0.8:
            figure.tight_layout()
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3].copy()
        glyphs, texts = _glyphs(figure, canvas.get_renderer(), style)
    return Document(Image.fromarray(pixels), glyphs, out(texts), content=texts)


def _glyphs(figure: Any, renderer: Any, style: PageStyle) -> tuple[np.ndarray, list[str]]:
    """Centres of all characters, spread over each text's extent by a sans-serif's widths."""
    from matplotlib.text import Text  # noqa: PLC0415 - needed for charts only

    ruler = fonts.face("dejavu-regular", 20)
    points, texts = [], []
    for item in figure.findobj(Text):
        text = item.get_text()
        if not text or not item.get_visible():
            continue
        box = item.get_window_extent(renderer)
        inside = (
            0 <= (box.x0 + box.x1) / 2 < style.width and 0 <= (box.y0 + box.y1) / 2 < style.height
        )
        if (
            not inside
            or box.x0 < -3
            or box.x1 > style.width + 3
            or box.y0 < -3
            or box.y1 > style.height + 3
        ):
            continue
        texts.append(text)
        lines = text.split("\n")
        for k, line in enumerate(lines):
            advances = ruler.advances(line)
            angle = round(item.get_rotation()) % 360
            total, at = max(sum(advances), 1e-6), 0.0
            for ch, advance in zip(line, advances, strict=True):
                part = (at + advance / 2) / total
                at += advance
                if ch not in CLASS_OF:
                    continue
                across = (k + 0.5) / len(lines)
                if angle == 90:
                    x, y = box.x0 + across * (box.x1 - box.x0), box.y0 + part * (box.y1 - box.y0)
                elif 0 < angle < 90:
                    x, y = box.x0 + part * (box.x1 - box.x0), box.y0 + part * (box.y1 - box.y0)
                else:
                    x, y = box.x0 + part * (box.x1 - box.x0), box.y1 - across * (box.y1 - box.y0)
                points.append((CLASS_OF[ch], x, style.height - y))
    return np.array(points, dtype=np.float32).reshape(-1, 3), texts


def _finish(rng: random.Random, axes: Any, data: ChartData) -> None:
    """Title and axis labels."""
    if rng.random() < 0.85:
        axes.set_title(data.title)
    else:
        data.title = ""
    if rng.random() < 0.5:
        data.y_label = data.unit
    if rng.random() < 0.4:
        data.x_label = rng.choice(("Year", "Region", "Group", words.some(rng, 1, 2)))
    if rng.random() < 0.3:
        axes.grid(True, alpha=rng.uniform(0.2, 0.8), axis=rng.choice(("both", "x", "y")))
    if rng.random() < 0.3:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)


def _colours(data: ChartData) -> list[Any]:
    return [tuple(c / 255 for c in colour) for _, colour in data.colours]


def _bars(rng: random.Random, style: PageStyle, axes: Any, make: ChartMaker) -> Asker:
    series = rng.choice((1, 1, 1, 2, 3))
    lying = rng.random() < 0.35
    n = rng.randint(2, max(3, min(9, style.width // (55 + 20 * series))))
    kind = ("grouped " if series > 1 else "") + ("horizontal bar chart" if lying else "bar chart")
    data = make(rng, n, series, kind)
    colours, at = _colours(data), np.arange(n)
    width = 0.8 / series
    shown = rng.random() < 0.75
    for s in range(series):
        draw_bars = axes.barh if lying else axes.bar
        where = at + (s - (series - 1) / 2) * width
        bars = draw_bars(
            where,
            data.values[s],
            width * rng.uniform(0.85, 1),
            color=colours[s],
            label=data.series[s],
        )
        if shown:
            axes.bar_label(
                bars, labels=data.texts[s], padding=2, fontsize=None if series == 1 else "small"
            )
    if lying:
        axes.set_yticks(at, data.categories)
        axes.invert_yaxis()
        axes.margins(x=0.18)
    else:
        turn = (
            rng.choice((0, 45, 90)) if max(map(len, data.categories)) * n > style.width / 11 else 0
        )
        axes.set_xticks(at, data.categories, rotation=turn)
        axes.margins(y=0.15)
    _finish(rng, axes, data)
    (axes.set_xlabel if lying else axes.set_ylabel)(data.y_label)
    (axes.set_ylabel if lying else axes.set_xlabel)(data.x_label)
    if lying:
        data.x_label, data.y_label = data.y_label, data.x_label
    if series > 1:
        axes.legend(loc=rng.choice(("best", "upper right", "upper left")), framealpha=0.8)
    return asker(rng, data, shown, series > 1)


def _stacked(rng: random.Random, style: PageStyle, axes: Any, make: ChartMaker) -> Asker:
    n, series = rng.randint(2, 5), rng.choice((2, 3))
    data = make(rng, n, series, "stacked bar chart")
    base = np.zeros(n)
    shown = rng.random() < 0.8
    for s in range(series):
        bars = axes.bar(
            data.categories,
            data.values[s],
            0.6,
            bottom=base,
            color=_colours(data)[s],
            label=data.series[s],
        )
        if shown:
            axes.bar_label(bars, labels=data.texts[s], label_type="center")
        base += np.array(data.values[s])
    _finish(rng, axes, data)
    axes.set_ylabel(data.y_label)
    axes.set_xlabel(data.x_label)
    axes.margins(y=0.25)
    axes.legend(ncols=series, loc="upper center")
    return asker(rng, data, shown)


def _lines(rng: random.Random, style: PageStyle, axes: Any, make: ChartMaker) -> Asker:
    series, n = rng.choice((1, 1, 2, 3)), rng.randint(3, 9)
    data = make(rng, n, series, "line chart")
    start = rng.randint(1960, 2015)
    if data.about is None:
        data.categories = (
            [str(start + i) for i in range(n)]
            if rng.random() < 0.6
            else [m[:3] for m in formats.MONTHS[:n]]
        )
    shown = series == 1 and rng.random() < 0.6
    for s in range(series):
        axes.plot(
            range(n),
            data.values[s],
            color=_colours(data)[s],
            label=data.series[s],
            marker=rng.choice(("o", "s", "^", "", "", "x")),
            lw=rng.uniform(1, 3),
            ls=rng.choice(("-", "-", "--")),
        )
        if shown:
            for i in range(n):
                axes.annotate(
                    data.text(s, i),
                    (i, data.values[s][i]),
                    textcoords="offset points",
                    xytext=(0, 6),
                    ha="center",
                )
    axes.set_xticks(range(n), data.categories, rotation=rng.choice((0, 0, 45)) if n > 5 else 0)
    axes.margins(y=0.15)
    _finish(rng, axes, data)
    axes.set_ylabel(data.y_label)
    axes.set_xlabel(data.x_label)
    if series > 1:
        axes.legend()
    return asker(rng, data, shown)


def _pie(rng: random.Random, style: PageStyle, axes: Any, make: ChartMaker) -> Asker:
    n = rng.randint(2, 6)
    data = make(rng, n, 1, "pie chart", top=100)
    shares = [int(v) + 3 + i for i, v in enumerate(data.values[0])]
    shares = [round(100 * s / sum(shares)) for s in shares]
    shares[shares.index(max(shares))] += 100 - sum(shares)
    if len(set(shares)) < n:
        shares = [100 // n + 2 * (i - n // 2) for i in range(n)]
        shares[-1] += 100 - sum(shares)
    data.values = [[float(s) for s in shares]]
    shown = rng.random() < 0.8
    data.texts = [[f"{s}%" for s in shares]]

    data.colours = series_colours(rng, n)
    legend = rng.random() < 0.3
    axes.pie(
        shares, labels=None if legend else data.categories, colors=_colours(data),
        autopct="%d%%" if shown else None, startangle=rng.uniform(0, 360),
        wedgeprops={"width": 0.5} if rng.random() < 0.2 else None,
    )  # fmt: skip
    if legend:
        axes.legend(data.categories, loc="center left", bbox_to_anchor=(0.9, 0.5))
    if rng.random() < 0.8:
        axes.set_title(data.title)
    else:
        data.title = ""
    inner = asker(rng, data, shown, coloured=False)

    def build(texts: list[str]) -> list[Question]:
        out = inner(texts)
        if len(out) > 1:
            i = rng.randrange(n)
            out.append(ask(rng, "colour", data.colours[i][0], f=data.categories[i]))
            out.append(
                ask(
                    rng,
                    "by_colour",
                    data.categories[i],
                    n="slice",
                    c=data.colours[i][0],
                    kind="colour",
                )
            )
        return out

    return build


def _scatter(rng: random.Random, style: PageStyle, axes: Any, make: ChartMaker) -> Asker:
    groups, size = rng.choice((1, 2, 3)), rng.randint(4, 10)
    names = words.unique(rng, words.label, groups)
    colour_names = rng.sample([c for c in NAMED if c not in ("white", "black", "grey")], groups)
    x_label, y_label = rng.choice(words.METRICS), words.some(rng, 1, 2)
    title = words.title(rng)
    for name, colour in zip(names, colour_names, strict=True):
        rgb = tuple(v / 255 for v in NAMED[colour][0])
        xs = [rng.uniform(0, 100) for _ in range(size)]
        axes.scatter(
            xs, [rng.uniform(0, 100) for _ in xs], color=rgb, label=name, s=rng.uniform(15, 60)
        )
    axes.set_title(title)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if groups > 1:
        axes.legend()

    def build(texts: list[str]) -> list[Question]:
        out = [ask(rng, "kind", "scatter plot")]
        if title in texts:
            out.append(ask(rng, "title", title))
        for axis, text in (("x", x_label), ("y", y_label)):
            if text in texts:
                out.append(ask(rng, "axis", text, f=axis, kind="title"))
        if groups > 1 and set(names) <= set(texts):
            i = rng.randrange(groups)
            out.append(ask(rng, "colour", colour_names[i], f=names[i]))
            out.append(ask(rng, "by_colour", names[i], n="group", c=colour_names[i], kind="colour"))
            out.append(ask(rng, "count", str(groups), n=rng.choice(("series", "groups"))))
        return out

    return build
