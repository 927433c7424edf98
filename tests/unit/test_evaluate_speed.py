"""Claims of latency, memory and throughput, on measurements that are known."""

from typing import Any

import pytest

from rotatek.evaluation import speed_claims
from rotatek.evaluation.speed_claims import DENSE, OURS, SPARK, THINK, judged

LLAMA = speed_claims.MODELS[0]


def row(method: str, ms: float, batch: int = 1, tokens: int = 2880, **more: Any) -> dict:
    shape = {"model": LLAMA.name, "method": method, "batch": batch, "visual_tokens": tokens}
    return shape | {"decode_ms": ms, "attention_ms": ms / 2, "peak_mib": ms} | more


def found(files: dict[str, Any], text: str) -> dict[str, str]:
    (one,) = [claim for claim in judged(files) if claim["text"].startswith(text)]
    return one["found"][LLAMA.name]


def test_what_was_not_measured_is_open() -> None:
    for claim in judged({}):
        assert all(one == {"verdict": "open", "figures": ""} for one in claim["found"].values())
        assert claim["found"].keys() == {"Llama3-8B", "Qwen2.5-VL-7B"}


@pytest.mark.parametrize("slow, verdict", [(7.2, "found"), (3.0, "not found")])
def test_a_trend_is_judged_where_it_has_to_show(slow: float, verdict: str) -> None:
    """A short prompt says nothing; the longest and the largest batch do."""
    rows = [row(THINK, 1.0, tokens=576), row(DENSE, 2.0, tokens=576)]
    rows += [row(THINK, slow, 1, 16384), row(DENSE, 4.0, 1, 16384)]
    rows += [row(THINK, 9.0, 32), row(DENSE, 6.0, 32)]
    files = {"efficiency": {"rows": rows}}
    one = found(files, "ThinK lengthens a step")
    assert one["verdict"] == verdict and one["figures"].startswith("0.50 to ")
    assert found({"kernels": {"efficiency": {"rows": rows}}}, "ThinK lengthens a step") == one
    assert found(files, "SparK lengthens a step")["verdict"] == "open"


def test_the_cost_is_split() -> None:
    parts: dict[str, Any] = {"recovery_ms": 1.0, "join_ms": 0.5}
    rows = [row(THINK, 8.0, **parts), row(DENSE, 4.0)]  # attention 4 and 2: recovery is .75
    one = found({"efficiency": {"rows": rows}}, "Recovery and concatenation dominate what ThinK")
    assert one == {"verdict": "found", "figures": "0.75 of the additional time"}


def test_a_prefill_says_how_layers_were_compressed() -> None:
    rows = [row(name, 1.0, prefill_ms=50.0, compress_ms=ms)
            for name, ms in ((OURS, 10.0), (THINK, 2.0), (SPARK, 5.0))]  # fmt: skip
    files: dict[str, Any] = {"efficiency": {"rows": rows}}
    for name, said in (("ThinK", ("found", "4.0")), ("SparK", ("not found", "10.0")),
                       ("RotateK", ("not found", "20.0"))):  # fmt: skip
        one = found(files, f"{name} hardly lengthens a prefill")
        assert one == {"verdict": said[0], "figures": f"{said[1]} % more, a layer at a time"}
    files["kernels"] = {"prefill": {"rows": [
        {"model": LLAMA.name, "share": {"trained: together": 0.009}}]}}  # fmt: skip
    one = found(files, "RotateK hardly lengthens a prefill")
    assert one == {"verdict": "found", "figures": "0.9 % more (20.0 % more a layer at a time)"}


def test_memory_and_throughput() -> None:
    held = {"full width, our cache": 100.0, "ThinK k=32": 60.0, "SparK k=32": 85.0, OURS: 61.0}
    family = {"model": "llava-next-8b (random)",
              "rows": {name: {"kv_mib": mib} for name, mib in held.items()}}  # fmt: skip
    files: dict[str, Any] = {"full_size": {"families": [family]}}
    assert found(files, "SparK's masks")["verdict"] == "found"
    assert found(files, "RotateK's bases") == {
        "verdict": "found", "figures": "1.7 % above ThinK's cache",
    }  # fmt: skip
    capacity = {"model": LLAMA.name, "batch": {"dense": 2, "k=32": 3},
                "tokens_per_s": {"dense": 10.0, "k=32": 15.0, THINK: 12.0}}  # fmt: skip
    files = {"kernels": {"capacity": {"rows": [capacity]}}}
    assert found(files, "RotateK serves more")["verdict"] == "found"
    assert found(files, "ThinK serves fewer")["verdict"] == "not found"
    assert found({"efficiency": {"rows": [row(SPARK, 1.0)]}}, "RotateK fits")["verdict"] == "open"
