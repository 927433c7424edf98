"""Draw the gallery's images: ``python -m rotatek.pocket.examples FOLDER``.

Each image comes from a seed of the generator, so its answers are known. The page, the tests and the
documentation share them.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from . import theme
from .document import Document
from .renderers import REGISTRY, pick_look


@dataclass(frozen=True)
class Example:
    """One image of the gallery."""

    name: str
    title: str
    renderer: str
    width: int
    height: int
    seed: int
    dark: bool = False
    kinds: tuple[str, ...] = ()


EXAMPLES = (
    Example("receipt", "A till receipt", "receipts", 392, 560, 24),
    Example("bars", "A bar chart", "bars", 616, 448, 3),
    Example("table", "A table", "tables", 644, 392, 18),
    Example("form", "A form", "forms", 532, 448, 2),
    Example("sign", "A sign", "signs", 448, 336, 13),
    Example("page", "A page of text", "pages", 504, 616, 0),
    Example("lines", "A line chart", "lines", 616, 420, 9),
    Example("screen", "A dark screen", "screens", 448, 560, 10, dark=True),
)


def draw_example(example: Example, seed: int | None = None) -> Document:
    """The document of ``example`` (or of another seed of its kind)."""
    rng = random.Random(f"example/{example.name}/{example.seed if seed is None else seed}")
    while True:
        look = pick_look(rng, example.width, example.height)
        if look.theme.dark == example.dark and theme.luminance(look.theme.page) != 0:
            break
    document = REGISTRY[example.renderer].draw(rng, look)
    document.renderer = example.renderer
    return document


def pick_questions(document: Document, n: int = 5) -> list[dict[str, str]]:
    """``n`` questions of different kinds, well typed, the transcription last."""
    chosen: dict[str, dict[str, str]] = {}
    for q in document.questions:
        tidy = q.text[0].isupper() and q.text[-1] in "?."
        if tidy and q.answer and q.kind not in chosen:
            chosen[q.kind] = {"kind": q.kind, "question": q.text, "answer": q.answer}
    order = sorted(
        chosen.values(), key=lambda q: (q["kind"] == "transcribe", q["kind"] == "absent")
    )
    last = [q for q in order if q["kind"] == "transcribe"]
    return [q for q in order if q["kind"] != "transcribe"][: n - len(last)] + last


def main() -> None:
    """Write every image and ``index.json``."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for example in EXAMPLES:
        document = draw_example(example)
        document.image.save(folder / f"{example.name}.png", optimize=True)
        index.append(
            {
                "image": f"{example.name}.png",
                "title": example.title,
                "width": example.width,
                "height": example.height,
                "questions": pick_questions(document),
            }
        )
    text = json.dumps(index, indent=1, ensure_ascii=False)
    (folder / "index.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
