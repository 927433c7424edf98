"""The results tab: what the committed files say, and calm where they say nothing."""

from pathlib import Path

import gradio as gr
import pytest

from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS
from rotatek.page.results import (
    answers,
    events,
    files,
    measurements,
    opening,
    styles,
    widgets,
)
from tests.app.test_inspect import figures
from viz import theme

COMMITTED = Path(__file__).resolve().parents[2] / "assets" / "results"
ROW = {"label": "Uncompressed", "actual_kv": 1.0, "score": 0.9, "interval": [0.8, 0.95]}
EVALUATION = {
    "suite": {"categories": {"charts": 10, "signs": 5}},
    "tables": [
        {
            "name": "channels",
            "title": "Key channels kept of 128",
            "questions": 15,
            "rows": [
                ROW
                | {
                    "agreement": 1.0,
                    "by_category": {"charts": {"score": 0.7}, "signs": {"score": 0.9}},
                },
                ROW
                | {
                    "label": "RotateK, 32",
                    "actual_kv": 0.7,
                    "score": 0.85,
                    "agreement": 0.93,
                    "by_category": {"charts": {"score": 0.6, "interval": [0.5, 0.7]}},
                },
            ],
        }
    ],
}


@pytest.fixture
def committed() -> dict:
    return files.load(COMMITTED)


def test_every_committed_measurement_is_drawn(committed: dict) -> None:
    drawn = figures(events.draw(committed, None, None))
    for end, built in files.evaluations(committed).items():
        assert {f"{table['name']}{end}" for table in files.tables_of(built)} <= drawn.keys()
    assert all(drawing["reading"] != events.UNCOUNTED for drawing in drawn.values())
    assert {"quant", "latency", "capacity", "solver"} <= drawn.keys()
    assert all(drawing["data"] and drawing["summary"] for drawing in drawn.values())


def test_figures_hold_the_files_numbers(committed: dict) -> None:
    for row in committed["kernels"]["capacity"]["rows"]:
        (_, drawing) = measurements.kernels(committed)["capacity"]
        assert f"{row['tokens_per_s']['k=32']:,.0f}" in drawing.summary
    (_, frontier) = answers.answers({"results": EVALUATION}, files.Asked("score"))["channels"]
    line = frontier.figure.data[1]
    assert (line["x"].tolist(), line["y"].tolist()) == ([25.0], [85.0])


@pytest.mark.parametrize(
    "measure,category,value",
    [("score", "all", 85), ("agreement", "all", 93), ("score", "charts", 60)],
)
def test_answers_can_be_counted_otherwise(measure: str, category: str, value: float) -> None:
    sent = events.draw({"results": EVALUATION}, measure, category)
    assert f"{value} %" in figures(sent)["channels"]["summary"]
    assert files.categories({"results": EVALUATION}) == ["charts", "signs"]
    counted = {"all": "15 questions of charts, signs. ", "charts": "10 questions of charts. "}
    assert figures(sent)["channels"]["reading"].startswith(counted[category])


def test_tables_of_any_name_are_drawn() -> None:
    """Tokens fixed and channels varied as lines; a table of a name that is new comes last."""
    kept: dict = EVALUATION
    (table,) = kept["tables"]
    rows = [
        row | {"label": row["label"].replace("RotateK", "FastV 0.4 + RotateK")}
        for row in table["rows"]
    ]
    more = [table | {"name": name, "rows": rows} for name in ("newest", "sparsity-x", "rivals")]
    drawn = answers.answers({"results": kept | {"tables": more}}, files.Asked("score"))
    assert list(drawn) == ["rivals", "sparsity-x", "newest"]


def test_the_opening_names_the_weights_that_it_is_of() -> None:
    model = {"name": "m", "weights": "0123456789abcdef", "dtype": "bfloat16"}
    found = {"results": EVALUATION | {"model": model, "ran_on": {"device": "a GPU"}}}
    (_, drawing) = opening.opening(found)[1]["opening"]
    assert drawing.reading.endswith(" Up to 15 questions; weights 01234567, bfloat16, on a GPU.")


