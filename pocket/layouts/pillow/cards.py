"""Business cards and badges: a person's data, mostly without keys before the values."""

import random
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.document import Document, Question
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.templates import absent, ask, worded, yes_no

JOBS: Final = (
    "Engineer|Sales manager|Head of design|Accountant|Photographer|Dentist|Architect|Translator|"
    "Account executive|Florist|Data analyst|Plumber|Solicitor|Consultant|Editor|Barista|Chef"
).split("|")
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "employer": ("Where does {f} work?", "Which company is {f} with?"),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One card with a name, a job, a company and ways to reach the person."""
    canvas, t, m = blank_page(style), style.theme, style.margin + 6
    size = style.size
    name, company = words.person(rng), words.company(rng)
    job = rng.choice(JOBS) if rng.random() < 0.5 else words.some(rng, 1, 2)
    facts: list[tuple[str, str, str]] = [
        ("name", name, "big"),
        ("job title", job, "body"),
        ("company", company, "mid"),
    ]
    ways = [
        ("phone number", formats.phone),
        ("email address", words.email),
        ("address", words.address),
        ("website", lambda r: f"www.{lexicon.word(r)}.{r.choice(('com', 'org', 'eu'))}"),
        ("city", lambda r: r.choice(words.CITIES)),
    ]
    for key, make in rng.sample(ways, rng.randint(1, 5)):
        facts.append((key, make(rng), "body"))
    if rng.random() < 0.5:
        facts[0], facts[2] = facts[2], facts[0]
    if rng.random() < 0.5:
        canvas.box(0, 0, style.width, rng.uniform(6, 40), fill=t.accent)
    align = rng.choice(("left", "left", "centre", "right"))
    x = {"left": m, "centre": style.width / 2, "right": style.width - m}[align]
    marks = rng.random() < 0.3
    y = m + rng.uniform(0, 0.2) * style.height
    shown = []
    for key, value, weight in facts:
        scale = {"big": rng.uniform(1.3, 2), "mid": rng.uniform(1, 1.4), "body": 1}[weight]
        face = (style.heading.bold if weight != "body" else style.family.regular)(size * scale)
        text = (
            f"{key[0].upper()}: {value}"
            if marks and key in ("phone number", "email address")
            else value
        )
        if face.width(text) > style.width - 2 * m:
            face = style.family.regular(11)
        if face.width(text) > style.width - 2 * m or y + face.line > style.height - 4:
            continue
        canvas.text(x, y, text, face, t.ink if weight != "mid" else t.accent, align)
        shown.append((key, value))
        y += face.line * rng.uniform(1.02, 1.5)
        if weight != "body":
            y += size * rng.uniform(0, 0.8)
    return canvas.document(_questions(rng, shown))


def _questions(rng: random.Random, shown: list[tuple[str, str]]) -> list[Question]:
    out = [ask(rng, "field", value, f=key) for key, value in shown]
    keys = {k for k, _ in shown}
    who = dict(shown)
    if "name" in who:
        out.append(
            worded(rng, "field", who["name"], "Whose card is this?", "Who is this?", "who's that")
        )
        if "company" in who:
            out.append(worded(rng, "field", who["company"], *ASKED["employer"], f=who["name"]))
        if "job title" in who:
            out.append(Question("field", f"What does {who['name']} do?", who["job title"]))
    missing = [
        k
        for k in (
            "phone number",
            "email address",
            "address",
            "website",
            "fax number",
            "date of birth",
        )
        if k not in keys
    ]
    out.append(absent(rng, "field", f=rng.choice(missing)))
    if shown:
        out.append(yes_no(rng, "present", True, f=f'"{rng.choice(shown)[1]}"'))
        out.append(yes_no(rng, "present", False, f=f'"{words.company(rng)}"'))
        out.append(ask(rng, "page", "\n".join(v for _, v in shown), kind="transcribe"))
    return out
