"""Which settings are compared: the paper's tables, and the ones that go beyond it.

A table names its rows, the questions it counts, and what the paper leads one to expect of pairs of
rows; the report states beside each expectation what was found.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

from rotatek.budget import matched_keep_tokens
from rotatek.channels import CHANNELS, ChannelMethod
from rotatek.channels.base import Relation
from rotatek.channels.full import Full
from rotatek.compare.columns import UNCOMPRESSED, default_pruner, pruners, reducers
from rotatek.errors import SettingError, UserError
from rotatek.options import options_of
from rotatek.settings import BASELINE, Settings
from rotatek.tokens import KeepAll, TokenPruner

Scope = Literal["all", "long"]
HEAD: Final = 128  # channels of a head in both of the paper's models, and in the pocket
# (nominal KV, tokens kept) of the paper's joint rows, all at a quarter of the channels.
PAPER_BUDGETS: Final = ((0.28125, 0.45), (0.25, 0.40), (0.21875, 0.35), (0.1875, 0.30))
CHANNELS_KEPT: Final = (96, 64, 48, 32, 24, 16, 12, 8)


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    label: str
    settings: Settings


@dataclass(frozen=True)
class Claim:
    """What the paper expects of two rows: the first at least as good, or about as good."""

    first: str
    second: str
    relation: Relation = "at least"


@dataclass(frozen=True)
class Table:
    """Rows to compare on the same questions; the first is what the others are paired with."""

    name: str
    title: str
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...] = ()
    scope: Scope = "all"


_UNCOMPRESSED: Final = Row(UNCOMPRESSED, BASELINE)


def _row(label: str, pruner: TokenPruner, method: ChannelMethod) -> Row:
    return Row(label, Settings(tokens=pruner, channels=method))


def _alone(pruner: type[TokenPruner], nominal: float) -> Settings:
    """Dropped tokens, untouched channels."""
    return Settings(tokens=pruner().at(nominal), channels=Full())


def budget_table(pruner: type[TokenPruner], scope: Scope = "all") -> Table:
    """The paper's fixed budgets: token-only against joint rows of the same nominal KV."""
    label, ours = pruner.label, CHANNELS.default.label
    rows, claims = [_UNCOMPRESSED], []
    for nominal, keep in PAPER_BUDGETS:
        tag = f"({nominal:.2f})"
        only = f"{label} only {tag}"
        rows.append(Row(only, _alone(pruner, nominal)))
        for method in reducers():
            name = f"{label} + {method.label} {tag}"
            rows.append(_row(name, pruner().at(keep), method().at(0.25)))
            if method.expected is not None:
                claims.append(Claim(f"{label} + {ours} {tag}", name, method.expected))
        claims.append(Claim(f"{label} + {ours} {tag}", only))
    long = scope == "long"
    return Table(
        name=f"budget-{pruner.name}" + ("-long" if long else ""),
        title=f"Fixed KV budgets with {label}" + (", long answers" if long else ""),
        rows=tuple(rows),
        claims=tuple(claims),
        scope=scope,
    )


def frontier_table(pruner: type[TokenPruner]) -> Table:
    """Accuracy against the KV budget: fewer tokens, or fewer tokens and channels."""
    label, method = pruner.label, CHANNELS.default
    rows, claims = [_UNCOMPRESSED], []
    for nominal in (0.5, 0.25, 0.1875, 0.125, 0.0625):
        only = f"{label} only, KV {nominal:.4g}"
        rows.append(Row(only, _alone(pruner, nominal)))
        for channels in (0.5, 0.25):
            made = method().at(channels)
            keep = matched_keep_tokens(nominal, made.nominal_share)
            name = f"{label} + {method.label} {channels:.4g}, KV {nominal:.4g}"
            rows.append(_row(name, pruner().at(keep), made))
        claims.append(Claim(name, only))
    title = f"Accuracy against the KV budget with {label}"
    return Table(f"frontier-{pruner.name}", title, tuple(rows), tuple(claims))


def channel_table(scope: Scope = "all") -> Table:
    """Accuracy against Key channels kept, no token dropped."""
    kinds = {label: one for method in reducers() for label, one in method.variants().items()}
    ours, rows, claims = CHANNELS.default.label, [_UNCOMPRESSED], []
    for kept, (label, method) in product(CHANNELS_KEPT, kinds.items()):
        rows.append(_row(f"{label}, {kept}", KeepAll(), method.at(kept / HEAD)))
    for kept in CHANNELS_KEPT:
        for rival in reducers():
            if rival.expected is not None:
                name = list(rival.variants())[-1]  # the form that the paper compares with
                claims.append(Claim(f"{ours}, {kept}", f"{name}, {kept}", rival.expected))
    long = scope == "long"
    return Table(
        "channels" + ("-long" if long else ""),
        f"Key channels kept of {HEAD}" + (", long answers" if long else ""),
        tuple(rows),
        tuple(claims),
        scope,
    )


