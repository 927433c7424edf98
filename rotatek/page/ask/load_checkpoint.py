"""Load a checkpoint from a hub id or a folder of this machine: its size is checked first, and
progress is shown.

Only where the host allows it (`ROTATEK_ALLOW_MODELS=1`): a visitor who may load a model can name
any folder of the host and fill its memory.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import gradio as gr

from rotatek import errors
from rotatek.models.loading import MemoryNeed, weigh
from rotatek.models.memory import GB, free_bytes
from rotatek.page import markup
from rotatek.page.binding import AT_ONCE, QUIET, listen
from rotatek.page.user_errors import refusing_stream
from rotatek.service.loading_progress import with_progress
from rotatek.service.model_list import Model
from rotatek.service.service import Service

LONGEST: Final = 300  # characters of a name
NEARLY: Final = 0.97  # the most that is shown before the model is ready


class CheckpointWidgets:
    """Below the menu of models: the box, its button, and a line on how far it is."""

    def __init__(self) -> None:
        with gr.Row(elem_id="checkpoint", equal_height=True):
            self.source = gr.Textbox(
                label="Load a checkpoint: a hub id, or a folder of this machine",
                placeholder="Qwen/Qwen2.5-VL-3B-Instruct",
                max_length=LONGEST,
                scale=6,
                elem_id="checkpoint-source",
            )
            self.load = gr.Button("Load", scale=1, min_width=90, elem_id="checkpoint-load")
        self.progress = gr.HTML(progress(""), elem_id="checkpoint-progress")


def progress(text: str, share: float | None = None) -> str:
    """A line that is read out, over a bar where `share` is known."""
    bar = ""
    if share is not None:
        bar = f'<div class="rk-bar"><i style="width:{100 * share:.0f}%"></i></div>'
    return markup.line(text, whole=True) + bar


class CheckpointEvents:
    """Loading, for one service; one checkpoint at a time."""

    def __init__(self, service: Service, weigh_model: Callable[[str], MemoryNeed] = weigh) -> None:
        self.service, self.weigh = service, weigh_model
        self._busy = threading.Lock()

    @refusing_stream
    def load(self, source: str) -> Iterator[dict[str, Any]]:
        """Check the size of a checkpoint, load it and choose it. Changes: progress, load, model."""
        source = (source or "").strip()
        if not source:
            raise errors.ModelNotNamed
        if not self._busy.acquire(blocking=False):
            raise errors.ModelLoading
        try:
            yield {"load": gr.update(interactive=False), "progress": progress("Weighing it…", 0)}
            yield from self._load(source)
        except Exception as error:
            said = progress(errors.public_message(error))
            yield {"load": gr.update(interactive=True), "progress": said}
        finally:
            self._busy.release()

    def _load(self, source: str) -> Iterator[dict[str, Any]]:
        known = {model.source: model for model in self.service.models}
        model = known.get(source) or Model(self._name(source), Path(source).name, source)
        if source not in known:
            weight = self.weigh(source)
            yield from self._watch(model, weight)
        yield {
            "progress": progress(f"{model.label} is ready, and chosen."),
            "load": gr.update(interactive=True),
            "model": gr.update(choices=self._choices(), value=model.name),
        }

    def offer(self) -> dict[str, Any]:
        """The models on offer now, for a visitor who comes later. Changes: model."""
        return {"model": gr.update(choices=self._choices())}

    def _choices(self) -> list[tuple[str, str]]:
        return [(model.label, model.name) for model in self.service.models]

    def _name(self, source: str) -> str:
        """The last part of the source, numbered where a model of that name is on offer."""
        taken, name = {model.name for model in self.service.models}, Path(source).name
        return name if name not in taken else f"{name}-{len(taken) + 1}"

    def _watch(self, model: Model, weight: MemoryNeed) -> Iterator[dict[str, Any]]:
        """Download, then load; memory that fills tells how far the latter is."""
        free = free_bytes(weight.device)
        loading = f"Loading {model.label}: {weight.needed / GB:.2g} GB of weights…"
        for said, share in with_progress(lambda: self.service.load_checkpoint(model), model.label):
            if share is None:
                said, share = loading, (free - free_bytes(weight.device)) / max(weight.needed, 1)
            yield {"progress": progress(said, min(max(share, 0.02), NEARLY))}


def wire_checkpoint(
    page: gr.Blocks, events: CheckpointEvents, widgets: CheckpointWidgets, model: gr.Dropdown
) -> None:
    """The button or Enter loads what the box names."""
    listen(page.load, events.offer, {}, {"model": model}, **AT_ONCE)
    shown = {"progress": widgets.progress, "load": widgets.load, "model": model}
    listen(
        [widgets.load.click, widgets.source.submit],
        events.load,
        {"source": widgets.source},
        shown,
        concurrency_limit=2,
        **QUIET,
    )
