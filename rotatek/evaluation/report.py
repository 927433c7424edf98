"""From a run's answers to tidy tables with intervals and judged claims, and to a Markdown page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rotatek.evaluation import answers as tidy
from rotatek.evaluation.cells import Cell, Found, Pair, Results, Score
from rotatek.evaluation.chains import FIRST, OPENING, counted
from rotatek.evaluation.claims import (
    BETTER,
    BOTH,
    CLAIMS,
    LIVE,
    NOMINAL,
    OPEN,
    SOLVED,
    UNASKED,
    Answered,
    Floats,
    Judge,
)
from rotatek.evaluation.journal import Answer, setting_id
from rotatek.evaluation.metrics import Resampled, error_rate, exact_match, interval, points
from rotatek.evaluation.suite import Item
from rotatek.evaluation.tables import Row, Table
from rotatek.evaluation.tables import asked as asked_of
from rotatek.methods.options import options_of
from rotatek.methods.settings import BASELINE, Settings

TYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}  # of cached numbers
Mask = NDArray[np.bool_]
UNCOMPRESSED: Final = "uncompressed"
EVERY: Final = "all splits"
FIRST_TURN, LATER = "first", "later"
Filed = dict[tuple[str, str], list[tuple[Pair, Floats]]]  # by claim and count


def build(
    tables: Sequence[Table],
    items: Sequence[Item],
    answers: Mapping[tuple[str, str], Answer],
    header: Mapping[str, Any],
) -> Results:
    """The results of one run's answers.

    A table compares the questions that all its rows answered; rows without any answer are left out,
    so an interrupted run reports what it has. A run of second questions has cells of those, and
    cells of the opening questions.

    Args:
        tables: what to compare.
        items: the suite's questions.
        answers: by setting and item.
        header: what the answers belong to, and where they were made.
    """
    (how, mine), *openings = counted(items, header.get("ask", FIRST)).items()
    main = _Run(tables, mine, answers, header, how).results()
    alone = [replace(table, beside="") for table in tables]
    others = (_Run(alone, mine, answers, header, how).results() for how, mine in openings)
    cells = [*main.cells, *(cell for one in others for cell in one.cells)]
    return Results(main.runs, cells, main.pairs, main.found)


def unasked() -> list[Found]:
    """What the paper claims and no table asks, with the reason."""
    return [Found("", text, where, "", "", OPEN, note=reason)
            for text, (where, reason) in UNASKED.items()]  # fmt: skip


class _Scored(NamedTuple):
    """An answer's score, whether it is an accepted one, and its edits where it is a page."""

    score: float
    exact: float
    edits: float


