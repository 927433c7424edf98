"""What happens when a widget is touched: values in, values out, only calm sentences on the way."""

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gradio as gr
import numpy as np
from PIL.Image import Image as Picture

from rotatek import inputs
from rotatek.errors import ConversationGone
from rotatek.page import cards, caution, inside
from rotatek.page.carry import digest
from rotatek.page.caution import Bin
from rotatek.page.choices import (
    PRESETS,
    START,
    Example,
    decode,
    encode,
    same_budget,
    settings_of,
    widgets_of,
)
from rotatek.page.image import refusal
from rotatek.page.run import Run, columns_for, title_of
from rotatek.page.service import Service
from rotatek.settings import Settings
from viz.theme import percent

log = logging.getLogger("rotatek")
WIDTH = 128  # channels of a Key until a run says otherwise; so in every model on offer
MAX_OTHERS = 4  # columns beside the uncompressed one and the visitor's settings


def calm(handler: Callable) -> Callable:
    """Let only the closed list of sentences reach the screen."""

    @functools.wraps(handler)
    def guarded(*args: Any) -> Any:
        try:
            return handler(*args)
        except gr.Error:
            raise
        except Exception as error:
            raise refusal(error) from None

    return guarded


def calm_stream(handler: Callable) -> Callable:
    """`calm` for generators."""

    @functools.wraps(handler)
    def guarded(*args: Any) -> Iterator[Any]:
        try:
            yield from handler(*args)
        except (gr.Error, GeneratorExit):
            raise
        except Exception as error:
            raise refusal(error) from None

    return guarded


