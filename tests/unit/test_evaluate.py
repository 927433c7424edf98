"""The evaluation on a tiny random model: batches, resumption, tables, reports, the command."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rotatek import evaluate
from rotatek.config import BASELINE, Settings
from rotatek.decode import decode
from rotatek.engine import Engine
from rotatek.errors import SettingError, UserError
from rotatek.evaluation import report
from rotatek.evaluation import suite as suites
from rotatek.evaluation.run import Answer, Journal, Runner, setting_id, size
from rotatek.evaluation.suite import (
    EmbeddedSuite,
    FileSuite,
    Item,
    StoredSuite,
    describe,
    draw,
    fingerprint,
)
from rotatek.evaluation.tables import PAPER_BUDGETS, Claim, Row, Table, joint, tables, wanted
from rotatek.events import Finished
from rotatek.inputs import make_request
from rotatek.models import VisionLanguageModel
from rotatek.models.base import Pixels, Seen
from rotatek.pocket.config import build_model, model_config, save_model
from tests.tiny import TINY

LIMITS = (6, 12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of the pocket's class: two layers, real tokenizer and processor."""
    path = tmp_path_factory.mktemp("model")
    save_model(build_model(model_config(2, 2, 512, 64)), path)
    return path


@pytest.fixture(scope="module", params=sorted(TINY))
def vlm(request: pytest.FixtureRequest) -> VisionLanguageModel:
    return TINY[request.param]()


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> FileSuite:
    """Five questions of unequal length about two pictures of unequal size, one a page."""
    path = tmp_path_factory.mktemp("suite")
    rng = np.random.default_rng(0)
    for name, (width, height) in {"a": (224, 224), "b": (280, 336)}.items():
        pixels = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((width, height)).save(path / f"{name}.png")
    lines = [
        {"image": "a.png", "question": "Total?", "answers": ["1"], "category": "x"},
        {"image": "b.png", "question": "What is the name?", "answer": "Ann", "metric": "anls"},
        {"image": "a.png", "question": "Title?", "answer": "Menu", "category": "x"},
        {"image": "b.png", "question": "How many items are there?", "answer": "3"},
        {
            "image": "b.png",
            "question": "Read the page.",
            "answer": "Ann",
            "metric": "transcription",
        },
    ]
    (path / "suite.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    return FileSuite(path / "suite.jsonl")


WANTED: list[tuple[Settings, str]] = [
    (BASELINE, "all"),
    (Settings(keep_channels=0.25), "all"),
    (Settings(channels="think", keep_channels=0.25), "all"),
    (Settings(tokens="fastv", fastv_layer=1, keep_tokens=0.5, channels="spark"), "all"),
    (Settings(tokens="fastv", fastv_layer=1, keep_tokens=0.5, channels="full"), "long"),
    (Settings(tokens="visionzip", keep_tokens=0.4, keep_channels=0.5), "all"),
]


def run(vlm: VisionLanguageModel, suite: FileSuite, path: Path, batch: int = 3) -> Journal:
    journal = Journal(path, {"run": 1})
    runner = Runner(vlm, suite, journal, batch=batch, limits=LIMITS)
    added = sum(runner.run(runner.units(WANTED)))
    assert added == len(journal.answers) and not runner.refused
    return journal


@pytest.fixture(scope="module")
def journal(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path_factory: pytest.TempPathFactory
) -> Journal:
    return run(vlm, suite, tmp_path_factory.mktemp("run") / "journal.jsonl")


def test_every_setting_answers_what_its_scope_says(journal: Journal, suite: FileSuite) -> None:
    per_setting = {setting_id(settings): 0 for settings, _ in WANTED}
    for setting, _ in journal.answers:
        per_setting[setting] += 1
    assert list(per_setting.values()) == [5, 5, 5, 5, 1, 5]
    longest = {item.name: LIMITS[item.long] for item in suite.items}
    assert all(answer.tokens <= longest[answer.item] for answer in journal.answers.values())


def test_batches_answer_as_the_engine_does(
    vlm: VisionLanguageModel, suite: FileSuite, journal: Journal
) -> None:
    """Padded batches with a shared prefill say what single, interleaved requests say."""
    engine = Engine(vlm)
    for item in suite.items:
        image = suite.image(item.document)
        request = make_request(image, item.question, LIMITS[item.long])
        columns = {setting_id(s): s for s, scope in WANTED if scope == "all" or item.long}
        events = list(engine.compare(request, columns, trace=False))
        finished = [event for event in events if isinstance(event, Finished)]
        assert len(finished) == len(columns), events[-1]
        for event in finished:
            assert journal.answers[event.column, item.name].answer == event.answer


def test_shares_of_bytes(journal: Journal) -> None:
    share = {
        setting: np.mean([a.kv_share for (s, _), a in journal.answers.items() if s == setting])
        for setting in {setting for setting, _ in journal.answers}
    }
    names = [setting_id(settings) for settings, _ in WANTED]
    assert share[names[0]] == pytest.approx(1.0)
    assert all(0.1 < share[name] < 1.0 for name in names[1:])


def test_an_interrupted_run_goes_on(
    vlm: VisionLanguageModel, suite: FileSuite, journal: Journal, tmp_path: Path
) -> None:
    lines = journal.path.read_text().splitlines()
    broken = tmp_path / "journal.jsonl"
    broken.write_text("\n".join(lines[:9]) + "\n" + lines[9][:25])
    again = Journal(broken, {"run": 1})
    assert len(again.answers) == 8
    runner = Runner(vlm, suite, again, batch=3, limits=LIMITS)
    assert sum(runner.run(runner.units(WANTED))) == len(journal.answers) - 8
    assert {k: a.answer for k, a in again.answers.items()} == {
        k: a.answer for k, a in journal.answers.items()
    }
    assert not runner.units(WANTED)


def test_parts_divide_the_units_short_questions_first(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path
) -> None:
    """Every missing answer is in one part; each part's pages come after its short questions."""
    runner = Runner(vlm, suite, Journal(tmp_path / "journal.jsonl", {}), batch=2, limits=LIMITS)
    parts = [runner.units(WANTED, (index, 3)) for index in range(3)]
    owed = [
        (setting_id(settings), item.name)
        for part in parts
        for items, group in part
        for settings in group
        for item in items
    ]
    assert len(owed) == len(set(owed)) == sum(map(size, parts)) == size(runner.units(WANTED)) == 26
    for part in parts:
        pages = [items[0].long for items, _ in part]
        assert pages == sorted(pages)


def test_shares_come_out_even(vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path) -> None:
    """In steps, of which a page and an eigendecomposition take many."""
    runner = Runner(vlm, suite, Journal(tmp_path / "journal.jsonl", {}), batch=1)
    rows = [(settings, "all") for table in tables().values() for settings in settings_of(table)]
    units = runner.units(list(dict.fromkeys(rows)))
    solved = [s for _, group in units for s in group if s.solver == "eigh"]
    assert solved and runner._steps((suite.items[:1], solved[:1])) == 96 + 12
    shares = [
        sum(map(runner._steps, runner.units(list(dict.fromkeys(rows)), (i, 7)))) for i in range(7)
    ]
    assert max(shares) < 1.05 * min(shares)


def settings_of(table: Table) -> list[Settings]:
    return [row.settings for row in table.rows]


def test_settings_that_do_not_fit_together_are_answered_one_by_one(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(vlm, suite, Journal(tmp_path / "journal.jsonl", {}), batch=8, limits=LIMITS)
    sizes: list[int] = []
    real = runner._answer_group

    def answer_group(*args: Any) -> None:
        sizes.append(len(args[-1]))
        if len(args[-1]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        real(*args)

    monkeypatch.setattr(runner, "_answer_group", answer_group)
    list(runner.run(runner.units(WANTED[:3])))
    assert sizes == [3, 1, 1, 1, 3, 1, 1, 1] and len(runner.journal.answers) == 15
    assert not runner.refused


def test_a_setting_that_no_graph_holds_is_decoded_without(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, bad = Journal(tmp_path / "journal.jsonl", {}), setting_id(WANTED[1][0])
    runner = Runner(vlm, suite, journal, batch=8, limits=LIMITS, graph=True)
    graphs: list[bool] = []

    def steps(*args: Any, graph: bool) -> Any:
        graphs.append(graph)
        if graph and getattr(args[2], "settings", None) == WANTED[1][0]:
            raise RuntimeError("operation not permitted when stream is capturing")
        return decode(*args)

    monkeypatch.setattr("rotatek.evaluation.run.decode", steps)
    list(runner.run(runner.units(WANTED[:3])))
    assert runner.eager == {bad} and len(journal.answers) == 15 and not runner.refused
    assert graphs == [True, True, True, False, True] + [True, False, True]


def test_the_vision_tower_sees_a_picture_once(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions about one picture share its visual tokens, zipped or not."""
    seen: list[bool] = []
    real = vlm.look

    def look(pixels: Pixels, settings: Settings | None = None) -> Seen:
        seen.append(settings is not None)
        return real(pixels, settings)

    monkeypatch.setattr(vlm, "look", look)
    runner = Runner(vlm, suite, Journal(tmp_path / "journal.jsonl", {}), batch=8, limits=LIMITS)
    short = [(settings, "all") for settings, _ in WANTED if settings.tokens != "fastv"]
    units = [unit for unit in runner.units(short) if not unit[0][0].long]
    assert sum(runner.run(units)) == 4 * len(short)
    assert sorted(seen) == [False] * 2 + [True] * 2


def test_another_runs_journal_is_refused(journal: Journal) -> None:
    with pytest.raises(UserError, match="run differ"):
        Journal(journal.path, {"run": 2})


def test_an_unsupported_setting_is_left_out_and_said(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path
) -> None:
    said: list[str] = []
    unknown = Settings(channels="unheard-of")
    journal = Journal(tmp_path / "journal.jsonl", {})
    runner = Runner(vlm, suite, journal, batch=8, limits=LIMITS, notice=said.append)
    list(runner.run(runner.units([(BASELINE, "long"), (unknown, "long")])))
    assert list(runner.refused) == [setting_id(unknown)]
    assert len(said) == 1 and "channels must be one of" in said[0]
    assert len(journal.answers) == 1


def answers_like(scores: dict[Settings, list[str]]) -> dict[tuple[str, str], Answer]:
    return {
        (setting_id(settings), f"q{n}"): Answer(setting_id(settings), f"q{n}", text, 1, 0.5)
        for settings, texts in scores.items()
        for n, text in enumerate(texts)
    }


def test_a_report_by_hand() -> None:
    items = [Item(f"q{n}", n, "ab"[n % 2], "?", ("yes",), "exact_match") for n in range(40)]
    first, second = joint("rotatek", 0.25), joint("think", 0.25)
    answers = answers_like(
        {BASELINE: ["yes"] * 40, first: ["yes"] * 38 + ["no"] * 2, second: ["no"] * 40}
    )
    rows = (Row("base", BASELINE), Row("ours", first), Row("theirs", second))
    missing = Row("missing", joint("spark", 0.25))
    claims = (Claim("ours", "theirs"), Claim("theirs", "ours"), Claim("ours", "missing"))
    table = Table("t", "A table", (*rows, missing), claims)
    suite = {"name": "s", "questions": 40, "documents": 40, "categories": {"a": 20, "b": 20}}
    header = {"model": {"name": "m"}, "suite": {**suite, "metrics": {"a": "exact_match"}}}
    built = report.build([table], items, answers, header)
    made = built["tables"][0]
    assert [row["label"] for row in made["rows"]] == ["base", "ours", "theirs"]
    ours = made["rows"][1]
    assert ours["score"] == ours["agreement"] == 0.95 and ours["difference"] == -0.05
    assert ours["by_category"]["a"]["score"] == ours["by_category"]["b"]["score"] == 0.95
    assert ours["nominal_kv"] == 0.625 and ours["actual_kv"] == 0.5
    assert [claim["verdict"] for claim in made["claims"]] == ["holds", "fails"]
    page = report.markdown(built)
    assert "| ours | 0.625 | 0.500 | 95.0 (" in page and "ours at least theirs" in page
    assert json.loads(json.dumps(built)) == built


@pytest.mark.parametrize(
    ("relation", "low", "high", "expected"),
    [
        ("at least", 0.01, 0.1, "holds"),
        ("at least", 0.0, 0.0, "holds"),
        ("at least", -0.1, 0.1, "open"),
        ("at least", -0.1, -0.01, "fails"),
        ("about", -0.01, 0.01, "holds"),
        ("about", -0.1, 0.1, "open"),
        ("about", -0.1, -0.03, "fails"),
        ("about", 0.03, 0.1, "fails (better)"),
    ],
)
def test_verdicts(relation: str, low: float, high: float, expected: str) -> None:
    assert report.verdict(relation, low, high) == expected


def test_tables_are_sound() -> None:
    made = tables()
    for table in made.values():
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels), table.name
        assert table.rows[0].settings == BASELINE
        assert all({claim.first, claim.second} <= set(labels) for claim in table.claims)
    unique = [settings for settings, _ in wanted(list(made.values()))]
    assert len(unique) == len({setting_id(settings) for settings in unique})


@pytest.mark.parametrize(("nominal", "keep"), PAPER_BUDGETS)
def test_the_papers_budgets_match(nominal: float, keep: float) -> None:
    assert keep * (1 + 0.25) / 2 == pytest.approx(nominal)


def test_embedded_suite_is_fixed() -> None:
    first, second = EmbeddedSuite(questions=15, seed=3), EmbeddedSuite(questions=15, seed=3)
    assert fingerprint(first) == fingerprint(second)
    assert fingerprint(first) != fingerprint(EmbeddedSuite(questions=15, seed=4))
    assert describe(first)["categories"] == dict.fromkeys(
        ("documents", "charts", "tables", "signs", "transcription"), 3
    )
    document = first.items[-1].document
    assert first.image(document).tobytes() == second.image(document).tobytes()
    assert all(item.score(item.accepted[0]) == 1.0 for item in first.items)
    assert {item.long for item in first.items if item.category == "transcription"} == {True}


def test_a_suite_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = EmbeddedSuite(questions=6, seed=3)
    kept = draw("pocket", 6, 3, tmp_path)
    assert describe(kept) == describe(fresh)
    for document in {item.document for item in fresh.items}:
        assert kept.image(document).tobytes() == fresh.image(document).tobytes()
    with monkeypatch.context() as patched:
        patched.delattr(suites, "EmbeddedSuite")  # nothing is drawn any more
        assert draw("pocket", 6, 3, tmp_path).items == kept.items
    assert not list(tmp_path.rglob("*partial*"))


def test_a_drawing_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    kept = draw("pocket", 4, 0, tmp_path)
    (tmp_path / suites.PICTURES / "00001.png").unlink()
    with pytest.raises(UserError, match="picture is missing"):
        kept.image(1)
    assert draw("pocket", 4, 0, tmp_path).has_pictures()
    assert len(draw("pocket", 5, 0, tmp_path).items) == 5  # nobody has answered the first four


def test_answered_questions_are_not_drawn_over(tmp_path: Path) -> None:
    kept = draw("pocket", 4, 0, tmp_path)
    Journal(tmp_path / "journal-part-2.jsonl", {"suite": describe(kept)})
    with pytest.raises(UserError, match="answers to other questions"):
        draw("pocket", 4, 1, tmp_path)
    with pytest.raises(UserError, match="answers to other questions"):
        StoredSuite.save(EmbeddedSuite(questions=2), tmp_path / suites.QUESTIONS)
    assert StoredSuite(tmp_path / suites.QUESTIONS).items == kept.items


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1]",
        '{"image": "a.png"}',
        '{"image": "a.png", "question": "?", "answers": []}',
        '{"image": "a.png", "question": "?", "answer": "x", "metric": "bleu"}',
        '{"image": 5, "question": "?", "answer": "x"}',
    ],
)
def test_bad_suites(line: str, tmp_path: Path) -> None:
    (tmp_path / "suite.jsonl").write_text(line)
    with pytest.raises(UserError, match="Line 1 of the suite"):
        FileSuite(tmp_path / "suite.jsonl")


def test_absent_and_empty_suites(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        FileSuite(tmp_path / "none.jsonl")
    (tmp_path / "suite.jsonl").write_text("\n")
    with pytest.raises(UserError, match="no questions"):
        FileSuite(tmp_path / "suite.jsonl")


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    evaluate.add_arguments(parser)
    return evaluate.main(parser.parse_args(words))


def test_the_command_stops_and_goes_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"RotateK 16": {"keep_channels": 0.125}, "ThinK 16": {"channels": "think"}}
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    words = [
        *("--model", str(folder), "--device", "cpu", "--questions", "5", "--batch", "2"),
        *("--short-tokens", "3", "--long-tokens", "3", "--out", str(tmp_path / "out")),
        *("--settings", str(tmp_path / "mine.json")),
    ]
    assert command(*words, "--limit-s", "0") == 3
    assert command(*words) == 0
    assert command(*words) == 0  # nothing left to do
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "out" / "results.md")] * 3
    built = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["label"] for row in built["tables"][0]["rows"]] == ["Uncompressed", *rows]
    assert built["suite"]["questions"] == 5 and built["ran_on"]["torch"] == torch.__version__
    assert str(folder.parent) not in json.dumps(built)


def test_the_command_lists_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--tables", "list") == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(tables())


def test_the_command_refuses_nonsense(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="--tables"):
        command("--tables", "budget")
    with pytest.raises(SettingError, match="--questions"):
        command("--questions", "0")
    with pytest.raises(SettingError, match="--jobs"):
        command("--jobs", "0")
    with pytest.raises(SettingError, match="--part"):
        command("--part", "3/2")
    (tmp_path / "mine.json").write_text("[1, 2]")
    with pytest.raises(UserError, match="settings file"):
        command("--settings", str(tmp_path / "mine.json"))
