"""Make every committed table again from the committed answers and measurements: `make results`.

From `assets/results/answers/*.jsonl.xz` follow the tidy tables `runs.json`, `cells.csv.gz`,
`pairs.csv.gz` and `claims.csv` (`rotatek.evaluation.cells`), claims of speed from the JSON files of
measurements (`rotatek.evaluation.speed_claims`). Then the documents'
blocks are written: each is a table between `<!-- data: NAME -->` and `<!-- end -->`.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from docs import real_keys
from rotatek.compare.columns import UNCOMPRESSED
from rotatek.evaluation import equal_bytes_table, speed_claims
from rotatek.evaluation.answer_archive import SUFFIX, AnswerArchive, unpack
from rotatek.evaluation.cells import SUITES, Cell, Outcome, Results, Score, joined, strongest
from rotatek.evaluation.chains import FIRST, OPENING, SECOND
from rotatek.evaluation.journal import weights_id
from rotatek.evaluation.metrics import points
from rotatek.evaluation.report import build, claim_lines, measured, table_of, type_of, unasked
from rotatek.evaluation.speed_claims import Speed
from rotatek.evaluation.tables import Table, second_table, tables
from rotatek.methods.tokens import TOKENS
from rotatek.models import load

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "assets" / "results"
TEXTS: Final = ("README.md", "docs/*.md", "assets/*/README.md")
BLOCK: Final = re.compile(r"(<!-- data: (\w[\w-]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
MAIN: Final = next(iter(SUITES))
HEADLINE: Final = (  # rows of second questions that README shows
    UNCOMPRESSED, "RotateK (2 bits)", "RotateK (0.75 bits)", "KIVI (2 bits)",
    "TurboQuant (2 bits)", "RotateK, 32 Key channels",
)  # fmt: skip
RIVALS: Final = (  # rows of second questions that ours is compared with at their bytes
    "KIVI (2 bits)", "KIVI (4 bits)", "TurboQuant (2 bits)", "VidKV (1.5 and 1.58 bits)",
    "SparK, 32 Key channels",  # README shows so many
    "KIVI (3 bits)", "TurboQuant (3 bits)", "TurboQuant (4 bits)", "RotateK, 32 Key channels",
    "AdaKV 0.4",
)  # fmt: skip
SHOWN: Final = (  # rows of second questions that docs/results.md shows; cells.csv.gz has all
    *HEADLINE, "RotateK (1 bits)", "RotateK (0.5 bits)", "RotateK (8 times smaller)",
    "RotateK (16 times smaller)", "ThinK, 32 Key channels", "SparK, 32 Key channels",
    "KIVI (3 bits)", "KIVI (4 bits)", "TurboQuant (3 bits)", "VidKV (1.5 and 1.58 bits)",
    "AdaKV 0.4", "FastV 0.4",
)  # fmt: skip


def rebuilt(kept: AnswerArchive) -> Results:
    """What a file of answers amounts to: every table of which it has most rows; of later questions
    the one table, with the rows that it has."""
    made = [*tables().values(), equal_bytes_table.table_of(kept.solved)]
    chosen = [table for table in made if _has(table, kept)]
    if "ask" in kept.header:
        chosen = [second_table()]
    header = {name: value for name, value in kept.header.items() if name != "solved"}
    return build(chosen, kept.items, kept.answers, header)


def _has(table: Table, kept: AnswerArchive) -> bool:
    known = set(kept.settings.values())
    mine = [row for row in table.rows if row.settings in known]
    return len(mine) > 1 and 2 * len(mine) > len(table.rows)


def packed() -> list[Path]:
    """Every committed file of answers, the main suite's first."""
    found = sorted((RESULTS / "answers").glob(f"*{SUFFIX}"))
    return sorted(found, key=lambda path: path.stat().st_size, reverse=True)


def everything(kept: Iterable[AnswerArchive], speeds: Sequence[Speed]) -> Results:
    """All tidy tables: of answers, and of claims of measurements."""
    pairs, found = speed_claims.judged(speeds)
    parts = [rebuilt(one) for one in kept]
    parts.sort(key=lambda part: place_of(part.runs[0]))
    return joined([*parts, Results((), (), pairs, [*unasked(), *found])])


