"""The results tab: what the committed tables say, and calm where they say nothing."""

import gzip
from pathlib import Path
from typing import Any

import gradio as gr
import plotly.graph_objects as go
import pytest

from rotatek.evaluation.cells import SUITES, Cell, Results, Score
from rotatek.evaluation.real_keys import Divergence, Spectrum
from rotatek.evaluation.speed_claims import SOURCES, Speed
from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS
from rotatek.page.results import (
    answers,
    events,
    files,
    measurements,
    overview_figure,
    styles,
    widgets,
)
from rotatek.paths import assets
from tests.app.test_inspect import figures
from tests.two_models import SECOND, two_models
from viz import theme

COMMITTED = Path(__file__).resolve().parents[2] / "assets" / "results"
WHOLE = {"tokens": "none", "channels": "full"}
OURS = {"tokens": "none", "channels": "rotatek", "keep_channels": 0.25}


def cell(row: str, score: float, settings: dict[str, Any], **more: Any) -> Cell:
    """One of a table `channels` of 15 questions."""
    fields: dict[str, Any] = {
        "model": "m", "suite": "s", "table": "channels", "row": row, "line": "", "times": 0,
        "settings": settings, "nominal": 1.0, "live": 0.7, "same": 0.93, "exact": None,
        "new_tokens": None, "error_rate": None, "score": Score(score, score - 0.1, score + 0.05),
        "kinds": {"charts": Score(0.6, 0.5, 0.7), "signs": Score(0.9, 0.9, 0.9)},
    }  # fmt: skip
    return Cell(**(fields | more))


def evaluated(cells: list[Cell], across: str = "channels", **more: Any) -> files.Files:
    """A model's results: those cells, in a table of their name."""
    names = dict.fromkeys(one.table for one in cells)
    tables = [
        {"name": name, "title": "T", "across": across, "scope": "all", "questions": 15, "of": 15}
        for name in names
    ]
    hidden = {"name": "pages-long", "title": "P", "across": "", "scope": "long"}
    run = {
        "model": {"name": "m", "weights": "0123456789abcdef", "dtype": "bfloat16"},
        "suite": {"name": "s", "categories": {"charts": 10, "signs": 5}},
        "tables": [*tables, hidden | {"questions": 3, "of": 3}],
    }  # fmt: skip
    return files.Files(Results([run | more], cells))


PAIR = [
    cell("Uncompressed", 0.9, WHOLE, live=1.0, same=1.0),
    cell("RotateK, 32", 0.85, OURS, line="RotateK"),
]


def test_real_keys_are_drawn_by_model_and_question() -> None:
    """A line a method of its unbeaten settings, and each model's spectra from least to most."""

    def one(arm: str, live: float, kl: float, asked: str = "first") -> Divergence:
        return Divergence("m", 1024, asked, arm, 2, live, 0.0, kl, 0.0, 1 - kl)

    keys = (
        one("KIVI 4 bits", 0.3, 0.1), one("KIVI 4 bits, groups of 64", 0.28, 0.05),
        one("SnapKV 0.5, KIVI 2 bits", 0.1, 0.2), one("RotateK 2 bits", 0.15, 0.1),
        one("RotateK 2 bits", 0.15, 0.3, "later"), one("every number", 1.0, 0.0),
    )  # fmt: skip
    spectra = tuple(
        Spectrum("m", 1024, layer, part, 0.1 * layer + 0.2, 0.3, 0.4, 0.5, 0.6, 7.0)
        for layer in (0, 1)
        for part in ("keys", "values")
    )
    drawn = measurements.measurements(files.Files(keys=keys, spectra=spectra))["real"]
    assert list(drawn) == ["real-0", "real-1", "spectra-rank", "spectra-quarter"]
    title, first = drawn["real-0"]
    assert title == "m, 1,024 tokens, the first question"
    assert "KIVI: 95 % at 28 %;" in first.summary and "at 30 %" not in first.summary
    assert "SnapKV: 80 % at 10 %" in first.summary and "RotateK: 90 %" in first.summary
    assert "a second question" in drawn["real-1"][0] and "70 %" in drawn["real-1"][1].summary
    assert "25 % (20 % to 30 %), Keys" in drawn["spectra-rank"][1].summary
    go.Figure(data=first.figure.data, layout=first.figure.layout)


