"""The stored lessons: words, figures that were drawn once, and the settings that show them."""

import gzip
import json
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from rotatek.errors import UserError
from rotatek.methods.settings import Settings

NAME: Final = "lessons.json.gz"


class Lesson(NamedTuple):
    """One step: its paragraph, its figures' titles, and the settings that show it on the page."""

    title: str
    text: str
    figures: tuple[str, ...]
    settings: Settings


@lru_cache(maxsize=2)
def stored_lessons(assets: Path) -> tuple[Lesson, ...]:
    """The lessons of a copy of the repository; none where no file of them can be read."""
    try:
        return tuple(
            Lesson(
                one["title"], one["text"], tuple(one["figures"]),
                Settings.from_dict(one["settings"]),
            )
            for one in _stored(assets)["lessons"]
        )  # fmt: skip
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, UserError):
        return ()


def payload(assets: Path) -> str:
    """Every figure of the lessons, and the picture under two of them."""
    return json.dumps(_stored(assets)["drawn"]) if stored_lessons(assets) else ""


def frame(number: int, place: int) -> str:
    """The element that shows a lesson's figure; both count from 1."""
    return f"learn-figure-{number}-{place}"


def _stored(assets: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress((assets / "traces" / NAME).read_bytes()))
    return found
