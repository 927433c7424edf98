"""Refusals name the field that they are about, as programs read it."""

from typing import Any

import pytest

from rotatek.errors import SettingError
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.page.links import decode, read_query
from rotatek.server.api_keys import Keys
from rotatek.server.chat_request import read_call
from rotatek.server.reply import error_of


def _call(**given: object) -> None:
    import json

    words = {"model": "m", "messages": [{"role": "user", "content": "what?"}]} | given
    read_call(json.dumps(words).encode(), ["m"], Settings())


@pytest.mark.parametrize(
    ("refused", "name"),
    [
        (lambda: _call(temperature="hot"), "temperature"),
        (lambda: _call(rotatek={"kep_tokens": 1}, messages=PICTURE), "kep_tokens"),
        (lambda: _call(rotatek={"keep_tokens": 0.5}, messages=PICTURE), "keep_tokens"),
        (lambda: _call(rotatek={"calibration": "/a"}, messages=PICTURE), "calibration"),
        (lambda: _call(rotatek=7, messages=PICTURE), "rotatek"),
        (lambda: Settings.of(tokens=3), "tokens"),
        (lambda: Settings(tokens="fastv"), "tokens"),  # type: ignore[arg-type]
        (lambda: decode("x" * 1000), "settings"),
        (lambda: read_query("&".join("ab" * 15), [], []) or read_query("&" * 30, [], []), "link"),
        (lambda: Keys(["short"]), "api_keys"),
        (lambda: make_request(_picture(), "what?", 0), "max_new_tokens"),
    ],
)
def test_situations_and_the_field_that_they_name(refused: object, name: str) -> None:
    with pytest.raises(SettingError) as caught:
        refused()  # type: ignore[operator]
    assert caught.value.name == name
    _, body = error_of(caught.value)
    assert body["error"]["param"].removeprefix("rotatek.") == name
    assert name in body["error"]["message"] and body["error"]["message"].endswith(".")


def _picture() -> Any:
    from PIL import Image

    return Image.new("RGB", (32, 32))


def _message() -> list[dict[str, object]]:
    import base64
    import io

    buffer = io.BytesIO()
    _picture().save(buffer, "PNG")
    url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    parts = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "user", "content": parts}]


PICTURE: Any = _message()
