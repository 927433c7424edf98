"""The widgets of the Collection tab, and what its buttons do: read, ask, open, save, clear."""

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import gradio as gr

from rotatek import errors
from rotatek.bridge.attention import StopFlag
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed
from rotatek.inputs.images import open_image
from rotatek.inputs.request import clean_question, make_request
from rotatek.methods.channels.bits import DEFAULT_TIMES
from rotatek.methods.settings import BASELINE, STORED, Settings
from rotatek.page import markup
from rotatek.page.ask.events import look_of
from rotatek.page.ask.widgets import ask_and_stop, question_box
from rotatek.page.binding import AT_ONCE, MODEL_WORK, QUIET, Shown, Widgets
from rotatek.page.collection import drawing
from rotatek.page.collection.pages import IDLE_S, Bounds, Collection, Question, prepare, read
from rotatek.page.markup import as_uri, message, message_box
from rotatek.page.page_context import PageContext
from rotatek.page.settings import settings_of
from rotatek.service.session_store import SessionStore

SAID: Final = (
    "Drop receipts, slides or a PDF. Each page is read once, without a question, and kept "
    "compressed. A question then reads its own words alone."
)
KEEPS: Final = [(f"{times} times smaller", f"{times}") for times in (DEFAULT_TIMES, 8, 16)]
QUESTION: Final = "What is the title?"
LARGE: Final = 1_800  # pixels of the longer side of a page that is opened
BATCH: Final = 16  # pages that answer at once: others' questions come between
LONGEST: Final = 96  # tokens of a page's answer


def add_collection(page: Widgets, bounds: Bounds) -> Widgets:
    """Its own widgets, with the model, length and settings of the first tab.

    keep is how pages are stored, twice what asking took beside reading again, chosen the number of
    the page that was clicked; sent and opened are messages to `assets/page.js`: a file to save, and
    the page to show large.
    """
    form = page.groups["form"]
    widgets = Widgets({name: page[name] for name in ("model", "max_new_tokens", *form)})
    widgets.groups["form"] = form
    gr.HTML(markup.section("Collection", SAID), js_on_load=None, elem_id="collection-opening")
    with gr.Row(elem_id="collection"):
        with gr.Column(scale=5, min_width=300, elem_id="collection-pages"):
            widgets["files"] = gr.File(
                file_count="multiple",
                label=f"Pictures and PDF files, up to {bounds.pages} pages",
                height=160,
                elem_id="collection-files",
            )
            with gr.Row(elem_id="collection-settings", equal_height=True):
                widgets["keep"] = gr.Dropdown(
                    [*KEEPS, ("as set under Ask a picture", "page")],
                    value=f"{STORED.channels.times_smaller:g}",
                    label="Pages are kept at",
                    scale=3,
                    min_width=160,
                    elem_id="collection-keep",
                )
                widgets["clear"] = gr.Button(
                    "Empty it", scale=1, min_width=90, size="sm", elem_id="collection-clear"
                )
            tiles = drawing.tiles(Collection())
            widgets["tiles"] = gr.HTML(tiles, js_on_load=None, elem_id="collection-tiles")
        with gr.Column(scale=8, min_width=300, elem_id="collection-work"):
            with gr.Row(elem_id="collection-buttons", equal_height=True):
                widgets["question"] = question_box(
                    "collection-question", "Question to every page", value=QUESTION, scale=8,
                    min_width=180, placeholder="What would you like to know about every page?",
                )  # fmt: skip
                widgets |= ask_and_stop("Ask all", "collection-")
            widgets["status"] = gr.HTML(markup.line(""), elem_id="collection-status")
            widgets["twice"] = gr.HTML("", js_on_load=None, elem_id="collection-twice")
            table = drawing.table(Collection())
            widgets["table"] = gr.HTML(table, js_on_load=None, elem_id="collection-table")
            widgets["csv"] = gr.Button(
                "Answers as CSV", size="sm", interactive=False, elem_id="collection-csv"
            )
    widgets["sent"] = message_box("collection-sent", "rotatekExport")
    widgets["opened"] = message_box("collection-opened", "rotatekOpened")
    widgets["chosen"] = gr.Textbox(
        label="Page", elem_id="collection-chosen", elem_classes="rk-unseen"
    )
    return widgets


