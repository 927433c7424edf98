"""The Results tab: one figure and one table of a file of answers, and calm where there is none."""

from pathlib import Path

import gradio as gr
import plotly.graph_objects as go

from rotatek.evaluation.answers import Answer, append, begin
from rotatek.evaluation.tables import UNCOMPRESSED
from rotatek.methods.channels import RotateK
from rotatek.page import results

SETTINGS = {  # score of the follow-ups, bytes of 1,000
    UNCOMPRESSED: (1.0, 1000), "RotateK, smaller 5": (0.75, 200),
    "RotateK, channels .25": (0.5, 400), "SnapKV, tokens .4": (0.25, 450), "<b>": (0.0, 300),
}  # fmt: skip


def answers_file(path: Path, models: tuple[str, ...] = ("tiny",)) -> Path:
    """Four follow-ups a setting and split, and first questions, which do not count."""
    rows = []
    for model in models:
        for setting, (score, size) in SETTINGS.items():
            for number in range(8):
                turn, split = 1 + number % 2, ("easy", "hard")[number // 4]
                right = turn == 2 and number // 2 < 4 * score
                rows.append(Answer(model, split, f"p{number}#{turn}", setting, turn, "x",
                                   float(right), right, size, 1000, 9, None))  # fmt: skip
    begin(path)
    append(path, rows)
    return path


def test_follow_ups_are_drawn_and_listed(tmp_path: Path) -> None:
    found = results.read(answers_file(tmp_path / "answers.csv.gz", ("tiny", "other")))
    assert list(found) == ["tiny", "other"] and len(found["tiny"]) == len(SETTINGS)
    assert {one.setting: one.score for one in found["tiny"]} == {
        setting: score for setting, (score, _) in SETTINGS.items()
    }
    drawing = results.figure(found["tiny"])
    go.Figure(data=drawing.figure.data, layout=drawing.figure.layout)
    lines = {one["name"]: one["y"].tolist() for one in drawing.figure.data if one.get("name")}
    # a quarter of the channels scores less in more bytes than `smaller`
    assert lines == {RotateK.label: [75.0], "SnapKV": [25.0], "<b>": [0.0]}
    assert drawing.figure.layout["shapes"][0]["y0"] == 100.0
    listed = results.table(found["tiny"])
    assert listed.count("<tr>") == 1 + len(SETTINGS)
    assert "<b>" not in listed and "&lt;b&gt;" in listed
    assert "<td>20 %</td>" in listed and "75.0 % (" in listed


def test_without_a_file_the_tab_says_how_to_make_one(tmp_path: Path) -> None:
    with gr.Blocks() as page, gr.Tabs(), gr.Tab("Results") as tab:
        results.results_part(tmp_path / "none.csv.gz", tab)
    words = [str(block.value) for block in page.blocks.values() if isinstance(block, gr.HTML)]
    assert any(results.MISSING in one for one in words)
