"""Pages of running text: how they are written down as Markdown, and questions about them."""

import random

from pocket.content import lexicon
from pocket.document import Question
from pocket.questions.templates import ORDINALS, absent, ask, yes_no


def _places(rng: random.Random, prose: list[str], bullets: list[str]) -> list[Question]:
    """Questions that find a paragraph or an item by the text before it or at its start."""
    out = list[Question]()
    if 2 <= len(prose) <= 9:
        out.append(ask(rng, "count", str(len(prose)), n="paragraphs"))
    if len(prose) > 1:
        block = rng.choice(prose)
        cue = " ".join(block.split()[:3])
        if sum(p.startswith(cue) for p in prose) == 1:
            form = rng.choice(('Read the paragraph that starts with "{}".',
                               'Which paragraph begins "{}"?'))  # fmt: skip
            out.append(Question("transcribe", form.format(cue), block))
            form = rng.choice(('What is the last word of the paragraph that starts with "{}"?',
                               'How does the paragraph "{}..." end?'))  # fmt: skip
            out.append(Question("find", form.format(cue), block.split()[-1]))
    if len(bullets) > 2:
        i = rng.randrange(len(bullets) - 1)
        if bullets.count(bullets[i]) == 1:
            out.append(ask(rng, "follows", bullets[i + 1], kind="find", n="item", f=bullets[i]))
        if len(bullets) <= 9:
            out.append(ask(rng, "list", ", ".join(bullets), n=rng.choice(("items", "points"))))
    return out


def page_markdown(blocks: list[str]) -> str:
    """Blocks joined as Markdown: list items on following lines, others apart."""
    out = ""
    for i, block in enumerate(blocks):
        if i:
            tight = _item(block) and _item(blocks[i - 1])
            out += "\n" if tight else "\n\n"
        out += block
    return out


def _item(block: str) -> bool:
    return block.startswith("- ") or block.split(".", 1)[0].isdigit()


def page_questions(
    rng: random.Random, heading: str, blocks: list[str], bullets: list[str]
) -> list[Question]:
    """Questions about a page; `blocks` is its Markdown, `bullets` its list items."""
    if not blocks:
        return [ask(rng, "page", "", kind="transcribe")]
    out = [ask(rng, "page", page_markdown(blocks), kind="transcribe")]
    if heading:
        out.append(ask(rng, "title", heading))
    else:
        out.append(absent(rng, "title"))
    if 2 <= len(bullets) <= 9:
        out.append(
            ask(rng, "count", str(len(bullets)), n=rng.choice(("items", "points", "bullets")))
        )
        i = rng.randrange(min(len(bullets), len(ORDINALS)))
        out.append(ask(rng, "nth", bullets[i], k=ORDINALS[i], n=rng.choice(("item", "point"))))
        out.append(ask(rng, "nth", bullets[-1], k="last", n=rng.choice(("item", "point"))))
    prose = [b for b in blocks if not b.startswith("#") and not _item(b)]
    if len(prose) > 1:
        i = rng.randrange(min(len(prose), len(ORDINALS)))
        out.append(ask(rng, "nth", prose[i], k=ORDINALS[i], n="paragraph", kind="transcribe"))
    out += _places(rng, prose, bullets)
    text = " ".join(blocks)
    tokens = text.split()
    inner = rng.choice(blocks).split()
    if len(inner) > 5 and inner[0] not in "#-":
        i = rng.randrange(len(inner) - 3)
        cue = " ".join(inner[i : i + 3])
        if text.count(cue) == 1:
            forms = (
                f'Which word comes after "{cue}"?', f'what follows "{cue}"?',
                f'What is the next word after "{cue}"?',
            )  # fmt: skip
            out.append(Question("find", rng.choice(forms), inner[i + 3]))
    if len(tokens) > 8:
        word = rng.choice([w for w in tokens if len(w) > 3] or tokens).strip(".,!?#-")
        if word:
            out.append(yes_no(rng, "present", True, f=f'the word "{word}"'))
    other = lexicon.invented(rng, 3)
    if other not in text:
        out.append(yes_no(rng, "present", False, f=f'the word "{other}"'))
    out.append(
        absent(rng, "field", f=rng.choice(("phone number", "total price", "invoice number")))
    )
    return out
