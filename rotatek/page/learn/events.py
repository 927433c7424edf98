"""What happens on the Learn tab: figures come when it is opened, buttons set the controls."""

from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr

from rotatek.page.binding import AT_ONCE, listen
from rotatek.page.form import values_of
from rotatek.page.learn.lessons import Lesson, payload
from rotatek.page.learn.widgets import LearnWidgets
from rotatek.page.user_errors import refusing


def setting(lesson: Lesson) -> Callable[[], dict[str, Any]]:
    """A handler that leads to the Ask tab and sets what the lesson speaks of.

    Changes: the opened tab, the settings.
    """

    def shown() -> dict[str, Any]:
        return {"opened_tab": gr.update(selected="ask"), **values_of(lesson.settings)}

    return refusing(shown)


def wire_learn(
    widgets: LearnWidgets, tab: gr.Tab, tabs: gr.Tabs, settings: Mapping[str, Any]
) -> None:
    """Wire the tab.

    Args:
        widgets: of the lessons.
        tab: this one; tabs: all of them.
        settings: the widgets of the settings, by the names that `form.values_of` gives.
    """
    tab.select(lambda: payload(widgets.assets), None, widgets.drawn, **AT_ONCE)
    changed = {"opened_tab": tabs, **settings}
    for button, lesson in widgets.buttons:
        listen(button.click, setting(lesson), {}, changed, **AT_ONCE)
