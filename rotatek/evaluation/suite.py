"""What is asked: the embedded suite, drawn from fixed seeds, or a file of images and questions.

An embedded suite is drawn once a run (`draw`) and read from then on: drawing 1,000 questions takes
half a minute of one core, which every process of a run would spend again.
"""

import hashlib
import importlib.util
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from PIL import Image

from rotatek.errors import UserError
from rotatek.evaluation.metrics import SCORES
from rotatek.inputs import clean_question, open_image
from rotatek.pocket.document import Document
from rotatek.pocket.generate import make_document, pick_size

LONG_TOKENS: Final = 768  # answers of whole pages
SHORT_TOKENS: Final = 96
LONG_CHARACTERS: Final = (80, 600)  # transcriptions outside this are left out
SHORT_CHARACTERS: Final = 64
QUESTIONS_A_DOCUMENT: Final = 3
VISUAL_TOKENS: Final = (200, 640)  # sizes of the drawn images, in visual tokens of the pocket
SPLITS: Final = {"pocket": "own", "pocket-unseen": "renderers"}
QUESTIONS: Final = "questions.jsonl"  # in a run's folder, beside its journal
PICTURES: Final = "pictures"
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


@dataclass(frozen=True)
class Item:
    """One question. document: questions about one picture share it; long: a whole page is asked."""

    name: str
    document: int
    category: str
    question: str
    accepted: tuple[str, ...]
    metric: str
    long: bool = False

    def score(self, answer: str) -> float:
        """The item's own metric, in [0, 1]."""
        return SCORES[self.metric](answer, self.accepted)


class Suite(Protocol):
    """Items, and the picture of each document."""

    name: str

    @property
    def items(self) -> Sequence[Item]:
        """Every question."""
        ...

    def image(self, document: int) -> Image.Image:
        """The picture, RGB."""
        ...


def fingerprint(suite: Suite) -> str:
    """Changes when a question, an accepted answer or a metric does."""
    digest = hashlib.sha256(suite.name.encode())
    for item in suite.items:
        digest.update(repr(item).encode())
    return digest.hexdigest()[:16]


def describe(suite: Suite) -> dict[str, Any]:
    """Name, counts and fingerprint, for the results file."""
    return {
        "name": suite.name,
        "questions": len(suite.items),
        "documents": len({item.document for item in suite.items}),
        "categories": dict(Counter(item.category for item in suite.items)),
        "metrics": {item.category: item.metric for item in suite.items},
        "fingerprint": fingerprint(suite),
    }


class EmbeddedSuite:
    """Documents the project draws, from seeds that training never uses.

    questions: in all, the same number from each category; seed: another one is another suite.
    see: is shown each document's number and picture as it is drawn.
    """

    def __init__(
        self,
        name: str = "pocket",
        questions: int = 1_000,
        seed: int = 0,
        see: Callable[[int, Image.Image], None] = lambda *_: None,
    ) -> None:
        if importlib.util.find_spec("matplotlib") is None:
            raise UserError("The embedded suites draw with matplotlib. Install `rotatek[pocket]`.")
        self.name = _title(name, seed)
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


def _title(name: str, seed: int) -> str:
    return f"{name} (seed {seed})"


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


