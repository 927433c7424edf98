"""The full-size benchmark on a tiny model and a CPU: its rows are those that documents read."""

import pytest

from benchmarks import full_size
from tests.families import EVERY
from tests.tiny import tiny_qwen


@pytest.mark.parametrize(("family", "side"), [("qwen2_5_vl", 224), ("qwen3_5", 448)])
def test_rows_have_bits_and_the_peak_of_a_whole_generate(family: str, side: int) -> None:
    names = ("uncompressed", "RotateK 2 bits", "RotateK .75 bits", "RotateK k=32")
    chosen = {name: full_size.SETTINGS[name] for name in names}
    report = full_size.measure(EVERY[family](), side, chosen, "?")
    rows = report["rows"]
    assert list(rows) == list(names)
    held = [rows[name]["kv_mib"] for name in names]
    assert held[0] > held[3] > held[1] > held[2] > 0
    for row in rows.values():
        assert row["generate_extra_mib"] == 0.0  # without a GPU nothing is counted
        assert row["prefill_ms"] > 0 and row["first_token_same"]
        assert (row["state_mib"] > 0) == (family == "qwen3_5")


def test_every_family_has_bits() -> None:
    for name in full_size.FAMILIES:
        rows = full_size.settings_for(name, tiny_qwen())
        assert {"RotateK 2 bits", "RotateK .75 bits"} <= rows.keys()
