"""Text files as people have them: read, or refused by file and line; nothing computed is lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rotatek.errors import KeyUnknown
from rotatek.evaluation.tables import from_file
from rotatek.inputs.text_files import as_json, decoded, lines_of, parsed
from rotatek.methods.settings import Settings
from rotatek.server.api_keys import keys_here, keys_of

HALF = "\ud83d"  # the first half of an emoji
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"  # at which `str.splitlines` cuts
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
KEYS = ["first-key-of-all-0", "second-key-of-all-0"]


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
