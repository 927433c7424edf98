"""Which settings are compared: the paper's tables, and the ones that go beyond it.

A table names its rows, the questions it counts, and what the paper leads one to expect of pairs of
rows; the report states beside each expectation what was found.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Literal

from rotatek.budget import matched_keep_tokens, nominal_kv
from rotatek.config import BASELINE, Settings
from rotatek.tokens import TOKENS

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
    relation: Literal["at least", "about"] = "at least"


@dataclass(frozen=True)
class Table:
    """Rows to compare on the same questions; the first is what the others are paired with."""

    name: str
    title: str
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...] = ()
    scope: Scope = "all"


def token_only(tokens: str, keep: float) -> Settings:
    """Dropped tokens, untouched channels."""
    return Settings(tokens=tokens, keep_tokens=keep, channels="full", keep_channels=1.0)


def joint(method: str, keep_channels: float, tokens: str = "none", keep: float = 1.0) -> Settings:
    """Dropped tokens and reduced Keys."""
    return Settings(tokens=tokens, keep_tokens=keep, channels=method, keep_channels=keep_channels)


def rotated(**options: Any) -> Settings:
    """RotateK with options."""
    return Settings(channels="rotatek", **options)


_UNCOMPRESSED: Final = Row("Uncompressed", BASELINE)
_METHODS: Final = (("ThinK", "think"), ("SparK", "spark"), ("RotateK", "rotatek"))


def pruners() -> list[str]:
    """Registered token pruners that drop tokens."""
    return [name for name, pruner in TOKENS.items() if pruner.stage != "nowhere"]


def budget_table(tokens: str, scope: Scope = "all") -> Table:
    """The paper's fixed budgets: token-only against joint rows of the same nominal KV."""
    label = TOKENS[tokens].label
    rows, claims = [_UNCOMPRESSED], []
    for nominal, keep in PAPER_BUDGETS:
        tag = f"({nominal:.2f})"
        only = f"{label} only {tag}"
        rows.append(Row(only, token_only(tokens, nominal)))
        rows += [
            Row(f"{label} + {name} {tag}", joint(method, 0.25, tokens, keep))
            for name, method in _METHODS
        ]
        ours = f"{label} + RotateK {tag}"
        claims += [
            Claim(ours, f"{label} + ThinK {tag}"),
            Claim(ours, f"{label} + SparK {tag}", "about"),
            Claim(ours, only),
        ]
    long = scope == "long"
    return Table(
        name=f"budget-{tokens}" + ("-long" if long else ""),
        title=f"Fixed KV budgets with {label}" + (", long answers" if long else ""),
        rows=tuple(rows),
        claims=tuple(claims),
        scope=scope,
    )


def frontier_table(tokens: str) -> Table:
    """Accuracy against the KV budget: fewer tokens, or fewer tokens and channels."""
    label = TOKENS[tokens].label
    rows = [_UNCOMPRESSED]
    claims = []
    for nominal in (0.5, 0.25, 0.1875, 0.125, 0.0625):
        only = f"{label} only, KV {nominal:.4g}"
        rows.append(Row(only, token_only(tokens, nominal)))
        for channels in (0.5, 0.25):
            keep = matched_keep_tokens(nominal, channels)
            name = f"{label} + RotateK {channels:.4g}, KV {nominal:.4g}"
            rows.append(Row(name, joint("rotatek", channels, tokens, keep)))
        claims.append(Claim(f"{label} + RotateK 0.25, KV {nominal:.4g}", only))
    title = f"Accuracy against the KV budget with {label}"
    return Table(f"frontier-{tokens}", title, tuple(rows), tuple(claims))


def channel_table(scope: Scope = "all") -> Table:
    """Accuracy against Key channels kept, no token dropped."""
    kinds: dict[str, dict[str, Any]] = {
        "ThinK": {"channels": "think"},
        "SparK (sign)": {"channels": "spark", "recovery": "sign"},
        "SparK (mean)": {"channels": "spark", "recovery": "mean"},
        "RotateK": {"channels": "rotatek"},
        "RotateK (consistent)": {"channels": "rotatek", "weighting": "consistent"},
    }
    rows, claims = [_UNCOMPRESSED], []
    for kept, (label, options) in product(CHANNELS_KEPT, kinds.items()):
        rows.append(Row(f"{label}, {kept}", Settings(keep_channels=kept / HEAD, **options)))
    for kept in CHANNELS_KEPT:
        claims.append(Claim(f"RotateK, {kept}", f"ThinK, {kept}"))
        claims.append(Claim(f"RotateK, {kept}", f"SparK (mean), {kept}", "about"))
    long = scope == "long"
    return Table(
        "channels" + ("-long" if long else ""),
        f"Key channels kept of {HEAD}" + (", long answers" if long else ""),
        tuple(rows),
        tuple(claims),
        scope,
    )


