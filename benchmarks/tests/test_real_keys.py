"""Keys of a text model: what is compressed, scored and kept, on a tiny model of random weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicCache

from benchmarks import real_keys
from benchmarks.__main__ import main
from benchmarks.key_spectra import Spectra, spectrum
from rotatek.bridge.cache_argument import with_cache
from rotatek.evaluation.real_keys import read
from tests.tiny import byte_tokenizer, scramble

CONTEXT = 96
SHAPE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 300,
}  # fmt: skip


def tiny(*_: Any) -> tuple[Any, Any]:
    """A model and a tokenizer, as `load` gives them."""
    model = scramble(LlamaForCausalLM(LlamaConfig(**SHAPE)), 0)
    return model, byte_tokenizer(["<s>"], "<s>")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{n} times {n} is {n * n}. " for n in range(90)))
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(real_keys, "load", tiny)
    monkeypatch.setattr("benchmarks.key_spectra.EMBEDDED", ())
    return tmp_path / "out"


ARMS = {
    "every number": {"channels": "full"},
    "bits 1": {"bits": 1},
    "FastV, KIVI": {"tokens": "fastv", "keep_tokens": 0.5, "channels": "kivi"},
}


def words(text: Path, folder: Path) -> list[str]:
    arms = ["--arms", json.dumps(ARMS)]
    more = f"--contexts {CONTEXT} --segments 2 --out {folder}".split()
    return ["real-keys", "tiny", str(text), *arms, *more]


def test_every_arm_is_scored_and_a_run_goes_on(
    text: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(text, folder)) == 0
    assert "| FastV, KIVI |" in capsys.readouterr().out
    rows = read(folder / "rows.csv", real_keys.Row)
    assert [(row.segment, row.asked, row.arm) for row in rows] == [
        (n, asked, arm) for n in (0, 1) for asked in ("first", "later") for arm in ARMS
    ]
    by_arm = {row.arm: row for row in rows[:3]}
    later = {row.arm: row for row in rows[3:6]}
    assert later["bits 1"].kl > 1e-4 and later["every number"].kl < 1e-6
    assert later["bits 1"].live == pytest.approx(by_arm["bits 1"].live, rel=0.05)
    exact = by_arm["every number"]
    assert exact.kl < 1e-6 and exact.nats == 0 and exact.top1 == 1
    assert exact.live == pytest.approx(1, abs=1e-2)  # and lengths, and marks of the tokens
    assert by_arm["bits 1"].kl > 1e-4 and by_arm["bits 1"].live < 0.5
    # Half the tokens from the second layer on; of 32 bits Keys take 5 and Values 6, with scales.
    assert by_arm["FastV, KIVI"].live == pytest.approx((1 + 0.5) / 2 * 5.5 / 32, abs=0.02)

    def never(*_: Any) -> Any:
        raise AssertionError("measured twice")

    monkeypatch.setattr(real_keys, "rows_of", never)
    assert main(words(text, folder)) == 0
    assert read(folder / "rows.csv", real_keys.Row) == rows
    lines = (folder / "rows.csv").read_text().splitlines(keepends=True)
    (folder / "rows.csv").write_text("".join(lines[:-1]) + lines[-1][:-9])  # cut short
    assert len(read(folder / "rows.csv", real_keys.Row)) >= len(rows) - 1


def test_the_first_token_is_not_scored_and_only_the_context_is_compressed(text: Path) -> None:
    model, tokenizer = tiny()
    length = real_keys.BEFORE + CONTEXT + real_keys.QUESTION + 1 + real_keys.SCORED
    (ids,) = real_keys.segments_of(tokenizer, [text.read_text()], length, 1)
    with torch.inference_mode():
        plain = DynamicCache(config=model.config)
        seen, tail = real_keys.prompt_of(ids, CONTEXT)
        assert torch.equal(torch.cat([seen, tail], 1), ids)
        model(input_ids=seen, **with_cache(model, plain), use_cache=True)
        held = real_keys.compressed_bytes(plain, real_keys.QUESTION)
        got = real_keys.scored(model, plain, tail)
        whole = model(input_ids=ids).logits.log_softmax(-1)[:, -1 - real_keys.SCORED : -1]
    assert got.shape[1] == real_keys.SCORED
    assert torch.allclose(got, whole, atol=1e-4)
    other = ids[:, : real_keys.QUESTION] + 1
    later = real_keys.prompt_of(ids, CONTEXT, other)
    first = real_keys.BEFORE + CONTEXT
    assert torch.equal(later.read, torch.cat([ids[:, :first], other], 1))
    assert torch.equal(later.tail, ids[:, first:])
    full = 2 * 2 * 2 * 16 * 4  # Keys and Values of two layers and heads
    assert held == full * CONTEXT


def test_segments_take_turns_between_texts() -> None:
    tokenizer = tiny()[1]
    found = real_keys.segments_of(tokenizer, ["abcdefgh", "klmnop"], 3, 5)
    assert [tokenizer.decode(one[0]) for one in found] == ["abc", "klm", "def", "nop"]
    with pytest.raises(SystemExit, match="No text has 9 tokens"):
        real_keys.segments_of(tokenizer, ["abcdefgh"], 9, 5)
    assert len(real_keys.texts_of([])) == len(real_keys.SOURCES)


def test_a_gguf_file_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SystemExit, match="pip install gguf"):
        real_keys.load("some/model.gguf", "cpu", "float32")


def test_spectra_are_those_of_known_states(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    flat = torch.randn(1, 1, 4000, 16, generator=generator)
    lengths = torch.tensor([4000])
    rank, eighth, quarter, half, mean, loudest = spectrum(flat, lengths)
    assert rank > 0.99 and mean < 0.01 and loudest < 1.1
    assert (eighth, quarter, half) == pytest.approx((0.125, 0.25, 0.5), abs=0.03)
    one = torch.zeros(1, 1, 4000, 16)
    one[..., 3] = flat[..., 3] + 2  # a single channel, whose mean has four fifths of its energy
    rank, eighth, *_, mean, _ = spectrum(one + 0.001 * flat, lengths)
    assert rank == pytest.approx(1 / 16, abs=0.01) and eighth > 0.999
    assert mean == pytest.approx(0.8, abs=0.02)
    spectra = Spectra()
    model, tokenizer = tiny()
    ids = tokenizer(
        "a text of some sixty bytes, of which forty are the context", return_tensors="pt"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.key_spectra.EMBEDDED", ())
        spectra.measure(model, "tiny", ids["input_ids"], 4, 40)
    spectra.save(tmp_path / "s.csv")
    assert Spectra.load(tmp_path / "s.csv") == spectra and spectra.has("tiny", 40)
    assert [(row.layer, row.part) for row in spectra.rows] == [
        (layer, part) for layer in (0, 1) for part in ("keys", "values")
    ]
