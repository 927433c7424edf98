"""Which settings are compared: the paper's tables, and the ones that go beyond it.

A table names its rows, the questions it counts, and what the paper leads one to expect of pairs of
rows; the report states beside each expectation what was found.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

from rotatek.budget import matched_keep_tokens
from rotatek.channels import CHANNELS, ChannelMethod
from rotatek.channels.base import Relation
from rotatek.channels.full import Full
from rotatek.compare.columns import default_pruner, pruners, reducers
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


_UNCOMPRESSED: Final = Row("Uncompressed", BASELINE)


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
        for method in reducers():
            if method.expected is not None:
                rival = list(method.variants())[-1]  # the form that the paper compares with
                claims.append(Claim(f"{ours}, {kept}", f"{rival}, {kept}", method.expected))
    long = scope == "long"
    return Table(
        "channels" + ("-long" if long else ""),
        f"Key channels kept of {HEAD}" + (", long answers" if long else ""),
        tuple(rows),
        tuple(claims),
        scope,
    )


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
    made = [budget_table(pruner) for pruner in pruners()]
    made += [frontier_table(pruner) for pruner in pruners()]
    made += [channel_table(), *study_tables()]
    made += [budget_table(pruner, "long") for pruner in pruners()] + [channel_table("long")]
    return {table.name: table for table in made}


def wanted(chosen: list[Table]) -> Iterator[tuple[Settings, Scope]]:
    """Each distinct setting once, with the widest scope that asks for it; cheapest KV last."""
    scopes: dict[Settings, Scope] = {}
    for table in chosen:
        for row in table.rows:
            if scopes.get(row.settings) != "all":
                scopes[row.settings] = table.scope
    for settings in sorted(scopes, key=lambda one: one.nominal_kv, reverse=True):
        yield settings, scopes[settings]
