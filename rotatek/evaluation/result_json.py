"""Results as JSON text with a line a row: short, and its changes are those of rows."""

import json
from typing import Any, Final

DIGITS: Final = 6  # of a measured number, the significant ones
ROWS: Final = "rows"  # the field of a table that holds its rows, in a list or by name


def text_of(found: Any) -> str:
    """JSON with a newline at its end.

    Each entry of a field `rows`, and each list or object without another inside, is one line.
    Numbers have `DIGITS` digits.

    Args:
        found: what JSON can hold.
    """
    plain = json.loads(json.dumps(found), parse_float=shortened)  # keys become strings
    return _laid_out(plain, "", "\n") + "\n"


def shortened(number: float | str, digits: int = DIGITS) -> float:
    """A number with so many significant digits."""
    return float(f"{float(number):.{digits}g}")


def _laid_out(value: Any, name: str, margin: str) -> str:
    """The value of a field; margin: a newline and the spaces before its brackets."""
    inside = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list) or not any(isinstance(x, dict | list) for x in inside):
        return _line(value)
    below = margin + " "
    if isinstance(value, dict):
        parts = [f"{_line(key)}: {_entry(name, key, one, below)}" for key, one in value.items()]
        return f"{{{below}{f',{below}'.join(parts)}{margin}}}"
    parts = [_entry(name, "", one, below) for one in value]
    return f"[{below}{f',{below}'.join(parts)}{margin}]"


def _entry(name: str, key: str, value: Any, margin: str) -> str:
    return _line(value) if name == ROWS else _laid_out(value, key, margin)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
