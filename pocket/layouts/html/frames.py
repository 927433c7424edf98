"""Frames: the surroundings of a page on a screen - a window, a browser, a site's menus, a
telephone.

A screenshot seldom shows a document alone. What a frame says may be asked for, too; questions about
the page that the frame makes unclear are left out.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pocket.content import formats, words
from pocket.content.colours import ink_on
from pocket.document import Question
from pocket.layouts.html.parts import E, Made, Template, css
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT, careless, worded

SHARE: Final = 0.35  # of the pages stand in a frame
ENTRIES: Final = (
    "Home|Search|Inbox|Settings|Profile|Help|Reports|Calendar|Tasks|Contacts|Files|Projects|Orders|"
    "Customers|Products|Invoices|Analytics|Messages|Downloads|Favourites|History|Teams|Billing|"
    "Security|Users|Library|Albums|Explore|Alerts|Support|About|News|Shop|Cart|Account|Archive|"
    "Drafts|Sent|Spam|Bin|Overview|Planning|Documents|Photos|Music|Recipes|Workouts|Sleep|Wallet|"
    "Cards|Transfers|Courses|Grades|Students|Devices|Logs|Backups|Plugins|Jobs|Events|Forum|Blog|"
    "Prices|Contact|Careers|Maps|Routes|Tickets|Bookings|Reviews|Friends|Groups|Saved|Today"
).split("|")
MENUS: Final = ("File", "Edit", "View", "Insert", "Format", "Tools", "Window", "Help", "Go", "Run")
STATES: Final = (
    "Ready", "Saved", "{n} items", "{n} selected", "Line {n}, column {m}", "Page {n} of 214",
    "{m} words", "Connected", "Offline", "Zoom {n} %", "Last change {t}", "Synced at {t}",
    "{n} errors, {m} warnings", "Read only", "Draft saved at {t}", "{n} new",
)  # fmt: skip
SOUGHT: Final = (
    "Search", "Search ...", "Type to search", "Find a product", "Search the site",
    "What are you looking for?", "Search messages", "Find people", "Go to ...",
)  # fmt: skip
ARROWS: Final = "M10 2l-6 5 6 5M26 2l6 5-6 5M56 7a6 6 0 1 1-3-5"  # of a browser, and its circle
END: Final = ("© {y} {b}", "{b}, {y}", "© {b} {y}. All rights reserved.", "Copyright {y} {b}")
STACKS: Final = (
    ["window"], ["browser"], ["site"], ["sidebar"], ["browser", "site"], ["browser", "sidebar"],
    ["window", "sidebar"], ["site", "sidebar"],
)  # fmt: skip
PHONES: Final = (["phone"], ["phone"], ["phone", "site"])


@dataclass
class Frame:
    """A frame around a page, and what may be asked about it.

    `before` and `after` are its HTML; `inset` the width and height that it takes, in pixels;
    `labels` the words it shows, and `taken` a pattern: what is asked for with either may be
    missing from the page and stand in the frame.
    """

    before: str
    after: str
    inset: tuple[float, float]
    questions: list[Question]
    labels: list[str]
    taken: str


def is_framed(seed: int, template: str) -> bool:
    """Whether the page of `seed` gets a frame: not one that has a site's menu itself."""
    return template != "site" and random.Random(f"frame/{seed}").random() < SHARE


def framed(
    template: Template,
    rng: random.Random,
    style: PageStyle,
    size: float,
) -> Made:
    """A page of `template` in one or two frames."""
    tall = style.height > 1.25 * style.width
    names = rng.choice(PHONES if tall and rng.random() < 0.6 else STACKS)
    if style.width < 400:
        names = [n for n in names if n != "sidebar"] or ["site"]
    frames = [FRAMES[name](rng, style) for name in names]
    width = style.width - sum(f.inset[0] for f in frames)
    height = style.height - sum(f.inset[1] for f in frames)
    body, questions = template(rng, replace(style, width=int(width), height=int(height)), size)
    body = f"<div style='padding:{style.margin}px;flex:1;min-width:0'>{body}</div>"
    for frame in reversed(frames):
        body = frame.before + body + frame.after
    out = [q for q in questions if clear(q, frames)]
    for frame in frames:
        out += [replace(q, text=careless(rng, q.text)) for q in frame.questions]
    fill = f"height:{style.height}px;display:flex;flex-direction:column"
    return f"<div style='margin:-{style.margin}px;{fill}'>{body}</div>", out


