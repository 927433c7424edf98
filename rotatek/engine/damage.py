"""How much each head's compression hurts an answer, all others whole."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch

from rotatek.bridge.state_layers import key_layers
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import read_on
from rotatek.methods.channels.store import Store
from rotatek.models import VisionLanguageModel


class Damage(NamedTuple):
    """A head's: KL of the answer's tokens, whole against this head compressed, nats a token."""

    layer: int
    head: int
    kl: float


def damages(
    vlm: VisionLanguageModel,
    whole: RotateKCache,
    rebuilt: RotateKCache,
    answer: Sequence[int],
    position: int,
    turn: Callable[[], AbstractContextManager],
) -> Iterator[Damage]:
    """Every head in turn: its Keys rebuilt in a fork of the whole cache, the answer read behind.

    A fork shares the visual tokens, so the memory is that of two caches and of one layer's Keys.
    The first token is chosen by the prefill, which no compression changes.

    Args:
        vlm: the model.
        whole: filled, as the model makes its Keys.
        rebuilt: filled from the same prefill, the Keys of every head rebuilt.
        answer: tokens of the uncompressed answer.
        position: of the first of them.
        turn: the device, for one pass.
    """
    tokens = torch.tensor([list(answer)], device=vlm.device)
    start = torch.tensor([position], device=vlm.device)
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