def ablation_table() -> Table:
    """Solver x weighting, at three strengths of compression."""
    places: dict[str, dict[str, Any]] = {
        "32 channels": {"keep_channels": 0.25},
        "12 channels": {"keep_channels": 12 / HEAD},
        "FastV 0.3, 32 channels": {"tokens": "fastv", "keep_tokens": 0.3, "keep_channels": 0.25},
    }
    rows, claims = [_UNCOMPRESSED], []
    weightings = ("paper", "none", "consistent")
    for (place, where), solver, weighting in product(
        places.items(), ("subspace", "eigh"), weightings
    ):
        label = f"{place}: {solver}, {weighting}"
        rows.append(Row(label, rotated(solver=solver, weighting=weighting, **where)))
    for place in places:
        claims += [
            Claim(f"{place}: subspace, paper", f"{place}: eigh, paper", "about"),
            Claim(f"{place}: subspace, paper", f"{place}: subspace, none"),
        ]
    return Table("ablation", "Design choices of RotateK", tuple(rows), tuple(claims))


def beyond_table() -> Table:
    """Widths that adapt and Values that rotate, against dropping tokens at the same nominal KV."""
    uniform = ((32, 128), (12, 128), (8, 128), (32, 64), (32, 32), (32, 16), (16, 32))
    adaptive = ((12, 128), (8, 128), (16, 32), (12, 24), (12, 16), (8, 12))
    rows, claims = [_UNCOMPRESSED], []
    for widths, pairs in (("uniform", uniform), ("adaptive", adaptive)):
        for keys, values in pairs:
            label = f"Keys {keys}, Values {values}, {widths}"
            rows.append(Row(label, _both(keys, values, widths)))
    for nominal in (0.25, 0.1875, 0.109375):
        rows.append(Row(f"FastV only, KV {nominal:.4g}", token_only("fastv", nominal)))
    claims += [
        Claim("Keys 12, Values 128, adaptive", "Keys 12, Values 128, uniform"),
        Claim("Keys 8, Values 128, adaptive", "Keys 8, Values 128, uniform"),
        Claim("Keys 32, Values 32, uniform", "FastV only, KV 0.25"),
        Claim("Keys 16, Values 32, adaptive", "FastV only, KV 0.1875"),
        Claim("Keys 12, Values 16, adaptive", "FastV only, KV 0.1094"),
        Claim("Keys 12, Values 16, adaptive", "Uncompressed", "about"),
    ]
    title = "Beyond the paper: adaptive widths and rotated Values"
    return Table("beyond", title, tuple(rows), tuple(claims))


def _both(keys: int, values: int, widths: str) -> Settings:
    kept: dict[str, Any] = {"keep_channels": keys / HEAD, "widths": widths}
    if values < HEAD:
        kept |= {"values": "rotate", "keep_values": values / HEAD}
    return rotated(weighting="consistent", **kept)


def tables() -> dict[str, Table]:
    """Every table, by name. Token pruners come from the registry."""
    made = [budget_table(name) for name in pruners()]
    made += [frontier_table(name) for name in pruners()]
    made += [channel_table(), ablation_table(), beyond_table()]
    made += [budget_table(name, "long") for name in pruners()] + [channel_table("long")]
    return {table.name: table for table in made}


def wanted(chosen: list[Table]) -> Iterator[tuple[Settings, Scope]]:
    """Each distinct setting once, with the widest scope that asks for it; cheapest KV last."""
    scopes: dict[Settings, Scope] = {}
    for table in chosen:
        for row in table.rows:
            if scopes.get(row.settings) != "all":
                scopes[row.settings] = table.scope
    for settings in sorted(scopes, key=nominal_kv, reverse=True):
        yield settings, scopes[settings]
