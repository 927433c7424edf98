"""Which settings are compared: the paper's tables, and the ones that go beyond it.

A table names its rows, the questions it counts, and what the paper predicts for pairs of rows; the
report gives the measured difference beside each prediction.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

from rotatek.compare.columns import UNCOMPRESSED, default_pruner, pruners, reducers, title_of
from rotatek.compare.equal_bytes import rivals
from rotatek.errors import SettingError, UserError
from rotatek.evaluation.chains import SECOND
from rotatek.evaluation.suite import Item
from rotatek.inputs.text_files import parsed, read_text
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.channels.ablation_tables import HEAD
from rotatek.methods.channels.base import Relation
from rotatek.methods.channels.full import Full
from rotatek.methods.options import options_of
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.shares import matched_keep_tokens
from rotatek.methods.tokens import KeepAll, TokenPruner

Scope = Literal["all", "part", "long"]
Taken = Scope | frozenset[str]  # or questions by their names
Across = Literal["", "live", "channels", "pruners"]
# (nominal KV, tokens kept) of the paper's joint rows, all at a quarter of the channels.
PAPER_BUDGETS: Final = ((0.28125, 0.45), (0.25, 0.40), (0.21875, 0.35), (0.1875, 0.30))
CHANNELS_KEPT: Final = (64, 48, 32, 24, 16, 12, 8)
FIXED_TOKENS: Final = (0.40, 0.30)  # while channels vary; the paper's shares under FastV
FEWER: Final = (64, 48, 32, 26, 16)  # channels there: half of them to an eighth
FIFTH: Final = 26  # of them, which the paper calls 80 % sparsity
FRONTIER: Final = (0.5, 0.375, 0.25)  # shares of the channels in the paper's trade-offs
# The part of the questions that is asked for some tables: of short ones, and of pages.
PART: Final = {False: 0.4, True: 0.2}
DESIGN: Final = ("ablation",)  # studies that are asked a part
SECOND_BITS: Final = (2.0, 1.0, 0.75, 0.5)  # that second questions are asked at
SECOND_TIMES: Final = (8, 16)  # and so many times smaller
BITS: Final = "number_bits"  # the option of methods that store every number in as many
SECOND_TOKENS: Final = 0.4  # and the share of tokens, where some are dropped


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Args:
        label: for display; it is never parsed.
        settings: what is compared.
        line: the label of the line or group in which a figure draws it; "" for a row by itself.
        times: how many times smaller it was solved to be, or 0.
        variants: where that was solved for prompts of every length, the settings of each class of
            questions; `settings` are then those of the middle one.
        classes: names of the questions in each class.
    """

    label: str
    settings: Settings
    line: str = ""
    times: int = 0
    variants: tuple[Settings, ...] = ()
    classes: tuple[frozenset[str], ...] = ()

    @property
    def asked(self) -> list[tuple[Settings, frozenset[str]]]:
        """Settings with their questions; empty where one setting is asked all of them."""
        return list(zip(self.variants, self.classes, strict=True))


@dataclass(frozen=True)
class Claim:
    """What is expected of two rows: the first at least as good, or about as good.

    Args:
        first: a row's label.
        second: another's.
        relation: "at least" or "about".
        topic: the claim that this pair belongs to, a key of `rotatek.evaluation.claims.CLAIMS`.
        over: two rows whose difference this one is to exceed; a claim about a growing gap.
    """

    first: str
    second: str
    relation: Relation = "at least"
    topic: str = ""
    over: tuple[str, str] | None = None

    @property
    def labels(self) -> set[str]:
        """Of every row that it speaks of."""
        return {self.first, self.second, *(self.over or ())}

    def __str__(self) -> str:
        said = f"{self.first} {self.relation} {self.second}"
        return said if self.over is None else f"{said}, by more than {' over '.join(self.over)}"


