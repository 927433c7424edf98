"""Answers that are fed: what is kept of a run serves that run alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bits_quality
from rotatek.methods.channels import mixed_precision

SUITE = Path(__file__).parents[2] / "assets" / "suite" / "questions.jsonl"
ARMS = {"1 bit": {"bits": 1}}
POWER = "rotatek.methods.channels.mixed_precision:TOKEN_POWER=0.0"


def test_rows_are_kept_for_the_same_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    rows_of = bits_quality.rows_of

    def counted(*given: Any) -> Iterator[dict[str, Any]]:
        asked.append(given)
        yield from rows_of(*given)

    monkeypatch.setattr(bits_quality, "rows_of", counted)
    monkeypatch.setattr(mixed_precision, "TOKEN_POWER", mixed_precision.TOKEN_POWER)  # put back

    def run(**more: Any) -> dict[str, Any]:
        found = bits_quality.bits_quality(
            SUITE, device="cpu", questions=2, arms=ARMS, out=tmp_path, **more
        )
        return found["pocket"]["figures"]

    first = run(ask="second")
    many = len(asked)
    assert many and first["plain"]["KL"] == 0 < first["1 bit"]["KL"]
    assert first["1 bit"]["bytes"] < 1 == first["plain"]["bytes"]
    assert run(ask="second") == first and len(asked) == many
    other = run(ask="second", constants=[POWER])
    assert len(asked) == 2 * many and other["1 bit"]["KL"] != first["1 bit"]["KL"]
    assert len(list(tmp_path.iterdir())) == 2