class CollectionEvents:
    """The collections of one page's visitors."""

    def __init__(self, context: PageContext, bounds: Bounds | None = None) -> None:
        self.context, self.bounds = context, bounds or Bounds()
        self.held = SessionStore[Collection](idle_s=IDLE_S)

    def read(
        self, files: Sequence[str] | None, keep: str, model: str, session: str = "", **form: Any
    ) -> Iterator[Shown]:
        """Read the dropped files, one tile for each page; `form` holds the settings of the first
        tab."""
        if not files:
            return
        collection = self.held.of(session, Collection)
        settings = settings_of(form) if keep == "page" else Settings.of(smaller=float(keep))

        def work(engine: Engine, stop: StopFlag) -> Iterator[Shown]:
            prepare(collection, engine, model, settings)
            count = len(files)
            said = f"Reading {count} files…" if count > 1 else "Reading…"
            yield {"status": markup.line(said)}
            for label in read(collection, files, self.bounds, stop):
                yield {"tiles": drawing.tiles(collection), "status": markup.line(f"Read {label}.")}

        yield {"files": None}
        yield from self._working(collection, model, session, work)

    def ask_all(self, question: str, max_new_tokens: int, session: str = "") -> Iterator[Shown]:
        """Ask every page one question; then read one page again, to compare the cost."""
        text, collection = clean_question(question), self.held.of(session, Collection)
        if collection.pictures is None or not collection.pages:  # never any, or freed meanwhile
            yield self._idle(collection, errors.CollectionEmpty.sentence)
            return
        most = min(int(max_new_tokens), LONGEST)

        def work(engine: Engine, stop: StopFlag) -> Iterator[Shown]:
            yield {"status": markup.line("Asking every page…")}
            asked = Question(text, most)
            for page in collection.pages:
                page.answer = None
            collection.asked = asked
            yield from self._answers(collection, asked, stop)
            yield {"twice": drawing.twice(collection)}
            self._measure(engine, collection, asked, stop)
            yield {"twice": drawing.twice(collection)}

        yield from self._working(collection, collection.model, session, work)

    def _answers(self, collection: Collection, asked: Question, stop: StopFlag) -> Iterator[Shown]:
        """The table as it grows."""
        assert collection.pictures is not None
        pages = {page.picture.name: page for page in collection.pages}
        began = time.perf_counter()
        found = collection.pictures.answers(
            list(pages), asked.text, asked.tokens, batch=BATCH, stop=stop
        )
        for count, answer in enumerate(found, 1):
            pages[answer.picture].answer = answer
            if time.perf_counter() - began > self.bounds.seconds:
                raise errors.CollectionTooLong
            if count % BATCH == 0 and count < len(pages):
                said = markup.line(f"{count} of {len(pages)} pages have answered…")
                yield {"table": drawing.table(collection), "status": said}
        asked.seconds = time.perf_counter() - began
        if stop.is_set():
            raise errors.Stopped
        yield {"table": drawing.table(collection)}

    def _measure(
        self, engine: Engine, collection: Collection, asked: Question, stop: StopFlag
    ) -> None:
        """Note what the uncompressed model takes to read one page again. One pixel is changed, so
        that no stored features of the vision tower are used."""
        page = secrets.choice(collection.pages)
        image = open_image(page.png)
        image.putpixel((0, 0), tuple(secrets.token_bytes(3)))
        request = make_request(image, asked.text, asked.tokens)
        began = time.perf_counter()
        events = engine.compare(request, {"again": BASELINE}, stop, trace=False)
        if not any(isinstance(event, Failed) for event in events) and not stop.is_set():
            asked.afresh, asked.of = time.perf_counter() - began, page.label

    def _working(
        self, collection: Collection, model: str, session: str, work: Any
    ) -> Iterator[Shown]:
        """Do one piece of work on a collection at a time; it sets the buttons, and Stop ends it."""
        if not collection.work.acquire(blocking=False):
            raise errors.CollectionBusy
        busy = {"ask": gr.update(interactive=False), "stop": gr.update(interactive=True)}
        said = ""
        try:
            yield busy
            for words in self.context.service.loading(model, _key(session)):
                yield {"status": markup.line(words)}
            engine = self.context.service.engine(model)
            with self.context.service.stoppable(engine, _key(session)) as stop:
                yield from work(engine, stop)
        except Exception as error:
            said = errors.public_message(error)
        finally:
            collection.work.release()
        yield self._idle(collection, said)

    def _idle(self, collection: Collection, said: str) -> Shown:
        """The widgets while nothing runs."""
        words = f"{said} {drawing.reading(collection)}".strip()
        return {
            "tiles": drawing.tiles(collection),
            "table": drawing.table(collection),
            "twice": drawing.twice(collection),
            "status": markup.line(words, whole=True),
            "ask": gr.update(interactive=True),
            "stop": gr.update(interactive=False),
            "csv": gr.update(interactive=bool(collection.ranked)),
        }

    def open(self, chosen: str, session: str = "") -> Iterator[Shown]:
        """Show a page large with its answer, then where each of its words attended."""
        collection = self.held.of(session, Collection)
        try:
            page = collection.pages[int(chosen.partition(",")[0])]
        except (ValueError, IndexError):
            return
        shown: Shown = {"image": as_uri(open_image(page.png), LARGE), "label": page.label}
        yield {"opened": message(**shown, html=drawing.opened(page, collection.asked))}
        asked, pictures = collection.asked, collection.pictures
        if asked is None or pictures is None or page.answer is None or page.answer.error:
            return
        if pictures.engine.graphs:  # their replay shows no queries
            return
        try:
            with self.context.service.stoppable(pictures.engine, _key(session)) as stop:
                look = pictures.look(page.picture, asked.text, asked.tokens, stop=stop)
        except errors.UserError:
            return
        if look.attention is not None and look.grids:
            html = drawing.opened(page, asked, look.pieces)
            seen = look_of(look.grids[0], look.attention)
            yield {"opened": message(html=html, look=seen, label=page.label)}

    def save(self, session: str = "") -> Shown:
        """The table as a file."""
        collection = self.held.of(session, Collection)
        if collection.asked is None:
            raise errors.CollectionEmpty
        text = drawing.as_csv(collection)
        return {"sent": message(file="collection.csv", type="text/csv", text=text)}

    def clear(self, session: str = "") -> Shown:
        """Empty the collection, and end what runs."""
        self.context.service.stop(_key(session))
        self.held.drop(session)
        return self._idle(Collection(), "")

    def stop(self, session: str = "") -> None:
        """End what the visitor waits for, within one token."""
        self.context.service.stop(_key(session))


def _key(session: str) -> str:
    """Of a collection's stop flags: the first tab's questions have their own."""
    return f"{session}/collection"


def wire_collection(events: CollectionEvents, widgets: Widgets) -> None:
    w, shown, long = widgets, "files tiles status twice table ask stop csv", QUIET | MODEL_WORK
    w.listen(w["files"].upload, events.read, shown, **long)
    w.listen([w["ask"].click, w["question"].submit], events.ask_all, shown, **long)
    w.listen(w["chosen"].change, events.open, "opened", **long)
    w.listen(w["csv"].click, events.save, "sent", **QUIET)
    w.listen(w["clear"].click, events.clear, shown, **AT_ONCE)
    w.listen(w["stop"].click, events.stop, **AT_ONCE)
