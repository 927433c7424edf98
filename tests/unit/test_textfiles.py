"""Text files as people have them: read, or refused by file and line; nothing computed is lost."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rotatek.cli import main as command
from rotatek.cli.answers import print_json, say
from rotatek.errors import KeyUnknown
from rotatek.evaluation.tables import from_file
from rotatek.inputs.text_files import as_json, decoded, lines_of, parsed
from rotatek.methods.settings import Settings
from rotatek.server.api_keys import keys_here, keys_of
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
    found = from_file(file("{", '"a": {"keep_channels": 0.5}', "}"))
    assert found["a"] == Settings.of(keep_channels=0.5)


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


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
def test_every_answer_can_be_printed(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = f"Café {HALF} \U0001f600 {SEPARATORS}"
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding=encoding, write_through=True))
    print_json({"answer": answer})
    assert json.loads(out.getvalue().decode(encoding)) == {"answer": answer}
    say(answer)
    assert "Caf" in (said := out.getvalue().decode(encoding)) and "\\ud83d" in said


def test_a_cache_that_cannot_be_saved_leaves_the_answer(
    image: str, tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ask", image, "what?", "--max-new-tokens", "3"]
    assert command.main([*words, "--save-cache", str(tmp_path / "no folder" / "a.cache")]) == 2
    out, err = capsys.readouterr()
    assert command.main(words) == 0
    assert capsys.readouterr().out == out
    assert err.count("\n") == 1 and "cannot be written" in err
