"""What this library changes for the whole process, when the first cache is made; nothing else is.

`PreTrainedModel.__call__` hands calls that carry one of our caches to `rotatek.bridge.attention`,
and `AttentionInterface.get_interface` gives our attention inside them. All others run as ever.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torch import nn
from transformers import AttentionInterface, PreTrainedModel

from rotatek.bridge.scope import cache_among, is_own

_plain_interface: Final = AttentionInterface.get_interface


def install(carry: Callable[..., Any], attention: Callable[..., Any]) -> None:
    """Put both in place. Safe to repeat. carry: runs a model's call that carries one of our caches:
    model, args, kwargs; attention: for a module's own attention function, which comes first."""

    def called(model: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        if getattr(cache_among(kwargs), "attends", False):
            return carry(model, args, kwargs)
        return nn.Module.__call__(model, *args, **kwargs)

    def interface(
        self: AttentionInterface, attn_implementation: str, default: Callable
    ) -> Callable:
        own: Callable = _plain_interface(self, attn_implementation, default)
        return partial(attention, own) if is_own() else own

    AttentionInterface.get_interface = interface
    PreTrainedModel.__call__ = called
