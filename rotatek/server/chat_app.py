"""The application: `/v1/models`, `/v1/chat/completions`, `/health` and `/metrics`."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from rotatek import errors
from rotatek.engine.events import Event, Token
from rotatek.inputs.text_files import as_json
from rotatek.methods.settings import USUAL, Settings
from rotatek.server.api_keys import Keys
from rotatek.server.chat_request import Call, fitted, read_call
from rotatek.server.follow_ups import answered
from rotatek.server.metrics import Metrics, RequestMetrics
from rotatek.server.reply import DONE, Reply, error_of, sse
from rotatek.server.request_body import RequestBodies
from rotatek.server.worker_pool import WorkerPool
from rotatek.service.service import Service

RETRY_S: Final = 5  # what a full queue asks a program to wait
ENGINES: Final = {  # of `EngineState`
    "rows": "Rows of the running batches",
    "live_bytes": "Live bytes of all caches",
    "room_bytes": "Bytes that caches may take",
    "picture_bytes": "Bytes of what the vision tower saw of the latest pictures",
    "picture_hits": "Pictures that were found seen, since the start",
    "picture_misses": "Pictures that were not, since the start",
    "shed": "Requests that memory ran out for, since the start",
}
STREAMED: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would keep the stream back
]
HEAD_S: Final = 0.3  # that a stream's head waits for a refusal, which is then an ordinary one
QUIET_S: Final = 10.0  # between comments while nothing is said yet
COMMENT: Final = b": reading\n\n"
OTHERS: Final = ["GET", "POST", "DELETE"]  # what other addresses of OpenAI's API are asked with
HEADER: Final = "x-rotatek-ignored"
MOST_NAMES: Final = 20  # that it has
LONGEST_NAME: Final = 60
SEED: Final = "x-rotatek-seed"  # with which the same call has the same answers


class ChatApp:
    """The API's application, on the engines of a service that a page may share.

    Args:
        service: the models, and where caches wait for follow-ups.
        usual: the settings of calls that have none.
        keys: who may ask.
        workers: how many may at once, and how many wait.
        has_engines: whether the service's engines compute in this process, and so have figures.
    """

    def __init__(
        self,
        service: Service,
        usual: Settings | None = None,
        keys: Keys | None = None,
        workers: WorkerPool | None = None,
        *,
        has_engines: bool = True,
    ) -> None:
        self.service, self.usual = service, usual or USUAL
        self.keys, self.workers = keys or Keys(), workers or WorkerPool()
        self.bodies, self.meters = RequestBodies(), Metrics()
        self._names, self.is_closed = [model.name for model in service.models], False
        self.meters.running.set_function(lambda: self.workers.running)
        self.meters.waiting.set_function(lambda: self.workers.waiting)
        self.meters.kv.labels("waiting").set_function(lambda: service.conversations.bytes)
        for name, help in ENGINES.items() if has_engines else ():
            self.meters.gauge(name, help, partial(self._sum, name))

    def routes(self) -> list[BaseRoute]:
        """The API's addresses, for this application or beside a page's."""
        return [
            Route("/v1/models", self._guarded(self._models)),
            Route("/v1/models/{name:path}", self._guarded(self._models)),
            Route("/v1/chat/completions", self, methods=["POST"]),
            Route("/v1/{rest:path}", self._guarded(self._nothing), methods=OTHERS),
            Route("/metrics", self._guarded(self._metrics)),
        ]

    def app(self) -> Starlette:
        """The API alone, with `/health`."""
        _, nothing = error_of(errors.AddressUnknown())
        handlers: Any = {  # an unknown address, or 405: an unknown method
            HTTPException: lambda request, error: JSONResponse(nothing, error.status_code),
            Exception: lambda request, error: _refusal(error),
        }
        routes = [*self.routes(), Route("/health", self._health)]
        return Starlette(routes=routes, exception_handlers=handlers)

    def close(self) -> None:
        """End every answer within one token, and refuse new ones."""
        self.is_closed = True
        self.workers.stop()
        self.service.close()

    async def _models(self, request: Request) -> Response:
        """The models on offer, the default first; or one of them."""
        own = {"object": "model", "created": 0, "owned_by": "rotatek"}
        cards = {name: {"id": name} | own for name in self._names}
        name = request.path_params.get("name")
        if name is None:
            return JSONResponse({"object": "list", "data": [*cards.values()]})
        if name not in cards:
            raise errors.ModelNotServed
        return JSONResponse(cards[name])

    async def _nothing(self, request: Request) -> Response:
        raise errors.AddressUnknown

    async def _metrics(self, request: Request) -> Response:
        figures = generate_latest(self.meters.registry)
        return Response(figures, media_type="text/plain; version=0.0.4")

    async def _health(self, request: Request) -> Response:
        """Whether questions can be answered; needs no key."""
        report = self.service.health()
        return JSONResponse(report, 503 if report["status"] == "failed" else 200)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call. A client that goes away is not answered any further."""
        status, request = "499", Request(scope, receive)  # 499: the client has gone
        try:
            status = await self._chat(request, receive, send)
        except ClientDisconnect:
            pass
        except Exception as error:
            refusal = _refusal(error)
            status = str(refusal.status_code)
            await self.bodies.spill(request)
            with contextlib.suppress(OSError):
                await refusal(scope, receive, send)
        finally:
            self.meters.requests.labels(status).inc()

    async def _chat(self, request: Request, receive: Receive, send: Send) -> str:
        """Check, answer; the status for the meters."""
        owner = self.keys.owner(request.headers.get("authorization"))
        self._check_open()
        self.workers.check()
        async with self.bodies.read(request) as body:
            call = await asyncio.to_thread(read_call, body, self._names, self.usual)
            del body
        call = replace(call, request=replace(call.request, scope=owner))
        with self.bodies.decoded(call.request.images):
            return await _attended(receive, self._answer(call, owner, request, send))

    async def _answer(self, call: Call, owner: str, request: Request, send: Send) -> str:
        """Compute one call's answers, and send them; the status for the meters."""
        noted = _noted(call)
        async with contextlib.aclosing(self._pieces(call, owner, noted)) as pieces:
            if call.stream:
                return await _stream(pieces, noted, send)
            whole = Response(await anext(pieces), headers=noted, media_type="application/json")
            await whole(request.scope, request.receive, send)
            return "200"

    async def _pieces(
        self, call: Call, owner: str, noted: dict[str, str]
    ) -> AsyncGenerator[bytes, None]:
        """One call's answers as a stream's events, or as one body; adds to the headers `noted`."""
        engine = await asyncio.to_thread(self.service.engine, call.model)
        call = await asyncio.to_thread(fitted, call, engine)
        noted |= _noted(call)
        stop, watch = engine.flag(), RequestMetrics(self.meters)
        reply = Reply(call, engine.room, engine.lookahead)

        def begin() -> Iterator[Event]:
            """When its turn has come."""
            self._check_open()
            return answered(self.service.conversations, engine, reply, owner, stop)

        try:
            async with contextlib.aclosing(self.workers.events(begin, stop)) as events:
                async for event in events:
                    if not isinstance(event, Token) or event.index < call.length:
                        watch.see(event)
                    if added := reply.take(event):
                        yield added
                    if reply.is_said:
                        stop.set()
            if reply.is_cut:  # by this process alone
                raise errors.Restarting
            for one in reply.choices:
                await asyncio.to_thread(one.judge)
            self.meters.tokens.labels("prompt").inc(reply.usage["prompt_tokens"])
            self.meters.chats.labels("warm" if reply.is_warm else "cold").inc()
        finally:
            watch.end()
            if self.service.on_lost is not None and not engine.health().able:
                self.service.on_lost()
        yield reply.end() if call.stream else as_json(reply.whole()).encode()

    def _sum(self, name: str) -> float:
        """One of `ENGINES`, over the engines that are loaded."""
        return sum(getattr(engine.state(), name) for engine in self.service.loaded().values())

    def _check_open(self) -> None:
        if self.is_closed:
            raise errors.Restarting

    def _guarded(self, answer: Any) -> Any:
        """An endpoint that checks the key; its errors have the API's form."""

        async def endpoint(request: Request) -> Response:
            try:
                self.keys.owner(request.headers.get("authorization"))
                return await answer(request)
            except Exception as error:
                if request.method == "POST":
                    await self.bodies.spill(request)
                return _refusal(error)

        return endpoint


