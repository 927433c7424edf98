"""The picture, the question and the buttons."""

from typing import NamedTuple

import gradio as gr

from rotatek.page.choices import Example
from rotatek.page.image import image_box


class Question(NamedTuple):
    """What is asked, and the buttons."""

    image: gr.Image
    text: gr.Textbox
    suggestions: gr.Radio
    ask: gr.Button
    stop: gr.Button
    gallery: gr.Gallery | None


def picture_part(examples: list[Example]) -> tuple[gr.Image, gr.Gallery | None]:
    """The image and the gallery it may be chosen from."""
    image = image_box(
        value=str(examples[0].image) if examples else None,
        label="Image",
        show_label=False,
        height=340,
        elem_id="image",
        buttons=["fullscreen"],
        placeholder="Drop, paste or choose a PNG, JPEG or WebP image",
        alt_text="The image that is asked about",
    )
    if not examples:
        return image, None
    gallery = gr.Gallery(
        [(str(example.image), example.title) for example in examples],
        show_label=False,
        columns=4,
        height="auto",
        object_fit="cover",
        allow_preview=False,
        interactive=False,
        buttons=[],
        elem_id="examples",
    )
    return image, gallery


def question_part(image: gr.Image, gallery: gr.Gallery | None, examples: list[Example]) -> Question:
    """The question and the buttons."""
    offered = list(examples[0].questions) if examples else []
    text = gr.Textbox(
        offered[0] if offered else "",
        label="Question",
        placeholder="What would you like to know about the image?",
        lines=1,
        max_lines=6,
        elem_id="question",
    )
    suggestions = gr.Radio(
        offered,
        value=offered[0] if offered else None,
        label="Questions about this example",
        visible=bool(offered),
        elem_id="suggestions",
    )
    with gr.Row(elem_id="buttons"):
        ask = gr.Button("Ask", variant="primary", scale=3, min_width=120, elem_id="ask")
        stop = gr.Button("Stop", interactive=False, scale=1, min_width=90, elem_id="stop")
    return Question(image, text, suggestions, ask, stop, gallery)


class FollowUp(NamedTuple):
    """A further question about the same image; unseen until caches wait for one."""

    row: gr.Row
    text: gr.Textbox
    button: gr.Button


def follow_part() -> FollowUp:
    """The box below the answers."""
    with gr.Row(visible=False, elem_id="follow", equal_height=True) as row:
        text = gr.Textbox(
            show_label=False,
            label="Follow-up question",
            placeholder="Ask on: every column continues from its own cache",
            lines=1,
            max_lines=4,
            scale=6,
            container=False,
            elem_id="follow-text",
        )
        button = gr.Button("Ask on", scale=1, min_width=110, elem_id="follow-ask")
    return FollowUp(row, text, button)
