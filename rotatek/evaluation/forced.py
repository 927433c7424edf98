"""How far a compressed cache's distributions are from the uncompressed one's, by teacher forcing.

A picture's first question fills the caches of all settings, from one prefill for those that drop
the same tokens. Each then reads one text: the uncompressed cache's first answer, the second
question, its answer, and so on. What is compared are the distributions from which the tokens of the
later answers, and their ends, were chosen.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rotatek.cache.rotatek_cache import release
from rotatek.engine.conversation import turn_of
from rotatek.engine.decode import read_on
from rotatek.engine.prefill import SharedPrompt, by_pruning, empty_cache, fill
from rotatek.inputs.request import Request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel


class Divergence(NamedTuple):
    """Of one answer: mean KL(uncompressed || this) of its tokens in nats, and the share of them
    whose likeliest candidates are equal."""

    kl: float
    same_choices: float


@torch.inference_mode()
def divergences(
    vlm: VisionLanguageModel,
    request: Request,
    answers: Sequence[Sequence[int]],
    later: Sequence[str],
    settings: Mapping[str, Settings],
) -> Iterator[tuple[str, list[Divergence]]]:
    """Each setting's divergence over the later answers about a picture.

    Args:
        vlm: the model.
        request: the first question, with its picture.
        answers: token ids of the uncompressed cache's answers, the first one's first.
        later: the other questions.
        settings: by name; the uncompressed cache's is the first one.

    Yields:
        a name, and one `Divergence` for each of the later questions.
    """
    turns = [turn_of(vlm, text).ids[0].tolist() for text in later]
    ids, spans = [*answers[0]], []
    for turn, answer in zip(turns, answers[1:], strict=True):
        ids += turn
        spans.append(slice(len(ids) - 1, len(ids) + len(answer)))  # behind the last: its end
        ids += answer
    text = torch.tensor([ids], device=vlm.device)
    shared = SharedPrompt(vlm, vlm.prompt(request))
    whole: list[Tensor] = []
    for group in by_pruning(settings.values()):
        shared.see(group[0])
        embedded, plan, _ = shared.under(group[0])
        named = {name: one for name, one in settings.items() if one in group}
        caches = [empty_cache(vlm, embedded, one, plan) for one in named.values()]
        fill(vlm, embedded, plan, caches, timed=False)
        for name, cache in zip(named, caches, strict=True):
            logits = read_on(vlm, text, embedded.next_position, cache)[0]
            found = [logits[span].float().log_softmax(-1) for span in spans]
            release(cache)
            whole = whole or found
            yield name, [_divergence(*pair) for pair in zip(whole, found, strict=True)]


def _divergence(whole: Tensor, found: Tensor) -> Divergence:
    kl = (whole.exp() * (whole - found)).sum(-1).mean()
    same = (whole.argmax(-1) == found.argmax(-1)).float().mean()
    return Divergence(max(0.0, float(kl)), float(same))
