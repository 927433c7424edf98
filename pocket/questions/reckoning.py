"""What is reckoned from printed figures, written down with its working: "12 + 30 = 42"."""

import math
import re
from collections.abc import Sequence
from typing import Final

AMOUNT: Final = re.compile(r"(\D*?)(\d{1,6}(?:\.\d{1,2})?)(\D*)")
CLOCK: Final = re.compile(r"(\d{1,2}):(\d\d)")


def working(terms: Sequence[str], sign: str) -> str | None:
    """The terms as printed, with what they come to.

    Args:
        terms: Amounts that are written alike ("£1.20", "£0.80"), or two times of one day to
            subtract; with the sign "x" the first is a whole number of times.
        sign: "+", "-" or "x".

    Returns:
        "£1.20 + £0.80 = £2.00", or None where the terms are not such or the result is negative.
    """
    result = (_duration(terms) if sign == "-" else None) or _amount(terms, sign)
    return f"{f' {sign} '.join(terms)} = {result}" if result else None


def _amount(terms: Sequence[str], sign: str) -> str | None:
    times, amounts = (terms[:1], terms[1:]) if sign == "x" else ((), terms)
    found = [AMOUNT.fullmatch(text) for text in amounts]
    parts = [match.groups() for match in found if match]
    alike = {(before, after, len(n.partition(".")[2])) for before, n, after in parts}
    if len(parts) < len(amounts) or len(alike) != 1 or not all(n.isdecimal() for n in times):
        return None
    before, after, digits = alike.pop()
    values = [*map(float, times), *(float(number) for _, number, _ in parts)]
    if sign == "+":
        result = sum(values)
    else:
        result = math.prod(values) if sign == "x" else values[0] - sum(values[1:])
    return f"{before}{result:.{digits}f}{after}" if result >= 0 else None


def _duration(terms: Sequence[str]) -> str | None:
    """Hours and minutes from the second time to the first."""
    found = [CLOCK.fullmatch(text) for text in terms]
    minutes = [int(match[1]) * 60 + int(match[2]) for match in found if match]
    if len(minutes) != len(terms) or len(terms) != 2 or minutes[0] < minutes[1]:
        return None
    hours, rest = divmod(minutes[0] - minutes[1], 60)
    return f"{hours}:{rest:02}"