@pytest.fixture(scope="module")
def committed() -> files.Files:
    return files.load(COMMITTED)


@pytest.fixture(scope="module")
def two(committed: files.Files) -> files.Files:
    """Two models' results, of which the second was asked less."""
    return committed._replace(results=two_models(committed.results))


@pytest.mark.parametrize("whose", ["committed", "two"])
def test_every_measurement_is_drawn(whose: str, request: pytest.FixtureRequest) -> None:
    found: files.Files = request.getfixturevalue(whose)
    drawn = figures(events.draw(found, None, None))
    assert found.results.main
    for run in found.results.main:
        end = "" if run is found.results.main[0] else f"-{run['model']['name']}"
        shown = {one["name"] + end for one in run["tables"] if one["scope"] != "long"}
        assert shown <= drawn.keys() and len(shown) > 10
    assert all(drawing["reading"] != events.UNCOUNTED for drawing in drawn.values())
    assert {"quant", "latency", "capacity", "solver", "step-qwen25", "held-llava"} <= drawn.keys()
    assert all(drawing["data"] and drawing["summary"] for drawing in drawn.values())


def test_figures_hold_the_tables_numbers(committed: files.Files) -> None:
    (_, drawing) = measurements.kernels(committed)["capacity"]
    wanted = ("capacity", "k=32", "tokens_per_s")
    rates = [o for o in committed.speeds if (o.bench, o.method, o.quantity) == wanted]
    assert len(rates) == 2 and all(f"{one.value:,.0f}" in drawing.summary for one in rates)
    (_, frontier) = answers.answers(evaluated(PAIR), files.Asked("score"))["channels"]
    line = frontier.figure.data[1]
    assert (line["x"].tolist(), line["y"].tolist()) == ([25.0], [85.0])


@pytest.mark.parametrize(
    "measure,category,value",
    [("score", "all", 85), ("agreement", "all", 93), ("score", "charts", 60)],
)
def test_answers_can_be_counted_otherwise(measure: str, category: str, value: float) -> None:
    found = evaluated(PAIR)
    sent = events.draw(found, measure, category)
    assert f"{value} %" in figures(sent)["channels"]["summary"]
    assert files.categories(found) == ["charts", "signs"]
    counted = {"all": "15 questions of charts, signs. ", "charts": "10 questions of charts. "}
    assert figures(sent)["channels"]["reading"].startswith(counted[category])


def test_a_kind_that_a_table_did_not_ask_is_said() -> None:
    sent = events.draw(evaluated(PAIR), "score", "pages")
    assert figures(sent)["channels"]["reading"] == events.UNCOUNTED


def test_tables_of_any_name_are_drawn_and_solved_budgets_come_first() -> None:
    cells = [
        cell(one.row, one.score.mean, dict(one.settings), line=one.line, table=name)
        for name in ("newest", "rivals")
        for one in PAIR
    ]
    drawn = answers.answers(evaluated(cells), files.Asked("score"))
    assert list(drawn) == ["rivals", "newest"]  # and none for the pages alone


def test_the_opening_names_the_weights_that_it_is_of() -> None:
    found = evaluated(PAIR, ran_on={"device": "a GPU"})
    (_, drawing) = overview_figure.opening(found)[1]["opening"]
    assert drawing.reading.endswith(" Up to 15 questions; weights 01234567, bfloat16, on a GPU.")


def test_rivals_are_a_line_a_method_and_the_better_pruner_of_a_size() -> None:
    kivi = {"tokens": "none", "channels": "kivi"}
    cells = [
        PAIR[0],
        cell("a", 0.5, kivi | {"tokens": "fastv"}, line="KIVI (bits)", times=8),
        cell("b", 0.6, kivi | {"tokens": "visionzip"}, line="KIVI (bits)", times=8),
        cell("c", 0.8, kivi, line="KIVI (bits)", times=4, live=0.8),
        cell("d", 0.7, OURS, line="RotateK (K + V, adaptive)", times=4),
    ]
    (_, drawing) = answers.answers(evaluated(cells, "live"), files.Asked("score"))["channels"]
    lines = {line["name"]: line["y"].tolist() for line in drawing.figure.data if line.get("name")}
    assert lines == {"KIVI (bits)": [60.0, 80.0], "RotateK (K + V, adaptive)": [70.0]}


