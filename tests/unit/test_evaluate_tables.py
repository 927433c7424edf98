"""The tables: what they must hold, which questions they ask, and what may be changed in them."""

import json
import re
from pathlib import Path

import pytest

from rotatek.errors import SettingError
from rotatek.evaluation.journal import setting_id
from rotatek.evaluation.suite import Item
from rotatek.evaluation.tables import (
    PAPER_BUDGETS,
    PART,
    Row,
    Table,
    asked,
    from_file,
    named,
    tables,
    wanted,
    with_options,
)
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.tokens import TOKENS


def test_tables_are_sound() -> None:
    made = tables()
    for table in made.values():
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels), table.name
        assert table.rows[0].settings == BASELINE
        assert all(claim.labels <= set(labels) for claim in table.claims)
    unique = [settings for settings, _ in wanted(list(made.values()))]
    assert len(unique) == len({setting_id(settings) for settings in unique})


@pytest.mark.parametrize(("nominal", "keep"), PAPER_BUDGETS)
def test_the_papers_budgets_match(nominal: float, keep: float) -> None:
    assert keep * (1 + 0.25) / 2 == pytest.approx(nominal)


def test_rows_of_one_budget_keep_it() -> None:
    """A label's nominal KV is that of its settings."""
    checked = 0
    for table in tables().values():
        for row in table.rows:
            said = re.search(r"\((0\.\d+)\)$|KV (0\.\d+)$", row.label)
            if said is not None:
                digits = 0.005 if said[1] else 0.0001
                budget = float(said[1] or said[2])
                assert row.settings.nominal_kv == pytest.approx(budget, abs=digits), row.label
                checked += 1
        if table.name.startswith("budget"):
            kept = [round(row.settings.nominal_kv, 6) for row in table.rows[1:]]
            assert sorted(set(kept), reverse=True) == [nominal for nominal, _ in PAPER_BUDGETS]
    assert checked > 80


def test_every_method_is_in_the_budget_tables() -> None:
    reducing = {name for name, one in CHANNELS.items() if one.drops_channels}
    for name, table in tables().items():
        if name.startswith(("budget", "channels")):
            assert reducing <= {row.settings.channels.name for row in table.rows}, name


def test_the_papers_tables_have_the_form_of_spark_that_it_compares_with() -> None:
    """Its mean; the signs, which SparK's own paper recommends, have a row of their own."""
    for name, table in tables().items():
        rows = {row.label: row.settings for row in table.rows}
        if name.startswith("budget"):
            means = {label for label, one in rows.items() if "SparK (" not in label}
            spark = {label: one for label, one in rows.items() if one.channels.name == "spark"}
            assert {one.as_dict()["recovery"] for one in spark.values()} == {"mean", "sign"}
            for label, one in spark.items():
                assert (one.as_dict()["recovery"] == "sign") == ("(sign)" in label)
            named_by = [claim for claim in table.claims if claim.topic.startswith("spark")]
            assert named_by and means


def test_the_ablation_is_the_papers() -> None:
    """Three solvers, its printed loop among them, three weightings, alone and after its pruners."""
    rows = {row.settings for row in tables()["ablation"].rows[1:]}
    for pruner in ("none", "fastv", "visionzip"):
        mine = [one.as_dict() for one in rows if one.tokens.name == pruner]
        assert {one["solver"] for one in mine} == {"subspace", "eigh", "paper"}
        assert {one["weighting"] for one in mine} == {"paper", "none", "consistent"}


def test_tokens_stay_fixed_while_channels_vary() -> None:
    for name in ("sparsity-fastv", "sparsity-visionzip"):
        table = tables()[name]
        kept: dict[float, set[float]] = {}
        for row in table.rows[1:]:
            kept.setdefault(row.settings.tokens.kept_share, set()).add(
                row.settings.channels.key_share
            )
        assert set(kept) == {0.4, 0.3}
        assert all({1.0, 0.5, 0.25, 0.125} <= shares for shares in kept.values())
    shares = {row.settings.channels.key_share for row in tables()["frontier-fastv"].rows}
    assert {1.0, 0.5, 0.375, 0.25} <= shares


def test_every_pruner_runs_with_every_method_and_with_bits() -> None:
    rows = [row.settings for row in tables()["pruners"].rows[1:]]
    for pruner in {name for name in TOKENS if name != "none"}:
        mine = [one.channels for one in rows if one.tokens.name == pruner]
        assert {one.name for one in mine} == set(CHANNELS)
        assert any(one.bits_a_number for one in mine if one.name == "rotatek")


def test_other_suites_ask_nothing_that_the_main_one_does_not() -> None:
    core, others = tables()["core"], [t for name, t in tables().items() if name != "core"]
    known = {row.settings for table in others for row in table.rows}
    lighter = {row.label for row in core.rows if row.settings not in known}
    assert len(core.rows) < 25 and lighter <= {
        row.label for row in core.rows if not row.settings.prunes_tokens
    }


def test_a_part_of_the_questions_is_a_share_of_each_kind() -> None:
    kinds = ["a"] * 50 + ["b"] * 20 + ["pages"] * 30
    items = [
        Item(str(n), n, kind, "?", ("x",), "exact_match", kind == "pages")
        for n, kind in enumerate(kinds)
    ]
    found = [item.category for item in asked("part", items)]
    assert {kind: found.count(kind) for kind in ("a", "b", "pages")} == {
        "a": 50 * PART[False], "b": 20 * PART[False], "pages": 30 * PART[True],
    }  # fmt: skip
    assert asked("all", items) == items and len(asked("long", items)) == 30
    first, second = Settings.of(keep_channels=0.25), Settings.of(channels="think")
    one, two = Row("1", first), Row("2", second)
    mine = [Table("a", "", (one, two), (), "part"), Table("b", "", (one,))]
    mine.append(Table("c", "", (two,), (), "long"))
    assert set(wanted(mine)) == {(first, "all"), (second, "part"), (second, "long")}


def test_an_option_changes_the_rows_that_have_it() -> None:
    """Of whatever method; a row about that option keeps its own."""
    for table in tables().values():
        changed = with_options(table, {"solver": "eigh"})
        for before, after in zip(table.rows, changed.rows, strict=True):
            assert after.label == before.label
            own = before.settings.as_dict()
            wanted, default = {"solver": "eigh"}, ("subspace",)
            bits = own.get("bits") is not None  # which stand in place of both
            expected = {k: v for k, v in wanted.items() if own.get(k) in default and not bits}
            assert after.settings.as_dict() == own | expected
    with pytest.raises(SettingError, match="solver must be one of"):
        with_options(tables()["channels"], {"solver": "qr"})


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    rows = {"Mine": {"keep_channels": 0.1}, "ThinK": {"channels": "think"}}
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    made = from_file(tmp_path / "mine.json")
    assert [row.label for row in made.rows] == ["Uncompressed", "Mine", "ThinK"]
    assert made.rows[1].settings == Settings.of(keep_channels=0.1)
    (tmp_path / "mine.json").write_text('{"Mine": {"channels": "unheard-of"}}')
    with pytest.raises(SettingError, match="channels must be one of"):
        from_file(tmp_path / "mine.json")
    assert [table.name for table in named("bits,ablation")] == ["bits", "ablation"]