class Handlers:
    """The page's behaviour, for one service and its examples.

    bins: how right each embedded model is at each confidence.
    """

    def __init__(
        self,
        service: Service,
        examples: list[Example],
        bins: Mapping[str, Sequence[Bin]] | None = None,
    ) -> None:
        self.service, self.examples, self.bins = service, examples, bins or {}

    @functools.cached_property
    def pictures(self) -> dict[str, str]:
        """File names of the examples, by what tells their pixels apart."""
        paths = [example.image for example in self.examples]
        return {digest(np.asarray(inputs.open_image(path))): path.name for path in paths}

    def picture_name(self, image: Picture) -> str | None:
        """Which example this is, by file name; None for a picture of the visitor's own."""
        return self.pictures.get(digest(np.asarray(image)))

    @calm_stream
    def ask(
        self,
        image: Picture | None,
        question: str,
        model: str,
        max_new_tokens: int,
        others: list[str],
        tokens: str,
        token_sparsity: float,
        channels: str,
        channel_sparsity: float,
        weighting: str,
        value_sparsity: float,
        adaptive: bool,
        cache_dtype: str,
        request: gr.Request,
    ) -> Iterator[tuple]:
        """Stream every column. Outputs: `wires.Told`."""
        settings = settings_of(
            tokens, token_sparsity, channels, channel_sparsity, weighting, value_sparsity, adaptive,
            cache_dtype,
        )  # fmt: skip
        columns = columns_for(settings, [decode(code) for code in others[:MAX_OTHERS]])
        session = request.session_hash
        runs = self.service.ask(model, image, question, columns, max_new_tokens, session, talk=True)
        yield from self._stream(runs, "Looking at the image…")

    @calm_stream
    def follow(
        self, run: Run | None, question: str, max_new_tokens: int, request: gr.Request
    ) -> Iterator[tuple]:
        """A further question about the same image. Outputs: `wires.Told`."""
        if run is None:
            raise ConversationGone
        runs = self.service.follow(run, question, max_new_tokens, request.session_hash)
        yield from self._stream(runs, "Going on from the kept caches…")

    def _stream(self, runs: Iterator[Run], first_words: str) -> Iterator[tuple]:
        """A run as it grows. Outputs: `wires.Told`."""
        busy = gr.update(interactive=False), gr.update(interactive=True), gr.skip(), gr.skip()
        yield gr.skip(), cards.line(first_words), gr.skip(), *busy
        run = None
        try:
            for run in runs:
                yield self._answers(run), cards.status(run), gr.skip(), *busy
        except Exception as error:
            gr.Warning(refusal(error).message, title="Not possible", duration=8)
            gone = isinstance(error, ConversationGone)
            yield gr.skip(), cards.line(""), gr.skip(), *_idle(False if gone else None)
        else:
            yield gr.skip(), gr.skip(), run, *_idle(run is not None and run.goes_on)

    @calm
    def forget(self, request: gr.Request) -> Any:
        """Another image: free the caches of the last answer. Output: the follow-up row."""
        self.service.chats.drop(request.session_hash or "")
        return gr.update(visible=False)

    @calm
    def stop(self, request: gr.Request) -> None:
        """End the visitor's run within one token."""
        self.service.stop(request.session_hash)

    def prepare(self) -> None:
        """Load the default model and answer the greeting ahead of the first visitor.

        A failure is logged here, and shown to whoever asks.
        """
        try:
            self.service.engine(self.service.models[0].name)
            self.greet()
        except Exception as error:
            said = error if isinstance(error, gr.Error) else refusal(error)
            log.warning("the default model is not ready: %s", said.message)

    @calm
    def greet(self) -> tuple:
        """The first example, answered once for everybody. Outputs: answers, status, run, count."""
        if not self.examples:
            return (gr.skip(),) * 4
        example, columns = self.examples[0], columns_for(PRESETS[START], [])
        image = inputs.open_image(example.image)
        run = self.service.welcome(image, example.questions[0], columns)
        filled = run.chosen.prefilled
        count = filled.visual_tokens if filled is not None else None
        return self._answers(run), cards.status(run), run, count

    def _answers(self, run: Run) -> str:
        on_cpu = self.service.engine(run.model).vlm.device.type == "cpu"
        return cards.answers(run, on_cpu=on_cpu, caution=caution.note(run, self.bins))

    @calm
    def choose(self, event: gr.SelectData) -> tuple[str, str, Any]:
        """A picture of the gallery. Outputs: image, question, suggestions."""
        example = self.examples[event.index]
        first = example.questions[0]
        suggestions = gr.update(choices=list(example.questions), value=first, visible=True)
        return str(example.image), first, suggestions

    @calm
    def preset(self, label: str) -> tuple[str, float, str, float, float, bool, str]:
        """A budget, and nothing else that is beyond the paper. Outputs: `Controls.paper`."""
        shown = widgets_of(PRESETS[label])
        return (*shown[:4], *shown[5:])

    @calm
    def every(self, *values: Any) -> Any:
        """Every method at the budget of the present settings. Output: further columns."""
        return columns_shown(same_budget(settings_of(*values)))

    @calm
    def pin(self, others: list[str], *values: Any) -> Any:
        """The present settings beside those already kept. Output: further columns."""
        kept = [*map(decode, others), settings_of(*values)]
        if kept[-1].is_baseline:
            gr.Info("The uncompressed answer is always there.", duration=4)
            return gr.skip()
        return columns_shown(list(dict.fromkeys(kept))[-MAX_OTHERS:])

    @calm
    def unpin(self, others: list[str]) -> Any:
        """A column was taken off. Output: further columns."""
        return columns_shown([decode(code) for code in others])

    @calm
    def count(self, image: Picture | None, model: str) -> int | None:
        """Visual tokens of a new image, or None. Output: a state."""
        return None if image is None else self.service.visual_tokens(model, image)

    @calm
    def read(
        self,
        count: int | None,
        run: Run | None,
        *values: Any,
    ) -> tuple[str, str, str, str]:
        """What the sliders keep. Outputs: `Controls.readings`."""
        settings = settings_of(*values)
        heads = None
        if settings.widths == "adaptive" and run is not None and run.trace is not None:
            widths = inside.widths(run, run.trace, settings)
            heads = int(widths.min()), int(widths.max())
        return (
            cards.token_reading(settings, count),
            cards.channel_reading(settings, WIDTH),
            cards.budget_reading(settings),
            cards.beyond_reading(settings, WIDTH, heads),
        )


def _idle(goes_on: bool | None) -> tuple[Any, Any, Any, Any]:
    """Buttons after an answer, and whether a follow-up may be asked (None: as it was)."""
    row = gr.skip() if goes_on is None else gr.update(visible=goes_on)
    text = gr.update(value="") if goes_on else gr.skip()
    return gr.update(interactive=True), gr.update(interactive=False), row, text


def columns_shown(columns: list[Settings]) -> Any:
    """Further columns as a group of boxes, all ticked; unseen while there are none."""
    choices = [
        (f"{title_of(settings)}, {percent(nominal_kv(settings))}", encode(settings))
        for settings in columns
    ]
    codes = [code for _, code in choices]
    return gr.update(choices=choices, value=codes, visible=bool(codes))
