"""Reads text files as editors and spreadsheets save them, with a byte order mark, as UTF-16 or
with Windows' line ends; and writes JSON lines. These end at line ends only: U+2028 and form feeds,
at which `str.splitlines` would cut, may be inside a JSON text."""

import json
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Final

from rotatek.errors import UserError

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_AWKWARD: Final = re.compile("[\ud800-\udfff\u0085\u2028\u2029]")


def read_text(path: str | PathLike[str], what: str) -> str:
    r"""A text file of UTF-8, UTF-16 or UTF-32, its lines ended by "\n".

    Args:
        path: of the file.
        what: how a refusal calls it, e.g. "The batch file".

    Raises:
        UserError: where it cannot be read, or is no such text.
    """
    try:
        data = Path(path).read_bytes()
        text = data.decode(json.detect_encoding(data))
    except UnicodeDecodeError as error:
        raise UserError(f"{what} cannot be read as text. Save it as UTF-8.") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise UserError(f"{what} cannot be read. Check its name.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def lines_of(path: str | PathLike[str], what: str) -> Iterator[tuple[int, str]]:
    """The lines of `read_text` that are not blank, each with its number from 1."""
    for number, line in enumerate(read_text(path, what).split("\n"), 1):
        line = line.removeprefix("\ufeff")
        if line.strip():
            yield number, line


def parsed(line: str) -> Any:
    """The value of a line of JSON; ValueError where it is none."""
    try:
        return json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def as_json(value: Any) -> str:
    """`value` as one line of JSON that every file takes: half a character is escaped, and so is
    what some programs take for a line's end."""
    text = json.dumps(value, ensure_ascii=False)
    return _AWKWARD.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(name: object) -> str:
    r"""A file's name in one line of a terminal: what is no letter of it is written out, e.g.
    "\\n", and bytes of no encoding as "\\udce9"."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(name))


def whole_characters(text: str) -> str:
    """`text` with U+FFFD for half a character, which can be neither printed, stored nor sent."""
    return _SURROGATE.sub("\ufffd", text)