class _Run:
    """A run's answers to some questions, `ask` in its cells, as arrays over these."""

    def __init__(
        self,
        tables: Sequence[Table],
        items: Sequence[Item],
        answers: Mapping[tuple[str, str], Answer],
        header: Mapping[str, Any],
        ask: str,
    ) -> None:
        self.tables, self.items, self.answers = tables, items, answers
        self.ask, self.header = ask, header
        rows = [row for table in tables for row in table.rows]
        self.model, self.suite = header["model"]["name"], header["suite"]["name"]
        self.kinds = np.array([item.category for item in items])
        self.documents = np.array([item.document for item in items], dtype=np.int64)
        self.long = np.array([item.long for item in items], dtype=bool)
        self.sizes = [len(" ".join(item.accepted[0].split())) * item.long for item in items]
        self.scored: dict[tuple[int, str], _Scored] = {}  # most settings give the same answers
        self._names = {row.settings: setting_id(row.settings) for row in rows}
        self.variants = {  # of rows that were solved for every length
            row.settings: {name: setting_id(one) for one, names in row.asked for name in names}
            for row in rows if row.variants
        }  # fmt: skip
        known = {row.settings: self._answered(row.settings) for row in rows}
        mine = {one: found for one, found in known.items() if not np.isnan(found.score).all()}
        self.judge = Judge(self.model, mine, self.documents, self.kinds)

    def _score_of(self, n: int, text: str) -> "_Scored":
        if (n, text) not in self.scored:
            item = self.items[n]
            score, rate = item.score(text), 0.0
            if item.long:
                known = item.metric == "transcription" and score > 0 and len(item.accepted) == 1
                rate = 1 - score if known else error_rate(text, item.accepted[:1])
            exact = exact_match(text, item.accepted)
            self.scored[n, text] = _Scored(score, exact, rate * self.sizes[n])
        return self.scored[n, text]

    def _answered(self, settings: Settings) -> Answered:
        size = len(self.items)
        scores, live = np.full(size, np.nan), np.full(size, np.nan)
        for n, item in enumerate(self.items):
            answer = self.answers.get((self._name(settings, item), item.name))
            if answer is not None:
                scores[n], live[n] = self._score_of(n, answer.answer).score, answer.kv_share
        return Answered(scores, live)

    def results(self) -> Results:
        """Cells, comparisons and claims."""
        filed: Filed = {}
        made = [(table, *self.table(table, filed)) for table in self.tables]
        if ("think", NOMINAL) in filed:
            for count in BOTH:
                differences = [difference for _, difference in filed.get(("think", count), [])]
                if differences:
                    filed["kinds", count] = self.judge.by_kind(differences, count)
        found = [
            self.judge.found(key, count, filed[key, count])
            for key in CLAIMS
            for count in BOTH
            if filed.get((key, count))
        ]
        pairs = [pair for mine in filed.values() for pair, _ in mine]
        kept = [(about, cells) for _, about, cells in made if cells]
        about = {**self.header, "tables": [about for about, _ in kept]}
        return Results([about], [cell for _, cells in kept for cell in cells], pairs, found)

    def table(self, table: Table, filed: Filed) -> tuple[dict[str, Any], list[Cell]]:
        """One table's cells; its comparisons are filed under their claims."""
        mine = {item.name for item in asked_of(table.scope, self.items)}
        wanted = np.array([item.name in mine for item in self.items], dtype=bool)
        known = self.judge.answered
        rows = [row for row in table.rows if row.settings in known
                and not np.isnan(known[row.settings].score[wanted]).all()]  # fmt: skip
        mask = wanted.copy()
        for row in rows:
            mask &= ~np.isnan(known[row.settings].score)
        about = {
            "name": table.name, "title": table.title, "across": table.across,
            "scope": table.scope, "questions": int(mask.sum()), "of": int(wanted.sum()),
            "documents": len(np.unique(self.documents[mask])),
        }  # fmt: skip
        if not mask.any():
            return about, []
        settings = {row.label: row.settings for row in rows}
        for claim in table.claims:
            counts = CLAIMS[claim.topic].counts if claim.topic in CLAIMS else (NOMINAL,)
            for count in counts if claim.labels <= settings.keys() else ():
                difference = self.judge.difference(claim, settings, mask, count)
                if difference is not None:
                    # Rows that are solved stand at equal live bytes.
                    count = LIVE if counts == SOLVED else count
                    pair = self.judge.pair(claim, table.name, count, difference)
                    filed.setdefault((claim.topic, count), []).append((pair, difference))
        return about, [self._cell(table, row, mask) for row in rows]

    def _cell(self, table: Table, row: Row, mask: Mask) -> Cell:
        """One row: score with its interval, by kind, bytes, and how it differs from the whole."""
        found, whole = self.judge.answered[row.settings], self.judge.answered.get(BASELINE)
        places = np.flatnonzero(mask).tolist()
        given = self._given(row.settings, places)
        scored = [self._score_of(n, one.answer) for n, one in zip(places, given, strict=True)]
        size = sum(self.sizes[n] for n in places)
        difference = pages = same = None
        if whole is not None and whole.has(mask):
            gap = found.score - whole.score
            difference = self.judge.mean(gap, mask)
            pages = self.judge.mean(gap, mask & self.long) if (mask & self.long).any() else None
            pairs = zip(given, self._given(BASELINE, places), strict=True)
            same = float(np.mean([one.answer == other.answer for one, other in pairs]))
        kinds = {kind: self._score(found.score, mask & (self.kinds == kind))
                 for kind in dict.fromkeys(self.kinds[mask].tolist())}  # fmt: skip
        return Cell(
            self.model, self.suite, table.name, row.label, row.line, row.times,
            short(row.settings), row.settings.nominal_kv, float(found.live[mask].mean()), same,
            float(np.mean([one.exact for one in scored])),
            float(np.mean([answer.tokens for answer in given])),
            sum(one.edits for one in scored) / size if size else None,
            self._score(found.score, mask), difference, pages, self._beside(table, row, mask),
            kinds, self.ask,
        )  # fmt: skip

    def _beside(self, table: Table, row: Row, mask: Mask) -> Score | None:
        """What the table's `beside` scores at a row's live bytes, less the row's score."""
        ours = next((one.settings for one in table.rows if one.label == table.beside), BASELINE)
        if BASELINE in (ours, row.settings) or ours not in self.judge.answered:
            return None
        gap = self.judge.live(row.settings, ours, mask)
        return None if gap is None else self.judge.mean(np.where(mask, -gap, np.nan))

    def _given(self, settings: Settings, places: Sequence[int]) -> list[Answer]:
        items = (self.items[n] for n in places)
        return [self.answers[self._name(settings, item), item.name] for item in items]

    def _name(self, settings: Settings, item: Item) -> str:
        """Under which name a row's answer to a question is kept."""
        mine = self.variants.get(settings, {})
        return mine.get(item.name) or self._names[settings]

    def _score(self, values: Floats, mask: Mask) -> Score:
        """A mean score; where all are alike, with Wilson's interval."""
        mine = values[mask]
        if np.ptp(mine) == 0 and mine[0] in (0.0, 1.0):
            return Score(float(mine[0]), *interval(mine, self.documents[mask]))
        return self.judge.mean(values, mask)