async def _attended(receive: Receive, work: Coroutine[Any, Any, str]) -> str:
    """`work`, cancelled when the client goes away: a ClientDisconnect."""

    async def leaving() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, left = asyncio.ensure_future(work), asyncio.ensure_future(leaving())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for one in (task, left):
            one.cancel()
        await asyncio.gather(task, left, return_exceptions=True)


async def _stream(pieces: AsyncGenerator[bytes, None], noted: dict[str, str], send: Send) -> str:
    """Send the pieces of a stream: the head, with the headers `noted` by then, soon, and comments
    until the first piece; returns the status for the meters. Raises what `pieces` raises before the
    head is sent: an ordinary refusal."""
    has_head, first = False, asyncio.ensure_future(anext(pieces))

    async def tell(body: bytes, *, more: bool = True) -> None:
        nonlocal has_head
        if not has_head:
            has_head = True
            own = [(name.encode(), value.encode()) for name, value in noted.items()]
            head = {"status": 200, "headers": [*STREAMED, *own]}
            await send({"type": "http.response.start"} | head)
        await send({"type": "http.response.body", "body": body, "more_body": more})

    try:
        while not (await asyncio.wait({first}, timeout=QUIET_S if has_head else HEAD_S))[0]:
            await tell(COMMENT)
        await tell(first.result())
        async for piece in pieces:
            await tell(piece)
        await tell(b"", more=False)
    except Exception as error:
        if not has_head:
            raise
        status, said = error_of(error)
        await tell(sse(said) + DONE, more=False)
        return str(status)
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    return "200"


def _noted(call: Call) -> dict[str, str]:
    """Headers: fields without effect, in printable ASCII, and the seed of the answers."""
    own, noted = call.request.sampling, {}
    if call.ignored:
        names = (re.sub("[^!-~]|,", "?", name) for name in call.ignored)
        noted[HEADER] = ", ".join([name[:LONGEST_NAME] or "?" for name in names][:MOST_NAMES])
    if own.draws:
        noted[SEED] = str(own.seed)
    return noted


def _refusal(error: BaseException) -> JSONResponse:
    status, body = error_of(error)
    headers = {"Retry-After": str(RETRY_S)} if status in (429, 503) else {}
    headers |= {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse(body, status, headers)
