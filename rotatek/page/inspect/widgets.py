"""The widgets of Look inside: which head, the frames of its figures, the answer to step through."""

from collections.abc import Sequence
from html import escape
from typing import Final

import gradio as gr

from rotatek.page.ask.widgets import slider
from rotatek.page.binding import Widgets
from rotatek.page.inspect.drawings import mask_frames
from rotatek.page.markup import message_box
from rotatek.page.plot_transport import rows_of, sheet
from viz.head_heatmap import QUANTITIES

TITLES: Final = {  # beside the masks', which the methods bring
    "map": "Every layer and head",
    "raw": "Keys as the model makes them",
    "rotated": "The same Keys, rotated",
    "spectrum": "How fast it falls off",
    "scores": "Attention scores, exact and compressed",
    "kept": "What the model still sees",
    "attention": "Where this head looks",
    "compressed": "Where it looks when compressed",
}
OVER_IMAGE: Final = ("kept", "attention", "compressed")
BUDGET: Final = {"budget": "Where the bytes are"}


def titles() -> dict[str, str]:
    """The title of every figure of this part, by the element that shows it."""
    return {**TITLES, **mask_frames()}


def budget_part() -> gr.HTML:
    """The frame of the figure that shows where the bytes of every column are."""
    return sheet(BUDGET, [list(BUDGET)], "budget-sheet")


def add_inspection(widgets: Widgets) -> None:
    """The selected head, the frames of everything drawn of it, and the answer to step through.

    step is a recorded token of the answer and frame a picture, from 1. cell is where the browser
    writes which head was chosen. drawn, attention and overview are messages to
    `assets/figures.js`: one head, what it attends to, and what a new run changes.
    """
    with gr.Row(elem_id="lens"):
        widgets["layer"] = slider("Layer", "layer", 0, 5, 2, min_width=180)
        widgets["head"] = slider("KV head", "head", 0, 1, 0, min_width=180)
        widgets["map_shows"] = gr.Radio(
            [(q.title[0].upper() + q.title[1:], name) for name, q in QUANTITIES.items()],
            value="energy",
            label="Map shows",
            elem_id="quantity",
            min_width=200,
        )
    widgets["cell"] = gr.Textbox(
        elem_id="picked", label="Cell of the map", elem_classes="rk-unseen"
    )
    with gr.Row(visible=False, elem_id="damage-row") as widgets["damage_row"]:
        widgets["measure"] = gr.Button("Measure", size="sm", min_width=90, elem_id="measure")
        widgets["damage_stop"] = gr.Button(
            "Stop", size="sm", interactive=False, min_width=64, elem_id="damage-stop"
        )
    sheet(TITLES, [["map"]], "map-sheet")
    widgets["damage_said"] = gr.HTML("", js_on_load=None, elem_id="damage")
    with gr.Row(elem_id="what-if"):
        widgets["leave"] = gr.Button("Leave this head whole", size="sm", elem_id="what-leave")
        widgets["only"] = gr.Button("Compress only this head", size="sm", elem_id="what-only")
        widgets["what_if"] = gr.CheckboxGroup(
            [], label="A further column: what if", visible=False, elem_id="what-heads"
        )
    masks = rows_of(list(mask_frames()))
    sheet(titles(), [["raw", "rotated"], *masks, ["spectrum", "scores"]], "figures")
    with gr.Row(elem_id="scrub"):
        widgets["step"] = slider("Token of the answer", "step", 0, 1, 0, min_width=180)
        widgets["said"] = gr.HTML(marked_answer([], [0], 0), elem_id="said")
        widgets["frame"] = slider("Picture", "frame", 1, 2, 1, visible=False, min_width=180)
    sheet(TITLES, [list(OVER_IMAGE)], "look-figures")
    widgets["drawn"] = message_box("drawn")
    widgets["attention"] = message_box("attention-figures")
    widgets["overview"] = message_box("overview")


def marked_answer(pieces: Sequence[str], steps: Sequence[int], step: int) -> str:
    """The answer as HTML; the token that the selected query predicted is marked."""
    number = steps[step]
    before, token, after = pieces[:number], pieces[number : number + 1], pieces[number + 1 :]
    if token:
        what = f"token {number + 1} of {len(pieces)}"
    else:
        what = "the end of the answer" if pieces else "the last word of the question"
    marked = escape("".join(token)) if "".join(token).strip() else "\u00b7"
    mark = f"<mark>{marked}</mark>" if token else "<mark>\u25a0</mark>" if pieces else ""
    return (
        f'<p class="rk-step"><span class="rk-soft">The query that chose {what}</span><br>'
        f"{escape(''.join(before))}{mark}{escape(''.join(after))}</p>"
    )
