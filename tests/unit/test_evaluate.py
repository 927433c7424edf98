"""The evaluation on a tiny random model: batches, resumption, tables, reports, the command."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pocket.evaluation.suite import EmbeddedSuite
from pocket.models.config import build_model, model_config, save_model
from rotatek.cli import evaluate
from rotatek.engine.batch import RunningBatch
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished
from rotatek.errors import SettingError, UserError
from rotatek.evaluation import suite as suites
from rotatek.evaluation.cells import Results
from rotatek.evaluation.journal import Journal, setting_id
from rotatek.evaluation.runner import Runner, RunOptions
from rotatek.evaluation.suite import (
    FileSuite,
    StoredSuite,
    describe,
    draw,
    fingerprint,
)
from rotatek.evaluation.tables import Scope, Table, tables
from rotatek.evaluation.work_batches import size
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel

LIMITS = (6, 12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of the pocket's class: two layers, real tokenizer and processor."""
    path = tmp_path_factory.mktemp("model")
    save_model(build_model(model_config(2, 2, 512, 64)), path)
    return path


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


WANTED: list[tuple[Settings, Scope]] = [
    (BASELINE, "all"),
    (Settings.of(keep_channels=0.25), "all"),
    (Settings.of(channels="think", keep_channels=0.25), "all"),
    (Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.5, channels="spark"), "all"),
    (Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.5, channels="full"), "long"),
    (Settings.of(tokens="visionzip", keep_tokens=0.4, keep_channels=0.5), "all"),
]


def run(vlm: VisionLanguageModel, suite: FileSuite, path: Path, batch: int = 3) -> Journal:
    journal = Journal(path, {"run": 1})
    runner = Runner(vlm, suite, journal, RunOptions(batch, limits=LIMITS))
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
    runner = Runner(vlm, suite, again, RunOptions(3, limits=LIMITS))
    assert sum(runner.run(runner.units(WANTED))) == len(journal.answers) - 8
    assert {k: a.answer for k, a in again.answers.items()} == {
        k: a.answer for k, a in journal.answers.items()
    }
    assert not runner.units(WANTED)


def test_units_hold_every_answer_once(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path
) -> None:
    runner = Runner(
        vlm, suite, Journal(tmp_path / "journal.jsonl", {}), RunOptions(2, limits=LIMITS)
    )
    units = [unit for number in range(3) for unit in runner.units(WANTED, (number, 3))]
    owed = [
        (setting_id(settings), item.name)
        for items, group in units
        for settings in group
        for item in items
    ]
    assert len(owed) == len(set(owed)) == size(units) == size(runner.units(WANTED)) == 26


def settings_of(table: Table) -> list[Settings]:
    return [row.settings for row in table.rows]


