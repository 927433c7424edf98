"""Weights for any question: a few general ones are read behind a prompt, weigh it, and are dropped.

They leave no token in the cache, and depend on no later question. A prompt's own last queries weigh
with them (`weighting="general"`); a picture without a question has nothing else
(`rotatek.pictures`).
"""

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache, DynamicCache

from rotatek.bridge.row_layout import WINDOW, Layout
from rotatek.bridge.state_layers import forget_states, restore, state_layers, state_of
from rotatek.engine.conversation import turn_of
from rotatek.errors import RequestTooLong
from rotatek.models import Embedded, VisionLanguageModel

GENERAL: Final = (
    "What is the title? Who is it from, and to whom? What is the date? How much is the total? "
    "Which is the largest, and which is the smallest? What comes first, and what comes last?"
)


def general_turn(vlm: VisionLanguageModel) -> Tensor:
    """Ids [1, n] of the general questions as the next turn of a conversation."""
    return turn_of(vlm, GENERAL).ids


def layout_behind(layout: Layout, tokens: int, window: int = WINDOW) -> Layout:
    """The layout of a prompt with so many tokens behind it, which weigh and are then forgotten.

    Args:
        layout: of the prompt, [B, L].
        tokens: n.
        window: how many of the prompt's own last tokens weigh with them.

    Returns:
        A layout of [B, L + n] rows.
    """
    behind = 0, tokens
    return Layout(
        pad(layout.visual, behind),
        pad(layout.valid, behind, value=True),
        window + tokens,
        pad(torch.zeros_like(layout.visual), behind, value=True),
    )


def read_behind(vlm: VisionLanguageModel, embedded: Embedded, ids: Tensor) -> Embedded:
    """A prompt, or a padded batch of them, with `ids` [1, n] behind it.

    Its logits are those of the prompt; its next position is that behind `ids`.

    Raises:
        RequestTooLong: where the model's context does not hold both.
    """
    rows, (B, length), room = ids.shape[1], embedded.visual.shape, vlm.context()
    if room is not None and length + rows > room:
        raise RequestTooLong
    words = ids.expand(B, -1)
    places = [vlm.positions_at(embedded.next_position + step) for step in range(rows)]
    embeds = vlm.model.get_input_embeddings()(words).to(embedded.embeds)
    return replace(
        embedded,
        embeds=torch.cat([embedded.embeds, embeds], 1),
        positions=torch.cat([embedded.positions, *places], -1),
        visual=pad(embedded.visual, (0, rows)),
        valid=pad(embedded.valid, (0, rows), value=True),
        next_position=embedded.next_position + rows,
        words=None if embedded.words is None else torch.cat([embedded.words, words], 1),
        aside=rows,
    )


def forget_behind(vlm: VisionLanguageModel, embedded: Embedded, cache: Cache) -> None:
    """Give a filled cache the states of the prompt alone: a state cannot forget what was read
    behind it, so the prompt is read once more. Other layers have forgotten it already."""
    if not state_layers(cache):
        return
    plain = DynamicCache(config=vlm.model.config)
    vlm.read(embedded, plain)
    forget_states(cache)
    for own, seen in zip(state_layers(cache), state_layers(plain), strict=True):
        restore(own, state_of(seen))
