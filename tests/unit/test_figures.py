"""The documents' numbers come from the data, and what the data lack says so."""

import json
import re
from pathlib import Path

import pytest

from docs import figures, goals, regions, results

MEASURED = re.compile(
    r"(?<![\w.])[-+]?[\d,]*\.?\d+\s?"
    r"(?:ms|us|MiB|points|times as fast|tokens a second|x)\b(?! \d)"
)
# What follows from sizes, or is a bound: no measurement.
ARITHMETIC = {
    "1.60x", "1.6x",  # .625 of the bytes are read
    "256 MiB",  # waits at most
    "6 ms", "8 ms", "512,000 tokens a second",  # DEPLOY.md's sums on paper
}  # fmt: skip


def prose(text: str) -> str:
    """A document without its regions, code and marked numbers."""
    for pattern in (
        r"<!-- data: .*?<!-- end -->", r"^```.*?^```", r"`[^`\n]*`",
        r"[-+]?[\d.,/]*\d(?:e-?\d+)?<!--= .*?-->",
    ):  # fmt: skip
        text = re.sub(pattern, "", text, flags=re.DOTALL | re.MULTILINE)
    return text


@pytest.mark.parametrize("path", list(results.texts()), ids=lambda path: str(path)[-24:])
def test_a_measured_number_is_marked(path: Path) -> None:
    found = {one.group().replace("\n", " ") for one in MEASURED.finditer(prose(path.read_text()))}
    assert found <= ARITHMETIC, "mark it: 1.54<!--= NAME-->, with a name of docs.figures"


def test_a_number_that_differs_from_the_data_is_written_anew() -> None:
    text = "In 9.99<!--= solver ms--> ms, <!--= capacity Llama3-8B--> times."
    found = json.loads((figures.RESULTS / "kernels.json").read_text())
    ms, gain = found["solver"]["ms"]["ours k=32"], found["capacity"]["rows"][0]["gain"]
    want = f"In {ms:.2f}<!--= solver ms--> ms, {gain:.2f}<!--= capacity Llama3-8B--> times."
    assert results.filled(text) == want.replace("0.", ".") and results.filled(want) != text
    with pytest.raises(KeyError):
        figures.written("1<!--= nothing of the kind-->")


def test_every_region_is_placed_and_no_table_is_empty() -> None:
    texts = "".join(path.read_text() for path in results.texts())
    assert set(regions.REGIONS) == {found[2] for found in regions.REGION.finditer(texts)}
    for name, drawn in regions.REGIONS.items():
        lines = [line for line in drawn().splitlines() if line]
        tables = [n for n, line in enumerate(lines) if set(line) <= set("|-")]
        assert lines and all(lines[n + 1].startswith("| ") for n in tables), name


def test_what_was_not_measured_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docs.frontier.committed", list)
    for module in (regions, goals):
        monkeypatch.setattr(module, "data", lambda name: {})
    monkeypatch.setattr(regions, "rows", lambda name, part: [])
    for name, drawn in regions.REGIONS.items():
        if name not in ("claims", "status", "efficiency-claims", "goals-bits", "read", "kinds"):
            said = drawn().strip()
            assert all("easured yet: `" in line for line in said.splitlines() if line), name
    assert "open: not measured yet" in regions.efficiency_claims()
