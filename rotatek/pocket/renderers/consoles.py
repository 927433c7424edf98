"""Editors and terminals: lines of code or of output in a typewriter face."""

from __future__ import annotations

import random

from .. import formats, words
from ..document import Canvas, Document, Question
from ..fonts import pick_family
from ..questions import ORDINALS, absent, ask, yes_no
from .look import Look

# inks of words, on dark and on light grounds, and the buttons of a window
BRIGHT = ((97, 175, 239), (152, 195, 121), (224, 108, 117), (229, 192, 123), (198, 120, 221))
DEEP = ((0, 90, 190), (20, 120, 40), (180, 30, 40), (150, 90, 0), (120, 40, 160))
BUTTONS = ((255, 95, 86), (255, 189, 46), (39, 201, 63))


def bar(canvas: Canvas, high: float, dark: bool) -> None:
    """A window's title bar, ``high`` pixels, with its buttons."""
    canvas.box(0, 0, canvas.width, high, fill=(60, 60, 64) if dark else (225, 225, 228))
    for i, colour in enumerate(BUTTONS):
        canvas.draw.ellipse((10 + 18 * i, high / 2 - 5, 20 + 18 * i, high / 2 + 5), fill=colour)


def draw(rng: random.Random, look: Look) -> Document:
    """One window of code, a log, or commands with their output."""
    dark = rng.random() < 0.7
    ground = (
        rng.choice(((30, 30, 30), (13, 17, 23), (40, 42, 54), (0, 0, 0), (0, 43, 54)))
        if dark
        else rng.choice(((255, 255, 255), (250, 250, 245), (253, 246, 227)))
    )
    canvas = look.canvas(ground)
    family = pick_family(rng, look.split, western=True, mono=True)
    face = family.regular(min(look.size, 18))
    ink = (225, 225, 225) if dark else (30, 30, 35)
    colours = BRIGHT if dark else DEEP
    y = float(look.margin)
    if rng.random() < 0.4:
        high = face.line * 1.6
        bar(canvas, high, dark)
        y = high + 6
    numbers = rng.random() < 0.4
    make = rng.choice((source, source, _log, _shell))
    room = int((look.height - look.margin - y) / (face.line * 1.12))
    left = look.margin + (face.width("00  ") if numbers else 0)
    wide = int((look.width - look.margin - left) / face.width("0"))
    lines: list[str] = []
    budget = look.budget
    for fresh in make(rng, min(room, rng.randint(3, 30))):
        line = rng.choice(lines) if lines and rng.random() < 0.05 else fresh  # lines do come twice
        if len(line) > wide or len(lines) >= room or budget < len(line.encode()) + 2:
            continue
        budget -= len(line.encode()) + 1
        if numbers:
            canvas.text(look.margin, y, f"{len(lines) + 1:2}", face, (110, 115, 125))
        x = float(left)
        for part in line.split(" "):
            colour = rng.choice(colours) if rng.random() < 0.35 else ink
            if part:
                canvas.text(x, y, part, face, colour)
            x += face.width(part + " ")
        lines.append(line)
        y += face.line * 1.12
    return canvas.document(questions(rng, lines))


def _name(rng: random.Random) -> str:
    return rng.choice(
        (
            words.word(rng),
            f"{words.word(rng)}_{words.word(rng)}",
            words.word(rng) + words.word(rng).capitalize(),
        )
    )


def source(rng: random.Random, n: int) -> list[str]:
    """``n`` lines of a program in no language in particular."""
    lines, depth = [], 0
    for _ in range(n):
        pad = " " * (4 * depth)
        r = rng.random()
        if r < 0.16 and depth < 3:
            lines.append(
                pad
                + rng.choice(
                    (
                        f"def {_name(rng)}({_name(rng)}):",
                        f"for {_name(rng)} in {_name(rng)}:",
                        f"if {_name(rng)} > {rng.randint(0, 99)}:",
                        f"class {_name(rng).capitalize()}:",
                    )
                )
            )
            depth += 1
        elif r < 0.3 and depth:
            lines.append(pad + f"return {_name(rng)}")
            depth -= 1
        elif r < 0.4:
            lines.append(pad + f"# {words.some(rng, 2, 4)}")
        else:
            lines.append(
                pad
                + rng.choice(
                    (
                        f"{_name(rng)}: {_name(rng)} = {rng.choice((None, True, 0.5))}",
                        f"{_name(rng)}[{rng.randint(0, 9)}] = {_name(rng)}.{_name(rng)}",
                        f"const {_name(rng)} = {{ {_name(rng)}: {rng.randint(0, 99)} }};",
                        f"print(f'{_name(rng)}: {{{_name(rng)}}}')",
                        f"assert {_name(rng)} != '{formats.anything(rng)}'",
                        f"// {words.sentence(rng)}",
                        f'<{words.word(rng)} id="{words.word(rng)}">{words.word(rng)}</a>',
                        f'"{words.word(rng)}": "{formats.anything(rng)}",',
                        f"{_name(rng)} = {rng.randint(0, 999)}",
                        f'{_name(rng)} = "{words.word(rng)}"',
                        f"{_name(rng)}({_name(rng)}, {rng.randint(0, 9)})",
                        f"{_name(rng)} += {_name(rng)}",
                        f"import {_name(rng)}",
                    )
                )
            )
    return lines


