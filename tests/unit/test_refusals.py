"""Every refusal in the source: what is refused, by its name, and what to do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rotatek import errors
from rotatek.errors import SettingError, UserError
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.page.links import decode, read_query
from rotatek.server.api_keys import Keys
from rotatek.server.chat_request import read_call
from rotatek.server.reply import error_of
from tests.unit.test_errors import CLOSED_LIST, example

ROOT = Path(__file__).parents[2]
SOURCES = [path for path in (ROOT / "rotatek").rglob("*.py") if "pocket" not in path.parts]
NAMES = {kind.__name__ for kind in (*CLOSED_LIST, UserError)}
ADVICE = re.compile(
    r"\b(Add|Ask|Accept|Append|Change|Check|Choose|Crop|Cut|Delete|Draw|Fetch|Fill|Free|GET|Give|"
    r"Install|Leave|Load|Look|Make|Move|Name|Pack|Press|Put|Read|Rephrase|Run|Save|Say|Scale|Send|"
    r"Set|Shorten|Show|Start|Take|Try|Turn|Type|Use|Wait|Write|Build|Call|Decode|Pass|Reset|Keep|Log|"
    r"Mend|Embed|Index|not a chat|info` lists|"
    r"Ray's logs|In this order|of the form|run it again|it can be|"
    r"`python -m|belongs? into|The image was)\b",
    re.IGNORECASE,
)
VAGUE = re.compile(r"^(a|an|the|some|one) ", re.IGNORECASE)


def _literal(node: ast.expr) -> str | None:
    """The text of a literal or of an f-string, with "x" for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(v) or "x" if isinstance(v, ast.Constant) else "x"
                       for v in node.values)  # fmt: skip
    return None


def _made() -> Iterator[tuple[str, str, ast.Call]]:
    """Every call in the source that makes a refusal: where, of which class."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in NAMES and node.args:
                    yield f"{path.name}:{node.lineno}", name, node


def test_every_sentence_in_the_source_says_what_to_do() -> None:
    said = [
        (where, text)
        for where, name, node in _made()
        if not name.startswith("Setting") and (text := _literal(node.args[0]))
    ]
    assert len(said) > 40
    said = [(where, text) for where, text in said if "went wrong" not in text]  # it has an id
    for where, text in [*said, *((kind.code, example(kind).message) for kind in CLOSED_LIST)]:
        assert text.rstrip()[-1] in ".x", f"{where}: {text}"
        assert "!" not in text and len(text) <= 260, f"{where}: {text}"
        calm = ADVICE.search(text) or text in (errors.Stopped.sentence,)
        assert calm or " must be " in text or "Use " in text, f"{where} gives no advice: {text}"


def test_every_setting_that_is_refused_has_a_name() -> None:
    """Programs read it as `param`; "a field" names none."""
    names = [
        (where, text)
        for where, name, node in _made()
        if name == "SettingError" and (text := _literal(node.args[0]))
    ]
    assert len(names) > 10
    for where, text in names:
        assert not VAGUE.match(text) and " " not in text, f"{where}: {text}"


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