class StoredSuite:
    """Questions, answers and drawn pictures of a run, kept beside its journal.

    Drawn questions differ between builds of Pillow, whose text widths differ a little; a run can be
    drawn on one machine, answered on a second and reported on a third all the same. A report needs
    no pictures, so those of a file's suite are not kept.
    """

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.name: str = lines[0]["name"]
        self._items = [Item(**{**row, "accepted": tuple(row["accepted"])}) for row in lines[1:]]
        self._pictures = path.with_name(PICTURES)

    @property
    def items(self) -> Sequence[Item]:
        """Every question, in the run's order."""
        return self._items

    def image(self, document: int) -> Image.Image:
        """The picture as it was drawn."""
        try:
            with Image.open(_picture(self._pictures, document)) as picture:
                return picture.convert("RGB")
        except OSError as exc:
            raise UserError("A picture is missing beside the questions. Draw them again.") from exc

    def has_pictures(self) -> bool:
        """Whether the questions can be asked, not only scored."""
        documents = {item.document for item in self._items}
        return all(_picture(self._pictures, document).exists() for document in documents)

    @staticmethod
    def save(suite: Suite, path: Path) -> None:
        """Write the name and the items of `suite`, one JSON object a line.

        Raises:
            UserError: if there are answers to other questions beside `path`.
        """
        if path.exists():
            kept = StoredSuite(path)
            if (kept.name, kept.items) == (suite.name, list(suite.items)):
                return
            _check_unanswered(path.parent)
        rows = [{"name": suite.name}, *(asdict(item) for item in suite.items)]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        draft = path.with_suffix(f".partial-{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)


def draw(name: str, questions: int, seed: int, folder: Path) -> StoredSuite:
    """An embedded suite as `folder` keeps it, drawn into it first where need be.

    Raises:
        UserError: if the folder holds answers to other questions.
    """
    path = folder / QUESTIONS
    if path.exists():
        kept = StoredSuite(path)
        same = (kept.name, len(kept.items)) == (_title(name, seed), questions)
        if same and kept.has_pictures():
            return kept
        if not same:
            _check_unanswered(folder)
            path.unlink()  # until its pictures are complete, no suite is there
    pictures = folder / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)

    def keep(document: int, picture: Image.Image) -> None:
        whole = _picture(pictures, document)
        draft = whole.with_suffix(f".partial-{os.getpid()}")
        picture.save(draft, "PNG")
        draft.replace(whole)

    StoredSuite.save(EmbeddedSuite(name, questions, seed, keep), path)
    return StoredSuite(path)


def _picture(folder: Path, document: int) -> Path:
    return folder / f"{document:05d}.png"


def _check_unanswered(folder: Path) -> None:
    if any(folder.glob("journal*.jsonl")):
        raise UserError(
            "--out holds answers to other questions. Give another --out, or the --suite, "
            "--questions and --seed it was made with."
        )


class FileSuite:
    """Lines of JSON: image (a path beside the file), question, answers; optional metric, category.

    metric: one of `rotatek.evaluation.metrics.SCORES`, exact_match by default; long: true where
    the answer is a page. Lines with the same image are one document.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._items: list[Item] = []
        self._paths: list[Path] = []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as exc:
            raise UserError("The suite cannot be read. Check its name and encoding.") from exc
        for number, line in enumerate(lines, 1):
            if line.strip():
                self._add(number, line, path.parent)
        if not self._items:
            raise UserError("The suite has no questions. Add one JSON object a line.")

    @property
    def items(self) -> Sequence[Item]:
        """Every question, in the file's order."""
        return self._items

    def image(self, document: int) -> Image.Image:
        """The picture, through the one door."""
        return open_image(self._paths[document])

    def _add(self, number: int, line: str, folder: Path) -> None:
        try:
            row = json.loads(line)
            path = folder / row["image"]
            answers = row["answers"] if "answers" in row else [row["answer"]]
            metric = row.get("metric", "exact_match")
            if metric not in SCORES or not answers:
                raise ValueError
            question = clean_question(row["question"])
            accepted = tuple(str(answer) for answer in answers)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise UserError(
                f'Line {number} of the suite is not {{"image": PATH, "question": TEXT, "answers": '
                f'[TEXT, ...], "metric": one of {", ".join(SCORES)}}}.'
            ) from exc
        if path not in self._paths:
            self._paths.append(path)
        category = str(row.get("category", "all"))
        document = self._paths.index(path)
        long = bool(row.get("long", metric == "transcription"))
        name = f"line-{number:05d}"
        self._items.append(Item(name, document, category, question, accepted, metric, long))
