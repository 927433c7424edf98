"""The committed measurements of real Keys, and the figures and tables that are made of them."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import stored_keys
from benchmarks.real_keys import ARMS
from docs import real_keys, svg_chart
from rotatek.evaluation.cells import pareto_front
from rotatek.evaluation.real_keys import (
    FIRST,
    LATER,
    REAL_KEYS,
    SPECTRA,
    STORED,
    Divergence,
    Spectrum,
    read,
    write,
)
from rotatek.methods.channels import CHANNELS

RESULTS = Path(__file__).resolve().parents[2] / "assets" / "results"
ROWS = read(RESULTS / REAL_KEYS, Divergence)


def test_models_were_asked_under_every_method_with_every_token() -> None:
    """Questions that were not finished may lack the newer rivals, and say so in the document."""
    cases = real_keys.cases(ROWS)
    assert len({model for model, *_ in cases}) == 3
    assert (RESULTS / REAL_KEYS).stat().st_size < 100_000
    assert sum(1 for case in cases if sum(one[:3] == case for one in ROWS) == len(ARMS)) >= 3
    labels = {kind.label for name, kind in CHANNELS.own.items() if name != "full"}
    for case in cases:
        own = [one for one in ROWS if one[:3] == case]
        assert {"RotateK", "KIVI", "TurboQuant", "ThinK", "SparK"} <= {one.method for one in own}
        if len(own) == len(ARMS):
            assert labels <= {one.method for one in own}
        (exact,) = [one for one in own if one.arm == "every number"]
        assert exact.kl < 0.01 and exact.live == pytest.approx(1, abs=0.02)
        assert all(0 < one.live < 1.1 and one.kl > -1e-3 for one in own)
    assert {asked for _, _, asked in cases} == {FIRST, LATER}


def test_spectra_are_of_every_layer_beside_the_embedded_models() -> None:
    rows = read(RESULTS / SPECTRA, Spectrum)
    models = {one.model for one in rows}
    assert models - {"pocket-smol"} == {"pocket", *(one.model for one in ROWS)}
    for one in rows:
        assert 0 < one.rank <= 1 and one.eighth <= one.quarter <= one.half <= 1.001
        assert 0 <= one.mean < 1 and one.loudest >= 1


def test_the_figures_are_those_of_the_tables() -> None:
    for name, made in (("real_keys", real_keys.divergences()), ("spectra", real_keys.spectra())):
        assert (real_keys.ROOT / f"{name}.svg").read_text(encoding="utf-8") == made
        root = ElementTree.fromstring(made)
        for node in root.iter():
            if node.tag.endswith("circle"):
                right = svg_chart.WIDE - svg_chart.RIGHT
                assert svg_chart.LEFT - 1 <= float(node.attrib["cx"]) <= right + 1


def test_stored_contexts_have_every_setting_and_are_what_the_text_says() -> None:
    found = read(RESULTS / STORED, Divergence)
    cases = real_keys.cases(found)
    assert len(cases) == 6 and {model for model, *_ in cases} == {one.model for one in ROWS}
    assert (RESULTS / STORED).stat().st_size < 30_000
    labels = {*stored_keys.ARMS, *stored_keys.KVTC}
    for case in cases:
        own = [one for one in found if one[:3] == case]
        assert {one.arm for one in own} == labels and all(0 < one.live < 0.5 for one in own)
        for times in real_keys.STORED_SIZES:
            best = {
                name: one.kl
                for name in real_keys.STORED_FAMILIES
                if (one := real_keys.at_best(own, name, times)) is not None
            }
            leads = min(best, key=lambda name: best[name])
            assert leads == "RotateK" or (leads == "KIVI" and times < 6)


def row(arm: str, live: float, kl: float) -> Divergence:
    return Divergence("m", 1024, FIRST, arm, 2, live, 0.0, kl, 0.0, 0.9)


def test_a_size_is_met_by_what_fits_it_best(tmp_path: Path) -> None:
    found = [row("KIVI 4 bits", 0.31, 0.1), row("KIVI 3 bits, groups of 64", 0.22, 0.2),
             row("KIVI 2 bits", 0.19, 0.5), row("SnapKV 0.5, KIVI 2 bits", 0.1, 0.05)]  # fmt: skip
    best = [real_keys.at_best(found, "KIVI", times) for times in (3, 4, 5, 8)]
    assert [one and one.kl for one in best] == [0.1, 0.2, 0.5, None]
    assert [one.method for one in found] == ["KIVI"] * 3 + ["SnapKV"]
    more = [*found, row("KIVI 4 bits", 0.5, 0.3)]
    kept = pareto_front(more, lambda one: one.live, lambda one: -one.kl)
    assert [one.live for one in kept] == [0.1]
    write(tmp_path / "table.csv", found, Divergence._fields)
    with (tmp_path / "table.csv").open("a") as file:
        file.write("m,1024,first")  # cut short
    assert read(tmp_path / "table.csv", Divergence) == found
    assert read(tmp_path / "none.csv", Divergence) == []