def short(settings: Settings) -> dict[str, Any]:
    """Flat settings: names, shares and bits, and of the other options what is not at its default.

    Names of files of this machine are left out. `Settings.from_dict` reads them back where both
    methods are registered.
    """
    kept = settings.as_dict()
    for method in (settings.tokens, settings.channels):
        for one in options_of(method):
            default = kept.get(one.key) == one.default and one.kind != "fraction"
            if one.kind == "path" or default or kept.get(one.key) is None:
                kept.pop(one.key, None)
    return kept


def markdown(results: Results) -> str:
    """One run's results as a page: a table each, scores in per cent with 95 % intervals."""
    (run,) = results.runs
    suite, kind = run["suite"], type_of(run)
    counts = ", ".join(f"{count} {name}" for name, count in suite["categories"].items())
    metrics = ", ".join(f"{name}: {metric}" for name, metric in suite["metrics"].items())
    where = f", on {run['ran_on']['device']}" if "ran_on" in run else ""
    asked = f", {run['ask']} questions" if "ask" in run else ""
    lines = [
        f"# {run['model']['name']} on {suite['name']}{asked}", "",
        f"Weights {run['model']['weights']}, {kind}{where}. {suite['questions']} questions over "
        f"{suite['documents']} images ({counts}). Metrics: {metrics}. Intervals are 95 %, "
        "resampled by image; differences and same answers are against the uncompressed model. "
        f"Live bytes are the share of all bytes of a {kind} cache after prefill, text and bases "
        "included; nominal is the paper's count.",
    ]  # fmt: skip
    if results.found:
        found = ((one.text, one.where or "beyond it", one.counted, said(one))
                 for one in results.found)  # fmt: skip
        heads = ["claim", "the paper", "counted", "found"]
        lines += ["", "## Claims", "", table_of(heads, found)]
    for about in run["tables"]:
        lines += ["", f"## {about['title']}", ""]
        if about["questions"] < about["of"]:
            lines += [f"The {about['questions']} of {about['of']} questions answered so far.", ""]
        cells = results.of(run)[about["name"]]
        opened = {cell.row: cell for cell in results.of(run, OPENING)[about["name"]]}
        kinds = list(cells[0].kinds) if len(cells[0].kinds) > 1 else []
        heads = ["Method", f"live bytes ({kind})", "nominal", "score", "difference", "same answer"]
        heads += [*(["first questions"] if opened else []), *kinds]
        rows = [[*_line(cell, kinds, opened)] for cell in cells]
        if any(cell.ours for cell in cells):
            heads.append("bits at these bytes, less this")
            for line, cell in zip(rows, cells, strict=True):
                line.append("" if cell.ours is None else points(cell.ours.mean, cell.ours[1:]))
        lines.append(table_of(heads, rows))
        pairs = [pair for pair in results.pairs if pair.table == about["name"]]
        if pairs:
            body = ((f"{pair.first} {pair.relation} {pair.second}", pair.counted,
                     points(pair.difference, (pair.low, pair.high)), pair.says)
                    for pair in pairs)  # fmt: skip
            lines += ["", table_of(("Expected", "counted", "difference", "says"), body)]
    return "\n".join(lines) + "\n"


