"""Types of shared fixtures."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

if TYPE_CHECKING:  # most tests need no browser
    from playwright.sync_api import Page

Picture = Callable[..., Image.Image]  # a maker of pictures: width, height, mode, seed
Visit = Callable[..., "Page"]  # opens the page in a browser: width, height, theme
Shoot = Callable[["Page", str], None]  # keeps a full-page screenshot under a name
Together = Callable[[list[Callable[[], None]]], None]  # runs calls at once, raises what they raise

Value = TypeVar("Value")


def half(tokens: str) -> dict[str, Any]:
    """Flat settings of the pruner `tokens` at half of the tokens, where it drops any."""
    return {"tokens": tokens} | ({} if tokens == "none" else {"keep_tokens": 0.5})


def present(value: Value | None) -> Value:
    """A value that must not be None at this point of a test."""
    assert value is not None
    return value
