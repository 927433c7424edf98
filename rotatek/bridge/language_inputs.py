"""What a model's own forward pass hands to its language model, before that begins."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from torch import nn
from transformers import PreTrainedModel

_ASKED: Final[ContextVar[bool]] = ContextVar("rotatek_asked", default=False)


class _Reached(Exception):
    """Carries a call's arguments out of the forward pass."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.given = given


def language_inputs(model: PreTrainedModel, forward: Callable[[], Any]) -> dict[str, Any]:
    """The keyword arguments of the language model's call in a forward pass, which ends there.

    Other threads' calls go on as ever.

    Args:
        model: of transformers.
        forward: runs its forward pass.

    Returns:
        `inputs_embeds`, `position_ids`, and whatever else the model's class adds.
    """
    handle = model.get_decoder().register_forward_pre_hook(_stop, prepend=True, with_kwargs=True)
    token = _ASKED.set(True)
    try:
        forward()
    except _Reached as reached:
        return reached.given
    finally:
        _ASKED.reset(token)
        handle.remove()
    return {}


def _stop(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
    if _ASKED.get():
        raise _Reached(kwargs)
