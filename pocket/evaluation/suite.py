"""The embedded suites: documents that the project draws, from seeds that training never uses."""

import importlib.util
import random
from collections.abc import Callable, Sequence
from typing import Final

from PIL import Image

from pocket.document import Document
from pocket.generate import make_document, pick_size
from rotatek.errors import UserError
from rotatek.evaluation.suite import Item, drawn_name

LONG_CHARACTERS: Final = (80, 600)  # transcriptions outside this are left out
SHORT_CHARACTERS: Final = 64
QUESTIONS_A_DOCUMENT: Final = 3
VISUAL_TOKENS: Final = (200, 640)  # sizes of the drawn images, in visual tokens of the pocket
SPLITS: Final = {"pocket": "own", "pocket-unseen": "renderers"}
_CATEGORIES: Final = {
    "documents": ("forms", "receipts", "pages", "screens"),
    "charts": ("bars", "lines", "pies", "plots"),
    "tables": ("tables",),
    "signs": ("signs",),
    "transcription": ("pages", "tables", "receipts", "forms", "screens"),
}
_UNSEEN: Final = {"documents": ("tickets", "boards"), "transcription": ("tickets", "boards")}
# The paper's benchmarks of the same kind of picture lend their metric: DocVQA, ChartQA, TextVQA.
_METRICS: Final = {
    "documents": "anls",
    "charts": "relaxed_accuracy",
    "tables": "exact_match",
    "signs": "vqa_accuracy",
    "transcription": "transcription",
}


class EmbeddedSuite:
    """A `rotatek.evaluation.suite.Suite` of drawn documents; a `Drawer` makes it.

    Args:
        name: `pocket`, or `pocket-unseen`: sorts of document that no training has drawn.
        questions: In all, the same number from each category.
        seed: Another one is another suite.
        see: Is shown each document's number and picture as it is drawn.

    Raises:
        UserError: if matplotlib is missing.
    """

    def __init__(
        self,
        name: str = "pocket",
        questions: int = 1_000,
        seed: int = 0,
        see: Callable[[int, Image.Image], None] = lambda *_: None,
    ) -> None:
        if importlib.util.find_spec("matplotlib") is None:
            raise UserError(
                "The embedded suites are drawn by the repository's own generator, which needs "
                "matplotlib. Install `rotatek[pocket]`."
            )
        self.name = drawn_name(name, seed)
        self._see = see
        self._split = SPLITS[name]
        self._sources: list[tuple[int, int, int, str]] = []  # seed, width, height, renderer
        self._items: list[Item] = []
        wanted = _UNSEEN if self._split == "renderers" else _CATEGORIES
        for number, (category, renderers) in enumerate(wanted.items()):
            quota = questions // len(wanted) + (number < questions % len(wanted))
            self._fill(category, renderers, quota, random.Random(f"{name}/{seed}/{category}"))

    @property
    def items(self) -> Sequence[Item]:
        """Every question, category by category."""
        return self._items

    def image(self, document: int) -> Image.Image:
        """Draw the picture again; the same seed gives the same pixels."""
        return self._draw(*self._sources[document]).image

    def _draw(self, seed: int, width: int, height: int, renderer: str) -> Document:
        return make_document(seed, width, height, self._split, (renderer,))

    def _fill(
        self, category: str, renderers: Sequence[str], quota: int, rng: random.Random
    ) -> None:
        """Draw documents until a category has its questions."""
        taken = 0
        while taken < quota:
            source = (rng.getrandbits(40), *pick_size(rng, *VISUAL_TOKENS), rng.choice(renderers))
            drawn = self._draw(*source)
            pairs = _questions(drawn, category, rng)[: quota - taken]
            for question, answer in pairs:
                document = len(self._sources)
                name = f"{category}-{taken:04d}"
                self._items.append(
                    Item(
                        name=name,
                        document=document,
                        category=category,
                        question=question,
                        accepted=(answer,),
                        metric=_METRICS[category],
                        long=category == "transcription",
                    )
                )
                taken += 1
            if pairs:
                self._see(len(self._sources), drawn.image)
                self._sources.append(source)


def _questions(document: Document, category: str, rng: random.Random) -> list[tuple[str, str]]:
    """(question, answer) pairs of one document that belong to a category."""
    if category == "transcription":
        low, high = LONG_CHARACTERS
        pages = [q for q in document.questions if q.kind == "transcribe"]
        fit = [q for q in pages if low <= len(q.answer.encode()) <= high]
        return [(q.text, q.answer) for q in fit[:1]]
    short = [
        q
        for q in document.questions
        if q.kind != "transcribe" and len(q.answer.encode()) <= SHORT_CHARACTERS
    ]
    drawn = rng.sample(short, min(QUESTIONS_A_DOCUMENT, len(short)))
    return [(q.text, q.answer) for q in drawn]