def test_whole_pages_are_a_kind_of_question() -> None:
    kept: dict = EVALUATION
    (table,) = kept["tables"]
    kinds = {"charts": {"score": 0.9}, "transcription": {"score": 0.4}}
    rows = [row | {"by_category": kinds} for row in table["rows"]]
    both = [table | {"rows": rows}, table | {"name": "channels-long", "rows": rows}]
    found = {
        "results": kept
        | {"tables": both, "suite": {"categories": {"charts": 1, "transcription": 3}}}
    }
    assert files.categories(found) == list(kinds)
    whole, pages = (figures(events.draw(found, "score", c)) for c in ("all", "transcription"))
    assert whole.keys() == pages.keys() == {"opening", "channels"}
    assert whole["channels"]["summary"] != pages["channels"]["summary"]


def test_rivals_are_a_line_a_method_and_the_better_pruner_of_a_budget() -> None:
    kept: dict = EVALUATION
    labels = {
        "FastV + KIVI (2 bits), 8x": 0.5, "VisionZip + KIVI (2 bits), 8x": 0.6,
        "KIVI (4 bits), 4x": 0.8, "RotateK (K + V, adaptive), 4x": 0.7,
    }  # fmt: skip
    rows = [ROW, *(ROW | {"label": label, "score": score} for label, score in labels.items())]
    one = kept["tables"][0] | {"name": "rivals", "rows": rows}
    found = {"results": kept | {"tables": [one]}}
    (_, drawing) = answers.answers(found, files.Asked("score"))["rivals"]
    lines = {line["name"]: line["y"].tolist() for line in drawing.figure.data if line.get("name")}
    assert lines == {"KIVI (bits)": [60.0, 80.0], "RotateK (K + V, adaptive)": [70.0]}


def test_pruners_share_a_row_for_what_joins_them() -> None:
    kept: dict = EVALUATION
    labels = "FastV only (0.25)", "Random only (0.25)", "Random + ThinK (0.25)"
    rows = [ROW, *(ROW | {"label": label} for label in labels)]
    one = kept["tables"][0] | {"name": "pruners", "rows": rows}
    found = {"results": kept | {"tables": [one]}}
    (_, drawing) = answers.answers(found, files.Asked("score"))["pruners"]
    axis = drawing.figure.layout["yaxis"]
    assert list(axis["ticktext"]) == ["tokens only (0.25)", "ThinK (0.25)"]
    assert [(line["name"], list(line["y"])) for line in drawing.figure.data] == [
        ("FastV", [0]), ("Random", [0, 1]),
    ]  # fmt: skip


def test_missing_and_damaged_files_make_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "kernels.json").write_text("{")
    assert files.load(tmp_path) == {} == figures(events.draw({}, "score", "nothing"))
    with gr.Blocks() as page:
        widgets.results_part(tmp_path)
    words = [block.value for block in page.blocks.values() if isinstance(block, gr.HTML)]
    assert any(widgets.MISSING in str(value) for value in words)


def test_efficiency_becomes_a_figure_a_column_and_a_table() -> None:
    rows = [
        {"method": name, "batch": 1, "visual_tokens": 2880, "decode_ms": ms, "prefill_ms": None}
        for name, ms in (("dense", 9.5), ("<k>", 1.23456))
    ]
    for found in ({"efficiency": {"rows": rows}}, {"efficiency": {"efficiency": {"rows": rows}}}):
        drawn = figures(events.draw(found, None, None))
        assert drawn.keys() == {"eff-decode-ms"}
        assert "1 x 2,880 tokens: 9.50 ms, dense" in drawn["eff-decode-ms"]["summary"]
        html = widgets.table(files.efficiency_rows(found), "t", "l")
    assert "&lt;k&gt;" in html and "<k>" not in html and "1.235" in html
    assert html.count("<th ") == 5 and "decode ms" in html
    assert measurements.efficiency({"efficiency": {"rows": ["?"]}}) == {}


