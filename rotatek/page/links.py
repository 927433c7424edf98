"""Settings as short text, and the page's address as a link that brings everything back."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from rotatek.errors import SettingError
from rotatek.inputs.request import MAX_NEW_TOKENS, MAX_QUESTION
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.page.form import changed, fields, sampling_of, settings_of, values_of

MAX_CODE: Final = 400  # characters of an encoded setting
MAX_QUERY: Final = 8_000  # characters of a link's query
LEAST_TIMES: Final = 2  # of the third column's slider
MOST_TIMES: Final = 32
KEYS: Final = {  # of a link, by the widget whose value they bring back; "s" is the settings'
    "others": "x", "what_if": "w", "times": "t", "question": "q", "model": "model",
    "max_new_tokens": "length", "image": "image", "temperature": "temperature", "seed": "seed",
}  # fmt: skip


def encode(settings: Settings) -> str:
    """Settings as short text for links and buttons: `tokens:fastv,keep_tokens:0.4`.

    Only what differs from the defaults; never a path.
    """
    known = fields()
    return ",".join(
        f"{name}:{value}"
        for name, value in changed(settings).items()
        if name not in known or known[name].is_shared
    )


def decode(text: str) -> Settings:
    """The inverse of `encode`, for text from anywhere.

    Raises:
        SettingError: for a name or a value that there is not.
    """
    if len(text) > MAX_CODE:
        raise SettingError("settings", f"at most {MAX_CODE} characters", text)
    parts = (part.partition(":") for part in text.split(",") if part)
    return Settings.from_dict({name: value for name, _, value in parts}, shared=True)


def query(asked: Mapping[str, Any], example: str | None) -> str:
    """The part of an address after the question mark.

    Args:
        asked: what the widgets show, by the names of `KEYS`, and the settings as
            `form.settings_of` takes them.
        example: the name of an example's file, without its ending; other images are not shared.
    """
    draws = sampling_of(asked.get("temperature"), asked.get("seed"))
    shown = {**asked, "image": example, "temperature": None, "seed": None}
    if draws.draws:
        shown |= {"temperature": draws.temperature, "seed": draws.seed}
    pairs = [("s", encode(settings_of(asked)))]
    for name, key in KEYS.items():
        value = shown.get(name)
        values = value if isinstance(value, list) else [value]
        pairs += [(key, str(one)) for one in values if one is not None and one != ""]
    return urlencode(pairs)


def read_query(text: str, images: Sequence[str], models: Sequence[str]) -> dict[str, Any]:
    """What an address says, checked, by the names of widgets; a name or a number that this page
    does not have is left out.

    Args:
        text: the part behind the question mark.
        images: names of the examples' files, without their endings.
        models: names on offer.

    Raises:
        SettingError: for settings that there are not.
    """
    try:
        given = parse_qs(text[:MAX_QUERY].lstrip("?"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise SettingError("link", "one that this page has made", text) from error
    one = {name: values[0] for name, values in given.items()}

    def whole(key: str, low: int, high: int) -> int | None:
        digits = one.get(key, "")
        is_short = digits.isdecimal() and len(digits) < 6
        return int(digits) if is_short and low <= int(digits) <= high else None

    link: dict[str, Any] = {
        "question": one.get("q", "")[:MAX_QUESTION],
        "model": one.get("model") if one.get("model") in models else None,
        "image": one.get("image") if one.get("image") in images else None,
        "max_new_tokens": whole("length", 1, MAX_NEW_TOKENS),
        "times": whole("t", LEAST_TIMES, MOST_TIMES),
        "what_if": given.get("w"),
    }
    link = {name: value for name, value in link.items() if value}
    if "s" in one:
        link |= values_of(decode(one["s"]))
        link["others"] = [name for name in given.get("x", []) if name in CHANNELS]
    if "temperature" in one:
        try:
            seed = int(one["seed"]) if "seed" in one else None
            draws = sampling_of(float(one["temperature"]), seed)
        except ValueError as error:
            raise SettingError("temperature", "a number, and the seed a whole one", text) from error
        if draws.draws:
            link |= {"temperature": draws.temperature, "seed": draws.seed}
    return link
