"""Types of shared fixtures, and small helpers."""

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
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


def free_port() -> int:
    """A port of this machine that no process uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class OnGpu(torch.Tensor):
    """A CPU tensor that says it is on a GPU, so that a kernel is chosen for it."""

    device = SimpleNamespace(type="cuda", index=0)  # type: ignore[assignment]
