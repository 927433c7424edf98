"""How events are wired: what is shown while one runs, and which queue it waits in."""

from typing import Any, Final, NamedTuple

import gradio as gr

MODEL_WORK: Final[dict[str, Any]] = {"concurrency_id": "model", "concurrency_limit": 4}
QUIET: Final[dict[str, Any]] = {"show_progress": "hidden", "api_visibility": "private"}
DRAWING: Final[dict[str, Any]] = QUIET | {
    "trigger_mode": "always_last",
    "concurrency_id": "drawing",
    "concurrency_limit": 4,
}


class Told(NamedTuple):
    """What an answer changes, in the order that handlers yield it."""

    answers: gr.HTML
    status: gr.HTML
    run: gr.State
    ask: gr.Button
    stop: gr.Button
    follow_row: gr.Row
    follow_text: gr.Textbox