def place_of(run: Mapping[str, Any]) -> tuple[str, ...]:
    """The position of a run among the others."""
    return run.get("ask", ""), run["suite"]["name"], run["model"]["name"]


# --- Blocks -------------------------------------------------------------------------------------


def equal_bytes(results: Results) -> str:
    """Ours and the strongest rival at each size, and what ours loses on whole pages, where a model
    was asked for any; empty where it was not measured at a size."""
    heads, columns = ["times smaller"], []
    for run in results.main:
        name = run["model"]["name"]
        pairs = [pair for pair in results.pairs if (pair.claim, pair.model) == ("rivals", name)]
        cells = results.of(run)["rivals"]
        columns.append((strongest(cells, pairs), any(cell.pages for cell in cells)))
        heads += [f"{name}: ours", "strongest rival", "points"]
        heads += ["ours on whole pages"] * columns[-1][1]
    body = []
    for times in dict.fromkeys(times for found, _ in columns for times in found):
        line = [str(times)]
        for found, paged in columns:
            if times not in found:
                line += [""] * (3 + paged)
                continue
            ours, other, pair = found[times]
            difference = points(pair.difference, (pair.low, pair.high))
            line += [_scored(ours), _scored(other), difference]
            line += [_points_of(ours.pages)] * paged
        body.append(line)
    return table_of(heads, body)


def _scored(cell: Cell) -> str:
    """A score and the method's words with its bits."""
    bits = cell.settings.get("bits") or cell.settings.get("number_bits")
    words = cell.line.replace("(bits)", f"({bits:g} bits)") if bits else cell.line
    pruner = TOKENS[cell.settings["tokens"]]
    after = "" if pruner.stage == "nowhere" or pruner.label in words else f" after {pruner.label}"
    return f"{100 * cell.score.mean:.1f}, {words}{after}"


def runs(results: Results) -> str:
    """What was asked of which weights, in which type, where; and whether those are shipped."""
    heads = ("model", "suite", "asked", "weights", "shipped", "type", "device", "questions",
             "settings")  # fmt: skip
    body = []
    for run in results.runs:
        model, suite = run["model"], run["suite"]
        mine = [cell for cells in results.of(run).values() for cell in cells]
        same = model["weights"] == shipped(model["name"])
        body.append((
            model["name"], SUITES.get(suite["name"], suite["name"]), run.get("ask", FIRST),
            f"`{model['weights']}`",
            "yes" if same else "no: replaced since", type_of(run), run["ran_on"]["device"],
            f"{_questions(run):,}", len({str(cell.settings) for cell in mine}),
        ))  # fmt: skip
    return table_of(heads, body)


def _questions(run: Mapping[str, Any]) -> int:
    """How many all settings of a table have answered, at most."""
    return max(int(table["questions"]) for table in run["tables"])


def seconds(
    results: Results, methods: Sequence[str] = (), asked: Sequence[str] = (), spread: bool = True
) -> str:
    """Second questions beside the first ones of the same pictures, a row a setting, a column a run.

    A cell has the score of the second questions over that of the first ones, the share of second
    answers that equal the uncompressed model's to the letter, and live bytes.

    Args:
        results: with runs of second questions, or of questions behind a neutral one.
        methods: rows to show; all by default.
        asked: ways to ask, of which runs are shown; all by default. With some the main suite, which
            is the easiest, is left out.
        spread: whether a score has its interval.
    """
    shown = _asked_so(results, asked)
    if not shown:
        return "*No second questions have been measured with these weights.*"
    tables_ = [results.of(run)["second"] for run in shown]
    rows = [cell.row for cell in max(tables_, key=len)]
    heads, columns = ["kept"], []
    for run, cells in zip(shown, tables_, strict=True):
        opened = {cell.row: cell for cell in results.of(run, OPENING)["second"]}
        heads.append(_title_of(run))
        columns.append({cell.row: _second_of(cell, opened.get(cell.row), spread) for cell in cells})
    body = ([row, *(column.get(row, "") for column in columns)]
            for row in rows if not methods or row in methods)  # fmt: skip
    return table_of(heads, body)