def pruner_table() -> Table:
    """Every pruner, alone and joined with every channel method; the control is what to beat."""
    rows, claims = [_UNCOMPRESSED], []
    control = next((pruner for pruner in pruners() if pruner.control), None)
    for (nominal, keep), pruner in product(PAPER_BUDGETS[1::2], pruners()):
        tag = f"({nominal:.2f})"
        rows.append(Row(f"{pruner.label} only {tag}", _alone(pruner, nominal)))
        for method in reducers():
            label = f"{pruner.label} + {method.label} {tag}"
            rows.append(_row(label, pruner().at(keep), method().at(0.25)))
        if control is not None and not pruner.control:
            ours = CHANNELS.default.label
            for form in (f"only {tag}", f"+ {ours} {tag}"):
                claims.append(Claim(f"{pruner.label} {form}", f"{control.label} {form}"))
    return Table("pruners", "Every token pruner, against one by lot", tuple(rows), tuple(claims))


def study_tables() -> list[Table]:
    """What each method's own file adds: its design choices, and what goes beyond the paper."""
    pruner, made = default_pruner(), []
    for method in CHANNELS.values():
        for study in method.studies():
            rows = [_UNCOMPRESSED]
            for label, (dropped, one) in study.rows.items():
                tokens = Settings.from_dict(dropped).tokens
                rows.append(_row(label, tokens, one))
            for nominal in study.rivals:
                rows.append(Row(f"{pruner.label} only, KV {nominal:.4g}", _alone(pruner, nominal)))
            claims = tuple(Claim(*claim) for claim in study.claims)
            made.append(Table(study.name, study.title, tuple(rows), claims))
    return made


def tables() -> dict[str, Table]:
    """Every table, by name. Methods and pruners come from the registries."""
    papers = [pruner for pruner in pruners() if pruner.of_paper]
    made = [budget_table(pruner) for pruner in papers]
    made += [frontier_table(pruner) for pruner in papers]
    made += [channel_table(), *study_tables()]
    made += [budget_table(pruner, "long") for pruner in papers] + [channel_table("long")]
    made += [pruner_table()]
    return {table.name: table for table in made}


def named(names: str) -> list[Table]:
    """Tables by their names, with commas between them; "all" are all.

    Raises:
        SettingError: naming what there is.
    """
    known = tables()
    if names == "all":
        return list(known.values())
    for name in names.split(","):
        if name not in known:
            raise SettingError("--tables", "all, list, or some of " + ", ".join(known), name)
    return [known[name] for name in names.split(",")]


def from_file(path: Path) -> Table:
    """One table from a JSON file of labelled flat settings, the uncompressed model first.

    Raises:
        UserError: if the file is not of the form {"label": {"keep_channels": 0.25}, ...}.
        SettingError: for settings that there are not.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        pairs = [(str(label), dict(values)) for label, values in rows.items()]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UserError(
            'The settings file is not JSON of the form {"label": {"keep_channels": 0.25}, ...}.'
        ) from error
    made = [Row(label, Settings.from_dict(values)) for label, values in pairs]
    return Table(path.stem, path.stem, (_UNCOMPRESSED, *made))


def with_options(table: Table, options: Mapping[str, Any]) -> Table:
    """The same table with some options changed, in every row whose methods have them.

    A row that does not leave an option at its default is about that option, and keeps its own.

    Args:
        table: the rows.
        options: values by flat names.

    Raises:
        SettingError: for a value that a method does not take.
    """
    rows = []
    for row in table.rows:
        methods = (row.settings.tokens, row.settings.channels)
        free = [
            one.key
            for method in methods
            for one in options_of(method)
            if getattr(method, one.name) == one.default
        ]
        changes = {key: value for key, value in options.items() if key in free}
        rows.append(replace(row, settings=row.settings.with_options(**changes)))
    return replace(table, rows=tuple(rows))


def wanted(chosen: Iterable[Table]) -> Iterator[tuple[Settings, Scope]]:
    """Each distinct setting once, with the widest scope that asks for it; cheapest KV last."""
    scopes: dict[Settings, Scope] = {}
    for table in chosen:
        for row in table.rows:
            if scopes.get(row.settings) != "all":
                scopes[row.settings] = table.scope
    for settings in sorted(scopes, key=lambda one: one.nominal_kv, reverse=True):
        yield settings, scopes[settings]
