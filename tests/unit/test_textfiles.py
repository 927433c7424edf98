"""Text files as people have them: read, or refused by file and line; nothing computed is lost."""

import io
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rotatek.cli import ask, store_arguments
from rotatek.cli import main as command
from rotatek.cli.answers import print_json, say
from rotatek.engine.conversation import Conversation
from rotatek.engine.event_builder import text_of
from rotatek.errors import CacheFileUnwritable, CompressorMissing, KeyUnknown, UserError
from rotatek.evaluation.answer_archive import collect, pack, unpack
from rotatek.evaluation.journal import Answer, Journal, read_answers, read_header, setting_id
from rotatek.evaluation.runner import Runner, RunOptions
from rotatek.evaluation.suite import FileSuite, StoredSuite, describe
from rotatek.evaluation.tables import from_file
from rotatek.inputs.text_files import as_json, as_lines, decoded, lines_of, parsed, read_text
from rotatek.methods.settings import BASELINE, Settings
from rotatek.server.api_keys import keys_here, keys_of
from rotatek.server.reply import sse
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

HALF = "\ud83d"  # the first half of an emoji
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"  # at which `str.splitlines` cuts
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
KEYS = ["first-key-of-all-0", "second-key-of-all-0"]


@pytest.fixture
def image(picture: Picture, tmp_path: Path) -> str:
    path = tmp_path / "picture.png"
    picture(300, 200).save(path)
    return str(path)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    from rotatek import models

    monkeypatch.setattr(models, "load", lambda model, device=None, four_bit=False: tiny_qwen())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(
    st.lists(VALUES, max_size=6),
    st.sampled_from(ENCODINGS),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_json_lines_come_back_from_every_encoding_and_line_end(
    values: list[Any], encoding: str, end: str, escaped: bool
) -> None:
    """Half characters, separators inside texts and blank lines included."""
    texts = [json.dumps(value) if escaped else as_json(value) for value in values]
    data = (end + end.join([*texts, "", ""])).encode(encoding)
    found = [parsed(line.text) for line in lines_of(decoded(data, "The file"))]
    assert found == values
    numbers = [line.number for line in lines_of(decoded(data, "The file"))]
    assert numbers == list(range(2, 2 + len(values)))


def test_files_with_marks_that_were_put_together() -> None:
    data = b"".join(f'{{"a": {n}}}\r\n'.encode("utf-8-sig") for n in range(3))
    assert [parsed(one.text)["a"] for one in lines_of(decoded(data, "The file"))] == [0, 1, 2]


@given(st.lists(VALUES, max_size=5))
def test_what_is_written_is_one_line_a_value_for_every_reader(values: list[Any]) -> None:
    text = as_lines(values)
    text.encode()  # no half character is left
    assert [json.loads(line) for line in text.splitlines()] == values


def test_separators_inside_a_json_text_as_others_write_them() -> None:
    line = json.dumps({"question": f"a{SEPARATORS[:3]}b"}, ensure_ascii=False)
    (found,) = lines_of(decoded(line.encode() + b"\r\n", "The file"))
    assert parsed(found.text)["question"] == f"a{SEPARATORS[:3]}b"


@pytest.mark.parametrize("data", [b"\xff\xfea", b"caf\xe9", b"\xef\xbb\xbf\xff", b"\xc3"])
def test_what_is_no_text_is_refused_in_a_sentence(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(UserError, match="The file cannot be read as text. Save it as UTF-8."):
        read_text(path, "The file")
    for missing in (tmp_path, tmp_path / "none", "nul\0l"):
        with pytest.raises(UserError, match="The file cannot be read. Check its name."):
            read_text(missing, "The file")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_reader_takes_every_encoding(encoding: str, end: str, tmp_path: Path) -> None:
    def file(*lines: str) -> Path:
        path = tmp_path / "given"
        path.write_bytes(end.join([*lines, ""]).encode(encoding))
        return path

    assert keys_of(file(*KEYS)) == KEYS
    known = keys_here(file(*KEYS))
    assert all(known.owner(f"Bearer {key}") for key in KEYS)
    with pytest.raises(KeyUnknown):
        known.owner("Bearer \ufeff" + KEYS[0])
    table = from_file(file("{", '"a": {"keep_channels": 0.5}', "}"))
    assert table.rows[1].settings == Settings.of(keep_channels=0.5)
    row = {"image": "a.png", "question": f"one{SEPARATORS[0]}two?", "answers": ["é"]}
    suite = FileSuite(file(json.dumps(row, ensure_ascii=False), "", json.dumps(row)))
    assert [item.name for item in suite.items] == ["line-00001", "line-00003"]
    assert not suite.bad and suite.items[0].accepted == ("é",)


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        ({"answers": "20.10"}, ("20.10",)),
        ({"answers": ["20.10", 7]}, ("20.10", "7")),
        ({"answers": 20.1}, ("20.1",)),
        ({"answer": "20.10"}, ("20.10",)),
        ({"answer": ["a", "b"]}, ("a", "b")),
        ({"answers": None}, None),
        ({"answers": []}, None),
        ({"answers": {"a": 1}}, None),
        ({"answers": [["a"]]}, None),
        ({"answers": [True]}, None),
        ({"answer": "a", "long": "false"}, None),
        ({"answer": "a", "metric": ["anls"]}, None),
    ],
)
def test_accepted_answers(given: dict[str, Any], accepted: Any, tmp_path: Path) -> None:
    """Once a single text was read letter by letter, and its digits were right answers."""
    path = tmp_path / "suite.jsonl"
    path.write_text(json.dumps({"image": "a.png", "question": "?x"} | given))
    if accepted is None:
        with pytest.raises(UserError, match="Line 1 of the suite suite.jsonl is not"):
            FileSuite(path)
        return
    (item,) = FileSuite(path).items
    assert item.accepted == accepted and item.score(accepted[0]) == 1
    assert item.score("2") == 0


