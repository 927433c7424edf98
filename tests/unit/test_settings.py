"""Names and values from anywhere become settings in one place, or one refusal."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rotatek.cli.main import parser_for
from rotatek.cli.settings_arguments import settings_of as from_flags
from rotatek.errors import SettingError, SettingRemoved, SettingUnknown
from rotatek.evaluation.tables import from_file
from rotatek.methods.options import Option, options_of
from rotatek.methods.settings import REGISTRIES, REMOVED, USUAL, Settings
from rotatek.methods.tokens import FastV
from rotatek.page.export import decode
from rotatek.server.chat_request import settings_of as from_call

Door = Callable[[Mapping[str, Any], Path], Settings]


def _by_flags(given: Mapping[str, Any], folder: Path) -> Settings:
    flags = [w for k, v in given.items() for w in ("--option", f"{k}={v}")]
    return from_flags(parser_for(["ask"]).parse_args(["ask", "a.png", "what?", *flags]))


def _by_file(given: Mapping[str, Any], folder: Path) -> Settings:
    path = folder / "settings.json"
    path.write_text(json.dumps({"mine": dict(given)}), encoding="utf-8")
    return from_file(path)["mine"]


DOORS: dict[str, Door] = {
    "library": lambda given, _: Settings.of(**given),
    "flags": _by_flags,
    "file": _by_file,
    "call": lambda given, _: from_call(dict(given), Settings()),
    "link": lambda given, _: decode(",".join(f"{k}:{v}" for k, v in given.items())),
    "page's API": lambda given, _: Settings.from_dict(given, shared=True),
}


def _other_value(option: Option) -> Any:
    """A value that the option takes and that is not its default."""
    if option.kind == "choice":
        return next(value for value in option.values if value != option.default)
    return {"fraction": 0.4, "number": option.high, "integer": 17, "path": "a.safetensors"}[
        option.kind
    ]


def _idle() -> list[tuple[str, str, str, Any]]:
    """Every method beside every option that it has not."""
    return [
        (kind, name, key, _other_value(owners[0][1]))
        for kind, registry in REGISTRIES.items()
        for key, owners in registry.options().items()
        for name, method in registry.items()
        if key not in {one.key for one in options_of(method)}
    ]


@pytest.mark.parametrize("door", DOORS)
def test_an_option_that_cannot_act_is_refused_at_every_door(door: str, tmp_path: Path) -> None:
    """And the sentence says under which method it would act."""
    cases = _idle()
    assert len(cases) > 40 and ("channels", "kivi", "keep_channels", 0.4) in cases
    for kind, name, key, value in cases:
        owners = [method.name for method, _ in REGISTRIES[kind].options()[key]]
        with pytest.raises(SettingError) as refused:
            DOORS[door]({kind: name, key: value}, tmp_path)
        if door in ("call", "link", "page's API") and key == "calibration":
            assert refused.value.name == key  # a file of this machine is not for strangers
            continue
        with pytest.raises(SettingError) as by_library:
            Settings.of(**{kind: name, key: value})
        said = str(refused.value)
        assert said == str(by_library.value)
        assert refused.value.name == key and f"unless {kind} is " in said
        assert all(owner in said for owner in owners)


@pytest.mark.parametrize("door", ["library", "file", "call", "link"])
@pytest.mark.parametrize("name", REMOVED)
def test_what_is_gone_is_refused_by_name(name: str, door: str, tmp_path: Path) -> None:
    key, _, value = name.partition("=")
    with pytest.raises(SettingRemoved, match=f"The setting {name} is gone: ") as refused:
        DOORS[door]({key: value or "2"}, tmp_path)
    assert refused.value.name == name


@pytest.mark.parametrize("door", DOORS)
def test_what_changes_nothing_may_stand_anywhere(door: str, tmp_path: Path) -> None:
    """A full record of every option at its default, as forms send it."""
    every = {
        key: owners[0][1].default
        for registry in REGISTRIES.values()
        for key, owners in registry.options().items()
        if owners[0][1].default is not None
    }
    assert DOORS[door](every, tmp_path) == Settings()
    full = {"channels": "full", "keep_channels": 1, "keep_tokens": 1.0}
    assert DOORS[door](full, tmp_path) == Settings.of(channels="full")


def test_usual_where_nothing_is_chosen_and_not_beside_what_it_replaces(tmp_path: Path) -> None:
    """Of a command line, and of a call beside a server's own settings."""
    chosen: list[tuple[dict[str, Any], Settings]] = [
        ({}, USUAL),
        ({"tokens": "fastv", "keep_tokens": 0.4}, Settings(FastV(keep=0.4), USUAL.channels)),
        ({"weighting": "none"}, USUAL.with_options(weighting="none")),
        ({"keep_channels": 0.25}, Settings.of(keep_channels=0.25)),
        ({"smaller": 16}, Settings.of(smaller=16)),
        ({"channels": "rotatek"}, Settings()),
        ({"channels": "kivi"}, Settings.of(channels="kivi")),
    ]
    for own, expected in chosen:
        assert DOORS["flags"](own, tmp_path) == from_call(own, USUAL) == expected
    assert from_call({"smaller": 0}, Settings.of(smaller=8)) == Settings()
    fewer = Settings.of(tokens="fastv", keep_tokens=0.5, channels="spark", recovery="mean")
    assert from_call({"keep_tokens": 0.25}, fewer) == fewer.with_options(keep_tokens=0.25)
    assert from_call({"channels": "kivi"}, fewer).tokens == fewer.tokens


@pytest.mark.parametrize("door", ["library", "flags", "file", "call"])
def test_an_option_that_another_one_replaces_is_refused(door: str, tmp_path: Path) -> None:
    """Bits set a share of the channels back, and no answer would show it."""
    for name, value in (("keep_channels", 0.5), ("solver", "eigh")):
        with pytest.raises(SettingError, match=f"{name} must be left out beside smaller"):
            DOORS[door]({name: value, "smaller": 8}, tmp_path)
    given = {"keep_channels": 0.25, "smaller": 8}
    assert DOORS[door](given, tmp_path) == Settings.of(smaller=8)
    assert DOORS[door]({"keep_channels": 0.5, "smaller": 0}, tmp_path).channels.nominal_share < 1


@pytest.mark.parametrize("door", [name for name in DOORS if name != "flags"])
def test_a_name_that_there_is_not_is_named(door: str, tmp_path: Path) -> None:
    with pytest.raises(SettingUnknown, match='no setting "kep_tokens"') as refused:
        DOORS[door]({"kep_tokens": 0.5}, tmp_path)
    assert refused.value.name == "kep_tokens" and "keep_tokens" in str(refused.value)


STRANGE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=3), st.integers()),
    st.binary(max_size=4), st.complex_numbers(), st.decimals(), st.fractions(),
)  # fmt: skip
NAMES = sorted({"tokens", "channels", *(k for r in REGISTRIES.values() for k in r.options())})


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(NAMES), STRANGE, max_size=3))
def test_anything_is_read_or_refused_in_one_sentence(given: dict[str, Any]) -> None:
    try:
        found = Settings.from_dict(given)
    except SettingError as refused:
        assert refused.name in given and str(refused).endswith(".")
        assert str(refused).isprintable()
        return
    assert Settings.from_dict(found.as_dict()) == found
    held = found.as_dict()
    for key, value in given.items():
        if key not in held:  # then it changes nothing
            owners = [o for r in REGISTRIES.values() for _, o in r.options().get(key, [])]
            assert any(one.changes_nothing(one.read(value)) for one in owners)