@dataclass(frozen=True)
class Table:
    """Rows to compare on the same questions; the first is what the others are paired with.

    `scope` says which questions: all, a fixed part of them, or the whole pages alone; `across` what
    a figure draws the scores against: live bytes, Key channels, token pruners, or row by row;
    `beside` the label of a row whose method every other row is compared with at its live bytes.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...] = ()
    scope: Scope = "all"
    across: Across = ""
    beside: str = ""


UNCOMPRESSED_ROW: Final = Row(UNCOMPRESSED, BASELINE)


def _row(label: str, pruner: TokenPruner, method: ChannelMethod, line: str = "") -> Row:
    return Row(label, Settings(tokens=pruner, channels=method), line)


def _alone(pruner: type[TokenPruner], nominal: float) -> Settings:
    """Dropped tokens, untouched channels."""
    return Settings(tokens=pruner().with_keep(nominal), channels=Full())


def budget_table(pruner: type[TokenPruner], scope: Scope = "all") -> Table:
    """The paper's fixed budgets: token-only against joint rows of the same nominal KV."""
    label, long = pruner.label, scope == "long"
    rows, claims = [UNCOMPRESSED_ROW], []
    topics = ("joint-long", "-long") if long else ("joint", "")

    def named(what: str, nominal: float) -> str:
        return f"{label} {what} ({nominal:.2f})"

    ours = f"+ {CHANNELS.default.label}"
    for nominal, keep in PAPER_BUDGETS:
        only, mine = named("only", nominal), named(ours, nominal)
        rows.append(Row(only, _alone(pruner, nominal)))
        for method in reducers():
            forms = method.papers()
            for form, one in forms.items():
                name = named(f"+ {form}", nominal)
                rows.append(_row(name, pruner().with_keep(keep), one.with_keep(0.25)))
                if method.expected is not None:
                    first = form == next(iter(forms))
                    topic = method.name + topics[1] + ("" if first else "-other")
                    claims.append(Claim(mine, name, method.expected, topic))
                if long and method.expected == "at least":
                    claims.append(Claim(name, only, "about", "level-long"))
        claims.append(Claim(mine, only, topic=topics[0]))
        if not long:
            claims.append(Claim(UNCOMPRESSED, only, topic="cost"))
    if not long:
        loose, tight = PAPER_BUDGETS[0][0], PAPER_BUDGETS[-1][0]
        for other in ("only", *(f"+ {m.label}" for m in reducers() if m.expected == "at least")):
            over = named(ours, loose), named(other, loose)
            claims.append(Claim(named(ours, tight), named(other, tight), topic="gap", over=over))
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
    rows, claims = [UNCOMPRESSED_ROW], []
    for nominal in (0.5, 0.25, 0.1875, 0.125, 0.0625):
        only = f"{label} only, KV {nominal:.4g}"
        rows.append(Row(only, _alone(pruner, nominal), f"{label} only"))
        for channels in FRONTIER:
            made = method().with_keep(channels)
            keep = matched_keep_tokens(nominal, made.nominal_share)
            line = f"{label} + {method.label} {channels:.4g}"
            name = f"{line}, KV {nominal:.4g}"
            rows.append(_row(name, pruner().with_keep(keep), made, line))
            claims.append(Claim(name, only, topic="frontier"))
    title = f"Accuracy against the KV budget with {label}"
    return Table(f"frontier-{pruner.name}", title, tuple(rows), tuple(claims), "all", "live")


def sparsity_table(pruner: type[TokenPruner]) -> Table:
    """Tokens fixed while channels vary: every method, and ours at a second share of tokens."""
    label, ours, claims = pruner.label, CHANNELS.default, list[Claim]()
    rows = [UNCOMPRESSED_ROW]
    for keep in FIXED_TOKENS:
        line = f"{label} {keep:.4g} + every channel"
        whole = f"{line}, {HEAD}"
        rows.append(_row(whole, pruner().with_keep(keep), Full(), line))
        methods = reducers() if keep == FIXED_TOKENS[0] else [ours]
        for kept, method in product(FEWER, methods):
            mine = f"{label} {keep:.4g} + {ours.label}, {kept}"
            for number, (form, one) in enumerate(method.papers().items()):
                line = f"{label} {keep:.4g} + {form}"
                name = f"{line}, {kept}"
                rows.append(_row(name, pruner().with_keep(keep), one.with_keep(kept / HEAD), line))
                if method.expected is not None and number == 0:
                    half = kept == FEWER[0]
                    relation: Relation = "about" if half else method.expected
                    topic = "half" if half else f"{method.name}-fixed"
                    claims.append(Claim(mine, name, relation, topic))
                    if kept == FEWER[-1] and method.expected == "at least":
                        ours_at, at = (f"{label} {keep:.4g} + {one}, {FEWER[0]}"
                                       for one in (ours.label, form))  # fmt: skip
                        claims.append(Claim(at, name, topic="steep"))
                        claims.append(Claim(at, name, topic="flat", over=(ours_at, mine)))
                    if kept == FIFTH and method.expected == "about":
                        claims.append(Claim(name, mine, topic="eighty"))
            if method is ours and kept / HEAD >= min(FRONTIER):
                claims.append(Claim(mine, whole, "about", "less"))
    title = f"Tokens fixed, channels vary, with {label}"
    name = f"sparsity-{pruner.name}"
    return Table(name, title, tuple(rows), tuple(claims), "part", "channels")