def test_a_suite_names_its_bad_lines_and_goes_on(tmp_path: Path) -> None:
    good = json.dumps({"image": "a.png", "question": "Total?", "answer": "1"})
    path = tmp_path / "suite.jsonl"
    path.write_text("\n".join([good, "{", "[" * 100_000, good, good.replace("Total?", " ")]))
    suite = FileSuite(path)
    assert [item.name for item in suite.items] == ["line-00001", "line-00004"]
    assert [sentence[:31] for sentence in suite.bad] == [
        f"Line {number} of the suite suite.jsonl" for number in (2, 3, 5)
    ]
    assert suite.bad[2].endswith("suite.jsonl: The question is empty. Type one and ask again.")


def test_a_batch_names_its_bad_rows_and_goes_on(
    image: str, tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(Path(image).read_bytes()[:500])
    row = {"image": image, "question": f"what{HALF}?{SEPARATORS}"}
    rows = [
        json.dumps(row), "{", json.dumps(row | {"image": str(damaged)}),
        json.dumps(row | {"question": 5}), json.dumps(row | {"image": 5}), json.dumps(row),
    ]  # fmt: skip
    batch = tmp_path / "rows.jsonl"
    batch.write_bytes("\r\n".join(rows).encode("utf-8-sig"))
    words = ["ask", "--batch", str(batch), "--max-new-tokens", "2"]
    assert command.main(words) == 2
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in out.splitlines()]
    assert ["answer" in one for one in found] == [True, False, False, False, False, True]
    assert found[0]["question"] == row["question"] and found[1]["line"] == 2
    assert all(f"Line {number} of the batch file rows.jsonl" in err for number in (2, 3, 4, 5))
    assert "Line 3 of the batch file rows.jsonl: The image is damaged" in err
    assert err.strip().splitlines()[-1].startswith("4 of the batch's questions")


