"""Pieces of work: a run that the clock ends has asked every kind of question alike."""

import json
from pathlib import Path

import pytest
from PIL import Image

from rotatek.evaluation import runner as runners
from rotatek.evaluation.journal import Journal, setting_id
from rotatek.evaluation.runner import Runner, RunOptions
from rotatek.evaluation.suite import FileSuite, Item
from rotatek.evaluation.tables import Scope
from rotatek.evaluation.work_batches import Unit, batches, missing, of_part, size
from rotatek.methods.settings import BASELINE, Settings
from tests.tiny import tiny_qwen

WANTED: list[tuple[Settings, Scope]] = [
    (BASELINE, "all"),
    (Settings.of(keep_channels=0.25), "all"),
    (Settings.of(channels="think"), "part"),
]


def test_a_run_that_is_cut_short_has_asked_every_kind_alike() -> None:
    kinds = {"a": 600, "b": 200, "pages": 200}
    items = [
        Item(f"{kind}-{n}", n, kind, "?", ("x",), "exact_match", kind == "pages")
        for kind, count in kinds.items()
        for n in range(count)
    ]
    many = list(batches(missing(items, WANTED, {}), 32))
    assert all(len({item.long for item in unit.items}) == 1 for unit in many)
    for share in (0.3, 0.5, 0.8):
        done = [item for unit in many[: round(share * len(many))] for item in unit.items]
        for kind, count in kinds.items():
            asked = sum(item.category == kind for item in done)
            assert abs(asked / count - share) < 0.16, (kind, share)
    assert size(many) == sum(len(unit.items) * len(unit.owed) for unit in many) == 2360


def test_parts_share_the_pictures() -> None:
    """Every picture is in one part, and each part has as many of each kind."""
    items = [
        Item(f"{kind}-{n}", 1000 * (kind == "b") + n // 2, kind, "?", ("x",), "exact_match")
        for kind in "ab"
        for n in range(80)
    ]
    todo = missing(items, WANTED[:2], {})
    parts = [
        {item.document for item, _ in of_part(todo, items, WANTED, number, 4)}
        for number in range(4)
    ]
    assert set().union(*parts) == {item.document for item in items}
    assert sum(map(len, parts)) == 80
    for part in parts:
        assert sum(document >= 1000 for document in part) == len(part) / 2 == 10


def test_parts_share_the_settings_of_whole_pages() -> None:
    """All pages in every part, under its own settings: full batches, whatever was answered."""
    pages = [Item(f"p{n}", n, "pages", "?", ("x",), "transcription", True) for n in range(40)]
    kept = [Settings.of(keep_channels=k / 128) for k in range(8, 128, 8)]
    wanted: list[tuple[Settings, Scope]] = [(one, "all") for one in kept]
    wanted.insert(3, (Settings.of(channels="think"), "part"))
    answered = {(setting_id(kept[0]), page.name) for page in pages[::2]}
    for done in (set(), answered):
        todo, seen = missing(pages, wanted, done), list[tuple[str, Settings]]()
        for number in range(4):
            part = of_part(todo, pages, wanted, number, 4)
            seen += [(item.name, one) for item, owed in part for one in owed]
            assert {item.name for item, _ in part} == {page.name for page in pages}
            under = {one for _, owed in part for one in owed}
            assert under <= set([*kept, wanted[3][0]][number::4])
            full = [unit for unit in batches(part, 16) if len(unit.items) > 8]
            assert size(full) >= 0.7 * sum(len(owed) for _, owed in part)
        assert len(seen) == len(set(seen)) == sum(len(owed) for _, owed in todo)


def test_a_batch_has_pictures_of_a_size_and_the_middle_ones_come_first() -> None:
    items = [Item(f"q{n}", n // 2, "a", "?", ("x",), "exact_match") for n in range(320)]
    area = {document: (document * 37) % 160 for document in range(160)}
    todo = missing(items, WANTED[:2], {})
    sorted_ones = list(batches(todo, 40, lambda i: (area[i.document], i.document)))
    plain = list(batches(todo, 40))

    def padded(units: list[Unit]) -> int:
        return sum(max(area[i.document] for i in u.items) * len(u.items) for u in units)

    def pictures(units: list[Unit]) -> int:
        return sum(len({item.document for item in unit.items}) for unit in units)

    assert size(sorted_ones) == size(plain) == 640
    assert padded(sorted_ones) < 0.75 * padded(plain)
    assert pictures(sorted_ones) <= pictures(plain) + 3
    means = [sum(area[i.document] for i in unit.items) / 40 for unit in sorted_ones]
    assert all(60 < mean < 100 for mean in (sum(means[:2]) / 2, sum(means[4:6]) / 2))
    assert len({item.name for unit in sorted_ones for item in unit.items}) == 320


def test_parts_begin_with_different_settings_and_answer_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "ROWS", 1)  # a setting a group
    rows = []
    for name in ("a.png", "b.png"):
        Image.new("RGB", (224, 224)).save(tmp_path / name)
        rows.append({"image": name, "question": "what?", "answer": "1"})
    (tmp_path / "suite.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    vlm, suite = tiny_qwen(), FileSuite(tmp_path / "suite.jsonl")
    wanted: list[tuple[Settings, Scope]] = [(settings, "all") for settings, _ in WANTED]
    begun, answered = [], []
    for number in range(2):
        journal = Journal(tmp_path / f"journal-{number}.jsonl", {})
        runner = Runner(vlm, suite, journal, RunOptions(1, limits=(2, 2)))
        units = runner.units(wanted, part=(number, 2))
        assert sum(runner.run(units)) == size(units)
        answered += list(journal.answers)
        begun.append(next(iter(journal.answers))[0])
    assert len(answered) == len(set(answered)) == 6
    assert begun[0] != begun[1]
