"""How much each head's compression hurts an answer, all others whole."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor

from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.state_layers import key_layers
from rotatek.cache.rotatek_cache import RotateKCache
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
    with turn():
        exact = _read(vlm, whole.fork(len(answer)), tokens, position)
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
                logs = _read(vlm, cache, tokens, position)
                cache.close()
            kl = torch.nn.functional.kl_div(logs, exact, reduction="none", log_target=True)
            yield Damage(number, head, max(0.0, float(kl.sum(-1).mean())))


@torch.inference_mode()
def _read(vlm: VisionLanguageModel, cache: RotateKCache, tokens: Tensor, position: int) -> Tensor:
    """Log probabilities [tokens, vocabulary] of what follows each of `tokens` [1, T]."""
    steps = position + torch.arange(tokens.shape[1], device=tokens.device)
    out = vlm.model(
        input_ids=tokens,
        position_ids=vlm.positions_at(steps)[..., 0].unflatten(-1, tokens.shape),
        use_cache=True,
        logits_to_keep=tokens.shape[1],
        **with_cache(vlm.model, cache),
    )
    return out.logits[0].float().log_softmax(-1)