def clear(question: Question, frames: Sequence[Frame]) -> bool:
    """Whether a question about the page has the same one answer within the frames."""
    text = question.text.lower()
    if question.kind == "transcribe":
        return "table" in text and question.answer.startswith("| ")
    if question.kind in ("nth", "text") or re.search(r"\blines?\b|\btop\b|\bbottom\b", text):
        return False
    if question.answer in (ABSENT, "no"):
        labels = [label.lower() for frame in frames for label in frame.labels]
        if any(label in text for label in labels):
            return False
        return not any(re.search(frame.taken, text) for frame in frames)
    return True


def _bar(style: PageStyle, content: str, ground: str, ink: str, side: str = "bottom") -> str:
    """A bar across the frame, with a rule on one `side`."""
    flex = "display:flex;align-items:center;gap:.9em;white-space:nowrap;padding:.35em .8em"
    rule = css(style.theme.rule)
    rules = f"{flex};border-{side}:1px solid {rule};background:{ground};color:{ink}"
    return f"<div style='{rules}'>{content}</div>"


def _grounds(rng: random.Random, style: PageStyle) -> tuple[str, str]:
    """Background and text colour of a bar."""
    t = style.theme
    ground = rng.choice((t.panel, t.panel, t.page, t.accent, (32, 36, 44)))
    return css(ground), css(t.ink if ground in (t.panel, t.page) else ink_on(ground))


def _dots(rng: random.Random) -> str:
    """The buttons of a window, as shapes."""
    if rng.random() < 0.5:
        dots = "".join(
            f"<circle cx={8 + 16 * i} cy=7 r=5 fill='{c}'/>"
            for i, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        )
        return f"<svg width=48 height=14>{dots}</svg>"
    crosses = "M2 7h10M20 2h10v10h-10zM38 2l10 10M48 2l-10 10"
    return f"<svg width=50 height=14 style='margin-left:auto;order:9'>{_path(crosses)}</svg>"


def _path(lines: str) -> str:
    return f"<path d='{lines}' fill=none stroke=currentColor stroke-width=1.5 />"


def _entries(rng: random.Random, least: int, most: int) -> list[str]:
    """The names of a menu's entries."""
    return rng.sample(ENTRIES, rng.randint(least, most))


def _menu(rng: random.Random, entries: list[str], where: str) -> tuple[str, list[Question]]:
    """The entry that is marked, and questions about a menu at `where`."""
    marked, place = rng.choice(entries), rng.randrange(len(entries) - 1)
    before, after = entries[place : place + 2]
    return marked, [
        worded(rng, "find", marked, f"Which entry is selected {where}?",
             f"What is highlighted {where}?", f"Which menu item is active {where}?"),
        worded(rng, "list", ", ".join(entries), f"What is in the menu {where}?",
             f"Which entries does the menu {where} have?", f"List the menu {where}.",
             f"Name the menu items {where}"),
        worded(rng, "find", after, f"What comes after {before} in the menu {where}?",
             f"Which menu item {where} follows {before}?"),
        worded(rng, "count", str(len(entries)), f"How many entries does the menu {where} have?",
             f"How many menu items are there {where}?"),
    ]  # fmt: skip


