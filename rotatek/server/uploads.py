"""`/v1/files`: pictures and PDF files that calls name by an id."""

from collections.abc import AsyncGenerator
from typing import Any, Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rotatek import errors
from rotatek.inputs.pdf import is_pdf
from rotatek.inputs.request import check_header
from rotatek.server.api_keys import NO_KEY
from rotatek.server.file_store import AGE_S, FileStore, StoredFile
from rotatek.server.request_body import RequestBodies

FORM: Final = "multipart/form-data"
PURPOSES: Final = ("vision", "user_data", "assistants")
MOST_FIELDS: Final = 16  # of a form
MOST_LISTED: Final = 10_000  # files of one answer, as in OpenAI's API
LIFE: Final = "expires_after[seconds]"


class Uploads:
    """The endpoints of files.

    Args:
        store: where they are held.
        bodies: bounds the bytes of all requests.
    """

    def __init__(self, store: FileStore, bodies: RequestBodies) -> None:
        self.store, self.bodies = store, bodies

    async def add(self, request: Request, owner: str) -> Response:
        """Take a picture or a PDF, whose header is checked now."""
        _check_site(request, owner)
        async with self.bodies.read(request, FORM) as body:
            form = await _form_of(request, body)
            try:
                return JSONResponse((await self._stored(form, owner)).card())
            finally:
                await form.close()

    async def _stored(self, form: FormData, owner: str) -> StoredFile:
        file, purpose = form.get("file"), form.get("purpose")
        if not isinstance(file, UploadFile):
            raise errors.UploadUnreadable
        if purpose not in PURPOSES:
            raise errors.SettingError("purpose", "one of " + ", ".join(PURPOSES), purpose)
        content = await file.read()
        if not is_pdf(content):
            check_header(content)
        seconds = _seconds_of(form.get(LIFE))
        return self.store.add(owner, file.filename or "", str(purpose), content, seconds)

    async def list(self, request: Request, owner: str) -> Response:
        """A key's files. Without keys there is no list: it would show the files of all clients."""
        asked = request.query_params
        files = [] if owner == NO_KEY else self.store.files(owner)
        files = [one for one in files if asked.get("purpose") in (None, "", one.purpose)]
        if asked.get("order") == "asc":
            files.reverse()
        names = [one.id for one in files]
        if asked.get("after") in names:
            files = files[names.index(asked["after"]) + 1 :]
        most = asked.get("limit", "")
        shown = files[: int(most) if most.isdecimal() and int(most) else MOST_LISTED]
        return JSONResponse({
            "object": "list",
            "data": [one.card() for one in shown],
            "first_id": shown[0].id if shown else None,
            "last_id": shown[-1].id if shown else None,
            "has_more": len(shown) < len(files),
        })  # fmt: skip

    async def get(self, request: Request, owner: str) -> Response:
        """One file's description."""
        return JSONResponse(self.store.get(owner, request.path_params["file"]).card())

    async def content(self, request: Request, owner: str) -> Response:
        """One file's bytes."""
        file = self.store.get(owner, request.path_params["file"])
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
            "X-Content-Type-Options": "nosniff",
        }
        return Response(file.content, headers=headers, media_type="application/octet-stream")

    async def delete(self, request: Request, owner: str) -> Response:
        """Forget one file."""
        ident = request.path_params["file"]
        self.store.delete(owner, ident)
        return JSONResponse({"id": ident, "object": "file", "deleted": True})


def _check_site(request: Request, owner: str) -> None:
    """Where no key is needed, refuse a form that a page of another site sends, which browsers
    allow.

    Raises:
        UploadForeign: for such a form.
    """
    origin = request.headers.get("origin")
    if owner == NO_KEY and origin and urlsplit(origin).netloc != request.headers.get("host"):
        raise errors.UploadForeign


async def _form_of(request: Request, body: bytes) -> FormData:
    """The fields of a form.

    Raises:
        UploadUnreadable: where it is none.
    """

    async def whole() -> AsyncGenerator[bytes, None]:
        yield body
        yield b""

    try:
        parser = MultiPartParser(
            request.headers, whole(), max_files=MOST_FIELDS, max_fields=MOST_FIELDS
        )
        return await parser.parse()
    except (MultiPartException, KeyError, ValueError, UnicodeError) as error:
        raise errors.UploadUnreadable from error


def _seconds_of(given: Any) -> float | None:
    """After which a file expires.

    Raises:
        SettingError: for no whole number of seconds.
    """
    if given is None:
        return None
    if not isinstance(given, str) or not given.isdecimal() or not int(given):
        raise errors.SettingError(LIFE, f"a whole number of seconds, 1 to {AGE_S}", given)
    return float(int(given))
