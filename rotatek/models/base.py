"""The interface of a vision-language model to the rest of the library, whatever its family."""

import inspect
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Final, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache

from rotatek.bridge.layers import attention_layers, attention_of, device_of, kv_shapes, state_bytes
from rotatek.bridge.scope import own_calls, with_cache
from rotatek.bridge.vision import AttentionTap
from rotatek.cache.question_graph import QuestionGraphs
from rotatek.cache.token_plan import is_one_of, visual_ids
from rotatek.errors import ControlTokens, ModeUnsupported, PictureNeeded
from rotatek.inputs.prompt import encode_chat, expand_images, too_long_for
from rotatek.inputs.request import Request
from rotatek.inputs.token_grid import Grid, scaled
from rotatek.methods.tokens.base import TokenPruner, View
from rotatek.models.fused import fuse

UNREAD: Final = (
    "This model's vision tower does not expose its attention, so tokens cannot be dropped before "
    "the language model. Choose a pruner that acts inside it."
)
Seen = tuple[Tensor, Tensor | None]  # visual tokens [N, hidden]; kept [N] bool, or None for all


@dataclass(frozen=True)
class Pixels:
    """Preprocessed images.

    Args:
        tensors: as the model's own forward takes them.
        counts: visual tokens of each image, or of each part that a pruner reduces separately.
        grids: where these lie, the first picture's first; none if unknown.
        texts: the text of each picture in the prompt, one visual token for a run of them.
        runs: the length of each run.
    """

    tensors: dict[str, Tensor]
    counts: tuple[int, ...]
    grids: tuple[Grid, ...]
    texts: tuple[str, ...]
    runs: tuple[int, ...]

    @classmethod
    def of(cls, tensors: dict[str, Tensor], pictures: Sequence["Shown"]) -> "Pixels":
        starts = accumulate((sum(one.counts) for one in pictures), initial=0)
        grids = tuple(
            replace(grid, start=start + grid.start, picture=number)
            for number, (one, start) in enumerate(zip(pictures, starts, strict=False))
            for grid in one.grids
        )
        counts = tuple(count for one in pictures for count in one.counts)
        runs = tuple(run for one in pictures for run in one.runs or one.counts)
        return cls(tensors, counts, grids, tuple(one.text for one in pictures), runs)


class Shown(NamedTuple):
    """What one picture becomes, as of `Pixels`: grids from its own first token; runs: by default
    the counts."""

    text: str
    counts: tuple[int, ...]
    grids: tuple[Grid, ...] = ()
    runs: tuple[int, ...] = ()


NOTHING_SHOWN: Final = Pixels({}, (), (), (), ())  # of a chat of texts alone


@dataclass(frozen=True)
class Prompt:
    """One encoded request: ids [1, L], visual [1, L] bool."""

    ids: Tensor
    visual: Tensor
    pixels: Pixels

    @property
    def visual_tokens(self) -> int:
        """N before any pruning."""
        return int(self.visual.sum())


@dataclass(frozen=True)
class Embedded:
    """The language model's input.

    embeds: [B, L, hidden]; positions: [B, L] or [3, B, L] (M-RoPE); visual, valid: [B, L] bool;
    next_position: [B] the position of the first generated token; kept: [N] bool on the CPU, the
    visual tokens left by an encoder-stage pruner, or None; deeper: [D, visual tokens, hidden], the
    additions of the first D layers to the visual tokens (DeepStack), or None; words: [B, L] ids,
    0 for visual tokens and padding; aside: how many of the last tokens are read behind the prompt,
    and then forgotten.
    """

    embeds: Tensor
    positions: Tensor
    visual: Tensor
    valid: Tensor
    next_position: Tensor
    kept: Tensor | None = None
    deeper: Tensor | None = None
    words: Tensor | None = None
    aside: int = 0

    def inputs(self) -> dict[str, Tensor]:
        """As `RotateKCache` wants them."""
        return {"visual": self.visual, "attention_mask": self.valid}