def test_efficiency_is_drawn_for_each_model_and_a_prefill_once(committed: dict) -> None:
    drawn = measurements.efficiency(committed)
    for column, title in (("decode-ms", "A whole decode step"), ("prefill-ms", "A prefill")):
        for model in ("Llama3-8B", "Qwen2.5-VL-7B"):
            said, drawing = drawn[f"eff-{column}-{model.lower().replace('.', '')}"]
            assert said.startswith(title) and said.endswith(f": {model}")
            many = {trace["name"] for trace in drawing.figure.data}
            assert many == {""} if column == "prefill-ms" else len(many) == 5


def test_rows_are_drawn_as_the_methods_that_the_data_names() -> None:
    both = {"tokens": "fastv", "channels": "think"}
    assert styles.style_of("anything", both) is CHANNELS["think"]
    alone = styles.style_of("anything", {"tokens": "fastv", "channels": "full"})
    assert (alone.label, alone.colour) == ("FastV", TOKENS["fastv"].colour)
    assert styles.style_of("SparK (mean)") is CHANNELS["spark"]
    assert styles.style_of("VisionZip .35 + RotateK k=32") is CHANNELS["rotatek"]
    for label in ("Uncompressed", "full width, our cache", "dense"):
        assert styles.style_of(label) is theme.UNCOMPRESSED
    assert styles.style_of("x", {"tokens": "none", "channels": "full"}) is theme.UNCOMPRESSED
    for unknown in ({"tokens": "none", "channels": "gone"}, {"tokens": "gone", "channels": "full"}):
        assert styles.style_of("x", unknown).colour == styles.style_of("?").colour == theme.INK


def test_the_opening_says_what_every_method_needs() -> None:
    built = files.load(COMMITTED)["results"]
    said, drawn = opening.opening({"results": built})
    whole = opening.reference(built)
    assert whole is not None
    assert said.startswith(f"Within two points of the uncompressed {100 * whole:.1f} %, ")
    for best in opening.bests(built):
        row = best.nearest(whole - opening.NEAR)
        held = "" if row is None else f" {100 * row['actual_kv']:.0f} %"
        assert f"{best.name}{held}" in said.replace(" needs", "")
    assert "RotateK" in drawn["opening"][1].summary
    assert opening.opening({}) == ("", {})


def test_both_models_stand_in_every_figure_and_claim(committed: dict) -> None:
    models = [built["model"]["name"] for built in files.evaluations(committed).values()]
    assert models[0] == "pocket" and len(models) > 1
    said, first = opening.opening(committed)
    assert all(f"{name}: Within" in said for name in models) and len(first) == len(models)
    drawn = answers.answers(committed, files.Asked())
    for end, built in files.evaluations(committed).items():
        for table in files.tables_of(built):
            title, drawing = drawn[f"{table['name']}{end}"]
            assert title.endswith(f": {built['model']['name']}")
            others = [one for one in models if one != built["model"]["name"]]
            for other in others:
                stands = any(table["name"] in name and title.endswith(f": {other}")
                             for name, (title, _) in drawn.items())  # fmt: skip
                assert stands or f"{other}: not measured yet" in drawing.reading
    for lines in widgets.claims(committed).values():
        assert all(len(line) == len(lines[0]) for line in lines)
    (about, speeds) = widgets.claims(committed).values()
    assert {f"{name}, at equal live bytes" for name in models} <= about[0].keys()
    assert {"Llama3-8B", "Qwen2.5-VL-7B"} <= speeds[0].keys()


def test_the_opening_s_lines_only_rise() -> None:
    built = files.evaluations(files.load(COMMITTED)).values()
    for best in (best for one in built for best in opening.bests(one)):
        shares = [row["actual_kv"] for row in best.rows]
        scores = [row["score"] for row in best.rows]
        assert shares == sorted(shares) and scores == sorted(scores)
        assert len(set(scores)) == len(scores)
