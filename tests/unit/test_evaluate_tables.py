"""The tables: those of the committed results, row by row; and what may be changed in them."""

import json
import re
from pathlib import Path

import pytest

from rotatek.channels import CHANNELS
from rotatek.errors import SettingError
from rotatek.evaluation.journal import setting_id
from rotatek.evaluation.tables import PAPER_BUDGETS, from_file, named, tables, wanted, with_options
from rotatek.settings import BASELINE, Settings

RESULTS = Path(__file__).parents[2] / "assets" / "results" / "results.json"

# Added since the evaluation ran: tables, and rows of others.
UNANSWERED = {"pruners"}
UNANSWERED_ROWS = re.compile("as printed$")


@pytest.mark.unversioned
def test_the_committed_results_are_of_these_tables() -> None:
    """Every row, its settings and every expectation, in their order."""
    made = tables()
    committed = {table["name"]: table for table in json.loads(RESULTS.read_text())["tables"]}
    assert list(committed) == [name for name in made if name not in UNANSWERED]
    for name, table in committed.items():
        rows = {row.label: row.settings for row in made[name].rows}
        rows = {label: one for label, one in rows.items() if not UNANSWERED_ROWS.search(label)}
        assert table["title"] == made[name].title
        assert [row["label"] for row in table["rows"]] == list(rows)
        for row in table["rows"]:
            settings = Settings.from_dict(row["settings"])
            assert settings == rows[row["label"]], (name, row["label"])
            assert row["nominal_kv"] == round(settings.nominal_kv, 6)
        claims = [f"{c.first} {c.relation} {c.second}" for c in made[name].claims]
        assert [claim["expected"] for claim in table["claims"]] == claims, name


def test_tables_are_sound() -> None:
    made = tables()
    for table in made.values():
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels), table.name
        assert table.rows[0].settings == BASELINE
        assert all({claim.first, claim.second} <= set(labels) for claim in table.claims)
    unique = [settings for settings, _ in wanted(list(made.values()))]
    assert len(unique) == len({setting_id(settings) for settings in unique})


@pytest.mark.parametrize(("nominal", "keep"), PAPER_BUDGETS)
def test_the_papers_budgets_match(nominal: float, keep: float) -> None:
    assert keep * (1 + 0.25) / 2 == pytest.approx(nominal)


def test_rows_of_one_budget_keep_it() -> None:
    """What a label says of the nominal KV is what its settings keep."""
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
    reducing = {name for name, one in CHANNELS.items() if one.narrows}
    for name, table in tables().items():
        if name.startswith(("budget", "channels")):
            assert reducing <= {row.settings.channels.name for row in table.rows}, name


def test_an_option_changes_the_rows_that_have_it() -> None:
    """Of whatever method; a row about that option keeps its own."""
    for table in tables().values():
        changed = with_options(table, {"cache_dtype": "int8", "solver": "eigh"})
        for before, after in zip(table.rows, changed.rows, strict=True):
            assert after.label == before.label
            own = before.settings.as_dict()
            wanted, default = {"cache_dtype": "int8", "solver": "eigh"}, ("model", "subspace")
            expected = {k: v for k, v in wanted.items() if own.get(k) in default}
            assert after.settings.as_dict() == own | expected
    with pytest.raises(SettingError, match="cache_dtype must be one of"):
        with_options(tables()["channels"], {"cache_dtype": "fp4"})


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    rows = {"Mine": {"keep_channels": 0.1}, "ThinK": {"channels": "think"}}
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    made = from_file(tmp_path / "mine.json")
    assert [row.label for row in made.rows] == ["Uncompressed", "Mine", "ThinK"]
    assert made.rows[1].settings == Settings.of(keep_channels=0.1)
    (tmp_path / "mine.json").write_text('{"Mine": {"channels": "unheard-of"}}')
    with pytest.raises(SettingError, match="channels must be one of"):
        from_file(tmp_path / "mine.json")
    assert [table.name for table in named("beyond,ablation")] == ["beyond", "ablation"]
