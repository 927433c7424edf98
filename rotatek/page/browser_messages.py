"""Messages to the scripts in `assets/`: an unseen component each, whose value a script takes."""

import json
import time
from typing import Any

import gradio as gr


def message_box(elem_id: str, taker: str = "rotatek") -> gr.HTML:
    """An unseen component. It draws nothing itself.

    Args:
        elem_id: of the component.
        taker: the script's object whose `take` is called with every new value.
    """
    return gr.HTML(
        "",
        html_template="<i></i>",
        js_on_load=(
            f"const take = () => window.{taker}.take(props.value); watch('value', take); take();"
        ),
        elem_id=elem_id,
        elem_classes="rk-unseen",
    )


def message(**content: Any) -> str:
    """JSON that differs from the last message, so that the browser notices it."""
    return json.dumps(content | {"at": time.time_ns()})
