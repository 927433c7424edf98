"""Questions about lines of code and of output."""

import random

from pocket.content import lexicon
from pocket.document import Question
from pocket.questions.templates import ORDINALS, absent, ask, worded, yes_no


def console_questions(rng: random.Random, lines: list[str]) -> list[Question]:
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
                worded(
                    rng,
                    "value",
                    value,
                    f"What is {name} set to?",
                    f"value of {name}?",
                    f"What is assigned to {name}?",
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
    seen, other = rng.choice(text.split()), lexicon.word(rng)
    out.append(yes_no(rng, "present", True, f=f'"{seen}"'))
    if other not in text:
        out.append(yes_no(rng, "present", False, f=f'"{other}"'))
    errors = sum("ERROR" in line for line in lines)
    if any("INFO" in line or "ERROR" in line for line in lines):
        out.append(
            worded(rng, "count", str(errors), "How many errors are logged?", "how many ERROR lines")
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
