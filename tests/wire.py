"""Talks to a served page as any program may, without Gradio's client."""

import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def fetch(url: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer, refusals included."""
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def upload(address: str, content: bytes) -> tuple[int, Any]:
    """Send one file: the status, and the list of its path or what is said instead."""
    head = b"--x\r\nContent-Disposition: form-data; name=files; filename=a.png\r\n\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    return fetch(f"{address}gradio_api/upload", head + content + b"\r\n--x--\r\n", **kind)


def picture(address: str, path: Path) -> dict[str, Any]:
    """An uploaded picture, as a payload names it."""
    _, (stored,) = upload(address, path.read_bytes())
    return {"path": stored, "meta": {"_type": "gradio.FileData"}}


def values(address: str, **given: Any) -> list[Any]:
    """The values of /ask in its own order: what is given, and the defaults it announces."""
    _, api = fetch(f"{address}gradio_api/info")
    wanted = api["named_endpoints"]["/ask"]["parameters"]
    return [given.get(p["parameter_name"], p.get("parameter_default")) for p in wanted]


def join(address: str, data: list[Any]) -> tuple[int, dict[str, Any]]:
    """Ask for a place in the queue: the status, and what is said with it."""
    body = json.dumps({"data": data}).encode()
    return fetch(f"{address}gradio_api/call/ask", body, **{"Content-Type": "application/json"})


class Listener:
    """A connection that reads one event's answer and can be dropped at any time."""

    def __init__(self, address: str, event: str) -> None:
        place = urlsplit(address)
        self.connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        self.connection.request("GET", f"/gradio_api/call/ask/{event}")
        self.answer = self.connection.getresponse()

    def first(self) -> str:
        """Up to the first words of the answer, or to the end."""
        said = b""
        while line := self.answer.readline():
            said += line
            if line.startswith(b"data:") and b'"answer"' in line and b'"answer": ""' not in line:
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
