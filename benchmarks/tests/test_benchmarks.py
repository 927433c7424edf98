"""Every benchmark runs on the CPU, tiny: so that no minute of a GPU goes to a slip of the pen."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks import attention, real_keys
from benchmarks.__main__ import main
from kernels.reference import attend_reference
from tests.tiny import byte_tokenizer, scramble

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: run them there")


def rows(folder: Path, *words: str, status: int = 0) -> list[dict[str, Any]]:
    """A command's rows."""
    path = folder / "report.json"
    assert main([*words, "--json", str(path)]) == status
    found: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return found


def test_every_arm_of_attention_agrees_with_plain_pytorch(tmp_path: Path) -> None:
    found = rows(tmp_path, "attention", "--tiny", "--rounds", "1", status=1)
    refused = [row["arm"] for row in found if "refused" in row]
    timed = {row["arm"]: row for row in found if "over_best_dense" in row}
    assert refused == ["cudnn"]  # which needs a GPU
    assert set(timed) == {"k=32", "digits 24", "digits 64", "our dense", "flash"}
    assert timed["digits 24"]["MB"] < timed["digits 64"]["MB"] < timed["k=32"]["MB"]


def test_an_arm_that_is_wrong_has_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "DIGITS", {})
    monkeypatch.setattr(attention, "attend_triton", lambda *given: attend_reference(*given) + 1)
    words = "attention --tiny --rounds 1 --digits".split()
    found = rows(tmp_path, *words, status=1)
    assert [row["arm"] for row in found if "refused" in row] == ["k=32", "our dense", "cudnn"]
    assert {row["arm"] for row in found if "us" in row} == {"flash", "read only"}


def test_generate_is_timed_plainly_and_with_our_cache(tmp_path: Path) -> None:
    found = rows(tmp_path, *"model --tiny --rounds 1 --new 8 --batch 2".split())
    assert [row["arm"] for row in found] == ["transformers", "uncompressed", "k=d/4", "smaller=8"]
    assert all(
        row[f"{part}_ms"] > 0 for row in found for part in ("first_token", "step", "prefill")
    )
    assert found[-1]["MB"] < found[1]["MB"]


def test_clients_are_answered_together_and_in_turns(tmp_path: Path) -> None:
    words = "serving --tiny --clients 3 --turns 1 --new 4 --over 0 --settings uncompressed mixed"
    found = rows(tmp_path, *words.split())
    assert [row["setting"] for row in found] == ["uncompressed", "mixed"]
    assert all(row["tokens_s"] > 0 < row["over_turns"] for row in found)


def test_stored_pictures_are_asked_and_weighed(tmp_path: Path) -> None:
    found = rows(tmp_path, *"pictures --tiny --pages 3 --rounds 1".split())
    first, sizes, rates = found[-3:]
    assert {"stored_times_sooner", "opened_times_sooner"} < first.keys()
    assert sizes["file_MB"] < sizes["held_MB"] < sizes["dense_MB"]
    assert all(rates[name] > 0 for name in ("pages_read_s", "pages_asked_s", "over"))


def test_real_keys_are_scored_against_the_plain_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape: dict[str, Any] = {
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    }  # fmt: skip
    model = scramble(LlamaForCausalLM(LlamaConfig(**shape)), 0)
    monkeypatch.setattr(real_keys, "load", lambda *_: (model, byte_tokenizer(["<s>"], "<s>")))
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} times {n} is {n * n}. " for n in range(90)))
    arms = {
        "every number": {"channels": "full"},
        "smaller": {"smaller": 6},
        "FastV, KIVI": {"tokens": "fastv", "keep_tokens": 0.5, "channels": "kivi"},
    }
    words = "--context 96 --segments 2 --asked first later --arms".split()
    found = rows(tmp_path, "real-keys", "tiny", str(text), *words, json.dumps(arms))
    assert [row["arm"] for row in found] == 2 * [*arms]
    for exact, smaller, dropped in (found[:3], found[3:]):
        assert abs(exact["kl"]) < 1e-6 and exact["same_first"] == 1
        assert exact["live"] == pytest.approx(1, abs=1e-2)  # and lengths, and marks of the tokens
        assert smaller["kl"] > 1e-4 and smaller["live"] < 0.5
        # Half the tokens from the second layer on; of 32 bits Keys take 5 and Values 6.
        assert dropped["live"] == pytest.approx((1 + 0.5) / 2 * 5.5 / 32, abs=0.02)
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SystemExit, match="pip install gguf"):
        real_keys.load("some/model.gguf", "cpu", "float32")
