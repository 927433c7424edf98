"""Tables and documents that are committed are those of the committed answers and measurements."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from docs import results
from rotatek.evaluation import speed_claims
from rotatek.evaluation.answer_archive import unpack
from rotatek.evaluation.cells import SUITES, Results
from tests.fixtures import skip_without
from tests.two_models import SECOND, two_models

BENCHES = {"latency", "quant", "baselines", "planes", "solver", "capacity", "prefill", "efficiency",
           "full_size"}  # fmt: skip


@pytest.fixture(scope="module")
def committed() -> Results:
    return Results.load(results.RESULTS)


@pytest.mark.parametrize("path", results.packed(), ids=lambda path: str(path.name)[:-9])
def test_committed_tables_are_those_of_the_committed_answers(
    path: Path, committed: Results, tmp_path: Path
) -> None:
    assert path.stat().st_size < 1_500_000
    results.rebuilt(unpack(path)).save(tmp_path)
    made = Results.load(tmp_path)
    (run,) = made.runs
    model, whose = run["model"]["name"], (run["model"]["name"], run["suite"]["name"])
    assert run in committed.runs
    asks = {cell.ask for cell in made.cells}
    mine = [cell for cell in committed.cells if (cell.model, cell.suite) == whose]
    assert made.cells == [cell for cell in mine if cell.ask in asks]
    if len(run["tables"]) > 1:  # claims are judged on
        assert made.pairs == [pair for pair in committed.pairs if pair.model == model]
        assert made.found == [one for one in committed.found if one.model == model]
    else:
        assert not made.pairs


def test_committed_claims_of_speed_are_those_of_the_committed_measurements(
    committed: Results, tmp_path: Path
) -> None:
    speeds = speed_claims.measured(results.RESULTS)
    assert {one.bench for one in speeds} == BENCHES
    pairs, found = speed_claims.judged(speeds)
    Results((), (), pairs, found).save(tmp_path)
    made = Results.load(tmp_path)
    assert made.pairs == [pair for pair in committed.pairs if pair.counted == "measured"]
    assert made.found == [one for one in committed.found if one.counted == "measured"]


def test_documents_are_as_make_results_writes_them(committed: Results) -> None:
    skip_without(*(run["model"]["name"] for run in committed.runs))
    made = results.blocks(committed, speed_claims.measured(results.RESULTS))
    used: set[str] = set()
    for path in results.texts():
        text = path.read_text()
        assert results.filled(text, made) == text, f"{path.name}: run make results"
        assert "<!--=" not in text
        used |= {found[2] for found in results.BLOCK.finditer(text)}
    assert used == made.keys()


def test_tables_take_a_second_model_that_was_asked_less(committed: Results) -> None:
    """Its cells are empty where it has no row, and the first model's are what they were."""
    both = two_models(committed)
    one = Results([run for run in both.runs if run["model"]["name"] != SECOND], committed.cells,
                  committed.pairs, committed.found)  # fmt: skip
    suites = [name for name in SUITES if name != results.MAIN]
    drawn: tuple[Callable[[Results], str], ...] = (
        results.equal_bytes, results.seconds, lambda found: results.core(found, suites)
    )  # fmt: skip
    for draw in drawn:
        alone, beside = (draw(found).splitlines() for found in (one, both))
        assert len(alone) == len(beside) and SECOND in beside[0] and SECOND not in alone[0]
        assert all(line.count("|") == beside[0].count("|") for line in beside)
    sizes = [line for line in results.equal_bytes(both).splitlines() if line.startswith("| 16")]
    assert len(sizes) == 1 and sizes[0].endswith("|  |  |  |  |")
    assert "|  | " in results.core(both, suites)


def test_comparisons_at_rivals_bytes_are_counted_in_words(committed: Results) -> None:
    """README and docs/results.md say how many there are, and how many are better and worse."""
    better, worse, count = committed.against_rivals
    assert worse == 1, "the texts say 'one'"
    for path in ("README.md", "docs/results.md"):
        text = " ".join((results.ROOT / path).read_text().split())
        assert f"{count} such comparisons" in text.replace("[", "").replace("]", "")
        assert f"significantly better in {better} and worse in one" in text.replace("*", "")


def test_results_are_a_page_that_a_person_reads() -> None:
    text = (results.ROOT / "docs" / "results.md").read_text()
    assert text.count("\n") <= 250
    for name in ("cells.csv.gz", "pairs.csv.gz", "claims.csv", "runs.json", "efficiency.json"):
        assert f"(../assets/results/{name})" in text
    assert not re.search(r"never saw|unheld", text)


def test_a_claim_that_a_pair_contradicts_is_not_found(committed: Results) -> None:
    """The one that matters most here: not every rival is beaten at equal live bytes."""
    against: dict[tuple[str, str, str], int] = {}
    for pair in committed.pairs:
        key = pair.claim, pair.model, pair.counted
        against[key] = against.get(key, 0) + (pair.says in ("against", "better"))
    for one in committed.found:
        if one.claim:
            assert one.against == against.get((one.claim, one.model, one.counted), 0)
            assert not (one.verdict == "found" and one.against)
    rivals = {one.model: one for one in committed.found if one.claim == "rivals"}
    assert {one.verdict for one in rivals.values()} == {"mixed"}
    first, second = (f"{one.against} of {one.pairs}" for one in (rivals["pocket"], rivals[SECOND]))
    text = " ".join((results.ROOT / "docs" / "results.md").read_text().split())
    assert f"In {first} pairs of a size, `{SECOND}`'s {second}, ours is significantly worse" in text


def test_verdicts_on_which_both_models_agree_are_counted_in_words(committed: Results) -> None:
    verdicts: dict[tuple[str, str], dict[str, str]] = {}
    for one in committed.found:
        if one.counted != "measured" and one.model:
            verdicts.setdefault((one.claim, one.counted), {})[one.model] = one.verdict
    both = [mine for mine in verdicts.values() if len(mine) == 2]
    agreed = sum(len(set(mine.values())) == 1 for mine in both)
    for path in ("README.md", "docs/results.md"):
        text = " ".join((results.ROOT / path).read_text().split())
        assert f"{agreed} of {len(both)}" in text
