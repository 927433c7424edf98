"""Suites of questions: the embedded ones, drawn from fixed seeds, or a file of images and
questions.

The evaluation reads questions through a `Suite` alone. The embedded ones are drawn by the generator
that also draws the pocket models' training, which is no part of the library: `EMBEDDED` says where
to look for it, and it is imported when such a suite is asked for.

An embedded suite is drawn once a run (`draw`) and read from then on: drawing 1,000 questions takes
half a minute of one core, which every process of a run would spend again.
"""

import hashlib
import importlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from PIL import Image

from rotatek.errors import UserError
from rotatek.evaluation.metrics import SCORES
from rotatek.inputs.request import clean_question, open_image
from rotatek.inputs.text_files import Line, as_lines, lines_of, parsed, read_text

LONG_TOKENS: Final = 768  # answers of whole pages
SHORT_TOKENS: Final = 96
# What draws the suite of a name: module and class, a `Drawer`.
EMBEDDED: Final = dict.fromkeys(
    ("pocket", "pocket-unseen"), "pocket.evaluation.suite:EmbeddedSuite"
)
QUESTIONS: Final = "questions.jsonl"  # in a run's folder, beside its journal
PICTURES: Final = "pictures"


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


class Selection:
    """Other items about a suite's pictures: some of its own, or chains of them."""

    def __init__(self, suite: Suite, items: Sequence[Item]) -> None:
        self.name, self.items, self.image = suite.name, items, suite.image


class Drawer(Protocol):
    """Draws a suite: the same arguments give the same questions and pixels."""

    def __call__(
        self, name: str, questions: int, seed: int, see: Callable[[int, Image.Image], None]
    ) -> Suite:
        """Draw the suite `name`.

        Args:
            name: One of `EMBEDDED`.
            questions: How many, in all.
            seed: Another one is another suite.
            see: Is shown each document's number and picture as it is drawn.
        """
        ...


def embedded(name: str) -> Drawer:
    """What draws the embedded suite `name`, imported now.

    Raises:
        UserError: if the generator is not installed.
    """
    module, _, attribute = EMBEDDED[name].partition(":")
    try:
        drawer: Drawer = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as exc:
        if not module.startswith(exc.name or module):
            raise
        raise UserError(
            "The embedded suites are drawn by the repository's own generator, which is not "
            "installed with the library. Run this in a checkout, or give a FILE.jsonl as --suite."
        ) from exc
    return drawer


def drawn_name(name: str, seed: int) -> str:
    """What a drawn suite is called in results: its name and seed."""
    return f"{name} (seed {seed})"


def fingerprint(suite: Suite) -> str:
    """Changes when a question, an accepted answer or a metric does."""
    digest = hashlib.sha256(suite.name.encode("utf-8", "surrogatepass"))
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


class StoredSuite:
    """Questions, answers and drawn pictures of a run, kept beside its journal.

    Drawn questions differ between builds of Pillow, whose text widths differ a little; a run can be
    drawn on one machine, answered on a second and reported on a third all the same. A report needs
    no pictures, so those of a file's suite are not kept.
    """

    def __init__(self, path: Path) -> None:
        text = read_text(path, f"The run's {path.name}")
        try:
            head, *rows = [parsed(line.text) for line in lines_of(text)]
            self.name: str = head["name"]
            self._items = [Item(**{**row, "accepted": tuple(row["accepted"])}) for row in rows]
        except (ValueError, KeyError, TypeError) as exc:
            raise UserError(
                f"The run's {path.name} is damaged. Give another --out, or delete that file."
            ) from exc
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
        draft = path.with_suffix(f".partial-{os.getpid()}")
        draft.write_text(as_lines(rows), encoding="utf-8")
        draft.replace(path)


def draw(name: str, questions: int, seed: int, folder: Path) -> StoredSuite:
    """An embedded suite as `folder` keeps it, drawn into it first where need be.

    Args:
        name: One of `EMBEDDED`.
        questions: How many, in all.
        seed: Another one is another suite.
        folder: Where questions and pictures are kept, a run's own.

    Raises:
        UserError: if the folder holds answers to other questions, or nothing here can draw.
    """
    path = folder / QUESTIONS
    if path.exists():
        kept = StoredSuite(path)
        same = (kept.name, len(kept.items)) == (drawn_name(name, seed), questions)
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

    StoredSuite.save(embedded(name)(name, questions, seed, keep), path)
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

    answers: a list, or a single one; category, or kind: what is counted apart; metric: one of
    `rotatek.evaluation.metrics.SCORES`, exact_match by default; long: true where the answer is a
    page. Lines with the same image are one document. A bad line among good ones is left out.

    Attributes:
        bad: a sentence for each line that was left out.

    Raises:
        UserError: for a file that cannot be read or has no good line.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.bad: list[str] = []
        self._items: list[Item] = []
        self._paths: dict[Path, int] = {}  # each document's number
        text = read_text(path, f"The suite {path.name}")
        for line in lines_of(text):
            try:
                self._add(line, path.parent)
            except (UserError, ValueError, KeyError, TypeError) as exc:
                why = f": {exc.message}" if isinstance(exc, UserError) else f" is not {_FORM}"
                self.bad.append(f"Line {line.number} of the suite {path.name}{why}")
        if not self._items:
            alone = "The suite has no questions. Add one JSON object a line."
            raise UserError(self.bad[0] if self.bad else alone)

    @property
    def items(self) -> Sequence[Item]:
        """Every question, in the file's order."""
        return self._items

    def image(self, document: int) -> Image.Image:
        """The picture, checked as any input."""
        return open_image(list(self._paths)[document])

    def _add(self, line: Line, folder: Path) -> None:
        row = parsed(line.text)
        if not isinstance(row, dict):
            raise TypeError
        path = folder / row["image"]
        accepted = _accepted(row["answers"] if "answers" in row else row["answer"])
        metric = row.get("metric", "exact_match")
        long = row.get("long", metric == "transcription")
        if metric not in SCORES or not isinstance(long, bool):
            raise ValueError
        question = clean_question(row["question"])
        category = str(row.get("category", row.get("kind", "all")))
        document = self._paths.setdefault(path, len(self._paths))
        name = f"line-{line.number:05d}"
        self._items.append(Item(name, document, category, question, accepted, metric, long))


_FORM: Final = (
    f'{{"image": PATH, "question": TEXT, "answers": [TEXT, ...], "metric": one of '
    f"{', '.join(SCORES)}}}."
)


def _accepted(answers: Any) -> tuple[str, ...]:
    """The accepted answers of a line: texts or numbers, in a list or alone.

    Raises:
        ValueError: for none.
        TypeError: for anything else.
    """
    given = answers if isinstance(answers, list) else [answers]
    if not given:
        raise ValueError
    if any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in given):
        raise TypeError
    return tuple(str(one) for one in given)