def window(rng: random.Random, style: PageStyle) -> Frame:
    """The window of a program: its title, at times menus and a status bar."""
    t, (ground, ink) = style.theme, _grounds(rng, style)
    title = rng.choice((formats.file_name, words.company, lambda r: words.some(r, 1, 3)))(rng)
    out = [
        worded(rng, "field", title, "What is the title of the window?", "window title?",
             "What does the title bar say?", "What is written in the title bar?")
    ]  # fmt: skip
    name = f"<span style='{rng.choice(('', 'margin:0 auto'))}'>{E(title)}</span>"
    before, after, rows = _bar(style, _dots(rng) + name, ground, ink), "", 1
    if rng.random() < 0.5:
        shown = [m for m in MENUS if rng.random() < 0.55] or ["File", "Help"]
        entries = "".join(f"<span>{m}</span>" for m in shown)
        before += _bar(style, entries, css(t.page), css(t.ink))
        out.append(worded(rng, "list", ", ".join(shown), "Which menus does the window have?",
                        "List the menu bar.", "What is in the menu bar?"))  # fmt: skip
        rows += 1
    if rng.random() < 0.5:
        state = rng.choice(STATES).format(
            n=rng.randint(2, 99), m=rng.randint(2, 900), t=formats.clock(rng)
        )
        after = _bar(style, f"<span>{E(state)}</span>", ground, ink, "top")
        out.append(worded(rng, "field", state, "What does the status bar say?", "status bar?",
                        "What is written in the bar below?"))  # fmt: skip
        rows += 1
    taken = r"title|file|status|items|error|warning|word|page|time|when"
    return Frame(before, after, (0, rows * 2.2 * style.size), out, [title, *MENUS], taken)


def browser(rng: random.Random, style: PageStyle) -> Frame:
    """Tabs and the address of a browser."""
    t = style.theme
    tabs = words.unique(rng, lambda r: words.some(r, 1, 2), rng.randint(1, 4))
    tabs = tabs[: max(1, int(style.width / (style.size * 11)))]
    active, url = rng.choice(tabs), formats.url(rng)
    shown = "".join(
        f"<span style='padding:.2em .9em;border-radius:.5em .5em 0 0;"
        f"background:{css(t.page if tab == active else t.rule)};"
        f"color:{css(t.ink if tab == active else ink_on(t.rule))}'>{E(tab)}</span>"
        for tab in tabs
    )
    before = _bar(style, _dots(rng) + shown, css(t.panel), css(t.ink))
    address = f"<span class=in style='flex:1;margin:0;border-radius:1em'>{E(url)}</span>"
    before += _bar(
        style,
        f"<svg width=60 height=14 style='flex:none'>{_path(ARROWS)}</svg>{address}",
        css(t.page),
        css(t.ink),
    )
    out = [
        worded(rng, "field", url, "What does the address bar say?", "What is in the address bar?",
             "Which page is open in the browser? Give its address.", "url in the browser")
    ]  # fmt: skip
    if len(tabs) > 1:
        out += [
            worded(rng, "list", ", ".join(tabs), "Which tabs are open?", "List the tabs.",
                 "What are the browser's tabs called?"),
            worded(rng, "find", active, "Which tab is active?", "Which of the tabs is in front?"),
            worded(rng, "count", str(len(tabs)), "How many tabs are open?", "number of tabs"),
        ]  # fmt: skip
    taken = r"web|url|site|link|online|address|internet|tab|more"
    return Frame(before, "", (0, 4.6 * style.size), out, tabs, taken)


def site(rng: random.Random, style: PageStyle) -> Frame:
    """A site's name and menu above, at times a foot below."""
    ground, ink = _grounds(rng, style)
    name = rng.choice((words.company, lambda r: words.some(r, 1, 1)))(rng)
    entries = _entries(rng, 2, 6)[: max(2, int(style.width / (style.size * 6)) - 2)]
    marked, out = _menu(rng, entries, "at the top")
    spot = rng.choice(("font-weight:700;border-bottom:2px solid", "text-decoration:underline"))
    links = "".join(
        f"<span style='{spot if e == marked else 'opacity:.6'}'>{E(e)}</span>" for e in entries
    )
    out.append(worded(rng, "field", name, "What is the site called?", "Which site is it?",
                    "What is the name of the website?", "Whose website is this?"))  # fmt: skip
    if rng.random() < 0.35 and style.width > 600:
        hint = rng.choice(SOUGHT)
        links += f"<span class=in style='margin:0 0 0 auto;opacity:.8'>{E(hint)}</span>"
        out.append(worded(rng, "field", hint, "What does the search box say?",
                        "What is written in the search field?"))  # fmt: skip
    before = _bar(style, f"<b style='font-size:1.15em'>{E(name)}</b>{links}", ground, ink)
    after, rows, year = "", 1, str(rng.randint(1995, 2035))
    if rng.random() < 0.45:
        end = rng.choice(END).format(y=year, b=name)
        after = _bar(style, f"<span class=small>{E(end)}</span>", ground, ink, "top")
        out.append(worded(rng, "field", year, "Of which year is the copyright?", "copyright year"))
        rows += 1
    taken = r"firm|company|brand|who|shop|name|call|logo|publish|site|year|search|copyright|menu"
    return Frame(before, after, (0, rows * 2.4 * style.size), out, [name, *entries], taken)