def test_settings_that_do_not_fit_together_are_answered_apart(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(
        vlm, suite, Journal(tmp_path / "journal.jsonl", {}), RunOptions(8, limits=LIMITS)
    )
    sizes: list[int] = []
    real = runner._answer_group

    def answer_group(*args: Any) -> None:
        sizes.append(len(args[-1]))
        if len(args[-1]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        real(*args)

    monkeypatch.setattr(runner, "_answer_group", answer_group)
    list(runner.run(runner.units(WANTED[:3])))
    assert sizes == [3, 1, 2, 1, 1] * 2 and len(runner.journal.answers) == 15
    assert not runner.refused


def test_a_setting_that_no_graph_holds_is_decoded_without(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others keep theirs, and are not tried beside it again."""
    bad, graphs = WANTED[1][0], []
    journal = Journal(tmp_path / "journal.jsonl", {})
    runner = Runner(vlm, suite, journal, RunOptions(8, limits=LIMITS, graph=True))
    real = runner._side_by_side

    def side_by_side(batch: Any, filled: list, logits: Any) -> None:
        names = [setting_id(one.settings) for one in filled]
        graph = not runner.eager & set(names)
        graphs.append((len(names), graph))
        if graph and setting_id(bad) in names:
            raise RuntimeError("operation not permitted when stream is capturing")
        real(batch, filled, logits)

    monkeypatch.setattr(runner, "_side_by_side", side_by_side)
    list(runner.run(runner.units(WANTED[:3])))
    assert runner.eager == {setting_id(bad)} and len(journal.answers) == 15
    assert not runner.refused
    assert graphs == [(2, True), (1, True), (1, False), (1, True)] + [(1, True), (1, False)]


STORED = [
    Settings.of(channels="spark", keep_channels=0.25),
    Settings.of(keep_channels=0.1),
    Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.3, channels="think"),
]


def test_rows_leave_the_batch_as_they_end(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a method stores, what stays goes on as it would have alone."""
    ends = frozenset(range(0, vlm.text_config.vocab_size, 9))
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", property(lambda _: ends))
    kept: list[Any] = []
    real = RunningBatch.leave

    def leave(batch: RunningBatch, rows: Any) -> None:
        kept.append(rows)
        real(batch, rows)

    monkeypatch.setattr(RunningBatch, "leave", leave)
    said = []
    for batch, groups in ((1, [[settings] for settings in STORED]), (4, [STORED])):
        assert not kept  # a single row just ends
        journal = Journal(tmp_path / f"{batch}.jsonl", {})
        runner = Runner(vlm, suite, journal, RunOptions(batch, limits=(24, 30)))
        for group in groups:
            assert sum(runner.run(runner.units([(s, "all") for s in group]))) == 5 * len(group)
        said.append({key: (a.answer, a.tokens) for key, a in journal.answers.items()})
    assert said[0] == said[1]
    assert len(kept) > 2 and len({tokens for _, tokens in said[0].values()}) > 4


def test_the_vision_tower_sees_a_picture_once(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions about one picture share its visual tokens, zipped or not."""
    seen: list[str] = []
    for name in ("features", "tower_states"):
        real = getattr(vlm, name)

        def noted(pixels: Any, name: str = name, real: Any = real) -> Any:
            seen.append(name)
            return real(pixels)

        monkeypatch.setattr(vlm, name, noted)
    runner = Runner(
        vlm, suite, Journal(tmp_path / "journal.jsonl", {}), RunOptions(8, limits=LIMITS)
    )
    short: list[tuple[Settings, Scope]] = [
        (settings, "all") for settings, _ in WANTED if settings.tokens.name != "fastv"
    ]
    short.append((Settings.of(tokens="visionzip", keep_tokens=0.3), "all"))
    units = [unit for unit in runner.units(short) if not unit[0][0].long]
    assert sum(runner.run(units)) == 4 * len(short)
    qwen = vlm.family == "qwen2_5_vl"  # watches while it makes its features
    assert (seen.count("tower_states"), seen.count("features")) == (2, 4 if qwen else 2)


def test_another_runs_journal_is_refused(journal: Journal) -> None:
    with pytest.raises(UserError, match="run differ"):
        Journal(journal.path, {"run": 2})


def test_an_unsupported_setting_is_left_out_and_said(
    vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path
) -> None:
    said: list[str] = []
    unknown = Settings.of(calibration="nowhere.safetensors")
    journal = Journal(tmp_path / "journal.jsonl", {})
    runner = Runner(vlm, suite, journal, RunOptions(8, limits=LIMITS), said.append)
    list(runner.run(runner.units([(BASELINE, "long"), (unknown, "long")])))
    assert list(runner.refused) == [setting_id(unknown)]
    assert len(said) == 1 and "calibration" in said[0].lower()
    assert len(journal.answers) == 1


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
        patched.delattr(suites, "embedded")  # nothing is drawn any more
        assert draw("pocket", 6, 3, tmp_path).items == kept.items
    assert not list(tmp_path.rglob("*partial*"))


def test_without_the_generator_or_matplotlib_it_is_said_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(UserError, match="needs matplotlib. Install `rotatek"):
            draw("pocket", 4, 0, tmp_path)
    for name in [name for name in sys.modules if name.startswith("pocket")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pocket", None)
    with pytest.raises(UserError, match="not installed with the library. Run this in a checkout"):
        draw("pocket", 4, 0, tmp_path)
    assert not (tmp_path / suites.QUESTIONS).exists()


def test_a_drawing_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    kept = draw("pocket", 4, 0, tmp_path)
    (tmp_path / suites.PICTURES / "00001.png").unlink()
    with pytest.raises(UserError, match="picture is missing"):
        kept.image(1)
    assert draw("pocket", 4, 0, tmp_path).has_pictures()
    assert len(draw("pocket", 5, 0, tmp_path).items) == 5  # the first four are unanswered


def test_answered_questions_are_not_drawn_over(tmp_path: Path) -> None:
    kept = draw("pocket", 4, 0, tmp_path)
    Journal(tmp_path / "journal.jsonl", {"suite": describe(kept)})
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
    return evaluate.run(parser.parse_args(words))


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
    built = Results.load(tmp_path / "out")
    (ran,) = built.runs
    assert [cell.row for cell in built.cells] == ["Uncompressed", *rows]
    assert ran["suite"]["questions"] == 5 and ran["ran_on"]["torch"] == torch.__version__
    for path in (tmp_path / "out").glob("*.csv"):
        assert str(folder.parent) not in path.read_text()
    assert str(folder.parent) not in (tmp_path / "out" / "runs.json").read_text()


def test_the_command_lists_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--tables", "list") == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {
        *tables(),
        *("rivals", "second"),
    }


def test_the_command_refuses_nonsense(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="--tables"):
        command("--tables", "budget")
    with pytest.raises(SettingError, match="--questions"):
        command("--questions", "0")
    with pytest.raises(
        UserError, match="--jobs, which was removed. Start N processes with --part 1/N"
    ):
        command("--jobs", "2")
    with pytest.raises(SettingError, match="--part"):
        command("--part", "3/2", "--questions", "1", "--out", str(tmp_path))
    (tmp_path / "mine.json").write_text("[1, 2]")
    with pytest.raises(UserError, match="settings file"):
        command("--settings", str(tmp_path / "mine.json"))
