"""`/ask` by gradio_client: answers, refusals, and no word too many."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from tests import wire

LEAKS = re.compile(r"Traceback|/tmp|/work|site-packages|0x[0-9a-f]{6}|\.py\b")


def test_answers_are_drawn_with_a_seed(client: Client, picture_file: Path) -> None:
    """A seed that is not given is reported; with it the answer comes again."""

    def ask(**more: Any) -> Any:
        return client.predict(
            handle_file(picture_file), "Which colour?", max_new_tokens=8, api_name="/ask", **more
        )

    first = ask(temperature=1.0, top_p=0.9)
    assert first["sampling"].keys() == {"temperature", "top_p", "seed"}
    assert ask(**first["sampling"])["answer"] == first["answer"]
    assert ask(temperature=1.5, seed=1)["answer"] != ask(temperature=1.5, seed=2)["answer"]
    assert ask()["sampling"] == {}
    with pytest.raises(AppError, match="temperature must be a number from 0 to 2"):
        ask(temperature=3)


def test_ask_answers_with_its_cost(client: Client, picture_file: Path) -> None:
    got = client.predict(
        handle_file(picture_file), "Which colour?", tokens="fastv", keep_tokens=0.5,
        channels="full", max_new_tokens=6, api_name="/ask",
    )  # fmt: skip
    assert {
        "answer", "new_tokens", "visual_tokens", "visual_tokens_kept", "nominal_kv", "kv_bytes",
        "kv_bytes_full", "prefill_ms", "decode_ms_per_token", "attention",
    } <= set(got)  # fmt: skip
    assert got["visual_tokens"] == 96 and got["visual_tokens_kept"] == 48
    assert got["nominal_kv"] == 0.5
    assert 0 < got["kv_bytes"] < got["kv_bytes_full"]
    assert 0 < got["new_tokens"] <= 6
    assert got["settings"] == {
        "tokens": "fastv", "keep_tokens": 0.5, "fastv_layer": 2, "channels": "full",
    }  # fmt: skip


BAD_SETTINGS = [
    ({"question": " \n\t"}, "The question is empty"),
    ({"question": "x" * 100_000}, "longer than 2,000 characters"),
    ({"image": None}, "There is no image yet"),
    ({"keep_tokens": 0}, "keep_tokens must be a number above 0 and at most 1"),
    ({"tokens": "../../etc/passwd"}, "tokens must be one of"),
    ({"max_new_tokens": 10**9}, "max_new_tokens must be a whole number from 1 to"),
    ({"model": "/etc/passwd"}, "model must be one of tiny"),
]


@pytest.mark.parametrize(
    "change,sentence", BAD_SETTINGS, ids=[str(c)[:40] for c, _ in BAD_SETTINGS]
)
def test_bad_settings_are_refused_in_our_own_words(
    client: Client, picture_file: Path, change: dict, sentence: str
) -> None:
    good = {"image": handle_file(picture_file), "question": "Which colour?", "max_new_tokens": 2}
    with pytest.raises(AppError) as refused:
        client.predict(**(good | change), api_name="/ask")
    assert sentence in str(refused.value)
    assert not LEAKS.search(str(refused.value))


BAD_VALUES = [
    ("tokens", {"a": 1}, "tokens must be one of"),
    ("max_new_tokens", {"a": 1}, "max_new_tokens must be a whole number"),
    ("question", ["a", "b"], "The question is not text"),
    ("image", 3, "The image is not an uploaded file"),
    ("image", {"path": None, "url": "http://127.0.0.1:1/x.png"}, "is not an uploaded file"),
    ("image", {"path": "/etc/passwd"}, "There is no readable file"),
]


def called(address: str, body: bytes) -> tuple[int, str]:
    """The result of a plain call of /ask: status and text, the event's where there is one."""
    base = f"{address}gradio_api/call/ask"
    status, said = wire.fetch(base, body, **{"Content-Type": "application/json"})
    if status != 200:
        return status, json.dumps(said)
    return 200, wire.Listener(address, said["event_id"]).rest()


@pytest.mark.parametrize(
    "name,value,sentence", BAD_VALUES, ids=[f"{n}={v}"[:40] for n, v, _ in BAD_VALUES]
)
def test_values_of_the_wrong_type_get_a_sentence(
    address: str, name: str, value: object, sentence: str
) -> None:
    if isinstance(value, dict) and "path" in value:
        value = value | {"meta": {"_type": "gradio.FileData"}}
    given = wire.values(address, **{"image": None, "question": "Which?", name: value})
    status, text = called(address, json.dumps({"data": given}).encode())
    assert status == 200 and "event: error" in text
    if name != "image":  # without a picture only what is read before it is refused for itself
        sentence = f"{sentence}|There is no image yet"
    assert re.search(sentence, text) and not LEAKS.search(text)


@pytest.mark.parametrize("data", [[], [None, "Which?"], [None] * 40])
def test_missing_fields_are_named(address: str, data: list) -> None:
    _, text = called(address, json.dumps({"data": data}).encode())
    assert "/ask takes " in text and f"{len(data)} were sent" in text
    assert "image, question, tokens, keep_tokens" in text


@pytest.mark.parametrize("body", [b"hello", b"{}", b'{"data": "x"}'])
def test_what_is_no_call_is_answered_with_how_to_call(address: str, body: bytes) -> None:
    status, text = called(address, body)
    assert status == 422 and "value for each field" in text


def test_a_bad_file_is_refused_whatever_it_is_called(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(b"%PDF-1.7")
    with pytest.raises(AppError, match="This image format is not supported") as refused:
        client.predict(handle_file(file), "Which colour?", api_name="/ask")
    assert not LEAKS.search(str(refused.value))


def test_the_server_hands_out_no_file_of_its_own(address: str) -> None:
    for path in ("/etc/passwd", "app.py", "assets/pocket/config.json", "../../etc/passwd"):
        try:
            with urllib.request.urlopen(f"{address}gradio_api/file={path}", timeout=30) as answer:
                pytest.fail(f"{path} was served: {answer.read(80)!r}")
        except urllib.error.HTTPError as refused:
            assert refused.code in (403, 404)


def test_an_upload_over_ten_megabytes_is_turned_away(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "large.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(11_000_000))
    with pytest.raises(Exception) as refused:  # the client wraps the server's 413
        client.predict(handle_file(file), "Which colour?", api_name="/ask")
    assert "413" in str(refused.value) or "size" in str(refused.value).lower()