def _asked_so(results: Results, asked: Sequence[str]) -> list[Mapping[str, Any]]:
    """The runs of second questions that were asked so, without the main suite's; all by default."""
    return [run for run in results.conversations
            if not asked or (run["ask"] in asked and run["suite"]["name"] != MAIN)]  # fmt: skip


def _title_of(run: Mapping[str, Any]) -> str:
    """A run of second questions in words: suite, model, and how many."""
    where = "" if run["ran_on"]["device"] != "cpu" else ", CPU sample"
    name = f"{SUITES.get(run['suite']['name'], run['suite']['name'])}: {run['model']['name']}"
    order = "" if run["ask"] == SECOND else f", after a {run['ask']} one"
    return f"{name}{order} (n = {_questions(run):,}{where})"


def at_their_bytes(
    results: Results, rows: Sequence[str] = RIVALS, asked: Sequence[str] = ()
) -> str:
    """What channels with bits score at each rival's live bytes, less its score, in points: a column
    a run of second questions. The last row counts those whose interval leaves out zero, among all
    rows without such bits.

    Args:
        results: as for `seconds`.
        rows: rivals to show.
        asked: as for `seconds`.
    """
    shown = _asked_so(results, asked)
    columns = [{cell.row: cell.against_ours for cell in results.of(run)["second"]
                if cell.against_ours} for run in shown]  # fmt: skip
    body = [[row, *(_points_of(column.get(row)) for column in columns)] for row in rows]
    found = (Outcome.over(column.values()) for column in columns)
    counts = [f"{one.better} and {one.worse} of {one.of}" for one in found]
    body.append(["**significantly better and worse, of all rows**", *counts])
    return table_of(["at the bytes of", *(_title_of(run) for run in shown)], body)


def _points_of(score: Score | None) -> str:
    return "" if score is None else points(score.mean, score[1:])


def _second_of(cell: Cell, first: Cell | None, spread: bool) -> str:
    score = cell.score.in_percent() if spread else f"{100 * cell.score.mean:.1f}"
    opened = "" if first is None else f" / {100 * first.score.mean:.1f}"
    same = "" if cell.same is None else f", {share(cell.same, 2)}"
    return f"{score}{opened}{same}, 1/{1 / cell.live:.1f}"


@lru_cache
def shipped(name: str) -> str:
    """The fingerprint of an embedded model's weights as they are in this checkout."""
    return weights_id(load(name, "cpu"))


def core(results: Results, suites: Iterable[str]) -> str:
    """A few settings of every kind on some suites: score and live bytes, a column a model; empty
    where a model was not asked under a setting."""
    runs = [run for run in results.runs if "ask" not in run]
    shown = [run for suite in suites for run in runs if run["suite"]["name"] == suite]
    columns = [{cell.row: cell for cell in results.of(run)["core"]} for run in shown]
    heads = [f"{SUITES[run['suite']['name']]}: {run['model']['name']}" for run in shown]
    rows = {row: cell.nominal for cells in reversed(columns) for row, cell in cells.items()}
    body = ([row, measured(rows[row]), *(_score_and_bytes(cells.get(row)) for cells in columns)]
            for row in dict.fromkeys(row for cells in columns for row in cells))  # fmt: skip
    return table_of(["", "nominal", *heads], body)


def _score_and_bytes(cell: Cell | None) -> str:
    """A score with its interval, and live bytes."""
    return f"{cell.score.in_percent()} in {share(cell.live)}" if cell else ""


def share(value: float, digits: int = 3) -> str:
    """A share of one without its nought: .727; 1 as it is."""
    return f"{value:.{digits}f}".removeprefix("0") if value < 1 else f"{value:.0f}"


def claims(results: Results, measured: bool) -> str:
    """Every claim of answers, or of measured values, as a line."""
    mine = [one for one in results.found if (one.counted == "measured") == measured]
    lines = claim_lines(mine)
    return table_of(lines[0], (line.values() for line in lines))