def sidebar(rng: random.Random, style: PageStyle) -> Frame:
    """A menu on the left, whose entries may have numbers."""
    t, (ground, ink) = style.theme, _grounds(rng, style)
    entries = _entries(rng, 3, max(4, min(9, int(style.room * 0.4))))
    where = rng.choice(("on the left", "in the sidebar", "in the bar on the left"))
    marked, out = _menu(rng, entries, where)
    accent = f"background:{css(t.accent)};color:{css(ink_on(t.accent))}"
    glow = rng.choice((accent, accent, f"background:{ink};color:{ground}"))
    if ground == css(t.accent):
        glow = f"background:{ink};color:{ground}"
    rows = ""
    for entry in entries:
        badge, shine = "", glow if entry == marked else ""
        if rng.random() < 0.2:
            n = str(rng.randint(1, 120))
            badge = f"<span style='margin-left:auto'>{n}</span>"
            out.append(worded(rng, "value", n, f"Which number stands beside {entry}?",
                            f"What is the number at {entry} in the menu?"))  # fmt: skip
        rules = f"display:flex;gap:.5em;padding:.3em .6em;border-radius:.4em;{shine}"
        rows += f"<div style='{rules}'><span>{E(entry)}</span>{badge}</div>"
    wide = max(7.5 * style.size, style.width * rng.uniform(0.17, 0.25))
    side = f"width:{wide:.0f}px;flex:none;background:{ground};color:{ink};padding:.6em"
    before = f"<div style='display:flex;flex:1;min-height:0'><div style='{side}'>{rows}</div>"
    return Frame(before, "</div>", (wide, 0), out, entries, r"menu|entr|left|number|how many")


def phone(rng: random.Random, style: PageStyle) -> Frame:
    """A telephone's status bar above and, at times, a menu below."""
    t, (ground, ink) = style.theme, _grounds(rng, style)
    clock, full = f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}", f"{rng.randint(3, 100)}%"
    bars = "".join(f"<rect x={5 * i} y={9 - 3 * i} width=3 height={5 + 3 * i} />" for i in range(4))
    state = (
        f"<span>{clock}</span><svg width=22 height=16 style='margin-left:auto' fill=currentColor>"
        f"{bars}</svg><span>{full}</span>"
    )
    before, after, rows = _bar(style, state, ground, ink), "", 1
    out = [
        worded(rng, "field", clock, "What time does the phone show?", "What is the phone's time?",
             "Which time is shown in the corner of the phone?"),
        worded(rng, "field", full, "How full is the phone's battery?", "battery of the phone?",
             "How much charge does the phone have left?"),
    ]  # fmt: skip
    labels = _entries(rng, 3, 4) if rng.random() < 0.6 else []
    if labels:
        marked, asked = _menu(rng, labels, "at the bottom")
        accent = f"color:{css(t.accent)};font-weight:700"
        cells = "".join(
            f"<span class=small style='margin:auto;{accent if e == marked else ''}'>{E(e)}</span>"
            for e in labels
        )
        after = _bar(style, cells, css(t.page), css(t.ink), "top")
        out, rows = out + asked, 2
    taken = r"time|when|clock|battery|percent|charge|%|share|how full"
    return Frame(before, after, (0, rows * 2.2 * style.size), out, labels, taken)


FRAMES: Final = {
    "window": window,
    "browser": browser,
    "site": site,
    "sidebar": sidebar,
    "phone": phone,
}
