"""How much each head's compression hurts an answer, all others whole."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from rotatek.bridge.attention import StopFlag
from rotatek.bridge.layers import key_layers
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Restarted
from rotatek.engine.passes import read_on
from rotatek.errors import OutOfMemory, Stopped
from rotatek.inputs.request import Request
from rotatek.methods.channels.base import Store
from rotatek.methods.channels.rotatek import RotateK
from rotatek.methods.channels.what_if import WhatIf
from rotatek.methods.settings import Settings
from rotatek.methods.tokens.base import KeepAll


class Damage(NamedTuple):
    """A head's: KL of the answer's tokens, whole against this head compressed, nats a token."""

    layer: int
    head: int
    kl: float


def damages(
    engine: Engine,
    request: Request,
    like: RotateK,
    answer: Sequence[int],
    stop: StopFlag | None = None,
) -> Iterator[Damage]:
    """Every head in turn: its Keys rebuilt in a fork of the whole cache, the answer read behind.

    A fork shares the visual tokens, so the memory is that of two caches and of one layer's Keys.
    The first token is chosen by the prefill, which no compression changes.

    Args:
        engine: whose model answers.
        request: the question that was answered.
        like: how a head is compressed.
        answer: tokens of the uncompressed answer.
        stop: ends it once it is set.

    Raises:
        Stopped: where it was stopped; and what a request is refused with.
    """
    vlm, stop = engine.vlm, stop or engine.flag()
    turn, held = partial(engine.scheduler.prefill, stop), Conversation()
    kinds = {"whole": WhatIf(like), "rebuilt": WhatIf(like, whole=True)}
    columns = {name: Settings(KeepAll(), kind) for name, kind in kinds.items()}
    first = replace(request, max_new_tokens=1)  # chosen by the prefill: nothing is read behind it
    try:
        for event in engine.compare(first, columns, stop, trace=False, conversation=held):
            if isinstance(event, Failed | Restarted):
                raise event.error if isinstance(event, Failed) else OutOfMemory
        if not held.is_open:
            raise Stopped
        whole, rebuilt = (column.cache for column in held.columns)
        tokens = torch.tensor([list(answer)], device=vlm.device)
        start = torch.tensor([held.columns[0].position], device=vlm.device)
        with turn():
            exact = read_on(vlm, tokens, start, whole.fork(len(answer)))[0].float().log_softmax(-1)
        for number, (layer, other) in enumerate(
            zip(key_layers(whole), key_layers(rebuilt), strict=True)
        ):
            plain, keys = layer.store.visual, other.store.visual.keys
            for head in range(keys.shape[1]):
                mixed = plain.keys.clone()
                mixed[:, head] = keys[:, head]
                with turn():
                    cache = whole.fork(len(answer))
                    key_layers(cache)[number].store = Store(plain._replace(keys=mixed))
                    logs = read_on(vlm, tokens, start, cache)[0].float().log_softmax(-1)
                    cache.close()
                kl = torch.nn.functional.kl_div(logs, exact, reduction="none", log_target=True)
                yield Damage(number, head, max(0.0, float(kl.sum(-1).mean())))
    finally:
        held.close()