def test_a_batch_ends_where_all_rows_would_fail(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from rotatek import models
    from rotatek.errors import WeightsMissing

    def missing(*_: Any, **__: Any) -> None:
        raise WeightsMissing

    monkeypatch.setattr(models, "load", missing)
    batch = tmp_path / "rows.jsonl"
    batch.write_text(3 * (json.dumps({"image": image, "question": "what?"}) + "\n"))
    assert command.main(["ask", "--batch", str(batch)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count(WeightsMissing.sentence) == 1


class _Stdout(io.TextIOWrapper):
    """Of an encoding, in memory; or one that takes nothing."""

    def __init__(self, encoding: str, failure: type[OSError] | None = None) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.failure = failure

    def write(self, text: str) -> int:
        if self.failure is not None:
            raise self.failure
        return super().write(text)

    def said(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_every_answer_can_be_printed(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = f"Café {HALF} \U0001f600 {SEPARATORS}"
    out = _Stdout(encoding)
    monkeypatch.setattr("sys.stdout", out)
    print_json({"answer": answer})
    assert json.loads(out.said()) == {"answer": answer}
    say(answer)
    assert "Caf" in out.said() and "\\ud83d" in out.said()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_stores_answers_are_printed_and_written_whatever_their_characters(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: Any = SimpleNamespace(text="Café \U0001f600", confidence=0.5, error="")
    page, out = "caf\udce9.png", _Stdout(encoding)  # as the system gives a name that is no UTF-8
    monkeypatch.setattr("sys.stdout", out)
    for form in (False, True):
        store_arguments._print(page, answer, "", form)
    line, told = out.said().splitlines()
    assert line.startswith("caf\\udce9.png\tCaf") and json.loads(told)["answer"] == answer.text
    with ExitStack() as stack:
        store_arguments._Table(stack, tmp_path / "a.csv").add(page, answer, "")
    assert "caf\\udce9.png,Café" in (tmp_path / "a.csv").read_text(encoding="utf-8")


def test_an_answer_that_stdout_does_not_take_is_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout", _Stdout("utf-8", OSError))
    with pytest.raises(OSError):
        say("the answer")
    assert capsys.readouterr().err == "the answer\n"
    monkeypatch.setattr("sys.stdout", _Stdout("utf-8", BrokenPipeError))
    with pytest.raises(BrokenPipeError):  # the pipe is closed: it ends silently
        say("the answer")
    assert capsys.readouterr().err == ""


def test_an_answer_for_a_closed_stdout_is_on_stderr(
    image: str, tiny: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ask", image, "what?", "--max-new-tokens", "3", "--json"]
    monkeypatch.setattr("sys.stdout", None)  # as with >&-
    assert command.main(words) == 0
    assert "answer" in json.loads(capsys.readouterr().err)
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    assert command.main(words) == 0 and command.main([*words, "--keep-channels", "7"]) == 2
    sys.stderr.close()


def test_half_a_character_is_made_whole_where_tokens_become_text() -> None:
    class Tokenizer:
        def decode(self, tokens: Any, **_: Any) -> str:
            return "a" + HALF

    class Model:
        tokenizer = Tokenizer()

    assert text_of(Model(), [1]) == "a\ufffd"  # type: ignore[arg-type]
    assert json.loads(sse({"a": HALF}).removeprefix(b"data: ")) == {"a": HALF}


def _no_zstandard(_: Any, path: str) -> int:
    raise CompressorMissing


def _unwritable(_: Any, path: str) -> int:
    raise CacheFileUnwritable


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("save", [_no_zstandard, _unwritable, None])
def test_a_cache_that_cannot_be_saved_leaves_the_answer(
    form: list[str], save: Callable | None, image: str, tiny: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if save is not None:
        monkeypatch.setattr(Conversation, "save", save)
    file = tmp_path / "no folder" / "a.cache"
    words = ["ask", image, "what?", "--max-new-tokens", "3", *form]
    assert command.main([*words, "--save-cache", str(file)]) == 2
    out, err = capsys.readouterr()
    assert command.main(words) == 0
    alone = capsys.readouterr().out
    if form:
        assert json.loads(out)["answer"] == json.loads(alone)["answer"]
    else:
        assert out == alone
    assert err.count("\n") == 1 and ("cannot be written" in err or "zstandard" in err)


@pytest.mark.parametrize("failure", [OSError, BrokenPipeError])
def test_an_answer_that_cannot_be_printed_leaves_the_cache(
    failure: type[OSError], image: str, tiny: None, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pytest.importorskip("zstandard")
    file = tmp_path / "a.cache"
    words = ["ask", image, "what?", "--max-new-tokens", "2", "--save-cache", str(file)]
    parsed_words = command.parser_for(words).parse_args(words)
    monkeypatch.setattr("sys.stdout", _Stdout("utf-8", failure))
    with pytest.raises(failure):
        ask.run(parsed_words)
    assert file.stat().st_size > 0


def _answer(name: str, text: str) -> Answer:
    return Answer(setting_id(BASELINE), name, text, 3, 0.5)


def test_a_journal_holds_every_answer_and_is_resumed(tmp_path: Path) -> None:
    path, header = tmp_path / "journal.jsonl", {"run": HALF}
    given = [_answer(f"q{n}", text) for n, text in enumerate([HALF, SEPARATORS, "a\r\nb", "é"])]
    Journal(path, header).add(given)
    with path.open("ab") as file:
        file.write(b'["no answer"]\n{"setting": 1}\n{"setting": "x", "item": "caf\xc3')  # cut short
    again = Journal(path, header)
    assert list(again.answers.values()) == given
    assert list(read_answers(path, header).values()) == given
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))  # an editor
    assert list(read_answers(path, header).values()) == given and read_header(path) == header
    path.write_bytes(b"")
    with pytest.raises(UserError, match="journal.jsonl is damaged"):
        read_header(path)


def test_a_journal_whose_disk_is_full_keeps_what_was_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, {})
    opened = Path.open

    class Full:
        """Takes ten bytes, then no more."""

        def __init__(self, file: Any) -> None:
            self.file, self.room = file, 10

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> int:
            if not self.room:
                raise OSError(28, "No space left on device")
            taken, self.room = self.file.write(data[: self.room]), 0
            return int(taken)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    with monkeypatch.context() as full:
        full.setattr(Path, "open", lambda self, *a, **k: Full(opened(self, *a, **k)))
        journal.add([_answer("one", "1")])
        assert journal.unwritten and journal.answers
    assert read_answers(path, {}) == {}
    assert path.read_bytes().count(b"\n") == 1  # and no half line
    journal.add([_answer("two", "2")])
    assert not journal.unwritten and len(read_answers(path, {})) == 2


def test_a_runs_questions_and_packed_answers_come_back(tmp_path: Path) -> None:
    row = {"image": "a.png", "question": "What?", "answers": ["20.10", f"a{SEPARATORS}{HALF}b"]}
    path = tmp_path / "suite.jsonl"
    path.write_text(json.dumps(row))
    suite = FileSuite(path)
    kept = tmp_path / "questions.jsonl"
    StoredSuite.save(suite, kept)
    assert StoredSuite(kept).items == suite.items
    (item,) = suite.items
    answers = {(setting_id(BASELINE), item.name): _answer(item.name, HALF + SEPARATORS)}
    header = {"suite": describe(suite)}
    pack(tmp_path / "a.xz", collect(header, suite.items, answers, [BASELINE]))
    assert unpack(tmp_path / "a.xz").answers == answers
    kept.write_text("{}")
    with pytest.raises(UserError, match="questions.jsonl is damaged"):
        StoredSuite(kept)


def test_an_evaluation_leaves_out_what_cannot_be_asked(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture that is missing or damaged, a question that is too long with its suffix."""
    torch.manual_seed(0)
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(Path(image).read_bytes()[:300])
    rows = [
        {"image": name, "question": question, "answer": "1"}
        for name, question in (
            (image, "Total?"), ("none.png", "Total?"), (str(damaged), "Total?"),
            (image, "x" * 1_999), (image, "Name?"),
        )
    ]  # fmt: skip
    path = tmp_path / "suite.jsonl"
    path.write_text(as_lines(rows))
    suite, said = FileSuite(path), list[str]()
    journal = Journal(tmp_path / "journal.jsonl", {})
    runner = Runner(
        tiny_qwen(), suite, journal, RunOptions(4, " Say one word.", (2, 2)), said.append
    )
    units = runner.units([(BASELINE, "all"), (Settings(), "all")])
    assert sum(runner.run(units)) == sum(unit.answers for unit in units)
    assert {item for _, item in journal.answers} == {"line-00001", "line-00005"}
    assert set(runner.left_out) == {"line-00002", "line-00003", "line-00004"}
    assert any("line-00002 of suite.jsonl: There is no readable file" in one for one in said)
    assert not runner.refused


def test_the_command_says_how_many_questions_were_bad(
    image: str, tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "suite.jsonl"
    row = {"image": image, "question": "Total?", "answer": "1"}
    path.write_text(as_lines([row]) + "{\n" + as_lines([row | {"image": "none.png"}]))
    settings = tmp_path / "rows.json"
    settings.write_text('{"a": {}}')
    monkeypatch.setattr("rotatek.evaluation.evaluate.load", lambda *_: tiny_qwen())
    words = [
        "evaluate", "--suite", str(path), "--settings", str(settings), "--out",
        str(tmp_path / "out"), "--short-tokens", "2",
    ]  # fmt: skip
    assert command.main(words) == 2
    out, err = capsys.readouterr()
    assert out.strip().endswith("results.md")  # the report is there
    assert "Line 2 of the suite suite.jsonl is not" in err and "line-00003 of suite.jsonl" in err
    assert err.strip().splitlines()[-1].startswith("2 of the suite's questions could not be asked")


def test_calibration_says_where_it_cannot_write_before_it_begins(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "none" / "a.safetensors"
    assert command.main(["calibrate", image, "what?", "--out", str(out)]) == 2
    assert "cannot be written" in capsys.readouterr().err
