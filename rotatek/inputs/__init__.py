"""From bytes and text to a checked request, and from a request to token ids."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rotatek.inputs.request import Request, clean_question, make_request, open_image

__all__ = ["Request", "clean_question", "make_request", "open_image"]
_HOME: Final = "rotatek.inputs.request"


def __getattr__(name: str) -> Any:
    """Public names on first use: a command's help needs no NumPy."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME), name)
