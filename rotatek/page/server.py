"""Build the page and serve it, with its health, and an orderly shutdown."""

import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import gradio as gr
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from rotatek import errors
from rotatek.engine.memory import leave_for_restart
from rotatek.evaluation.answers import ANSWERS
from rotatek.page import markup, zerogpu
from rotatek.page.ask.events import AskEvents, wire_asking, wire_question
from rotatek.page.ask.widgets import add_ask, add_export
from rotatek.page.binding import VISITORS, Widgets
from rotatek.page.collection.events import CollectionEvents, add_collection, wire_collection
from rotatek.page.export import ExportEvents, wire_export
from rotatek.page.inspect.events import HeadEvents, add_inspection, wire_heads, wire_inspect
from rotatek.page.markup import PLOTLY_URL, serve_plotly
from rotatek.page.page_context import PageContext
from rotatek.page.results import results_part
from rotatek.page.settings import wire_settings
from rotatek.paths import assets
from rotatek.service.listening import own_uploads, past_proxies
from rotatek.service.model_list import load_examples, models_on_offer
from rotatek.service.service import Service

INSIDE: Final = (
    "Look inside",
    "A vision-language model remembers an image as thousands of Keys and Values. RotateK turns "
    "each head's Keys until a few channels carry everything, and stores only those. Here is one "
    "head at a time: move the layer and the head, or choose a cell of the map, and move channel "
    "sparsity above. Everything is drawn from this image and question.",
)
ASSETS: Final = assets()
FONT: Final = ["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
MONO: Final = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
log = logging.getLogger("rotatek")
FAREWELL_S: Final = 1.0  # for running answers to end and be sent
SENDING_S: Final = 0.2  # for what they said last to reach the visitors
THREADS: Final = VISITORS + 32  # each question holds one while it waits; others draw and upload
RETRY_S: Final = 10  # what a full queue asks a program to wait


def build(context: PageContext, assets: Path) -> gr.Blocks:
    """The whole page; assets: the folder of what the Results tab shows."""
    widgets, collected = Widgets(), CollectionEvents(context)
    with gr.Blocks(title="RotateK", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        gr.HTML(markup.MASTHEAD, elem_id="masthead")
        with gr.Tabs(selected="ask", elem_id="parts"):
            with gr.Tab("Ask a picture", id="ask"):
                add_ask(widgets, context)
                markup.sheet({"budget": "Where the bytes are"}, [["budget"]], "budget-sheet")
                add_export(widgets)
                gr.HTML(markup.section(*INSIDE), elem_id="inside")
                add_inspection(widgets)
            if context.collects:
                with gr.Tab("Collection", id="collection"):
                    wire_collection(collected, add_collection(widgets, collected.bounds))
            with gr.Tab("Results", id="results") as tab:
                results_part(assets / "results" / ANSWERS, tab)
        gr.HTML(markup.footer([model.label for model in context.service.models]), elem_id="footer")
        events = AskEvents(context)
        wire_question(events, widgets)
        wire_settings(widgets)
        changed = wire_heads(HeadEvents(context), widgets)
        finished = wire_asking(page, events, widgets, changed)
        wire_inspect(widgets, finished)
        wire_export(ExportEvents(context), widgets, finished[0])
    return page


def service_here() -> Service:
    """The service for this machine. On ZeroGPU every model has to be loaded before the page is
    served."""
    if not zerogpu.is_here():
        return Service(models_on_offer())
    service = Service(models_on_offer(zerogpu.offered()), zerogpu.maker())
    for model in service.models:
        service.engine(model.name)
    return service


def _busy(request: Request, error: Exception) -> JSONResponse:
    """The queue is full. The page shows the sentence only of a 429; programs know the 503."""
    status = 429 if request.headers.get("x-gradio-user") == "app" else 503
    said = {"detail": errors.QueueFull.sentence}
    return JSONResponse(said, status, {"Retry-After": str(RETRY_S)})


def _failed(request: Request, error: Exception) -> JSONResponse:
    """A full disk, while an upload is stored: Gradio would answer with nothing at all."""
    return JSONResponse({"detail": errors.public_message(error)}, 507)


def end_in_order(service: Service) -> None:
    """Let this process leave when its accelerator is lost, and on SIGTERM after its running answers
    have ended: by default a container's first process would not hear it."""

    def leave(number: int, frame: object) -> None:
        log.info("asked to leave: running answers are ended")
        service.close()
        deadline = time.monotonic() + FAREWELL_S
        while service.busy() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(SENDING_S)
        logging.shutdown()
        os._exit(0)  # an orderly exit would wait for what threads are loading

    signal.signal(signal.SIGTERM, leave)
    service.on_lost = leave_for_restart


def theme() -> gr.themes.Base:
    """One accent, system fonts, so that nothing is fetched; `style.css` has the surfaces."""
    accent = gr.themes.Color(
        "#effbf8", "#d3f4ec", "#a8e8da", "#6fd6c2", "#37bda6", "#0ca38a", "#08836f", "#0a6959",
        "#0c5448", "#0d463d", "#042a25", name="rotatek",
    )  # fmt: skip
    return gr.themes.Base(
        primary_hue=accent, secondary_hue=accent, neutral_hue="slate", radius_size="lg", font=FONT,
        font_mono=MONO,
    )  # fmt: skip


def head() -> str:
    """Our scripts, and plotly, which is fetched meanwhile; `figures.js` runs it."""
    fetched = f'<link id="rk-plotly" rel="preload" as="script" href="./{PLOTLY_URL}">'
    scripts = [(ASSETS / name).read_text(encoding="utf-8") for name in ("figures.js", "page.js")]
    return fetched + "".join(f"<script>{one}</script>" for one in scripts)


def open_port(page: gr.Blocks, service: Service) -> dict[str, Any]:
    """Bound the page's queue; the settings that an open port needs, however it is served."""

    def health(request: Request) -> JSONResponse:
        report = service.health()
        return JSONResponse(report, 503 if report["status"] == "failed" else 200)

    page.max_threads = THREADS
    page.queue(max_size=64, default_concurrency_limit=8, api_open=False)
    return {
        "theme": theme(),
        "css_paths": ASSETS / "style.css",
        "head": head(),
        "footer_links": [],
        "show_error": False,
        "max_file_size": "10mb",
        "allowed_paths": [str(ASSETS / "examples")],  # in whatever folder the page is started
        "enable_monitoring": False,
        "run_history": False,
        "ssr_mode": False,
        "mcp_server": False,
        "app_kwargs": {
            "routes": [Route("/health", health), Route(f"/{PLOTLY_URL}", serve_plotly)],
            "exception_handlers": {503: _busy, OSError: _failed},
        },
    }


def launch(page: gr.Blocks, service: Service, **options: Any) -> tuple:
    """Serve `page` from this process."""
    settings = open_port(page, service) | {"max_threads": THREADS} | options
    return page.launch(state_session_capacity=200, share=False, **settings)


def beside(routes: Sequence[BaseRoute], service: Service) -> FastAPI:
    """An application of the page and of what else has a route, for another's server. The first
    model is loaded while visitors read the page."""
    own_uploads()
    context = PageContext(service, load_examples(ASSETS / "examples"), collects=False)
    page = build(context, ASSETS)
    threading.Thread(target=context.prepare, daemon=True).start()
    whole = FastAPI(routes=list(routes), openapi_url=None)
    return gr.mount_gradio_app(whole, page, "/", **open_port(page, service))


def main() -> None:
    """Serve the page, then load the first model while visitors read it.

    Raises:
        UserError: where what visitors send cannot be kept.
    """
    past_proxies()
    own_uploads()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for client in ("httpx", "httpx2"):  # gradio asks itself whether it is up, a download each file
        logging.getLogger(client).setLevel(logging.WARNING)
    service = service_here()
    end_in_order(service)
    examples = load_examples(ASSETS / "examples")
    context = PageContext(service, examples, renews=not zerogpu.is_here())
    page = build(context, ASSETS)
    launch(page, service, prevent_thread_lock=True)
    # not in this thread, whose signals `end_in_order` answers
    threading.Thread(target=context.prepare, daemon=True).start()
    page.block_thread()
