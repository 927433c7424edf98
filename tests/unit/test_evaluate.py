"""The evaluation on a tiny random model: suites, runs that go on, records, the two commands."""

import gzip
import json
from collections.abc import Callable, Iterator
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from transformers.cache_utils import Cache

from rotatek import BASELINE, Engine, Settings, make_request
from rotatek.cli import main as command
from rotatek.engine.conversation import Conversation
from rotatek.engine.events import Event, Failed, Finished, Stored
from rotatek.engine.passes import empty_cache, feed, fill, forked, prefills_of, turn_of
from rotatek.errors import ModeUnsupported, OutOfMemory, UserError
from rotatek.evaluation import ladder, metrics, report, tables
from rotatek.evaluation import suite as suites
from rotatek.evaluation.answers import Answer, append, begin, read
from rotatek.evaluation.report import Record
from rotatek.evaluation.run import Run, divergences, engine_for
from rotatek.evaluation.suite import Suite
from rotatek.evaluation.tables import UNCOMPRESSED, settings_of
from rotatek.models import VisionLanguageModel
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

SETTINGS = {
    UNCOMPRESSED: BASELINE,
    "keep .25": Settings.of(keep_channels=0.25),
    "smaller 4": Settings.of(smaller=4),
    "kivi": Settings.of(channels="kivi", number_bits=2, residual=32),
    "fastv": Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.5, channels="full"),
}
LINES: list[dict[str, Any]] = [
    {"image": "a.png", "question": "Read the page.", "answers": ["x"], "metric": "transcription",
     "category": "pages", "split": "drawn"},
    {"image": "a.png", "question": "Total?", "answers": [1, "one"], "split": "drawn"},
    {"image": "a.png", "question": "Title?", "answers": "Menu", "metric": "anls", "split": "drawn"},
    {"image": "b.png", "question": "What is the name?", "answers": ["Ann"], "split": "handmade"},
    {"image": "b.png", "question": "How many?", "answers": [3], "split": "handmade"},
    {"image": "c.png", "question": "Which day?", "answers": ["Monday"], "split": "handmade"},
]  # fmt: skip


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of a few tokens."""
    monkeypatch.setattr(suites, "SHORT_TOKENS", 4)
    monkeypatch.setattr(suites, "LONG_TOKENS", 6)


@pytest.fixture(scope="module")
def model() -> VisionLanguageModel:
    return tiny_qwen()


@pytest.fixture
def folder(picture: Picture, tmp_path: Path) -> Path:
    """Six questions about three pictures of unequal size."""
    path = tmp_path / "suite"
    path.mkdir()
    for name, size in {"a": (420, 336), "b": (336, 448), "c": (336, 336)}.items():
        picture(*size, seed=ord(name)).save(path / f"{name}.png")
    (path / "questions.jsonl").write_text("\n".join(map(json.dumps, LINES)) + "\n\n")
    return path


@pytest.fixture
def suite(folder: Path) -> Suite:
    return Suite.read(folder)


def run(
    model: VisionLanguageModel, suite: Suite, path: Path, settings: dict[str, Settings] = SETTINGS
) -> Run:
    """Ask all that is missing."""
    asked = Run(engine_for(model, suite), suite, settings, path)
    assert sum(asked.answer(asked.missing(), at_once=2)) == len(read(path))
    return asked


# -- the suite ---------------------------------------------------------------------------------


def test_a_suite_is_a_folder_that_any_program_can_write(suite: Suite) -> None:
    assert [one.id for one in suite.questions] == [
        "a.png#1", "a.png#2", "a.png#3", "b.png#1", "b.png#2", "c.png#1",
    ]  # fmt: skip
    total = suite.questions[1]
    assert total.answers == ("1", "one") and total.score(" ONE ") == 1 and total.score("2") == 0
    assert (total.metric, total.category, total.split) == ("exact_match", "all", "drawn")
    asked = {name: [one.id for one in some] for name, some in suite.pictures.items()}
    assert asked["a.png"] == ["a.png#2", "a.png#3", "a.png#1"]  # a page is asked last
    assert [one.split for one in suite.taken(["handmade"]).questions] == ["handmade"] * 3
    assert {one.picture for one in suite.taken((), 4).questions} == {"a.png", "b.png"}
    for splits, most in ((["none"], None), ([], 0)):
        with pytest.raises(UserError, match="drawn,handmade|from 1"):
            suite.taken(splits, most)


BAD: list[dict[str, Any]] = [
    {"answers": []}, {"answers": [True]}, {"answers": None}, {"metric": "bleu"}, {"question": ""},
    {"question": 1}, {"image": "none.png"}, {"image": 2}, {"split": 1},
]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "{", "[]", json.dumps({"image": "a.png", "question": "?"}),
        *(json.dumps(LINES[1] | change) for change in BAD),
    ],
    ids=range(3 + len(BAD)),
)  # fmt: skip
def test_a_bad_line_is_refused_by_its_number(folder: Path, line: str) -> None:
    path = folder / "questions.jsonl"
    path.write_text(f"{json.dumps(LINES[0])}\n\n{line}\n")
    with pytest.raises(UserError, match=r"^Line 3 of questions.jsonl"):
        Suite.read(folder)


def test_a_folder_without_questions_is_refused(folder: Path) -> None:
    (folder / "questions.jsonl").write_text("\n")
    with pytest.raises(UserError, match="has no questions"):
        Suite.read(folder)
    with pytest.raises(UserError, match="cannot be read"):
        Suite.read(folder / "none")


# -- a run -------------------------------------------------------------------------------------


def test_each_question_is_answered_once_under_each_setting(
    model: VisionLanguageModel, suite: Suite, tmp_path: Path
) -> None:
    asked = run(model, suite, tmp_path / "out" / "answers.csv.gz")
    found = read(asked.path)
    assert {(one.question, one.setting) for one in found} == {
        (one.id, name) for one in suite.questions for name in SETTINGS
    }
    assert len(found) == len(LINES) * len(SETTINGS)
    whole = {one.question: one for one in found if one.setting == UNCOMPRESSED}
    known = {one.id: one for one in suite.questions}
    for one in found:
        assert one.same == (one.answer == whole[one.question].answer)
        assert one.score == known[one.question].score(one.answer)
        assert one.split == known[one.question].split and one.model == asked.model
        if one.setting == UNCOMPRESSED:
            assert one.bytes == one.full_bytes and one.whole_tokens > 32
        else:
            assert one.bytes < whole[one.question].bytes
    kept = {one.setting: one.whole_tokens for one in found if one.question == "b.png#1"}
    assert kept["keep .25"] == 0 and kept["kivi"] == 32
    assert kept["fastv"] == round(0.5 * kept[UNCOMPRESSED])
    assert {one.turn for one in found if one.picture == "c.png"} == {1}
    assert {one.question: one.turn for one in found if one.picture == "a.png"} == {
        "a.png#2": 1, "a.png#3": 2, "a.png#1": 3,
    }  # fmt: skip


def test_later_questions_meet_the_cache_that_the_first_one_left(
    model: VisionLanguageModel, suite: Suite, tmp_path: Path
) -> None:
    """All settings at once say, in as many bytes, what each says by itself in a conversation."""
    found = {
        (one.question, one.setting): one for one in read(run(model, suite, tmp_path / "a").path)
    }
    engine = Engine(model)  # rivals rebuild their states in every step
    first, second = suite.pictures["b.png"]
    for name, settings in SETTINGS.items():
        conversation = Conversation()
        request = make_request(suite.picture("b.png"), first.text, 4)
        opened = engine.compare(request, {"one": settings}, conversation=conversation)
        for question in (first, second):
            later = question is second
            told = list(engine.follow(conversation, second.text, 4) if later else opened)
            one = found[question.id, name]
            assert [e.answer for e in told if isinstance(e, Finished)] == [one.answer]
            assert [e.kv_bytes for e in told if isinstance(e, Stored)] == [one.bytes]
        conversation.close()


def test_a_run_goes_on_where_it_stopped(
    model: VisionLanguageModel, suite: Suite, tmp_path: Path
) -> None:
    """What is answered is not asked again: after a kill, by a second run, with a setting more."""
    path = tmp_path / "answers.csv.gz"
    few = {name: SETTINGS[name] for name in (UNCOMPRESSED, "keep .25")}
    asked = Run(engine_for(model, suite), suite, few, path)
    owed = asked.missing()
    assert list(owed) == ["a.png", "b.png", "c.png"]
    assert not list(asked.answer(owed, limit_s=-1))  # no time: no picture is begun
    next(iter(asked.answer({"a.png": owed["a.png"]})))
    assert list(asked.missing()) == ["b.png", "c.png"]
    for _ in asked.answer(asked.missing()):
        pass
    whole = path.read_bytes()
    assert not asked.missing()
    path.write_bytes(whole[:-9])  # killed while it wrote the last picture
    assert len(asked.missing()) == 1
    for _ in asked.answer(asked.missing()):
        pass
    assert sorted(read(path)) == sorted(set(read(path))) and len(read(path)) == 12
    assert not asked.missing()
    more = Run(asked.engine, suite, few | {"kivi": SETTINGS["kivi"]}, path)
    assert set(map(tuple, more.missing().values())) == {("kivi",)}
    for _ in more.answer(more.missing()):
        pass
    assert len(read(path)) == len(set(read(path))) == 18


def test_divergences_are_those_of_a_loop_over_single_tokens(
    model: VisionLanguageModel, suite: Suite
) -> None:
    texts = ["What is the name?", "How many?"]
    request = make_request(suite.picture("b.png"), texts[0], 4)
    said = [[5, 6, 7], [9, 4]]
    turn = turn_of(model, texts[1]).ids[0].tolist()
    own: dict[str, torch.Tensor] = {}
    filled: dict[str, Cache] = {}
    for name, settings in SETTINGS.items():
        ((_, embedded, plan, _),) = prefills_of(model, model.prompt(request), [settings])
        cache = empty_cache(model, embedded, settings, plan)
        fill(model, embedded, plan, [cache])
        filled[name] = forked(cache)
        rows = []
        for place, token in enumerate([*said[0], *turn, *said[1]]):
            ids = torch.tensor([[token]])
            rows.append(feed(model, ids, embedded.next_position + place, cache)[0][0])
        own[name] = torch.stack(rows)[-3:].log_softmax(-1)  # two tokens, and the end
    found = divergences(model, filled, embedded.next_position, said, texts[1:])
    whole = own[UNCOMPRESSED]
    for name, mine in own.items():
        expected = (whole.exp() * (whole - mine)).sum(-1).mean().item()
        (one,) = found[name]
        assert one.kl == pytest.approx(max(0.0, expected), rel=1e-3, abs=1e-6)
        same = (whole.argmax(-1) == mine.argmax(-1)).float().mean().item()
        assert one.same_choices == pytest.approx(same)
    assert found[UNCOMPRESSED][0].kl == 0 and found["kivi"][0].kl > 0


Streams = Callable[..., Iterator[Event]]


def failing(engine: Engine, fails: Callable[[Any], UserError | None]) -> None:
    """Let `compare` fail for some columns."""
    real: Streams = engine.compare

    def compare(request: Any, columns: Any, *args: Any, **kwargs: Any) -> Iterator[Event]:
        error = fails(columns)
        if error is not None:
            yield Failed(error)
        else:
            yield from real(request, columns, *args, **kwargs)

    engine.compare = compare  # type: ignore[method-assign]


def test_fewer_settings_are_asked_at_once_where_memory_runs_out(
    model: VisionLanguageModel, suite: Suite, tmp_path: Path
) -> None:
    sizes: list[int] = []

    def fails(columns: Any) -> UserError | None:
        sizes.append(len(columns))
        return OutOfMemory() if len(columns) > 3 else None

    asked = Run(engine_for(model, suite), suite, SETTINGS, tmp_path / "answers.csv.gz")
    failing(asked.engine, fails)
    assert sum(asked.answer(asked.missing())) == len(LINES) * len(SETTINGS)
    assert sizes == [5, 3, 3, 3, 3, 3, 3]  # two beside the uncompressed one, for each picture


def test_what_cannot_be_asked_is_left_out_with_its_reason(
    model: VisionLanguageModel, suite: Suite, tmp_path: Path
) -> None:
    """A setting that the model does not support, and a picture that is damaged."""
    said: list[str] = []
    (suite.folder / "c.png").write_bytes((suite.folder / "c.png").read_bytes()[:200])
    asked = Run(
        engine_for(model, suite), suite, SETTINGS, tmp_path / "answers.csv.gz", "", said.append
    )
    failing(asked.engine, lambda columns: ModeUnsupported("Not so.") if "kivi" in columns else None)
    for _ in asked.answer(asked.missing()):
        pass
    assert asked.refused == {"kivi": "Not so."} and list(asked.left_out) == ["c.png"]
    assert len(said) == 2 and len(read(asked.path)) == 5 * (len(SETTINGS) - 1)


# -- records -----------------------------------------------------------------------------------


def made(path: Path) -> list[Answer]:
    """Answers of two settings to questions about five pictures of two splits."""
    rows = [
        Answer(
            "m", "s" if p < 3 else "t", f"{p}.png#{n}", setting, n, f'say "{p}",\n{n}',
            score, score == 1, size, 300, 2 * p, None if ours is False else p / 100,
        )
        for p in range(5) for n in (1, 2, 3)
        for ours, setting, score, size in (
            (False, UNCOMPRESSED, 1.0, 300), (True, "RotateK, smaller 5", (p + n) % 3 / 2, 60 + p),
        )
    ]  # fmt: skip
    begin(path)
    for start in (0, 6, 12, 18, 24):
        append(path, rows[start : start + 6])
    return rows


def test_records_are_what_plain_python_computes_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv.gz"
    assert read(path) == [] and (answers := made(path)) == read(path)
    whole = {one.question: one.score for one in answers if one.setting == UNCOMPRESSED}
    records = report.rows(path)
    assert len(records) == 2 * 3 * 2  # settings, splits and all of them, turns
    for one in records:
        mine = [
            each for each in answers
            if each.setting == one.setting and one.split in (each.split, report.EVERY)
            and (each.turn == 1) == (one.turn == report.FIRST)
        ]  # fmt: skip

        def mean(values: list[float]) -> Any:
            return pytest.approx(sum(values) / len(values))

        assert one.questions == len(mine)
        assert one.score == mean([each.score for each in mine])
        assert one.difference == mean([each.score - whole[each.question] for each in mine])
        assert one.same == mean([each.same for each in mine])
        assert one.bytes == mean([each.bytes / each.full_bytes for each in mine])
        assert one.whole_tokens == mean([each.whole_tokens for each in mine])
        assert one.low <= one.score <= one.high
        assert one.difference_low <= one.difference <= one.difference_high
        known = [each.kl for each in mine if each.kl is not None]
        assert isnan(one.kl) if not known else one.kl == mean(known)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv.gz"
    for data in (b"model,split\n", gzip.compress(b"a,b\n1,2\n")):
        path.write_bytes(data)
        with pytest.raises(UserError, match="answers"):
            read(path)


# -- the commands ------------------------------------------------------------------------------


@pytest.fixture
def loaded(model: VisionLanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rotatek.models.load", lambda *_: model)


def test_the_command_asks_and_goes_on(
    folder: Path, loaded: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text('{"mine": {"keep_channels": 0.5}}')
    out = tmp_path / "out"
    words = ["evaluate", "--suite", str(folder), "--settings", str(rows), "--out", str(out)]
    assert command.main([*words, "--limit-s", "-1"]) == 3
    assert "no answers yet" in capsys.readouterr().out
    assert command.main([*words, "--splits", "handmade", "--part", "1/1"]) == 0
    said = capsys.readouterr().out
    assert "| mine |" in said and (out / "report.md").read_text() == said
    assert len(read(out / "answers.csv.gz")) == 6 and len(list(out.glob("*.svg"))) == 1
    assert command.main([*words, "--report"]) == 0 and capsys.readouterr().out == said


def test_verify_says_how_far_a_cache_can_be_compressed(
    folder: Path, loaded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(tables, "LADDER", (2, 3))
    monkeypatch.setattr(tables, "BESIDE", ("RotateK, channels .25",))
    words = ["verify", "--suite", str(folder), "--out", str(tmp_path / "out")]
    assert command.main(words) == 0
    said = capsys.readouterr().out
    assert "computed by reference on cpu" in said and "| RotateK, channels .25 |" in said
    assert (tmp_path / "out" / "verify.md").read_text() == said
    told = json.loads((tmp_path / "out" / "verify.json").read_text())
    assert said.rstrip().endswith(told["advice"])
    assert [one["bytes"] for one in told["rungs"]][:3] == sorted(
        (one["bytes"] for one in told["rungs"][:3]), reverse=True
    )
    assert all(one["first_ms"] > 0 and one["step_ms"] > 0 for one in told["rungs"])
    monkeypatch.setattr(tables, "settings_of", lambda: dict.fromkeys(settings_of(), BASELINE))
    assert command.main([*words[:3], "--out", str(tmp_path / "whole")]) == 2
    assert "Nothing was compressed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kl", "difference", "high", "word"),
    [
        (0.005, -0.02, 0.01, "safe"),
        (0.005, -0.015, -0.01, "fine"),
        (0.03, 0.0, 0.02, "fine"),
        (0.03, -0.05, -0.01, "risky"),
        (0.1, 0.0, 0.1, "risky"),
        (0.1, -0.2, -0.1, "broken"),
        (0.5, 0.0, 0.1, "broken"),
    ],
)
def test_a_verdict_keeps_both_of_its_limits(
    kl: float, difference: float, high: float, word: str
) -> None:
    one = Record("m", "all", "s", "later", 9, 3, 0.5, 0.4, 0.6, difference, -0.3, high, 0.9, 0.2,
                 0, kl, kl, kl, 1.0)  # fmt: skip
    rung = ladder.rungs([one], {"s": ladder.Speed(1.0, 1.0, 0)})
    assert rung[0].verdict == word
    advised = ladder.advice(rung, {"s": 5})
    assert ("--smaller 5" in advised) == (word in ("safe", "fine"))


# -- scores against worked examples, and the mathematics of the intervals ------------------------

SHORT = st.text(st.sampled_from("ab c1"), max_size=12)


def slow_distance(a: str, b: str) -> int:
    """The textbook recurrence."""
    rows = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            change = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1])
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, change)
    return rows[-1][-1]


@examples(max_examples=300)
@given(SHORT, SHORT)
def test_edit_distance_is_levenshtein(a: str, b: str) -> None:
    assert metrics.edit_distance(a, b) == slow_distance(a, b)


SCORED: list[tuple[Callable[[str, list[str]], float], str, list[str], float]] = [
    (metrics.exact_match, "Total", ["total"], 1.0),
    (metrics.exact_match, "12 euros", ["12 euro"], 0.0),
    (metrics.says, "It is closed on Monday, the first day of the week.", ["monday"], 1.0),
    (metrics.says, "Not on a mondayish day", ["monday"], 0.0),
    (metrics.says, "Monday " + "Tuesday " * 13, ["monday"], 0.0),
    (metrics.anls, "hallo", ["nothing", "hello"], 0.8),
    (metrics.anls, "hxxxx", ["hello"], 0.0),  # similarity .2 is under the threshold
    (metrics.anls, "abcd", ["abxx"], 0.5),  # exactly the threshold counts
    (metrics.relaxed_accuracy, "104", ["100"], 1.0),
    (metrics.relaxed_accuracy, "105.1", ["100"], 0.0),
    (metrics.relaxed_accuracy, "10%", ["0.1"], 1.0),
    (metrics.relaxed_accuracy, "0.0001", ["0"], 0.0),  # a target of zero is compared as text
    (metrics.relaxed_accuracy, "nan", ["nan"], 1.0),
    (metrics.vqa_accuracy, "The stop!", ["stop"] * 10, 1.0),
    (metrics.vqa_accuracy, "two", ["2"] * 10, 1.0),
    (metrics.vqa_accuracy, "stop", ["stop"] * 3 + ["go"] * 7, (3 * (2 / 3) + 7) / 10),
    (metrics.transcription_accuracy, "abd", ["xyz", "abc"], 2 / 3),
    (metrics.transcription_accuracy, "# Title\n\nabc", ["# Title abc"], 1.0),
    (metrics.transcription_accuracy, "", ["abc"], 0.0),
    (metrics.transcription_accuracy, "abcabcabc", ["abc"], 0.0),
]


@pytest.mark.parametrize(("metric", "answer", "accepted", "score"), SCORED)
def test_scores_are_those_of_the_definitions(
    metric: Callable[[str, list[str]], float], answer: str, accepted: list[str], score: float
) -> None:
    assert metric(answer, accepted) == pytest.approx(score)


def test_where_all_answers_are_alike_the_interval_is_wilsons() -> None:
    """Newcombe 1998, table I: 0 of 20, a document counting once."""
    draws = metrics.Resampled(np.repeat(np.arange(20), 3))
    assert draws.score_interval(np.zeros(60)) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert draws.score_interval(np.ones(60)) == pytest.approx((0.8389, 1.0), abs=1e-4)


def test_interval_covers_the_truth() -> None:
    """Nominal 95 %: of 200 samples of clustered answers, nearly all intervals hold the truth."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(100), 3)
    covered = 0
    for _ in range(200):
        documents = rng.beta(4, 2, 100)  # mean 2/3
        values = (rng.random(300) < documents[groups]).astype(float)
        low, high = metrics.Resampled(groups).score_interval(values)
        covered += low <= 2 / 3 <= high
    assert 180 <= covered <= 199
