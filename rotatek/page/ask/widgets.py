"""The widgets of the first tab, apart from the settings: picture, question, answers, export."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import gradio as gr

from rotatek.inputs import pdf
from rotatek.page import export, markup
from rotatek.page.ask import answers
from rotatek.page.ask.controls import Controls
from rotatek.page.browser_messages import message_box
from rotatek.page.upload import image_box
from rotatek.service.model_list import Example
from rotatek.service.run import Run

HINT: Final = (
    '<p class="rk-lit" role="status">Choose a word of an answer to see where it looked.</p>'
)
NOTHING: Final = "There is no answer to take away yet. Ask first."


def picture_part(
    examples: Sequence[Example],
) -> tuple[gr.Image, gr.Gallery | None, gr.UploadButton]:
    """The image, the gallery it may be chosen from, and the button that takes a PDF's first page,
    unseen where PDF files cannot be read."""
    image = image_box(
        value=str(examples[0].image) if examples else None,
        label="Image",
        show_label=False,
        elem_id="image",
        buttons=["fullscreen"],
        placeholder="Drop, paste or choose an image",
        alt_text="The image that is asked about",
    )
    gr.HTML(HINT, js_on_load=None, elem_id="lit")
    gallery = None
    if examples:
        gallery = gr.Gallery(
            [(str(example.image), example.title) for example in examples],
            show_label=False,
            columns=8,
            height="auto",
            object_fit="cover",
            allow_preview=False,
            interactive=False,
            buttons=[],
            elem_id="examples",
        )
    upload = gr.UploadButton(
        "Or ask about a PDF",
        file_types=[".pdf"],
        size="sm",
        visible=pdf.can_be_read(),
        elem_id="pdf",
    )
    return image, gallery, upload


class Question:
    """What is asked, and the buttons.

    Args:
        image: that is asked about.
        gallery: that it may be chosen from.
        pdf: whose first page may take its place.
        examples: of the gallery; the first one's questions are suggested at first.
    """

    def __init__(
        self,
        image: gr.Image,
        gallery: gr.Gallery | None,
        pdf: gr.UploadButton,
        examples: Sequence[Example],
    ) -> None:
        self.image, self.gallery, self.pdf = image, gallery, pdf
        offered = list(examples[0].questions) if examples else []
        with gr.Row(elem_id="buttons", equal_height=True):
            self.text = gr.Textbox(
                offered[0] if offered else "",
                label="Question",
                show_label=False,
                container=False,
                placeholder="What would you like to know about the image?",
                lines=1,
                max_lines=3,
                scale=8,
                min_width=200,
                elem_id="question",
            )
            self.ask = gr.Button("Ask", variant="primary", scale=2, min_width=84, elem_id="ask")
            self.stop = gr.Button("Stop", interactive=False, scale=1, min_width=64, elem_id="stop")
        self.suggestions = gr.Radio(
            offered,
            value=offered[0] if offered else None,
            label="Questions about this example",
            show_label=False,
            container=False,
            visible=bool(offered),
            elem_id="suggestions",
        )


class FollowUp:
    """A further question about the same image; unseen until caches wait for one."""

    def __init__(self) -> None:
        with gr.Row(visible=False, elem_id="follow", equal_height=True) as self.row:
            self.text = gr.Textbox(
                show_label=False,
                label="Follow-up question",
                placeholder="Ask on: every column continues from its own cache",
                lines=1,
                max_lines=4,
                scale=6,
                container=False,
                elem_id="follow-text",
            )
            self.button = gr.Button("Ask on", scale=1, min_width=110, elem_id="follow-ask")


class Answers:
    """Where answers appear, how far they are, and what follows from them; empty at first.

    Args:
        run: the state of the last complete run.
        count: visual tokens of the image, a state.
        renews: whether a slider that stops moving asks again.

    Attributes:
        status: a line that screen readers read out.
        cards: one a column.
        highlights: a message to `assets/page.js`: the attention of every column.
        again: hidden; pressed when a slider stops moving.
    """

    def __init__(self, run: gr.State, count: gr.State, *, renews: bool = True) -> None:
        self.run, self.count = run, count
        self.status = gr.HTML(markup.line(""), elem_id="status")
        self.cards = gr.HTML(answers.cards(None, on_cpu=False), elem_id="answers")
        self.highlights = message_box("highlights", "rotatekLooks")
        self.again = gr.Button("Again", elem_id="again", elem_classes="rk-unseen", visible=renews)


class Export:
    """A closed drawer below the answers: what can be taken away.

    Attributes:
        json, link: buttons that save a file, or copy a link.
        code: programs that give the answers again.
        sent: a message to `assets/page.js`.
        address: the query of the page's address.
    """

    def __init__(self) -> None:
        title = "Take it with you: data, code, link"
        with gr.Accordion(title, open=False, elem_id="export"):
            with gr.Row(elem_id="export-buttons"):
                self.json = gr.Button("Answers as JSON", size="sm", elem_id="export-json")
                self.link = gr.Button(
                    "Copy a link to these settings", size="sm", elem_id="export-link"
                )
            said = '<p class="rk-said" role="status"></p>'
            gr.HTML(said, js_on_load=None, elem_id="export-said")
            self.code = gr.HTML(code_of(None), js_on_load=None, elem_id="export-code")
        self.sent = message_box("sent", "rotatekExport")
        self.address = gr.Textbox(elem_id="address", label="Query", elem_classes="rk-unseen")


def code_of(run: Run | None, image: str = export.PICTURE) -> str:
    """Program and command line that give the present answers again."""
    if run is None:
        return markup.aside(NOTHING)
    return code_block("In Python", export.python(run, image), "python") + code_block(
        "On the command line, your settings", export.command(run, image), "command"
    )


def code_block(title: str, text: str, key: str) -> str:
    """Code, and the button that copies it."""
    return (
        f'<figure class="rk-code" data-code="{key}"><figcaption>{escape(title)}'
        f'<button type="button" data-copy aria-label="Copy: {escape(title, quote=True)}">Copy'
        f'</button></figcaption><pre tabindex="0"><code>{escape(text)}</code></pre></figure>'
    )


@dataclass(frozen=True)
class AskWidgets:
    """All of the tab that its events need."""

    question: Question
    controls: Controls
    answers: Answers
    follow: FollowUp
    export: Export