def pivot(
    speeds: Sequence[Speed], row: Callable[[Speed], str], column: Callable[[Speed], str], head: str
) -> str:
    """Measured values as a table; values of one cell behind each other."""
    cells: dict[str, dict[str, list[str]]] = {}
    columns = dict.fromkeys(column(one) for one in speeds)
    for one in speeds:
        mine = cells.setdefault(row(one), {})
        mine.setdefault(column(one), []).append(measured(one.value))
    body = ([words, *("; ".join(mine.get(name, [])) for name in columns)]
            for words, mine in cells.items())  # fmt: skip
    return table_of([head, *columns], body)


def full_size(speeds: Sequence[Speed], models: Iterable[str], methods: Iterable[str] = ()) -> str:
    """Whole models: MiB of the cache, a prefill, and a step, one by one and as a graph."""
    names, only = set(models), set(methods)
    wanted = ("kv_mib", "prefill_ms", "decode_ms", "graph_ms")
    mine = [one for quantity in wanted for one in speeds
            if (one.bench, one.quantity) == ("full_size", quantity)
            and (one.model in names or not names) and (one.method in only or not only)]  # fmt: skip
    if only:  # a line a model
        words = {"kv_mib": "MiB", "graph_ms": "graph ms"}
        mine = [one for one in mine if one.quantity in words]
        return pivot(mine, lambda one: f"{one.model}, {one.tokens:,}",
                     lambda one: f"{one.method}: {words[one.quantity]}",
                     "model, visual tokens")  # fmt: skip
    return pivot(mine, lambda one: one.method,
                 lambda one: f"{one.model}, {one.tokens:,} visual tokens", "")  # fmt: skip


def bench(speeds: Sequence[Speed], name: str) -> str:
    """Microseconds of one benchmark, a row a shape and a column a method."""
    mine = [one for one in speeds if (one.bench, one.quantity) == (name, "us")]
    return pivot(mine, lambda one: f"{one.model}, {one.batch} x {one.tokens:,}",
                 lambda one: one.method, "model, rows x visual tokens")  # fmt: skip


def blocks(results: Results, speeds: Sequence[Speed]) -> dict[str, Callable[[], str]]:
    """What draws each block, by name."""
    kept = (speed_claims.WHOLE, speed_claims.OURS, "RotateK k=32 r=32")
    return {
        "second": lambda: seconds(results, SHOWN),
        "second-bytes": lambda: at_their_bytes(results),
        "second-bytes-headline": lambda: at_their_bytes(results, RIVALS[:5], [SECOND]),
        "second-headline": lambda: seconds(results, HEADLINE, [SECOND], spread=False),
        "equal-bytes": lambda: equal_bytes(results),
        "runs": lambda: runs(results),
        "core-unseen": lambda: core(results, [name for name in SUITES if name != MAIN]),
        "claims": lambda: claims(results, measured=False),
        "speed-claims": lambda: claims(results, measured=True),
        "full-size": lambda: full_size(speeds, speed_claims.MODELS.values()),
        "families": lambda: full_size(speeds, (), kept),
        "parts": lambda: bench(speeds, "baselines"),
        "planes": lambda: bench(speeds, "planes"),
        "real-keys": real_keys.sizes_table,
        "real-keys-first": lambda: real_keys.settings_table(1024, "first"),
        "real-keys-later": lambda: real_keys.settings_table(1024, "later"),
        "real-keys-stored": real_keys.stored_table,
        "spectra": real_keys.spectra_table,
    }


def filled(text: str, made: Mapping[str, Callable[[], str]]) -> str:
    """A document with its blocks as the data have them."""
    return BLOCK.sub(lambda found: f"{found[1]}{made[found[2]]()}\n{found[4]}", text)


def texts() -> Iterator[Path]:
    """Every document that may hold a block."""
    for pattern in TEXTS:
        yield from sorted(ROOT.glob(pattern))


def main() -> None:
    """Write the tidy tables, the figure and the documents' blocks."""
    speeds = speed_claims.measured(RESULTS)
    results = everything((unpack(path) for path in packed()), speeds)
    results.save(RESULTS)
    read_back = Results.load(RESULTS)
    real_keys.draw()
    made = blocks(read_back, speeds)
    for path in texts():
        path.write_text(filled(path.read_text(encoding="utf-8"), made), encoding="utf-8")
    sys.stdout.write(f"{len(results.cells):,} cells, {len(results.pairs):,} comparisons\n")


if __name__ == "__main__":
    main()