def _log(rng: random.Random, n: int) -> list[str]:
    level = ("INFO", "WARN", "ERROR", "DEBUG")
    stamp = rng.choice((words.clock, words.clock, words.date))
    return [
        f"{stamp(rng)} {rng.choice(level)} {words.some(rng, 1, 4).lower()}"
        + (f" {formats.anything(rng)}" if rng.random() < 0.3 else "")
        for _ in range(n)
    ]


def _shell(rng: random.Random, n: int) -> list[str]:
    out: list[str] = []
    while len(out) < n:
        out.append(
            "$ "
            + rng.choice(
                (
                    f"cd {_name(rng)}",
                    f"ls {_name(rng)}",
                    f"git commit -m {_name(rng)}",
                    f"cat {_name(rng)}.txt",
                    f"make {_name(rng)}",
                    f"pip install {_name(rng)}=={formats.version(rng)}",
                    f"curl {formats.url(rng)}",
                    f"cp {formats.file_name(rng)} {formats.file_name(rng)}",
                    f"{_name(rng)} --{words.word(rng)}={rng.randint(0, 99)} -{words.word(rng)[0]}",
                )
            )
        )
        out += [words.some(rng, 1, 3).lower() for _ in range(rng.randint(0, 3))]
    return out[:n]


def questions(rng: random.Random, lines: list[str]) -> list[Question]:
    """Questions about a listing."""
    if not lines:
        return []
    out = [ask(rng, "page", "\n".join(lines), kind="transcribe")]
    for i in rng.sample(range(min(len(lines), len(ORDINALS))), min(2, len(lines))):
        out.append(ask(rng, "nth", lines[i].strip(), k=ORDINALS[i], n="line"))
    out.append(ask(rng, "nth", lines[-1].strip(), k="last", n="line"))
    for line in rng.sample(lines, min(3, len(lines))):
        if " = " in line:
            name, value = line.strip().split(" = ", 1)
            out.append(
                Question(
                    "value",
                    rng.choice(
                        (
                            f"What is {name} set to?",
                            f"value of {name}?",
                            f"What is assigned to {name}?",
                        )
                    ),
                    value,
                )
            )
        parts = line.split()
        if (
            len(parts) > 2
            and sum(x.startswith(" ".join(parts[:2])) for x in map(str.strip, lines)) == 1
        ):
            out.append(
                Question(
                    "find",
                    f'How does the line that starts with "{" ".join(parts[:2])}" end?',
                    parts[-1],
                )
            )
    out += _places(rng, [x.strip() for x in lines])
    text = "\n".join(lines)
    seen, other = rng.choice(text.split()), words.word(rng)
    out.append(yes_no(rng, "present", True, f=f'"{seen}"'))
    if other not in text:
        out.append(yes_no(rng, "present", False, f=f'"{other}"'))
    errors = sum("ERROR" in line for line in lines)
    if any("INFO" in line or "ERROR" in line for line in lines):
        out.append(
            Question(
                "count",
                rng.choice(("How many errors are logged?", "how many ERROR lines")),
                str(errors),
            )
        )
    if len(lines) <= 15:
        out.append(ask(rng, "count", str(len(lines)), n="lines"))
    out.append(
        absent(rng, "field", f=rng.choice(("invoice total", "phone number", "table caption")))
    )
    return out


def _places(rng: random.Random, lines: list[str]) -> list[Question]:
    """Questions that find a line by its start or by the line before it, and count levels."""
    out = list[Question]()
    for i in rng.sample(range(len(lines) - 1), min(2, len(lines) - 1)):
        cue = " ".join(lines[i].split()[:2])
        if sum(x.startswith(cue) for x in lines) == 1:
            slots = {"n": "line", "f": f'"{cue}..."'}
            out.append(ask(rng, "follows", lines[i + 1], kind="find", **slots))
            form = rng.choice(('Read the line that starts with "{}".', 'the whole line "{}..."'))
            out.append(Question("find", form.format(cue), lines[i]))
    for level in ("INFO", "WARN", "DEBUG"):
        times = sum(level in x.split() for x in lines)
        if times and rng.random() < 0.5:
            form = rng.choice(("How many {} lines are there?", "count the lines with {}"))
            out.append(Question("count", form.format(level), str(times)))
    return out
