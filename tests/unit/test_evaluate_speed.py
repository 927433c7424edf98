"""Claims of latency, memory and throughput, on measurements that are known."""

import json
from pathlib import Path
from typing import Any

import pytest

from rotatek.evaluation import report, speed_claims
from rotatek.evaluation.result_json import text_of
from rotatek.evaluation.speed_claims import DENSE, OURS, SOURCES, SPARK, THINK, flat, judged

LLAMA = "Llama3-8B"


def row(method: str, ms: float, batch: int = 1, tokens: int = 2880, **more: Any) -> dict:
    shape = {"model": LLAMA, "method": method, "batch": batch, "visual_tokens": tokens}
    return shape | {"decode_ms": ms, "attention_ms": ms / 2, "peak_mib": ms} | more


def found(files: dict[str, Any], key: str) -> tuple[str, str]:
    """The verdict on Llama3-8B, and what was measured."""
    (one,) = [one for one in judged(flat(files))[1] if (one.claim, one.model) == (key, LLAMA)]
    return one.verdict, report.said(one).partition(": ")[2]


def test_what_was_not_measured_is_open() -> None:
    pairs, every = judged(flat({}))
    assert not pairs and len(every) == 2 * len(speed_claims.CLAIMS)
    assert {(one.verdict, one.note) for one in every} == {("open", "not measured")}


@pytest.mark.parametrize("slow, verdict", [(7.2, "found"), (3.0, "mixed")])
def test_a_trend_is_judged_where_it_has_to_show(slow: float, verdict: str) -> None:
    """A short prompt says nothing; the longest and the largest batch do, each of them."""
    rows = [row(THINK, 1.0, tokens=576), row(DENSE, 2.0, tokens=576)]
    rows += [row(THINK, slow, 1, 16384), row(DENSE, 4.0, 1, 16384)]
    rows += [row(THINK, 9.0, 32), row(DENSE, 6.0, 32)]
    one = found({"efficiency": {"rows": rows}}, "step-think")
    assert one[0] == verdict and one[1].endswith(" times the dense step")
    assert found({"efficiency": {"efficiency": {"rows": rows}}}, "step-think") == one
    assert found({"efficiency": {"rows": rows}}, "step-spark")[0] == "open"


def test_the_cost_is_split() -> None:
    parts: dict[str, Any] = {"recovery_ms": 1.0, "join_ms": 0.5}
    rows = [row(THINK, 8.0, **parts), row(DENSE, 4.0)]  # attention 4 and 2: recovery is .75
    one = found({"efficiency": {"rows": rows}}, "recovery-ThinK")
    assert one == ("found", ".75 of the additional time")


def test_one_measure_for_what_a_prefill_gets_longer_by() -> None:
    rows = [row(name, 1.0, prefill_ms=50.0, compress_ms=ms)
            for name, ms in ((OURS, 10.0), (THINK, 2.0), (SPARK, 5.0))]  # fmt: skip
    files: dict[str, Any] = {"efficiency": {"rows": rows}}
    files["kernels"] = {"prefill": {"rows": [
        {"model": LLAMA, "N": 2880, "share": {"trained: together": 0.009}}]}}  # fmt: skip
    alone = "of the prefill, a layer at a time"
    against = f"1 of 1 pairs against it; .20 {alone}"
    assert found(files, "prefill-ours") == ("not found", against)
    assert found(files, "prefill-think") == ("found", f".04 {alone}")
    assert found(files, "prefill-spark") == ("not found", against.replace("20", "10"))
    assert found(files, "prefill-together") == ("found", ".01 of the prefill")


def test_memory_and_throughput() -> None:
    held = {"full width, our cache": 100.0, "ThinK k=32": 60.0, "SparK k=32": 85.0, OURS: 61.0}
    rows = {name: {"kv_mib": mib} for name, mib in held.items()}
    rows |= {"uncompressed": {"prefill_extra_mib": 726.0}}
    rows[OURS]["prefill_extra_mib"] = 760.0
    family = {"model": "llava-next-8b (random)", "visual_tokens": 2928, "rows": rows}
    files: dict[str, Any] = {"full_size": {"families": [family]}}
    assert found(files, "masks")[0] == "found"
    assert found(files, "bases") == ("found", "1.02 times ThinK's cache")
    assert found(files, "peak-prefill")[0] == "not found"
    capacity = {"model": LLAMA, "N": 5, "batch": {"dense": 2, "k=32": 3, THINK: 3},
                "tokens_per_s": {"dense": 10.0, "k=32": 15.0, THINK: 12.0}}  # fmt: skip
    files = {"kernels": {"capacity": {"rows": [capacity]}}}
    assert found(files, "tokens-ours")[0] == found(files, "batches")[0] == "found"
    assert found(files, "tokens-think")[0] == "not found"
    assert found({"efficiency": {"rows": [row(SPARK, 1.0)]}}, "batches")[0] == "open"


def test_a_measurement_names_the_method_that_it_is_drawn_as() -> None:
    words = {
        "SparK (mean)": "spark", "VisionZip .35 + RotateK k=32": "rotatek", "FastV only": "fastv",
        "Uncompressed": "full", "full width, our cache": "full", "dense": "full",
        "k=32, r=32": "rotatek", "24 mixed": "", "torch.linalg.eigh": "",
    }  # fmt: skip
    assert {one: speed_claims.drawn_as(one) for one in words} == words


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    files: dict[str, Any] = {name: {} for name in SOURCES}
    files["efficiency"] = {"efficiency": {"rows": [row(DENSE, 4.0), row(THINK, 4.4)]}}
    for name, held in files.items():
        (tmp_path / f"{name}.json").write_text(text_of(held), encoding="utf-8")
    assert speed_claims.measured(tmp_path) == flat(files) != []
    for damage in ("{", "[]", '{"rows": [1]}', '{"rows": [{"method": "dense"}]}'):
        (tmp_path / "efficiency.json").write_text(damage)
        with pytest.raises(ValueError):
            speed_claims.measured(tmp_path)
    (tmp_path / "efficiency.json").unlink()
    with pytest.raises(OSError):
        speed_claims.measured(tmp_path)


def test_results_are_written_a_line_a_row() -> None:
    """In lists and by name, however deep a row is; what has no table is laid out by its levels."""
    deep = {"shape": {"B": 1}, "times": {"ours": {"us": 0.1}}}
    named = {"k = 32": deep, "\u00e9": None}
    held = {"torch": "2", "none": [], "a": {"rows": [deep, deep], "n": (1, 2)},
            "families": [{"model": "m", "rows": named}], "parts": {4: {"x": True}}}  # fmt: skip
    text = text_of(held)
    assert json.loads(text) == json.loads(json.dumps(held))
    digits = {"a": 565.0456209662078, "b": 1.23456789e-9, "n": 126214480, "one": 1.0}
    assert json.loads(text_of(digits)) == {"a": 565.046, "b": 1.23457e-9, "n": 126214480, "one": 1}
    line = '{"shape":{"B":1},"times":{"ours":{"us":0.1}}}'
    assert text.splitlines() == [
        "{",
        ' "torch": "2",',
        ' "none": [],',
        ' "a": {',
        '  "rows": [',
        f"   {line},",
        f"   {line}",
        "  ],",
        '  "n": [1,2]',
        " },",
        ' "families": [',
        "  {",
        '   "model": "m",',
        '   "rows": {',
        f'    "k = 32": {line},',
        '    "\u00e9": null',
        "   }",
        "  }",
        " ],",
        ' "parts": {',
        '  "4": {"x":true}',
        " }",
        "}",
    ]
