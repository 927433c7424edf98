"""Pieces of work: a run that the clock ends has asked every kind of question alike."""

from rotatek.evaluation.suite import Item
from rotatek.evaluation.tables import Scope
from rotatek.evaluation.units import batches, missing, of_part, size
from rotatek.settings import BASELINE, Settings

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
    many = list(batches(missing(items, WANTED, {}), 32, 1))
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
    parts = [of_part(items, number, 4) for number in range(4)]
    assert set().union(*parts) == {item.document for item in items}
    assert sum(map(len, parts)) == 80
    for part in parts:
        assert sum(document >= 1000 for document in part) == len(part) / 2 == 10