def _line(
    cell: Cell, kinds: Sequence[str], opened: Mapping[str, Cell] = MappingProxyType({})
) -> Iterator[str]:
    yield cell.row
    yield f"{cell.live:.3f}"
    yield f"{cell.nominal:.3f}"
    yield cell.score.in_percent(1)
    yield "" if cell.difference is None else points(cell.difference.mean, cell.difference[1:])
    yield "" if cell.same is None else f"{100 * cell.same:.1f} %"
    if opened:
        yield f"{100 * opened[cell.row].score.mean:.1f}" if cell.row in opened else ""
    yield from (
        f"{100 * cell.kinds[kind].mean:.1f}" if kind in cell.kinds else "" for kind in kinds
    )


def type_of(run: Mapping[str, Any]) -> str:
    """The type of the cached numbers that shares of bytes are of: bf16."""
    dtype = str(run["model"]["dtype"])
    return TYPES.get(dtype, dtype)


def said(one: Found) -> str:
    """A claim's verdict with its figures, in a few words."""
    word = "better than that" if one.verdict == BETTER else "against it"
    parts = [f"{one.against} of {one.pairs} pairs {word}"] if one.against else []
    if one.difference is None or one.low is None or one.high is None:
        parts.append(one.note)
    elif one.counted in BOTH:
        parts.append(points(one.difference, (one.low, one.high)))
    else:
        ends = dict.fromkeys(measured(value) for value in (one.low, one.high))
        parts.append(f"{' to '.join(ends)} {one.note}")
    return f"{one.verdict}: {'; '.join(parts)}"


def measured(value: float) -> str:
    """A quantity or a ratio to three digits: .05, 1.54, 47.2, 302, 1,538."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}".removeprefix("0")


WORDS: Final = {NOMINAL: ", nominal", LIVE: ", at equal live bytes"}


def claim_lines(found: Sequence[Found]) -> list[dict[str, str]]:
    """Every claim as a line of words by its columns: a column a model and way to count.

    A claim that nothing asks says why in the first of them.
    """
    columns = {(one.model, one.counted): f"{one.model}{WORDS.get(one.counted, '')}"
               for one in found if one.model}  # fmt: skip
    ordered = [columns[key] for key in sorted(columns)]
    lines: dict[str, dict[str, str]] = {}
    for one in found:
        empty = {"claim": one.text, "the paper": one.where or "beyond it"}
        line = lines.setdefault(one.text, empty | dict.fromkeys(ordered, ""))
        column = columns.get((one.model, one.counted)) or next(iter(ordered), None)
        if column is not None:
            line[column] = said(one)
    return list(lines.values())


def table_of(heads: Iterable[object], body: Iterable[Iterable[object]]) -> str:
    """A table in Markdown, without a line's end at its last."""
    top = list(heads)
    made = [f"| {' | '.join(map(str, cells))} |" for cells in (top, *body)]
    return "\n".join([made[0], "|" + "---|" * len(top), *made[1:]])


