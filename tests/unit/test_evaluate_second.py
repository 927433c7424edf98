"""Second questions: batches of conversations say what single conversations say."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rotatek.cli import evaluate
from rotatek.engine.conversation import Conversation
from rotatek.engine.dialogues import Dialogue
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished
from rotatek.evaluation.cells import Results
from rotatek.evaluation.chains import (
    NEUTRAL,
    NEUTRAL_QUESTION,
    NEUTRAL_TOKENS,
    OPENING,
    SECOND,
    chains,
    counted,
)
from rotatek.evaluation.journal import Journal, setting_id
from rotatek.evaluation.runner import Runner, RunOptions
from rotatek.evaluation.suite import FileSuite, Item, Selection
from rotatek.evaluation.tables import Scope, second_table
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests.tiny import TINY

LIMITS = (5, 9)
WANTED: list[tuple[Settings, Scope]] = [
    (BASELINE, "all"),
    (Settings.of(bits=0.75), "all"),
    (Settings.of(keep_channels=0.25), "all"),
    (Settings.of(channels="kivi", number_bits="2"), "all"),
    (Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.5, keep_channels=0.5), "all"),
    (Settings.of(tokens="visionzip", keep_tokens=0.4, keep_channels=0.5), "all"),
]
QUESTIONS = [
    ("a", "Total?"), ("b", "What is the name of the shop that sold all of it?"), ("a", "Title?"),
    ("b", "How many?"), ("c", "What is it?"), ("a", "Who signed at the bottom of the page?"),
]  # fmt: skip


@pytest.fixture(scope="module", params=sorted(TINY))
def vlm(request: pytest.FixtureRequest) -> VisionLanguageModel:
    return TINY[request.param]()


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> FileSuite:
    """Three pictures of unequal size: one with three questions, one with a page, one with one."""
    path = tmp_path_factory.mktemp("suite")
    rng = np.random.default_rng(0)
    for name, (width, height) in {"a": (224, 224), "b": (280, 336), "c": (84, 84)}.items():
        pixels = rng.integers(0, 256, (height // 4, width // 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((width, height)).save(path / f"{name}.png")
    lines: list[dict[str, Any]] = [
        {"image": f"{name}.png", "question": question, "answer": "1", "kind": "x"}
        for name, question in QUESTIONS
    ]
    lines.insert(0, {"image": "b.png", "question": "Read it.", "answer": "Ann", "long": True})
    (path / "questions.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return FileSuite(path / "questions.jsonl")


def asked(suite: FileSuite, ask: str, vlm: VisionLanguageModel, path: Path) -> Journal:
    journal = Journal(path, {"ask": ask})
    chained = Selection(suite, chains(suite.items, ask))
    runner = Runner(vlm, chained, journal, RunOptions(2, limits=LIMITS, ask=ask))
    list(runner.run(runner.units(WANTED)))
    assert not runner.refused and not runner.units(WANTED)
    return journal


def test_a_chain_opens_with_a_short_question_and_ends_with_the_page(suite: FileSuite) -> None:
    a, b = sorted(chains(suite.items, SECOND), key=lambda chain: chain.document, reverse=True)
    assert [a.question, *(item.question for item in a.later)] == [
        QUESTIONS[n][1] for n in (0, 2, 5)
    ]
    assert b.opening is not None and not b.opening.long and b.later[-1].long and b.long
    assert a.name == a.later[-1].name and not a.long
    neutral = chains(suite.items, NEUTRAL)
    assert {chain.question for chain in neutral} == {NEUTRAL_QUESTION}
    assert sum(len(chain.later) for chain in neutral) == len(suite.items)
    seen = counted(suite.items, SECOND)
    assert [len(seen[name]) for name in (SECOND, OPENING)] == [4, 2]
    page = Item("p", 9, "pages", "Read.", ("x",), "transcription", True)
    assert chains([page], SECOND) == [] and len(chains([page], NEUTRAL)) == 1


def test_what_is_said_is_fed_and_an_answer_ends_at_its_limit() -> None:
    talk = Dialogue([[7, 8], [9]], [2, 2, 2], {0})
    assert talk.room == 9
    fed = [talk.next(token) for token in (1, 2, 5, 5, 3, 0, 4, 0)]
    # 1 is fed; 2 reaches the limit and is fed before the question; then 3 and its end; then 4.
    assert fed == [1, 2, 7, 8, 3, 9, 4, None]
    assert talk.said == [[1, 2], [3], [4]]


@pytest.mark.parametrize("ask", [SECOND, NEUTRAL])
def test_batches_say_what_single_conversations_say(
    ask: str, vlm: VisionLanguageModel, suite: FileSuite, tmp_path: Path
) -> None:
    journal = asked(suite, ask, vlm, tmp_path / "journal.jsonl")
    engine = Engine(vlm)
    columns = {setting_id(one): one for one, _ in WANTED}
    compared = 0
    for chain in chains(suite.items, ask):
        limit = LIMITS[0] if ask == SECOND else min(LIMITS[0], NEUTRAL_TOKENS)
        request = make_request(suite.image(chain.document), chain.question, limit)
        talk = Conversation()
        said = [list(engine.compare(request, columns, trace=False, conversation=talk))]
        for item in chain.later:
            said.append(list(engine.follow(talk, item.question, LIMITS[item.long])))
        talk.close()
        for one, events in zip((chain.opening, *chain.later), said, strict=True):
            for event in events:
                if isinstance(event, Finished) and one is not None:
                    assert journal.answers[event.column, one.name].answer == event.answer
                    compared += 1
    assert compared == len(journal.answers) == len(WANTED) * (6 if ask == SECOND else 7)


def test_the_command_asks_pictures_of_a_folder_and_reports_both_columns(
    suite: FileSuite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = next(iter(suite._paths)).parent
    (tmp_path / "mine.json").write_text(json.dumps({"k = 32": {"keep_channels": 0.25}}))
    parser = argparse.ArgumentParser()
    evaluate.add_arguments(parser)
    words = [
        *("--model", "pocket", "--device", "cpu", "--ask", "second", "--folder", str(folder)),
        *("--short-tokens", "3", "--long-tokens", "3", "--out", str(tmp_path / "out")),
        *("--settings", str(tmp_path / "mine.json")),
    ]
    assert evaluate.run(parser.parse_args(words)) == 0
    built = Results.load(tmp_path / "out")
    (run,) = built.runs
    assert run["ask"] == SECOND and run["tables"][0]["questions"] == 4
    rows = ["Uncompressed", "k = 32"]
    assert [cell.row for cell in built.of(run)[run["tables"][0]["name"]]] == rows
    assert [cell.row for cell in built.of(run, OPENING)[run["tables"][0]["name"]]] == rows
    assert built.main == []
    assert "first questions" in (tmp_path / "out" / "results.md").read_text()


def test_the_table_has_what_the_question_is_about() -> None:
    rows = {row.label: row.settings for row in second_table().rows}
    assert len(set(rows.values())) == len(rows)
    assert {"Uncompressed", "RotateK (0.75 bits)", "RotateK, 32 Key channels"} <= set(rows)
    assert {"KIVI (2 bits)", "TurboQuant (2 bits)", "TurboQuant (3 bits)"} <= set(rows)
