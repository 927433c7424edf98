"""One model for many visitors: requests go in, events come out.

`engine` has the class `Engine`. `scheduler` decodes all active rows in one step (continuous
batching); `batch` is the cache that the model sees in that step, `row_group` and `row_group_layer`
store rows of one storage form together, `admission` reserves memory, `image_features` keeps what
the vision tower computed, `prefill` fills caches of several settings from one prompt,
`column` and `conversation` keep them for follow-up questions, `events` is what a caller receives,
and `answer` what it folds them into.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rotatek.engine.engine import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> Any:
    """`Engine` on first use: events and decoding are imported without it."""
    if name != "Engine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rotatek.engine.engine import Engine  # noqa: PLC0415

    return Engine
