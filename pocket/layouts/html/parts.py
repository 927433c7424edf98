"""Style sheets and the small parts that every HTML document is made of."""

import html
import random
from collections.abc import Callable

from pocket.content.colours import Colour, hsv, ink_on
from pocket.document import Question
from pocket.layouts.style import PageStyle

Made = tuple[str, list[Question]]
Template = Callable[[random.Random, PageStyle, float], Made]
E = html.escape


def css(colour: Colour) -> str:
    """A colour as CSS writes it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def style_sheet(rng: random.Random, style: PageStyle, font: str) -> str:
    """A style sheet around the style's theme: one of many sites."""
    t = style.theme
    size = round(style.size, 1)
    radius, pad = rng.choice((0, 0, 4, 8, 14)), rng.choice((4, 6, 8, 10, 14))
    border = rng.choice(("none", f"1px solid {css(t.rule)}", f"1px solid {css(t.rule)}"))
    shadow = rng.choice(("none", "none", "0 1px 4px rgba(0,0,0,.25)"))
    lines = rng.choice(
        (
            "td,th{border:1px solid " + css(t.rule) + "}",
            "tr{border-bottom:1px solid " + css(t.rule) + "}",
            "",
        )
    )
    zebra = f"tr:nth-child(even) td{{background:{css(t.panel)}}}" if rng.random() < 0.4 else ""
    head = rng.choice(
        (
            f"background:{css(t.accent)};color:{css(ink_on(t.accent))}",
            f"color:{css(t.accent)}",
            f"border-bottom:2px solid {css(t.ink)}",
            "",
        )
    )
    return f"""
*{{box-sizing:border-box}} html,body{{margin:0;overflow:hidden}}
body{{background:{css(t.page)};color:{css(t.ink)};
font:{size}px/{rng.uniform(1.15, 1.6):.2f} {font};padding:{style.margin}px}}
h1{{font-size:{rng.uniform(1.2, 2.1):.2f}em;
margin:0 0 {rng.uniform(0.2, 0.8):.2f}em;
color:{css(rng.choice((t.ink, t.accent)))};
font-weight:{rng.choice((400, 600, 700))}}}
h2{{font-size:{rng.uniform(1.05, 1.4):.2f}em;margin:.5em 0 .2em;
color:{css(rng.choice((t.ink, t.accent)))}}}
p{{margin:0 0 .7em}} ul,ol{{margin:.2em 0 .7em;padding-left:1.6em}}
table{{border-collapse:collapse;{rng.choice(("width:100%", ""))}}} 
th{{text-align:left;{head}}} td,th{{padding:{pad / 2}px {pad}px}}
{lines}{zebra}
.n{{text-align:{rng.choice(("right", "right", "left"))};font-variant-numeric:tabular-nums}}
.card{{background:{css(t.panel)};border:{border};border-radius:{radius}px;
box-shadow:{shadow};padding:{pad}px}}
.grid{{display:grid;gap:{pad}px}} .muted{{color:{css(t.muted)}}} .small{{font-size:.85em}}
.key{{color:{css(t.muted)};font-size:{rng.choice((0.8, 0.9, 1))}em}} 
.big{{font-size:{rng.uniform(1.2, 2):.2f}em;font-weight:600}}
.row{{display:flex;justify-content:space-between;gap:1em;
padding:{pad / 3}px 0;{rng.choice(("", "border-bottom:1px solid " + css(t.rule)))}}}
.in{{border:1px solid {css(t.rule)};border-radius:{radius}px;
background:{css(t.panel)};padding:4px 8px;margin:2px 0 {pad}px}}
.bar{{background:{css(t.accent)};border-radius:{min(radius, 4)}px;
height:1.1em}} .accent{{color:{css(t.accent)}}}
"""


def heading(rng: random.Random, text: str) -> str:
    """A title, plain or as a band across the page."""
    return f"<h1>{E(text)}</h1>" if text else ""


def ornament(rng: random.Random, style: PageStyle, side: int) -> str:
    """Something without words in it: a picture's place, a bar code, blocks, an icon."""
    a, b = (css(rng.choice((style.theme.accent, style.theme.muted, hsv(rng.random(), 0.6, 0.7))))
            for _ in range(2))  # fmt: skip
    kind = rng.choice(("ramp", "bars", "blocks", "icon", "icon"))
    size = f"width:{side}px;height:{side}px"
    if kind == "ramp":
        turn = rng.randint(0, 360)
        return f"<div style='{size};background:linear-gradient({turn}deg,{a},{b})'></div>"
    parts, x = "", 0.0
    if kind == "bars":
        while x < side:
            step = rng.choice((1, 1, 2, 3))
            parts += f"<rect x={x} y=0 width={step} height={side * 0.5:.0f} />"
            x += step + rng.choice((1, 1, 2, 3))
    elif kind == "blocks":
        n = rng.randint(11, 25)
        for i in range(n * n):
            if rng.random() < 0.5:
                cell = side / n
                at = f"x={i % n * cell:.1f} y={i // n * cell:.1f}"
                parts += f"<rect {at} width={cell:.1f} height={cell:.1f} />"
    else:
        for _ in range(rng.randint(1, 4)):
            x, y, r = (rng.uniform(0.2, 0.8) * side for _ in range(3))
            tint = rng.choice((a, b))
            parts += rng.choice((
                f"<circle cx={x:.0f} cy={y:.0f} r={r / 2:.0f} fill='{tint}'/>",
                f"<rect x={x / 2:.0f} y={y / 2:.0f} width={r:.0f} height={r / 2:.0f} "
                f"fill='{tint}'/>",
                f"<path d='M{x:.0f},{y:.0f} l{r:.0f},0 l-{r / 2:.0f},-{r:.0f} Z' fill='{tint}'/>",
            ))  # fmt: skip
    return f"<svg style='{size};fill:{css(style.theme.ink)}'>{parts}</svg>"
