"""The widgets of the Learn tab: the lessons one below the other, each with figures and a button."""

from pathlib import Path
from typing import Final

import gradio as gr

from rotatek.page import markup, plot_transport
from rotatek.page.browser_messages import message_box
from rotatek.page.learn.lessons import Lesson, frame, stored_lessons

MISSING: Final = (
    "The lessons are not in this copy of the repository; python -m docs.lessons makes them."
)


class LearnWidgets:
    """All lessons, or a sentence where none is stored.

    Args:
        assets: the folder of the stored lessons.

    Attributes:
        buttons: one a lesson, with the lesson whose settings it sets.
        drawn: the unseen box that takes the figures.
    """

    def __init__(self, assets: Path) -> None:
        self.assets, lessons = assets, stored_lessons(assets)
        if not lessons:
            gr.HTML(markup.section("Learn", MISSING), js_on_load=None)
        self.buttons = [(_lesson_part(n, lesson), lesson) for n, lesson in enumerate(lessons, 1)]
        self.drawn = message_box("lessons-drawn")


def _lesson_part(number: int, lesson: Lesson) -> gr.Button:
    """One lesson; its button."""
    heading = markup.section(f"{number}. {lesson.title}", lesson.text)
    gr.HTML(heading, js_on_load=None, elem_id=f"lesson-{number}")
    button = gr.Button("Set the controls to this", size="sm", elem_id=f"try-{number}")
    titles = {frame(number, place): title for place, title in enumerate(lesson.figures, 1)}
    plot_transport.sheet(titles, [list(titles)], f"figures-of-{number}")
    return button
