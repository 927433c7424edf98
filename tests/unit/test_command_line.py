"""`python -m rotatek`: what it prints, where, and how it refuses."""

import json
from pathlib import Path

import pytest

from rotatek import __main__ as command
from tests.tiny import tiny_qwen

FIELDS = {
    "answer", "new_tokens", "visual_tokens", "visual_tokens_kept", "nominal_kv", "kv_bytes",
    "kv_bytes_full", "prefill_ms", "decode_ms_per_token", "attention",
}  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model in place of a loaded one; everything else is the real command."""
    from rotatek import models

    monkeypatch.setattr(models, "load", lambda model, device=None, four_bit=False: tiny_qwen())


@pytest.fixture
def image(picture, tmp_path: Path) -> str:
    path = tmp_path / "picture.png"
    picture(400, 300).save(path)
    return str(path)


def test_ask_prints_the_answer_alone(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["ask", image, "what?", "--max-new-tokens", "4"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert err == ""


def test_ask_json_has_every_field(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--tokens", "fastv", "--keep-tokens", "0.4", "--keep-channels", "0.25"]
    assert command.main(["ask", image, "what?", "--json", "--max-new-tokens", "4", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) >= FIELDS
    assert report["nominal_kv"] == pytest.approx(0.25)
    assert report["visual_tokens_kept"] == round(0.4 * report["visual_tokens"])
    assert report["kv_bytes"] < report["kv_bytes_full"]
    assert report["attention"] in ("reference", "triton")


def test_batch_keeps_order_and_survives_a_bad_row(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"image": image, "question": "first?"},
        {"image": str(tmp_path / "missing.png"), "question": "second?"},
        {"image": image, "question": "third?"},
    ]
    batch = tmp_path / "batch.jsonl"
    batch.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert command.main(["ask", "--batch", str(batch), "--max-new-tokens", "3"]) == 2
    out, err = capsys.readouterr()
    reports = [json.loads(line) for line in out.splitlines()]
    assert [r["question"] for r in reports] == ["first?", "second?", "third?"]
    assert "error" in reports[1] and "answer" in reports[2]
    assert "question" in err  # the bar
    assert err.strip().splitlines()[-1].startswith("1 of the batch's questions")


def test_compare_prints_every_method_at_one_budget(
    image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--tokens", "fastv", "--keep-tokens", "0.4", "--max-new-tokens", "3"]
    assert command.main(["compare", image, "what?", "--json", *options]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["method"] for r in rows] == ["baseline", "fastv only", "think", "spark", "rotatek"]
    assert {r["nominal_kv"] for r in rows[1:]} == {0.25}
    assert command.main(["compare", image, "what?", *options]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--keep-tokens", "0"], "keep_tokens must be a number above 0"),
        (["--keep-channels", "1.5"], "keep_channels must be a number above 0"),
        (["--channels", "palu"], "channels must be one of"),
        (["--tokens", "dart"], "tokens must be one of"),
        (["--solver", "qr"], "solver must be one of"),
        (["--max-new-tokens", "0"], "max_new_tokens must be"),
        (["--batch", "nothing.jsonl"], "Give either IMAGE"),
    ],
)
def test_refusals_are_one_sentence_and_status_2(
    image: str, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["ask", image, "what?", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize("line", ["not json", '{"image": "x.png"}', "[]", '{"question": "?"}', "7"])
def test_a_broken_batch_file_names_the_line(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = tmp_path / "batch.jsonl"
    batch.write_text(line + "\n")
    assert command.main(["ask", "--batch", str(batch)]) == 2
    assert "Line 1 of the batch file" in capsys.readouterr().err


def test_usage_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main(["ask", "--keep-tokens", "much"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_missing_arguments_say_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["ask"]) == 2
    assert "Give an IMAGE and a QUESTION" in capsys.readouterr().err


def test_methods_on_the_command_line_are_the_registry() -> None:
    from rotatek.channels import CHANNELS

    assert set(command.METHODS) == set(CHANNELS)


def test_cache_dtype_stores_rotatek_in_eight_bits(
    image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    held = []
    for kind in ("model", "fp8", "int8"):
        options = ["--json", "--max-new-tokens", "2", "--cache-dtype", kind]
        assert command.main(["ask", image, "what?", *options]) == 0
        parts = json.loads(capsys.readouterr().out)["kv_bytes_by_part"]
        held.append(parts["visual_keys"] + parts["visual_values"])
    assert held[1] == held[2] <= 0.35 * held[0]  # the tiny model keeps 32 bits a number


def test_compare_in_eight_bits_leaves_the_other_methods_alone(
    image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--max-new-tokens", "2", "--json", "--cache-dtype", "fp8"]
    assert command.main(["compare", image, "what?", *options]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = {row["method"]: row["settings"]["cache_dtype"] for row in rows}
    assert [name for name, kind in kinds.items() if kind == "fp8"] == ["rotatek"]


def test_cache_dtype_is_refused_for_other_methods(
    image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--channels", "think", "--cache-dtype", "fp8"]
    assert command.main(["ask", image, "what?", *options]) == 2
    assert capsys.readouterr().err.startswith("cache_dtype must be model unless channels is rotate")
