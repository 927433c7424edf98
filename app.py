"""The page: widgets put together, wired and launched. `python app.py` serves it at port 7860.

What the widgets say, show and do is in `rotatek.page` and `viz`; who answers is `rotatek.engine`.
"""

import logging
import threading
from typing import Any, Final

import gradio as gr

from rotatek.page import api, cards, plots, results, serving, tour
from rotatek.page.away import away_part, wire_away, wire_link
from rotatek.page.caution import load_bins
from rotatek.page.choices import load_examples
from rotatek.page.controls import Controls, controls_part
from rotatek.page.handlers import Handlers
from rotatek.page.lens import budget_part, lens_part, wire_lens
from rotatek.page.lens import overview as lens_overview
from rotatek.page.look import head, theme
from rotatek.page.question import FollowUp, Question, follow_part, picture_part, question_part
from rotatek.page.service import Service
from rotatek.page.wires import MODEL_WORK, QUIET, Told
from rotatek.paths import assets

ASSETS: Final = assets()


def build(handlers: Handlers) -> gr.Blocks:
    """The whole page, wired."""
    service, examples = handlers.service, handlers.examples
    with gr.Blocks(title="RotateK", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        run, count = gr.State(time_to_live=3600), gr.State(time_to_live=3600)
        gr.HTML(cards.masthead([model.label for model in service.models]), elem_id="masthead")
        with gr.Tabs(selected="ask", elem_id="parts") as tabs:
            with gr.Tab("Ask a picture", id="ask"):
                with gr.Row(elem_id="desk"):
                    with gr.Column(scale=5, min_width=300):
                        image, gallery = picture_part(examples)
                    with gr.Column(scale=6, min_width=300):
                        question = question_part(image, gallery, examples)
                        controls = controls_part([(m.label, m.name) for m in service.models])
                status = gr.HTML(cards.line(""), elem_id="status")
                answers = gr.HTML(cards.answers(None, on_cpu=False), elem_id="answers")
                follow = follow_part()
                budget_part()
                away = away_part(service.models[0].name)
                gr.HTML(cards.section(*cards.INSIDE), elem_id="inside")
                lens = lens_part()
            with gr.Tab("Learn", id="learn") as tab:
                tour.wire(tour.part(ASSETS), tab, tabs, controls.values)
            with gr.Tab("Results", id="results") as tab:
                results.wire(results.part(ASSETS / "results"), tab)
        gr.HTML(cards.footer(), elem_id="footer")
        api.publish(service, **MODEL_WORK)
        told = Told(answers, status, run, question.ask, question.stop, follow.row, follow.text)
        wire_settings(handlers, question, controls, count, run)
        wire_columns(handlers, controls)
        overview = [lens.layer, lens.head, lens.step, lens.overview]
        links = wire_away(handlers, away, question, controls, run)
        run.change(links.code, run, away.code, **QUIET)
        greeted = page.load(handlers.greet, None, [*told[:3], count], **QUIET)
        for finished in (greeted, *wire_asking(handlers, page, question, follow, controls, told)):
            finished.then(lens_overview, run, overview, **QUIET)
        wire_link(links, away, question, controls, status, greeted)
        wire_lens(lens, controls, run)
    return page


def wire_settings(
    handlers: Handlers, question: Question, controls: Controls, count: gr.State, run: gr.State
) -> None:
    """Readings follow the sliders; presets and examples set them."""
    question.image.change(handlers.count, [question.image, controls.model], count, **QUIET)
    gr.on(
        [widget.change for widget in controls.values] + [count.change, run.change],
        handlers.read,
        [count, run, *controls.values],
        controls.readings,
        trigger_mode="always_last",
        queue=False,
        **QUIET,
    )
    moved = [widget.input for widget in controls.paper]
    gr.on(moved, None, None, controls.presets, js="() => null", **QUIET)
    controls.presets.input(handlers.preset, controls.presets, controls.paper, **QUIET)
    if question.gallery is not None:
        question.gallery.select(
            handlers.choose,
            None,
            [question.image, question.text, question.suggestions],
            queue=False,
            **QUIET,
        )
    question.text.input(None, None, question.suggestions, js="() => null", **QUIET)
    question.suggestions.input(
        lambda text: text, question.suggestions, question.text, queue=False, **QUIET
    )
    question.image.upload(
        lambda: gr.update(visible=False), None, question.suggestions, queue=False, **QUIET
    )


def wire_columns(handlers: Handlers, controls: Controls) -> None:
    """Further settings are put beside the present ones, and taken off again."""
    shared = QUIET | {"queue": False}
    controls.every.click(handlers.every, controls.values, controls.others, **shared)
    controls.pin.click(handlers.pin, [controls.others, *controls.values], controls.others, **shared)
    controls.others.input(handlers.unpin, controls.others, controls.others, **shared)


def wire_asking(
    handlers: Handlers,
    page: gr.Blocks,
    question: Question,
    follow: FollowUp,
    controls: Controls,
    told: Told,
) -> tuple[Any, Any]:
    """Ask streams, a follow-up goes on from its caches, Stop ends either at once.

    Returns the two events, after which a run is complete.
    """
    asked = gr.on(
        [question.ask.click, question.text.submit],
        handlers.ask,
        [question.image, question.text, controls.model, controls.length, controls.others]
        + controls.values,
        list(told),
        **QUIET,
        **MODEL_WORK,
    )
    followed = gr.on(
        [follow.button.click, follow.text.submit],
        handlers.follow,
        [told.run, follow.text, controls.length],
        list(told),
        **QUIET,
        **MODEL_WORK,
    )
    question.image.change(handlers.forget, None, follow.row, queue=False, **QUIET)
    question.stop.click(handlers.stop, None, None, queue=False, **QUIET)
    page.unload(handlers.stop)
    return asked, followed


def launch(page: gr.Blocks, service: Service, **options: Any) -> tuple:
    """Serve `page` with the settings that an open port needs."""
    page.queue(max_size=64, default_concurrency_limit=8, api_open=False)
    return page.launch(
        theme=theme(),
        css_paths=ASSETS / "style.css",
        head=head(ASSETS),
        footer_links=["api"],
        show_error=False,
        max_file_size="10mb",
        allowed_paths=[],
        state_session_capacity=200,
        enable_monitoring=False,
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        app_kwargs=serving.options(service, plots.routes()),
        share=False,
        **options,
    )


def main() -> None:
    """Serve the page and load the first model while visitors read it."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # gradio asks itself whether it is up
    service = serving.service_here()
    handlers = Handlers(service, load_examples(ASSETS / "examples"), load_bins(ASSETS / "results"))
    threading.Thread(target=handlers.prepare, daemon=True).start()
    serving.guard(service)
    launch(build(handlers), service)


if __name__ == "__main__":
    main()