class VisionLanguageModel:
    """A loaded model with its tokenizer and image processor; one subclass for families alike, which
    names what differs from a vision tower that makes one token of each square of patches.

    Attributes:
        template: a chat template, used where the checkpoint brings none.
        tower: the vision tower's name in the model; empty where its attention cannot be read.
        around: the tokens around a picture: names of the configuration, which has ids, or of the
            tokenizer, which has texts; and the text where neither has the name.
        kinds: the name under which the model's own forward takes the kinds of tokens, 1 for visual
            ones; empty where it does not ask.
    """

    template: ClassVar[str | None] = None
    tower: ClassVar[str] = ""
    around: ClassVar[dict[str, str]] = {}
    kinds: ClassVar[str] = ""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, images: Any, name: str
    ) -> None:
        self.model, self.tokenizer, self.images, self.name = model, tokenizer, images, name
        if not tokenizer.chat_template:
            tokenizer.chat_template = getattr(images, "chat_template", None) or self.template

    def check(self) -> None:
        """Raise ModelUnsupported where this adapter's answers would not be the model's."""

    def optimise_for_gpu(self) -> None:
        """Replace layers by versions that are faster on a GPU; weights may be padded, too, so this
        is only for models that this library has loaded.

        PyTorch prefers cuDNN's attention on Hopper, which plans anew for every length and in every
        thread: a new picture and its prompt then take about twice as long as with flash attention,
        which this selects for the process.
        """
        fuse(self.model)
        torch.backends.cuda.enable_cudnn_sdp(False)

    @property
    def device(self) -> torch.device:
        """The device of prompts."""
        return device_of(self.model.get_input_embeddings())

    @property
    def width(self) -> int:
        """hidden of the language model's first layer."""
        return int(self.model.get_input_embeddings().weight.shape[-1])

    @property
    def image_token(self) -> int:
        """The id of a visual token."""
        return int(self.model.config.image_token_id)

    @property
    def text_config(self) -> Any:
        """The language model's configuration."""
        return self.model.config.get_text_config()

    def full_bytes(self, tokens: int, states: int = 1) -> int:
        """Bytes of an uncompressed cache, with the states of so many prompts."""
        itemsize = self.model.get_input_embeddings().weight.element_size()
        shapes = kv_shapes(self.model)
        numbers = 2 * tokens * sum(heads * width for heads, width in shapes)  # Keys and Values
        return numbers * itemsize + states * self.state_bytes

    @cached_property
    def key_layers(self) -> int:
        """Layers of the language model that hold Keys; others keep a state."""
        return len(attention_layers(self.model))

    @cached_property
    def questions(self) -> QuestionGraphs:
        """Of all stored caches, on a GPU."""
        return QuestionGraphs()

    @cached_property
    def state_bytes(self) -> int:
        """Bytes of one prompt's states, whatever its length."""
        return state_bytes(self.model)

    def context(self, limit: int | None = None) -> int | None:
        """Tokens a conversation may have: the model's own number or `limit`, whichever is less."""
        own = getattr(self.text_config, "max_position_embeddings", None)
        return min((n for n in (own, limit) if n), default=None)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        ids = self.model.generation_config.eos_token_id
        if ids is None:
            ids = self.tokenizer.eos_token_id
        return frozenset(ids if isinstance(ids, list) else [ids])

    @property
    def visual_ids(self) -> tuple[int, ...]:
        """Ids of visual tokens: of images, and of videos where the family has one."""
        return visual_ids(self.model.config)

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """Vision ids, which an answer must not contain: of visual tokens, and those around them."""
        found = [*self.visual_ids]
        for name, text in self.around.items():
            number = getattr(self.model.config, name, None)
            told = str(getattr(self.tokenizer, name, text))
            found.append(self.tokenizer.convert_tokens_to_ids(told) if number is None else number)
        return tuple(number for number in found if number is not None)

    @property
    def placeholder(self) -> str:
        """The chat template's text for a picture."""
        return self.token(self.image_token)

    def token(self, number: int) -> str:
        """The text of a special token."""
        return str(self.tokenizer.convert_ids_to_tokens(number))

    @property
    def takes_tools(self) -> bool:
        """Whether the chat template tells the model of tools."""
        return re.search(r"\btools\b", str(self.tokenizer.chat_template)) is not None

    @property
    def low_pixels(self) -> int | None:
        """Pixels of a picture at low detail, at most; None where all have as many tokens."""
        return None

    def within(self, image: Image.Image, least: int, most: int) -> Image.Image:
        """A picture as it is best shown to the model within bounds of its pixels. Asked only where
        there are `low_pixels`."""
        return scaled(image, least, most)

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Turn pictures into the vision tower's tensors."""
        raise NotImplementedError

    def look(self, request: Request) -> Pixels:
        """A request's pictures as the vision tower takes them."""
        return self.preprocess(request.images) if request.images else NOTHING_SHOWN

    @own_calls()
    def features(self, pixels: Pixels) -> Tensor:
        """Projected visual tokens of all images, [N, (1 + D) hidden]; see `with_additions`."""
        return with_additions(self.model.get_image_features(**pixels.tensors, return_dict=True))

    def vision_attention(self, number: int = -1) -> nn.Module:
        """The attention of a vision layer; ModeUnsupported is raised where it cannot be read."""
        tower = getattr(self.model.model, self.tower, None) if self.tower else None
        inner = getattr(tower, "vision_model", tower)
        inner = getattr(inner, "encoder", inner)
        found = (getattr(inner, name, None) for name in ("layers", "layer", "blocks"))
        layers = next((one for one in found if isinstance(one, nn.ModuleList)), None)
        attention = None if layers is None else attention_of(layers[number])
        if attention is None:
            raise ModeUnsupported(UNREAD)
        return attention

    def read_layer(self) -> nn.Module:
        """The attention of the one vision layer that a projector reads; ModeUnsupported is raised
        where it reads several, or the CLS token."""
        config = self.model.config
        layer = config.vision_feature_layer
        if isinstance(layer, int) and config.vision_feature_select_strategy == "default":
            return self.vision_attention(layer)
        raise ModeUnsupported(UNREAD)

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """The vision attention that encoder-stage pruners choose by, here the last layer's, and
        whether its first row is a CLS token. ModeUnsupported is raised where none can be read."""
        return self.vision_attention(), False

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Bring values of the tower's patches [T, patches, c] to the visual tokens, [N, c]: means
        over the squares of patches that become one token each, of square views."""
        views, patches, _ = values.shape
        tokens = math.isqrt(sum(pixels.counts) // views)  # along one side of a view
        unit = math.isqrt(patches) // tokens
        cells = values.unflatten(1, (tokens, unit, tokens, unit))
        return cells.mean((2, 4)).flatten(0, 2)

    def tower_states(self, pixels: Pixels) -> Any:
        """Run the vision tower: the input of `reduced`, whatever the pruner. Raises as
        `watched_attention`."""
        tap = AttentionTap(*self.watched_attention())
        with own_calls(tap=tap):
            states = self.features(pixels)
        scores, keys = _joined(tap.scores), _joined(tap.keys)
        return self.per_token(scores[..., None], pixels)[:, 0], self.per_token(keys, pixels), states

    def reduced(self, pixels: Pixels, pruner: TokenPruner, watched: Any) -> tuple[Tensor, Tensor]:
        """Let an encoder-stage pruner reduce each part of `pixels.counts` separately.

        Returns:
            Visual tokens [N, hidden], the remaining ones, and kept [N] bool.
        """
        split = (whole.split(list(pixels.counts)) for whole in watched)
        parts = [
            pruner.reduce(View(scores, keys, states, number, self.width))
            for number, (scores, keys, states) in enumerate(zip(*split, strict=True))
        ]
        return torch.cat([state for _, state in parts]), torch.cat([kept for kept, _ in parts])

    def own(self, name: str) -> Any:
        """A method of the model's class, or of the one that it wraps; None where neither has it."""
        owners = (self.model, getattr(self.model, "model", None))
        return next((getattr(o, name) for o in owners if hasattr(o, name)), None)

    @cached_property
    def axes(self) -> int:
        """Axes of M-RoPE positions; 0 where positions count tokens."""
        return 0 if self.own("get_rope_index") is None else 3

    def positions(self, prompt: Prompt) -> tuple[Tensor, Tensor]:
        """Positions of a prompt's tokens and of the first generated one; see `Embedded`. M-RoPE's
        [axes, 1, L] are asked of the model, and stored nowhere."""
        length, rule = prompt.ids.shape[1], self.own("get_rope_index")
        if rule is None or not prompt.pixels.runs:  # of texts alone, the same on every axis
            positions = torch.arange(length, device=prompt.ids.device)[None]
            after = positions[:, -1] + 1
            return positions.expand(self.axes, -1, -1) if self.axes else positions, after
        takes, tensors = inspect.signature(rule).parameters, prompt.pixels.tensors
        given = {name: value for name, value in tensors.items() if name in takes}
        if "mm_token_type_ids" in takes:
            given["mm_token_type_ids"] = prompt.visual.int()
        positions, _ = rule(prompt.ids, **given)
        return positions, positions[..., -1].amax(0) + 1

    def besides(self, embedded: Embedded) -> dict[str, Any]:
        """Further arguments of the model's own forward at prefill."""
        return {self.kinds: embedded.visual.long()} if self.kinds else {}

    def read(self, embedded: Embedded, cache: Cache) -> Tensor:
        """Next-token logits [B, vocabulary] of the model's own forward, into an empty cache."""
        given = {
            "inputs_embeds": embedded.embeds,
            "position_ids": embedded.positions,
            "attention_mask": None if bool(embedded.valid.all()) else embedded.valid.long(),
            "use_cache": True,
        }
        if embedded.deeper is not None:  # the language model's forward, which takes additions
            model = self.model.get_decoder()
            out = model(
                **given, **with_cache(model, cache), visual_pos_masks=embedded.visual,
                deepstack_visual_embeds=list(embedded.deeper),
            )  # fmt: skip
            last = out.last_hidden_state[:, -1 - embedded.aside]
            logits: Tensor = self.model.get_output_embeddings()(last[:, None])[:, -1]
            return logits
        behind = embedded.aside  # tokens that are read behind the prompt's last one
        place = torch.tensor([-1 - behind], device=embedded.embeds.device) if behind else 1
        out = self.model(
            **given,
            logits_to_keep=place,
            **with_cache(self.model, cache),
            **self.besides(embedded),
        )
        return out.logits[:, -1]

    def prompt(
        self, request: Request, limit: int | None = None, pixels: Pixels | None = None
    ) -> Prompt:
        """Encode a request.

        Args:
            request: the question with its pictures.
            limit: of `context`.
            pixels: the request's images, where they are preprocessed already.

        Raises:
            RequestTooLong: if prompt and answer exceed the context; it blames what takes most of
                it. With `request.cut` one token of answer is enough.
            PictureNeeded: for a chat of texts alone that the chat template has no place for.
        """
        pixels = pixels or self.look(request)
        try:
            ids = encode_chat(self.tokenizer, request, pixels.texts, self.placeholder)
        except ControlTokens as error:
            if not request.images:
                raise PictureNeeded from error
            raise
        ids = expand_images(ids, self.visual_ids, pixels.runs)
        room = self.context(limit)
        answer = 1 if request.cut else request.max_new_tokens
        if room is not None and len(ids) + answer > room:
            raise too_long_for(self.tokenizer, request, sum(pixels.runs), len(ids) < room)
        tensor = torch.tensor([ids], device=self.device)
        return Prompt(tensor, is_one_of(tensor, self.visual_ids), pixels)

    @torch.inference_mode()
    def encode_images(
        self, pixels: Pixels, pruner: TokenPruner | None = None, watched: Any | None = None
    ) -> Seen:
        """Run the vision tower; under an encoder-stage pruner, say which tokens stay.

        Args:
            pixels: the images.
            pruner: one of another stage changes nothing here.
            watched: `tower_states` of the same pictures, which is then not run again.
        """
        if pruner is None or pruner.stage != "encoder" or pruner.kept_share == 1:
            return self.features(pixels), None
        return self.reduced(pixels, pruner, watched or self.tower_states(pixels))

    @torch.inference_mode()
    def embed(
        self, prompt: Prompt, pruner: TokenPruner | None = None, seen: Seen | None = None
    ) -> Embedded:
        """Insert the vision tower's tokens into the prompt; under an encoder-stage pruner it
        shrinks, and what stays keeps its position.

        Args:
            prompt: an encoded request.
            pruner: for `encode_images`.
            seen: the result of `encode_images` for the prompt's pixels, if there is one.
        """
        words = prompt.ids.masked_fill(prompt.visual, 0)  # the table may have no visual id
        embeds = self.model.get_input_embeddings()(words)
        positions, after = self.positions(prompt)
        visual = prompt.visual
        if not prompt.pixels.runs:
            valid = torch.ones_like(visual)
            return Embedded(embeds, positions, visual, valid, after, words=words)
        features, kept = seen or self.encode_images(prompt.pixels, pruner)
        features, width = features.to(embeds), embeds.shape[-1]
        embeds = embeds.masked_scatter(visual[..., None], features[:, :width])
        rest = features[:, width:]
        deeper = rest.unflatten(1, (-1, width)).transpose(0, 1) if rest.shape[1] else None
        if kept is not None:
            rows = ~visual[0]
            rows[visual[0].nonzero()[kept, 0]] = True
            embeds, positions, visual = embeds[:, rows], positions[..., rows], visual[:, rows]
            words = words[:, rows]
            deeper = None if deeper is None else deeper[:, kept]
            kept = kept.cpu()
        valid = torch.ones_like(visual)
        return Embedded(embeds, positions, visual, valid, after, kept, deeper, words)

    def positions_at(self, position: Tensor) -> Tensor:
        """Position ids for one new token at `position` [B]: [B, 1], or [axes, B, 1]."""
        at = position[:, None]
        return at.expand(self.axes, -1, -1) if self.axes else at


def with_additions(out: Any) -> Tensor:
    """What `get_image_features` gives, [N, (1 + D) hidden]: behind the visual tokens, what the
    first D layers add to them (DeepStack)."""
    found = getattr(out, "pooler_output", out)
    parts = [found, *(getattr(out, "deepstack_features", None) or ())]
    several = [[part] if isinstance(part, Tensor) else part for part in parts]
    return torch.cat([torch.cat([one.flatten(0, -2) for one in each]) for each in several], -1)


def _joined(calls: Sequence[Tensor]) -> Tensor:
    """The records of a tap over several calls [B, n, ...]; those of different n in one row."""
    if len({call.shape[1] for call in calls}) == 1:
        return torch.cat(list(calls))
    return torch.cat([call.flatten(0, 1) for call in calls])[None]