def test_pruners_share_a_row_for_what_joins_them() -> None:
    cells = [
        PAIR[0],
        cell("a", 0.5, WHOLE | {"tokens": "fastv"}, line="tokens only (0.25)"),
        cell("b", 0.5, WHOLE | {"tokens": "random"}, line="tokens only (0.25)"),
        cell("c", 0.5, {"tokens": "random", "channels": "think"}, line="ThinK (0.25)"),
    ]
    (_, drawing) = answers.answers(evaluated(cells, "pruners"), files.Asked("score"))["channels"]
    axis = drawing.figure.layout["yaxis"]
    assert list(axis["ticktext"]) == ["tokens only (0.25)", "ThinK (0.25)"]
    assert [(line["name"], list(line["y"])) for line in drawing.figure.data] == [
        ("FastV", [0]), ("Random", [0, 1]),
    ]  # fmt: skip


def test_missing_and_damaged_files_make_a_sentence(tmp_path: Path) -> None:
    for damage in ("{", "[]"):  # of the latter the cells are read
        (tmp_path / "runs.json").write_text(damage)
        for name in SOURCES:
            (tmp_path / f"{name}.json").write_text(damage)
        packed = gzip.compress(b"model\nm\n")
        for cells in (packed, packed[:-9], packed[:12], b"model\nm\n"):
            (tmp_path / "cells.csv.gz").write_bytes(cells)
            assert files.load(tmp_path) == files.Files()
    assert figures(events.draw(files.Files(), "score", "nothing")) == {}
    with gr.Blocks() as page:
        widgets.ResultsWidgets(tmp_path)
    words = [block.value for block in page.blocks.values() if isinstance(block, gr.HTML)]
    assert any(widgets.MISSING in str(value) for value in words)


def test_efficiency_becomes_a_figure_a_quantity_and_a_table() -> None:
    speeds = tuple(
        Speed("efficiency", "M-1", name, 1, 2880, "decode_ms", ms)
        for name, ms in (("dense", 9.5), ("<k>", 1.23456))
    )
    found = files.Files(speeds=speeds)
    drawn = figures(events.draw(found, None, None))
    assert drawn.keys() == {"eff-decode-ms-m-1"}
    assert "1 x 2,880 tokens: 9.50 ms, dense" in drawn["eff-decode-ms-m-1"]["summary"]
    html = widgets.table(measurements.efficiency_rows(found), "t", "l")
    assert "&lt;k&gt;" in html and "<k>" not in html and "1.235" in html
    assert html.count("<th ") == 5 and "decode ms" in html


def test_efficiency_is_drawn_for_each_model_and_a_prefill_once(committed: files.Files) -> None:
    drawn = measurements.efficiency(committed)
    for column, title in (("decode-ms", "A whole decode step"), ("prefill-ms", "A prefill")):
        for model in ("Llama3-8B", "Qwen2.5-VL-7B"):
            said, drawing = drawn[f"eff-{column}-{model.lower().replace('.', '')}"]
            assert said.startswith(title) and said.endswith(f": {model}")
            many = {trace["name"] for trace in drawing.figure.data}
            assert many == {""} if column == "prefill-ms" else len(many) == 5


def test_rows_are_drawn_as_the_methods_that_the_record_names() -> None:
    def style(**settings: Any) -> theme.Style:
        return styles.style_of(cell("anything", 0.5, settings))

    assert style(tokens="fastv", channels="think") is CHANNELS["think"]
    alone = style(tokens="fastv", channels="full")
    assert (alone.label, alone.colour) == ("FastV", TOKENS["fastv"].colour)
    assert style(**WHOLE) is theme.UNCOMPRESSED
    assert style(**WHOLE, cache_dtype="fp8") is CHANNELS["full"]
    assert styles.style_named("rotatek") is CHANNELS["rotatek"]
    assert styles.style_named("full") is theme.UNCOMPRESSED
    for unknown in (style(tokens="none", channels="gone"), style(tokens="gone", channels="full")):
        assert unknown.colour == styles.style_named("?").colour == theme.INK


