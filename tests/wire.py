"""Talks to a served page as any program may, without Gradio's client."""

import http.client
import json
import secrets
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def fetch(url: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer, refusals included, which may be text."""
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        is_json = refused.headers.get_content_type() == "application/json"
        return refused.code, json.load(refused) if is_json else refused.read().decode()


def upload(address: str, content: bytes) -> tuple[int, Any]:
    """Send one file: the status, and the list of its path or what is said instead."""
    head = b"--x\r\nContent-Disposition: form-data; name=files; filename=a.png\r\n\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    return fetch(f"{address}gradio_api/upload", head + content + b"\r\n--x--\r\n", **kind)


def picture(address: str, path: Path) -> dict[str, Any]:
    """An uploaded picture, as a payload names it."""
    _, (stored,) = upload(address, path.read_bytes())
    return {"path": stored, "meta": {"_type": "gradio.FileData"}}


def question(address: str, **given: Any) -> dict[str, Any]:
    """What a browser sends when Ask is pressed: what is `given` by element, else what the page
    began with."""
    _, page = fetch(f"{address}config")
    parts = {part["id"]: part["props"] for part in page["components"]}
    (ask,) = (id for id, props in parts.items() if props.get("elem_id") == "ask")
    (event,) = (one for one in page["dependencies"] if [ask, "click"] in one["targets"])
    shown = [parts[id] for id in event["inputs"]]
    return {
        "data": [given.get(props.get("elem_id"), props.get("value")) for props in shown],
        "fn_index": event["id"],
    }


def join(address: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Ask for a place in the queue, as a visitor of one question: the status, and the visitor's
    `session_hash` with what is said."""
    asked = asked | {"session_hash": secrets.token_hex(6)}
    body, kind = json.dumps(asked).encode(), {"Content-Type": "application/json"}
    status, said = fetch(f"{address}gradio_api/queue/join", body, **kind)
    return status, said | ({"session_hash": asked["session_hash"]} if status == 200 else {})


class Listener:
    """A visitor's connection, which reads the answer and can be dropped at any time."""

    def __init__(self, address: str, session: str) -> None:
        place = urlsplit(address)
        self.connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        self.connection.request("GET", f"/gradio_api/queue/data?session_hash={session}")
        self.answer = self.connection.getresponse()

    def first(self) -> str:
        """Up to the first word of an answer, or to the end."""
        said = b""
        while line := self.answer.readline():
            said += line
            if b"rk-word" in line:
                break
        return said.decode()

    def rest(self) -> str:
        """Everything that is said until the end."""
        said = self.answer.read().decode()
        self.drop()
        return said

    def drop(self) -> None:
        """As when a laptop is closed."""
        self.answer.close()
        self.connection.close()
