"""The page's API: `/ask` for `gradio_client`.

It says *keep*, like the command line: fractions in (0, 1] of what stays. Its fields are the
options of the registered methods; a name and a value mean what they mean in `Settings.of`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import gradio as gr
from PIL.Image import Image as Picture

from rotatek.engine.column import Column
from rotatek.methods.settings import REGISTRIES, Settings
from rotatek.page.binding import called_by_name
from rotatek.page.form import Field, sampling_of, shared_fields
from rotatek.page.upload import image_box
from rotatek.page.user_errors import refusing_stream
from rotatek.service.service import Service

LENGTH: Final = 64  # tokens of an answer where nothing is said


class Endpoints:
    """The function behind the API."""

    def __init__(self, service: Service) -> None:
        self.service = service

    @refusing_stream
    def ask(
        self,
        image: Picture | None,
        question: str,
        max_new_tokens: int,
        model: str,
        session: str | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: float = -1,
        **options: Any,
    ) -> Iterator[dict[str, Any]]:
        """Answer one question with a compressed KV cache, and say what it cost.

        Every keep_... is the fraction that stays, in (0, 1]; options that the chosen methods do
        not have must be left at their defaults. A temperature above 0 draws the answer, with the
        seed that is given; -1 is a new one, reported under `sampling`. The answer is streamed as
        it grows; the last message has everything.
        """
        columns = {"answer": Settings.from_dict(options, shared=True)}
        sampling = sampling_of(temperature, seed, top_p)
        for run in self.service.ask(
            model, image, question, columns, max_new_tokens, session, sampling=sampling
        ):
            yield {"answer": run.columns["answer"].answer}
        yield figures(run.columns["answer"])


def figures(column: Column) -> dict[str, Any]:
    """One finished column as JSON: the fields of `python -m rotatek ask --json`."""
    if column.prefilled is None or column.finished is None:
        raise gr.Error(column.failure or "The request was not answered. Ask again.")
    return column.report()


def option_fields() -> list[Field]:
    """Those that programs may set, behind the shares of tokens and channels: ours before plug-ins',
    shares before choices."""
    later = [field for field in shared_fields().values() if not field.is_main]
    return sorted(later, key=lambda f: (not f.ours, not f.is_share))


def publish(service: Service, **queue: Any) -> None:
    """Add the endpoint to the page being built; its widgets are never drawn.

    `Settings` and the service check names and numbers, not the widgets, so that errors have our own
    messages.
    """
    endpoints, models = Endpoints(service), [model.name for model in service.models]
    with gr.Group(visible=False):
        widgets = {
            "image": image_box(label="image"),
            "question": gr.Textbox(label="question"),
            **_of_kind("tokens"),
            **_of_kind("channels"),
            "max_new_tokens": gr.Number(LENGTH, label="max_new_tokens"),
            "model": _menu("model", models, models[0]),
            **{field.key: _widget(field) for field in option_fields()},
            "temperature": gr.Number(0.0, label="temperature"),
            "top_p": gr.Number(1.0, label="top_p"),
            "seed": gr.Number(-1, precision=0, label="seed"),
        }
        result, button = gr.JSON(label="result"), gr.Button()
    call = called_by_name(endpoints.ask, list(widgets))
    button.click(call, list(widgets.values()), result, api_name="ask", **queue)


def _of_kind(kind: str) -> dict[str, Any]:
    """The menu of a registry's methods, and the share that they keep."""
    registry = REGISTRIES[kind]
    main = {f.key: _widget(f) for f in shared_fields().values() if f.kind == kind and f.is_main}
    return {kind: _menu(kind, list(registry), registry.default.name), **main}


def _widget(field: Field) -> Any:
    """One option, at its default."""
    one = field.option
    if one.kind == "choice":
        return _menu(one.key, list(one.values), one.default)
    return gr.Number(field.shown(one.default) if one.is_optional else one.default, label=one.key)


def _menu(label: str, values: Sequence[str], value: Any, **options: Any) -> gr.Dropdown:
    """Names to choose from; our own check refuses others."""
    return gr.Dropdown(list(values), value=value, label=label, allow_custom_value=True, **options)
