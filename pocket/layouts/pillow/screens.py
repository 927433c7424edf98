"""Screens: settings with switches, message lists, metric tiles, menus."""

import random
from typing import Final

from pocket.content import formats, lexicon, prose, words
from pocket.content.colours import ink_on
from pocket.content.formats import number
from pocket.document import Document, Question
from pocket.layouts.pillow.canvas import Canvas, blank_page, wrap
from pocket.layouts.style import PageStyle
from pocket.questions.messages import message_questions
from pocket.questions.templates import ORDINALS, absent, ask, worded, yes_no

SWITCHES: Final = (
    "Dark mode|Notifications|Wi-Fi|Bluetooth|Auto-save|Location|Airplane mode|Backup|Sound|"
    "Vibration|"
    "Spell check|Autoplay|Captions|Private mode|Sync|Newsletter|Two-factor login|Show hidden files|"
    "Battery saver|Night light|Remember me|Usage statistics|Mirror screen|Hotspot|Compact view"
).split("|")
MENU: Final = (
    "File|Edit|View|Insert|Format|Tools|Help|Home|Search|Settings|Profile|Logout|Inbox|Sent|"
    "Drafts|Archive|Reports|Team|Billing|Messages|Overview|Projects"
).split("|")


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One screen of a program or a phone."""
    canvas = blank_page(style)
    title, y = _bar(rng, canvas, style)
    part = rng.choice((_switches, _messages, _tiles, _chat))
    out = part(rng, canvas, style, y)
    if title:
        out.append(ask(rng, "title", title))
    out.append(
        absent(rng, "field", f=rng.choice(("invoice number", "table caption", "delivery address")))
    )
    return canvas.document(out)


def _bar(rng: random.Random, canvas: Canvas, style: PageStyle) -> tuple[str, float]:
    """The bar on top: a title, or a row of menu entries without one."""
    t = style.theme
    face = style.heading.bold(style.size * rng.uniform(1.05, 1.4))
    text = rng.choice(
        (words.title(rng), rng.choice(MENU), words.some(rng, 1, 2), words.company(rng))
    )
    height = face.line * rng.uniform(1.4, 2)
    if face.width(text) > style.width - 2 * style.margin:
        return "", float(style.margin)
    filled = rng.random() < 0.6
    ground = rng.choice((t.accent, t.panel)) if filled else t.page
    canvas.box(0, 0, style.width, height, fill=ground)
    ink = ink_on(ground)
    centre = rng.random() < 0.3
    canvas.text(
        style.width / 2 if centre else style.margin,
        (height - face.line) / 2,
        text,
        face,
        ink,
        "centre" if centre else "left",
    )
    return text, height + style.size * 0.8


def _switches(rng: random.Random, canvas: Canvas, style: PageStyle, y: float) -> list[Question]:
    t, m, face = style.theme, style.margin, style.family.regular(style.size)
    pitch = face.line * rng.uniform(1.6, 2.3)
    control = rng.choice(("switch", "box"))
    names = words.unique(
        rng,
        lambda r: r.choice(SWITCHES) if r.random() < 0.7 else lexicon.invented(r, 3).capitalize(),
        12,
    )
    state: list[tuple[str, bool]] = []
    for name in names[: rng.randint(2, 12)]:
        if y + pitch > style.height - 4 or face.width(name) > style.width - 2 * m - 50:
            continue
        on_now = rng.random() < 0.5
        side = face.ascent
        if control == "switch":
            x0, x1 = style.width - m - 2 * side, style.width - m
            canvas.text(m, y, name, face, t.ink)
            canvas.box(
                x0, y + 2, x1, y + 2 + side, fill=t.accent if on_now else t.rule, radius=side // 2
            )
            knob = x1 - side + 2 if on_now else x0 + 2
            canvas.draw.ellipse((knob, y + 4, knob + side - 4, y + side), fill=(255, 255, 255))
        else:
            canvas.box(m, y + 2, m + side, y + 2 + side, outline=t.ink)
            if on_now:
                canvas.line(
                    [
                        (m + 3, y + 2 + side * 0.55),
                        (m + side * 0.42, y + side - 1),
                        (m + side - 2, y + 5),
                    ],
                    t.ink,
                    2,
                )
            canvas.text(m + side + 8, y, name, face, t.ink)
        state.append((name, on_now))
        y += pitch
    out = [
        ask(
            rng,
            "page",
            "\n".join(f"[{'x' if s else ' '}] {n}" for n, s in state),
            kind="transcribe",
        )
    ]
    for name, s in rng.sample(state, min(4, len(state))):
        out.append(yes_no(rng, "checked", s, f=name))
    out.append(ask(rng, "count", str(len(state)), n=rng.choice(("options", "settings", "entries"))))
    out.append(
        worded(
            rng,
            "count",
            str(sum(s for _, s in state)),
            "How many are on?",
            "how many options are enabled",
            "How many are switched on?",
        )
    )
    return out


def _messages(rng: random.Random, canvas: Canvas, style: PageStyle, y: float) -> list[Question]:
    """A list of messages: sender, time, text."""
    t, m = style.theme, style.margin
    face, bold, small = (
        style.family.regular(style.size),
        style.family.bold(style.size),
        style.family.regular(max(10, style.size * 0.85)),
    )
    pitch = (face.line + bold.line) * rng.uniform(1.15, 1.5)
    out, rows = [], []
    bubble = rng.random() < 0.4
    for name in words.unique(rng, words.person, 12)[: rng.randint(2, 12)]:
        when = formats.clock(rng)
        text = rng.choice(
            (
                prose.sentence(rng, style.lang),
                words.title(rng, style.lang),
                words.some(rng, 2, 5),
            )
        )
        if y + pitch > style.height - 4:
            break
        if (
            face.width(text) > style.width - 2 * m - 16
            or bold.width(name) + small.width(when) > style.width - 2 * m - 30
        ):
            continue
        if bubble:
            canvas.box(m, y, style.width - m, y + pitch - 6, fill=t.panel, outline=t.rule, radius=8)
        x = m + 8 if bubble else m
        canvas.text(x, y + 3, name, bold, t.ink)
        canvas.text(style.width - m - 6, y + 3, when, small, t.muted, "right")
        canvas.text(x, y + 3 + bold.line, text, face, t.muted if rng.random() < 0.2 else t.ink)
        if not bubble:
            canvas.line([(m, y + pitch - 4), (style.width - m, y + pitch - 4)], t.rule)
        rows.append((name, when, text))
        y += pitch
    if not rows:
        return [ask(rng, "count", "0", n="messages")]
    for name, when, text in rng.sample(rows, min(3, len(rows))):
        out += message_questions(rng, name, when, text)
    name, when, text = rng.choice(rows)
    out.append(worded(rng, "reverse", name, f'Who wrote "{text}"?', f'who says "{text}"'))
    out.append(ask(rng, "count", str(len(rows)), n=rng.choice(("messages", "people", "entries"))))
    i = rng.randrange(min(len(rows), 8))
    out.append(
        worded(
            rng,
            "nth",
            rows[i][0],
            f"Who wrote the {ORDINALS[i]} message?",
            f"{ORDINALS[i]} sender?",
        )
    )
    out.append(ask(rng, "list", ", ".join(r[0] for r in rows), n="senders"))
    out.append(
        ask(rng, "page", "\n".join(f"{a} ({b}): {c}" for a, b, c in rows), kind="transcribe")
    )
    other = words.person(rng)
    if all(other != r[0] for r in rows):
        out.append(yes_no(rng, "present", False, f=f"a message from {other}"))
        out.append(Question("absent", f"What does {other} write?", "not in the image"))
    return out


def _chat(rng: random.Random, canvas: Canvas, style: PageStyle, y: float) -> list[Question]:
    """Speech bubbles on the left and, in another colour, on the right."""
    t, m = style.theme, style.margin
    face, small = style.family.regular(style.size), style.family.regular(max(10, style.size * 0.75))
    other = rng.choice(words.FIRST)
    said: list[tuple[str, str]] = []
    for _ in range(rng.randint(2, 10)):
        mine = rng.random() < 0.5
        text = prose.sentence(rng, style.lang) if rng.random() < 0.7 else words.some(rng, 1, 6)
        lines = wrap(text, face, style.width * 0.68)
        high = len(lines) * face.line * 1.1 + 12
        if y + high > style.height - 6 or max(map(face.width, lines)) > style.width * 0.7:
            continue
        width = max(map(face.width, lines)) + 18
        x0 = style.width - m - width if mine else m
        ground = t.accent if mine else t.panel if t.panel != t.page else t.rule
        canvas.box(x0, y, x0 + width, y + high, fill=ground, radius=rng.choice((6, 10, 12)))
        for i, line in enumerate(lines):
            canvas.text(x0 + 9, y + 6 + i * face.line * 1.1, line, face, ink_on(ground))
        y += high + 5
        if rng.random() < 0.3 and y + small.line < style.height - 6:
            stamp = formats.clock(rng)
            canvas.text(
                style.width - m if mine else m,
                y,
                stamp,
                small,
                t.muted,
                "right" if mine else "left",
            )
            y += small.line * 1.1
        said.append(("right" if mine else "left", text))
    out = [ask(rng, "count", str(len(said)), n=rng.choice(("messages", "bubbles")))]
    if said:
        i = rng.randrange(min(len(said), 8))
        out.append(ask(rng, "nth", said[i][1], k=ORDINALS[i], n="message", kind="find"))
        out.append(ask(rng, "nth", said[-1][1], k="last", n="message", kind="find"))
        side = rng.choice(said)[0]
        count = sum(s == side for s, _ in said)
        out.append(Question("count", f"How many messages are on the {side}?", str(count)))
        out.append(ask(rng, "page", "\n".join(text for _, text in said), kind="transcribe"))
        out.append(yes_no(rng, "present", True, f=f'"{rng.choice(said)[1]}"'))
    out.append(yes_no(rng, "present", False, f=f'"{prose.sentence(rng, style.lang)}"'))
    out.append(Question("absent", f"What is {other}'s address?", "not in the image"))
    return out


def _tiles(rng: random.Random, canvas: Canvas, style: PageStyle, y: float) -> list[Question]:
    """Metric tiles: a name and a large figure each."""
    t, m = style.theme, style.margin
    small, big = (
        style.family.regular(max(10, style.size * 0.9)),
        style.family.bold(style.size * rng.uniform(1.2, 2)),
    )
    columns = max(1, min(4, int(style.width / (style.size * rng.uniform(9, 13)))))
    width = (style.width - 2 * m) / columns
    height = (small.line + big.line) * rng.uniform(1.25, 1.6)
    rows = max(1, int((style.height - m - y) / (height + 8)))
    names = words.unique(
        rng,
        lambda r: (
            r.choice(words.METRICS) if r.random() < 0.8 else lexicon.invented(r, 2).capitalize()
        ),
        min(12, rows * columns),
    )
    tiles = []
    under = rng.random() < 0.4
    for i, name in enumerate(names):
        x, top = m + (i % columns) * width, y + (i // columns) * (height + 8)
        value = rng.choice((number(rng), words.money(rng)(rng.uniform(1, 9999)), number(rng)))
        if max(small.width(name), big.width(value)) > width - 24:
            continue
        canvas.box(
            x,
            top,
            x + width - 8,
            top + height,
            fill=t.panel,
            outline=t.rule,
            radius=rng.choice((0, 6, 6)),
        )
        first, second = (big.line, 0) if under else (0, small.line)
        canvas.text(x + 8, top + 4 + first, name, small, t.muted)
        canvas.text(x + 8, top + 4 + second, value, big, t.ink if rng.random() < 0.8 else t.accent)
        tiles.append((name, value))
    out = [ask(rng, "count", str(len(tiles)), n=rng.choice(("tiles", "metrics", "figures")))]
    for name, value in rng.sample(tiles, min(5, len(tiles))):
        out.append(ask(rng, "value", value, f=name))
    out.append(ask(rng, "page", "\n".join(f"{k}: {v}" for k, v in tiles), kind="transcribe"))
    missing = rng.choice([x for x in words.METRICS if x not in dict(tiles)])
    out.append(absent(rng, "value", f=missing))
    out.append(yes_no(rng, "present", False, f=missing))
    if tiles:
        out.append(yes_no(rng, "present", True, f=rng.choice(tiles)[0]))
    return out
