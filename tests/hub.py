"""As much of a hub as its client asks for, on this machine."""

import hashlib
import json
from http.server import BaseHTTPRequestHandler

COMMIT = "a" * 40
FILES = {
    "config.json": b'{"model_type": "idefics3"}',
    "model.safetensors": bytes(3_000_000),
    "onnx/model.json": b"{}",
}


class Hub(BaseHTTPRequestHandler):
    """As much of a hub as its client asks for: org/small is there, org/gated is gated."""

    def log_message(self, *args: object) -> None:
        """Silence."""

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if "/org/gated" in path:
            return self._send(403, b"", {"X-Error-Code": "GatedRepo"}, with_body)
        if "/org/broken" in path:
            return self._send(500, b"", {}, with_body)
        if "/org/small" not in path:
            return self._send(401, b"", {"X-Error-Code": "RepoNotFound"}, with_body)
        if path.startswith("/api/"):
            return self._send(200, json.dumps(self._listing(path)).encode(), {}, with_body)
        body = FILES[path.split(f"/resolve/{COMMIT}/")[1]]
        marks = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return self._send(200, body, marks, with_body)

    def _listing(self, path: str) -> object:
        if "/tree/" in path:
            return [
                {"type": "file", "path": name, "size": len(body), "oid": name}
                for name, body in FILES.items()
            ]
        names = [{"rfilename": name} for name in FILES]
        return {"id": "org/small", "sha": COMMIT, "siblings": names}

    def _send(self, status: int, body: bytes, marks: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **marks}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)