def channel_table(scope: Scope = "all") -> Table:
    """Accuracy against Key channels kept, no token dropped."""
    kinds = {label: one for method in reducers() for label, one in method.variants().items()}
    ours, rows, claims = CHANNELS.default.label, [UNCOMPRESSED_ROW], []
    for kept, (label, method) in product(CHANNELS_KEPT, kinds.items()):
        rows.append(_row(f"{label}, {kept}", KeepAll(), method.with_keep(kept / HEAD), label))
    for kept in CHANNELS_KEPT:
        for rival in reducers():
            if rival.expected is not None:
                paper = next(iter(rival.papers().values()))  # the form that it compares with
                name = next(name for name, one in kinds.items() if one == paper)
                topic = f"{rival.name}-alone"
                claims.append(Claim(f"{ours}, {kept}", f"{name}, {kept}", rival.expected, topic))
    long = scope == "long"
    return Table(
        "channels" + ("-long" if long else ""),
        f"Key channels kept of {HEAD}" + (", long answers" if long else ""),
        tuple(rows),
        () if long else tuple(claims),
        scope,
        "channels",
    )


def pruner_table() -> Table:
    """Every pruner, alone and joined with every channel method; the control is what to beat."""
    rows, claims = [UNCOMPRESSED_ROW], []
    control = next((pruner for pruner in pruners() if pruner.control), None)
    forms = {label: one.with_keep(0.25) for m in reducers() for label, one in m.papers().items()}
    light = [one for one in _presets_beyond() if one.bits_a_number is not None]
    lighter = {_form_title(one): one for one in (*light, *rivals().values())}
    for number, (nominal, keep) in enumerate(PAPER_BUDGETS[1::2]):
        tag = f"({nominal:.2f})"
        for pruner in pruners():
            alone = Row(f"{pruner.label} only {tag}", _alone(pruner, nominal), f"tokens only {tag}")
            rows.append(alone)
            for form, one in forms.items():
                words = f"{form} {tag}"
                rows.append(_row(f"{pruner.label} + {words}", pruner().with_keep(keep), one, words))
            if number == 0:
                for form, one in lighter.items():
                    label = f"{pruner.label} {keep:.4g} + {form}"
                    rows.append(_row(label, pruner().with_keep(keep), one, f"{keep:.4g} + {form}"))
            if control is not None and not pruner.control:
                ours = CHANNELS.default.label
                for what in (f"only {tag}", f"+ {ours} {tag}"):
                    first, second = (f"{one.label} {what}" for one in (pruner, control))
                    claims.append(Claim(first, second, topic="control"))
    title = "Every token pruner, against a random choice"
    return Table("pruners", title, tuple(rows), tuple(claims), "part", "pruners")


def core_table() -> Table:
    """A few settings of every kind, for suites beside the main one: all are in other tables."""
    nominal, keep = PAPER_BUDGETS[1]
    rows = [UNCOMPRESSED_ROW]
    for pruner in pruners():
        if pruner.of_paper:
            rows.append(Row(f"{pruner.label} only ({nominal:.2f})", _alone(pruner, nominal)))
            for method in reducers():
                form, one = next(iter(method.papers().items()))
                label = f"{pruner.label} + {form} ({nominal:.2f})"
                rows.append(_row(label, pruner().with_keep(keep), one.with_keep(0.25)))
    for method in reducers():
        form, one = next(iter(method.papers().items()))
        rows.append(_row(f"{form}, 32 Key channels", KeepAll(), one.with_keep(0.25)))
    for one in (*_presets_beyond(), *rivals().values()):
        rows.append(_row(_form_title(one), KeepAll(), one))
    return Table("core", "A few settings of every kind", tuple(rows))


