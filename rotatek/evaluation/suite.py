"""Suites of questions as data: a folder of pictures, and beside them `questions.jsonl`.

Each line is a question, as any program can read it:

    {"image": "sign.webp", "question": "Which line comes third?", "answers": ["Closed on Monday"],
     "metric": "exact_match", "category": "signs", "split": "drawn"}

image: a path from the folder; answers: those accepted, a list or a single one; metric: one of
`rotatek.evaluation.metrics.SCORES`, `exact_match` where it is left out; category and split: what is
counted apart, "all" where they are left out. `assets/suite` is the project's own.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

from rotatek.errors import SettingError, UserError
from rotatek.evaluation.metrics import SCORES
from rotatek.inputs.images import open_image
from rotatek.inputs.request import clean_question
from rotatek.inputs.text_files import lines_of, parsed
from rotatek.paths import assets

QUESTIONS: Final = "questions.jsonl"
SHORT_TOKENS, LONG_TOKENS = 96, 768  # the longest answer: a fact, a whole page
FORM: Final = (
    '{"image": PATH, "question": TEXT, "answers": [TEXT, ...], "metric": one of '
    f'{", ".join(SCORES)}, "category": TEXT, "split": TEXT}}'
)


@dataclass(frozen=True)
class Question:
    """One question about a picture, as its line has it. id: the picture, and the number among its
    questions, as `sign.webp#2`; picture: its path from the suite's folder; metric: of `SCORES`."""

    id: str
    picture: str
    text: str
    answers: tuple[str, ...]
    metric: str = "exact_match"
    category: str = "all"
    split: str = "all"

    @property
    def new_tokens(self) -> int:
        """The longest answer."""
        return LONG_TOKENS if self.metric == "transcription" else SHORT_TOKENS

    def score(self, answer: str) -> float:
        """The question's own metric, in [0, 1]."""
        return SCORES[self.metric](answer, self.answers)


@dataclass(frozen=True)
class Suite:
    """Questions about the pictures of a folder."""

    folder: Path
    questions: tuple[Question, ...]

    @classmethod
    def read(cls, folder: Path | None = None) -> "Suite":
        """A suite's questions; by default those of `assets/suite`. Its first line that is no
        question is refused by its number."""
        folder = assets() / "suite" if folder is None else folder
        found: list[Question] = []
        asked = Counter[str]()
        for number, line in lines_of(folder / QUESTIONS, f"The suite's {QUESTIONS}"):
            where = f"Line {number} of {QUESTIONS}"
            try:
                row = parsed(line)
                picture, text, answers = row["image"], row["question"], row["answers"]
                metric = row.get("metric", "exact_match")
                told = [row.get(name, "all") for name in ("category", "split")]
                answers = answers if isinstance(answers, list) else [answers]
                if not all(isinstance(given, str) for given in (picture, text, *told)):
                    raise TypeError
                if not all(type(given) in (str, int, float) for given in answers):
                    raise TypeError
                if not answers or metric not in SCORES:
                    raise ValueError
                text = clean_question(text)
            except UserError as error:
                raise UserError(f"{where}: {error.message}") from error
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UserError(f"{where} is not {FORM}.") from error
            if not (folder / picture).is_file():
                raise UserError(f"{where} names a picture that is not there: {picture}.")
            asked[picture] += 1
            name = f"{picture}#{asked[picture]}"
            accepted = tuple(map(str, answers))
            found.append(Question(name, picture, text, accepted, metric, *told))
        if not found:
            raise UserError(f"The suite has no questions. Add lines of {FORM} to {QUESTIONS}.")
        return cls(folder, tuple(found))

    @property
    def pictures(self) -> dict[str, list[Question]]:
        """Each picture's questions in the order of asking: whole pages come last."""
        found: dict[str, list[Question]] = {}
        for one in sorted(self.questions, key=lambda one: one.new_tokens):
            found.setdefault(one.picture, []).append(one)
        order = dict.fromkeys(one.picture for one in self.questions)
        return {picture: found[picture] for picture in order}

    def picture(self, name: str) -> Image.Image:
        """A picture, checked as any input."""
        return open_image(self.folder / name)

    def taken(self, splits: Sequence[str] = (), most: int | None = None) -> "Suite":
        """The same pictures' questions of some splits, and of so many pictures that they are about
        `most`, spread over the file."""
        known = list(dict.fromkeys(one.split for one in self.questions))
        for split in splits:
            if split not in known:
                raise SettingError("--splits", f"some of {','.join(known)}", split)
        kept = [one for one in self.questions if not splits or one.split in splits]
        if most is not None:
            if most < 1:
                raise SettingError("--questions", "a whole number from 1", most)
            names = list(dict.fromkeys(one.picture for one in kept))
            count = max(1, min(len(names), round(len(names) * most / len(kept))))
            some = {names[number * len(names) // count] for number in range(count)}
            kept = [one for one in kept if one.picture in some]
        return Suite(self.folder, tuple(kept))