def test_the_opening_says_what_every_method_needs(two: files.Files) -> None:
    run = two.results.main[0]
    said, drawn = overview_figure.opening(two)
    whole = overview_figure.reference(two.results, run)
    assert whole is not None
    again, first, _ = said.splitlines()
    assert again == overview_figure.second_sentence(two.results)
    assert first.startswith(f"pocket: Within two points of the uncompressed {100 * whole:.1f} %, ")
    for best in overview_figure.bests(two.results, run):
        one = best.nearest(whole - overview_figure.NEAR)
        held = "" if one is None else f" {100 * one.live:.0f} %"
        assert f"{best.name}{held}" in first.replace(" needs", "")
    assert "RotateK" in drawn["opening"][1].summary
    assert overview_figure.opening(files.Files()) == ("", {})


def test_second_questions_open_the_results() -> None:
    results = files.load(assets() / "results").results
    whole, *methods = overview_figure.asked_again(results)
    assert [title.partition(" (")[0] for title in whole if title] == [
        f"{suite}: {model}"
        for suite in ("unseen renderers", "pages by other hands")
        for model in ("pocket", "pocket-smol")
    ]
    assert "RotateK" in [row[""] for row in methods]
    for run in results.conversations:
        if (run["ask"], run["suite"]["name"]) not in overview_figure.AGAIN:
            continue
        words = f"{SUITES[run['suite']['name']]}: {run['model']['name']} ("
        (title,) = (one for one in whole if one.startswith(words))
        cells = results.of(run)["second"]
        assert float(whole[title]) == round(100 * cells[0].score.mean, 1) > 50
        for number, most in enumerate(overview_figure.BYTES):
            best = max(100 * cell.score.mean for cell in cells if cell.live <= most)
            said = [row[title].split(" / ")[number] for row in methods if row[title]]
            assert max(float(one) for one in said if one != "-") == round(best, 1)
    assert overview_figure.asked_again(files.Files().results) == []


def test_the_first_sentence_counts_comparisons_at_rivals_bytes() -> None:
    results = files.load(assets() / "results").results
    said = overview_figure.second_sentence(results)
    numbers = tuple(int(word.strip(",.")) for word in said.split() if word[0].isdigit())
    better, worse, count = results.against_rivals
    assert numbers == (better, count, worse) and worse < better < count
    rivals = [cell for cell in results.cells if cell.against_ours]
    assert {cell.ask for cell in rivals} == {"second", "neutral"}
    assert all("bits" not in cell.settings for cell in rivals) and len(rivals) == count
    assert overview_figure.second_sentence(files.Files().results) == ""


def test_both_models_are_in_every_figure_and_claim(two: files.Files) -> None:
    """Also where one of them has no such table."""
    models = [run["model"]["name"] for run in two.results.main]
    assert models == ["pocket", SECOND]
    said, first = overview_figure.opening(two)
    assert all(f"{name}: Within" in said for name in models) and len(first) == len(models)
    drawn = answers.answers(two, files.Asked())
    for run, other in zip(two.results.main, reversed(models), strict=True):
        for table in run["tables"]:
            name = answers.name_of(table["name"], two, run)
            if table["scope"] == "long":
                assert name not in drawn
                continue
            title, drawing = drawn[name]
            assert title.endswith(f": {run['model']['name']}")
            stands = any(one["name"] == table["name"] for run in two.results.main
                         if run["model"]["name"] == other for one in run["tables"])  # fmt: skip
            assert stands or f"{other}: not measured yet" in drawing.reading
    for lines in widgets.claims(two).values():
        assert all(len(line) == len(lines[0]) for line in lines)
    (about, speeds) = widgets.claims(two).values()
    assert {f"{name}, at equal live bytes" for name in models} <= about[0].keys()
    assert {"Llama3-8B", "Qwen2.5-VL-7B"} <= speeds[0].keys()


def test_the_opening_s_lines_only_rise(committed: files.Files) -> None:
    results = committed.results
    for best in (best for run in results.main for best in overview_figure.bests(results, run)):
        shares = [one.live for one in best.cells]
        scores = [one.score.mean for one in best.cells]
        assert shares == sorted(shares) and scores == sorted(scores)
        assert len(set(scores)) == len(scores)