def second_table() -> Table:
    """What second questions are asked of: the sizes that matter, of every kind of method."""
    ours, pruner = CHANNELS.default, default_pruner()
    named: dict[str, Settings] = {}
    for bits in SECOND_BITS:
        named[f"{ours.label} ({bits:g} bits)"] = Settings.of(bits=bits)
    for times in SECOND_TIMES:
        named[f"{ours.label} ({times} times smaller)"] = Settings.of(smaller=times)
    for kept, method in product((HEAD // 2, HEAD // 4), reducers()):
        form, one = next(iter(method.papers().items()))
        named[f"{form}, {kept} Key channels"] = Settings(channels=one.with_keep(kept / HEAD))
    for method in CHANNELS.values():
        for option in options_of(method):
            for value in option.values if option.key == BITS else ():
                label = f"{method.label} ({value} bits)"
                named[label] = Settings.from_dict({"channels": method.name, BITS: value})
    for one in rivals().values():  # whose bits are no option
        if not isinstance(one, Full) and all(option.key != BITS for option in options_of(one)):
            named[_form_title(one)] = Settings(channels=one)
    for kind in pruners():
        if kind.stage not in ("decoder", "encoder", "nowhere"):  # each head chooses its own
            own = {"tokens": kind.name, "keep_tokens": SECOND_TOKENS}
            label = f"{kind.label} {SECOND_TOKENS:g}"
            named[label] = Settings(Settings.from_dict(own).tokens, Full())
            named[f"{label} + 2 bits"] = Settings.from_dict({**own, "bits": 2.0})
    dropped = {"tokens": pruner.name, "keep_tokens": SECOND_TOKENS}
    words = f"{pruner.label} {SECOND_TOKENS:g}"
    named[words] = Settings(Settings.from_dict(dropped).tokens, Full())
    for bits in SECOND_BITS[1:3]:
        named[f"{words} + {bits:g} bits"] = Settings.from_dict({**dropped, "bits": bits})
    rows = [UNCOMPRESSED_ROW, *(Row(label, one, label) for label, one in named.items())]
    title = "Second questions, on the cache that the first one left"
    return Table(SECOND, title, tuple(rows), beside=f"{ours.label} ({SECOND_BITS[0]:g} bits)")


def _presets_beyond() -> list[ChannelMethod]:
    """Presets of ours that go beyond the paper."""
    return [one for one in CHANNELS.default.presets().values() if one.extensions]


def _form_title(method: ChannelMethod) -> str:
    return title_of(Settings(KeepAll(), method))


def study_tables() -> list[Table]:
    """Tables that a method's own file declares: its design choices, and what goes beyond the
    paper."""
    pruner, made = default_pruner(), []
    for method in CHANNELS.values():
        for study in method.studies():
            rows = [UNCOMPRESSED_ROW]
            for label, (dropped, one) in study.rows.items():
                tokens = Settings.from_dict(dropped).tokens
                rows.append(_row(label, tokens, one))
            for nominal in study.rivals:
                rows.append(Row(f"{pruner.label} only, KV {nominal:.4g}", _alone(pruner, nominal)))
            claims = tuple(Claim(*claim) for claim in study.claims)
            scope: Scope = "part" if study.name in DESIGN else "all"
            made.append(Table(study.name, study.title, tuple(rows), claims, scope))
    return made


def tables() -> dict[str, Table]:
    """Every table, by name. Methods and pruners come from the registries."""
    papers = [pruner for pruner in pruners() if pruner.of_paper]
    made = [budget_table(pruner) for pruner in papers]
    made += [frontier_table(pruner) for pruner in papers]
    made += [channel_table(), *study_tables()]
    made += [budget_table(pruner, "long") for pruner in papers] + [channel_table("long")]
    made += [sparsity_table(pruner) for pruner in papers] + [pruner_table(), core_table()]
    return {table.name: table for table in made}


def named(names: str) -> list[Table]:
    """Tables by their names, with commas between them; "all" are all.

    Raises:
        SettingError: naming what there is.
    """
    known = tables()
    if names == "all":
        return list(known.values())
    known[SECOND] = second_table()
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
    text = read_text(path, "The settings file")
    try:
        rows = parsed(text)
        pairs = [(str(label), dict(values)) for label, values in rows.items()]
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(
            'The settings file is not JSON of the form {"label": {"keep_channels": 0.25}, ...}.'
        ) from error
    made = [Row(label, Settings.of(**values)) for label, values in pairs]
    return Table(path.stem, path.stem, (UNCOMPRESSED_ROW, *made))


def with_options(table: Table, options: Mapping[str, Any]) -> Table:
    """The same table with some options changed, in every row whose methods have them.

    A row that sets an option itself keeps its own value.

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


def asked(scope: Taken, items: Sequence[Item]) -> list[Item]:
    """The questions that a scope takes: all, the pages, or as large a part of every category."""
    if isinstance(scope, frozenset):
        return [item for item in items if item.name in scope]
    if scope == "all":
        return list(items)
    if scope == "long":
        return [item for item in items if item.long]
    seen: Counter[str] = Counter()
    taken = []
    for item in items:
        number, share = seen[item.category], PART[item.long]
        seen[item.category] += 1
        if int((number + 1) * share) > int(number * share):
            taken.append(item)
    return taken


def wanted(chosen: Iterable[Table]) -> Iterator[tuple[Settings, Taken]]:
    """Each distinct setting once with each scope that adds questions; cheapest KV last."""
    scopes: dict[Settings, set[Scope]] = {}
    named: dict[Settings, frozenset[str]] = {}
    for table in chosen:
        for row in table.rows:
            for settings, names in row.asked:
                named[settings] = named.get(settings, frozenset()) | names
            if not row.variants:
                scopes.setdefault(row.settings, set()).add(table.scope)
    every = dict.fromkeys([*scopes, *named])
    for settings in sorted(every, key=lambda one: one.nominal_kv, reverse=True):
        mine = scopes.get(settings, set())
        if "all" in mine:
            yield settings, "all"
            continue
        yield from ((settings, scope) for scope in sorted(mine))
        if settings in named:
            yield settings, named[settings]
