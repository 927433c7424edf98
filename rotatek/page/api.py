"""The page as a service: `/ask` and `/compare` for `gradio_client`, in the words of the code.

Both say *keep*, like the command line: fractions in (0, 1] of what stays.
"""

from collections.abc import Iterator
from typing import Any

import gradio as gr
from PIL.Image import Image as Picture

from rotatek.channels import CHANNELS
from rotatek.page.handlers import calm_stream
from rotatek.page.image import image_box
from rotatek.page.run import Column, columns_for, with_method
from rotatek.page.service import Service
from rotatek.settings import CHOICES, Settings
from rotatek.tokens import TOKENS


def report(column: Column) -> dict[str, Any]:
    """One finished column as JSON: the fields of `python -m rotatek ask --json`."""
    filled, done = column.prefilled, column.finished
    if filled is None or done is None:
        raise gr.Error(column.failure or "The request was not answered. Ask again.")
    return {
        "answer": done.answer,
        "new_tokens": done.new_tokens,
        "visual_tokens": filled.visual_tokens,
        "visual_tokens_kept": filled.visual_kept,
        "nominal_kv": filled.nominal_kv,
        "kv_bytes": done.metrics["kv_bytes"],
        "kv_bytes_full": done.metrics["kv_bytes_full"],
        "prefill_ms": done.metrics["prefill_ms"],
        "decode_ms_per_token": done.decode_ms_per_token,
        "attention": filled.attention,
        "agreement": done.metrics["agreement"],
        "first_divergence": done.metrics["first_divergence"],
        "settings": column.settings.as_dict(),
    }


class Endpoints:
    """The two functions behind the API."""

    def __init__(self, service: Service) -> None:
        self.service = service

    @calm_stream
    def ask(
        self,
        image: Picture | None,
        question: str,
        tokens: str,
        keep_tokens: float,
        channels: str,
        keep_channels: float,
        max_new_tokens: int,
        model: str,
        keep_values: float,
        widths: str,
        cache_dtype: str,
        request: gr.Request,
    ) -> Iterator[dict[str, Any]]:
        """Answer one question with a compressed KV cache, and say what it cost.

        keep_tokens and keep_channels are the fractions that stay, in (0, 1]. Beyond the paper,
        and with RotateK only: keep_values, of the Value channels, widths "adaptive", cache_dtype
        "fp8" or "int8". The answer is streamed as it grows; the last message has everything.
        """
        settings = _settings(
            tokens, keep_tokens, channels, keep_channels, keep_values, widths, cache_dtype
        )
        columns, session = {"answer": settings}, request.session_hash
        for run in self.service.ask(model, image, question, columns, max_new_tokens, session):
            yield {"answer": run.columns["answer"].answer}
        yield report(run.columns["answer"])

    @calm_stream
    def compare(
        self,
        image: Picture | None,
        question: str,
        tokens: str,
        keep_tokens: float,
        channels: list[str],
        keep_channels: float,
        max_new_tokens: int,
        model: str,
        keep_values: float,
        widths: str,
        cache_dtype: str,
        request: gr.Request,
    ) -> Iterator[dict[str, Any]]:
        """Answer under several channel methods at one budget, beside the uncompressed answer."""
        first, *others = channels or ["rotatek"]
        settings = _settings(
            tokens, keep_tokens, first, keep_channels, keep_values, widths, cache_dtype
        )
        columns = columns_for(settings, [with_method(settings, name) for name in others])
        session = request.session_hash
        for run in self.service.ask(model, image, question, columns, max_new_tokens, session):
            yield {title: {"answer": column.answer} for title, column in run.columns.items()}
        yield {title: report(column) for title, column in run.columns.items()}


def _settings(
    tokens: str,
    keep_tokens: float,
    channels: str,
    keep_channels: float,
    keep_values: float,
    widths: str,
    cache_dtype: str,
) -> Settings:
    """A stranger's numbers as settings, which check them."""
    given = Settings(
        tokens=tokens,
        keep_tokens=keep_tokens,
        channels=channels,
        keep_channels=keep_channels,
        keep_values=keep_values,
        values="full" if keep_values == 1 else "rotate",
        widths=widths,  # type: ignore[arg-type]  # Settings checks it
        cache_dtype=cache_dtype,  # type: ignore[arg-type]
    )
    return with_method(given, channels)


def publish(service: Service, **queue: Any) -> None:
    """Add both endpoints to the page being built; their widgets are never drawn.

    Names and numbers are checked by `Settings` and the service, whose sentences are our own, and
    not by the widgets.
    """
    endpoints = Endpoints(service)
    free = {"allow_custom_value": True}
    models = [model.name for model in service.models]
    with gr.Group(visible=False):
        image = image_box(label="image")
        question = gr.Textbox(label="question")
        tokens = gr.Dropdown(list(TOKENS), value="none", label="tokens", **free)
        keep_tokens = gr.Number(1.0, label="keep_tokens")
        one = gr.Dropdown(list(CHANNELS), value="rotatek", label="channels", **free)
        several = gr.Dropdown(
            list(CHANNELS), value=["rotatek", "think"], multiselect=True, label="channels", **free
        )
        keep_channels = gr.Number(0.25, label="keep_channels")
        length = gr.Number(64, label="max_new_tokens")
        model = gr.Dropdown(models, value=models[0], label="model", **free)
        result, button = gr.JSON(label="result"), gr.Button()
        keep_values = gr.Number(1.0, label="keep_values")
        widths = gr.Dropdown(list(CHOICES["widths"]), value="uniform", label="widths", **free)
        kinds = list(CHOICES["cache_dtype"])
        cache_dtype = gr.Dropdown(kinds, value="model", label="cache_dtype", **free)
    head = [image, question, tokens, keep_tokens]
    last = [keep_channels, length, model, keep_values, widths, cache_dtype]
    button.click(endpoints.ask, [*head, one, *last], result, api_name="ask", **queue)
    button.click(endpoints.compare, [*head, several, *last], result, api_name="compare", **queue)
