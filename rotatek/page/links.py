"""Settings as short text, and the page's address as a link that brings everything back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from rotatek.errors import SettingError
from rotatek.inputs.request import MAX_NEW_TOKENS, MAX_QUESTION
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.page.form import changed, fields
from rotatek.service.model_list import Example

MAX_CODE: Final = 400  # characters of an encoded setting
MAX_QUERY: Final = 8_000  # characters of a link's query
LEAST_TIMES: Final = 2  # of the third column's slider
MOST_TIMES: Final = 32


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


@dataclass
class Link:
    """What a link says; what it does not say is None, or empty.

    Args:
        settings: the visitor's own column.
        times: how many times smaller the third one is.
        others: methods that answer beside them.
        what_if: codes of heads, as `ask.settings.what_ifs` takes them.
        example: the name of an example's file, without its ending; other images are not shared.
        max_new_tokens: the longest answer.
        sampling: how its tokens are chosen: a temperature, and a seed.
    """

    settings: Settings | None = None
    times: float | None = None
    others: Sequence[str] = ()
    what_if: Sequence[str] = ()
    question: str = ""
    example: str | None = None
    model: str | None = None
    max_new_tokens: int | None = None
    sampling: Sampling = GREEDY

    def query(self) -> str:
        """The part of an address after the question mark."""
        pairs = [] if self.settings is None else [("s", encode(self.settings))]
        pairs += [("x", name) for name in self.others] + [("w", code) for code in self.what_if]
        rest: dict[str, Any] = {
            "t": None if self.times is None else f"{self.times:g}", "q": self.question,
            "model": self.model, "length": self.max_new_tokens, "image": self.example,
        }  # fmt: skip
        if self.sampling.draws:
            rest |= {"temperature": self.sampling.temperature, "seed": self.sampling.seed}
        pairs += [(name, str(value)) for name, value in rest.items() if value is not None]
        return urlencode(pairs)


def read_query(text: str, examples: Sequence[Example], models: Sequence[str]) -> Link:
    """What an address says, checked; names that this page does not have are left out.

    Raises:
        SettingError: for settings that there are not.
    """
    try:
        given = parse_qs(text[:MAX_QUERY].lstrip("?"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise SettingError("link", "one that this page has made", text) from error
    one = {name: values[0] for name, values in given.items()}
    link = Link(question=one.get("q", "")[:MAX_QUESTION])
    if "s" in one:
        link.settings = decode(one["s"])
        link.others = [name for name in given.get("x", []) if name in CHANNELS]
    link.what_if = given.get("w", [])
    times = one.get("t", "")
    if times.isdecimal() and LEAST_TIMES <= int(times[:3]) <= MOST_TIMES:
        link.times = int(times)
    if one.get("model") in models:
        link.model = one["model"]
    length = one.get("length", "")
    if length.isdecimal() and len(length) < 6 and 1 <= int(length) <= MAX_NEW_TOKENS:
        link.max_new_tokens = int(length)
    if "temperature" in one:
        link.sampling = _sampling_of(one["temperature"], one.get("seed"))
    if one.get("image") in [example.image.stem for example in examples]:
        link.example = one["image"]
    return link


def _sampling_of(temperature: str, seed: str | None) -> Sampling:
    """Raises `SettingError`."""
    try:
        return Sampling(temperature=float(temperature), seed=None if seed is None else int(seed))
    except ValueError as error:
        raise SettingError("temperature", "a number, and the seed a whole one", seed) from error