class Record(NamedTuple):
    """How one setting answered a split's first questions, or its later ones.

    Attributes:
        model: its name.
        split: of the suite, or `EVERY` for all of them.
        setting: its name; `UNCOMPRESSED` is what the others are paired with.
        turn: "first" or "later" questions.
        questions: that were answered; pictures: they are about.
        score: the mean in [0, 1]; low, high: its 95 % interval, resampled by picture.
        difference: from the uncompressed cache on the same questions, with its own interval.
        same: share of answers that are the uncompressed cache's.
        bytes: mean share of an uncompressed cache's bytes.
        whole_tokens: mean of the visual tokens stored as they were.
        kl: mean over the questions where it was measured, or None.
    """

    model: str
    split: str
    setting: str
    turn: str
    questions: int
    pictures: int
    score: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    same: float
    bytes: float
    whole_tokens: float
    kl: float | None


def rows(path: Path) -> list[Record]:
    """The records of a file of answers: all models, splits and settings, first and later turns.

    Raises:
        UserError: where it is no such file.
    """
    groups: dict[tuple[str, str, str], dict[str, list[tidy.Answer]]] = {}
    splits: dict[str, set[str]] = {}
    for one in tidy.read(path):
        splits.setdefault(one.model, set()).add(one.split)
        turn = FIRST_TURN if one.turn == 1 else LATER
        for split in (one.split, EVERY):
            settings = groups.setdefault((one.model, split, turn), {})
            settings.setdefault(one.setting, []).append(one)
    found = []
    for (model, split, turn), settings in groups.items():
        if split == EVERY and len(splits[model]) == 1:
            continue
        whole = {one.question: one for one in settings.get(UNCOMPRESSED, ())}
        draws: dict[tuple[str, ...], Resampled] = {}  # most settings answer the same questions
        for setting, answers in settings.items():
            answers = sorted(answers, key=lambda one: one.question)
            found.append(_record((model, split, setting, turn), answers, whole, draws))
    return found


def _record(
    named: tuple[str, str, str, str],
    answers: Sequence[tidy.Answer],
    whole: Mapping[str, tidy.Answer],
    draws: dict[tuple[str, ...], Resampled],
) -> Record:
    """The figures of one setting's answers; whole: the uncompressed cache's by question."""

    def resampled(some: Sequence[tidy.Answer]) -> Resampled:
        pictures = tuple(one.picture for one in some)
        if pictures not in draws:
            draws[pictures] = Resampled(np.unique(pictures, return_inverse=True)[1])
        return draws[pictures]

    scores = np.array([one.score for one in answers])
    paired = [one for one in answers if one.question in whole]
    gaps = np.array([one.score - whole[one.question].score for one in paired])
    difference = (float("nan"),) * 3
    if paired:
        difference = float(gaps.mean()), *resampled(paired).interval(gaps)
    kls = [one.kl for one in answers if one.kl is not None]
    return Record(
        *named, len(answers), len({one.picture for one in answers}),
        float(scores.mean()), *resampled(answers).interval(scores), *difference,
        float(np.mean([one.same for one in answers])),
        float(np.mean([one.bytes / one.full_bytes for one in answers])),
        float(np.mean([one.whole_tokens for one in answers])),
        float(np.mean(kls)) if kls else None,
    )  # fmt: skip
