"""Follow-up questions: the API sends the whole chat each time, and a kept cache saves reading it
again.

A kept cache is found by everything that made it: model, settings, tools, the API key, and every
message so far, role by role and part by part, with pictures of equal bytes and equal size. Texts
are compared as they are read, white space included. A question that shows further pictures frees
the cache, and the chat is read afresh. The cache is taken out while it answers, so that two
questions cannot share it; the second one is prefilled from its text and pictures.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from rotatek.bridge.attention import StopFlag
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, Restarted, Token
from rotatek.errors import ConversationOver
from rotatek.inputs.messages import PICTURE, Message, clean_text
from rotatek.inputs.request import MAX_NEW_TOKENS
from rotatek.server.chat_request import Call
from rotatek.server.reply import Reply
from rotatek.service.session_store import SessionStore


def _place_of(call: Call, owner: str, messages: Sequence[Message]) -> str:
    """The name under which a chat's cache waits after `messages`."""
    digest, pictures = hashlib.sha256(), iter(call.pictures)

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "big") + part)

    settings = repr(sorted(call.settings.as_dict().items()))
    for text in (owner, call.model, settings, call.request.tools):
        add(text.encode())
    for message in messages:
        add(f"{message.role} {len(message.parts)} {message.calls} {message.name}".encode())
        for part in message.parts:
            add(b"picture" + next(pictures) if part is PICTURE else f"text{part}".encode())
    return f"chat {digest.hexdigest()}"


def answered(
    waiting: SessionStore[Conversation], engine: Engine, reply: Reply, owner: str, stop: StopFlag
) -> Iterator[Event]:
    """Events of a call's answers, from a warm cache where there is one; up to one token more than
    an answer may have.

    That token shows whether the answer is complete, and the cache does not keep it.

    Args:
        waiting: where caches wait.
        engine: of the call's model.
        reply: of the call; learns what of its prompt a cache held.
        owner: whose cache it is; a digest of the API key.
        stop: ends the answer early.
    """
    call, is_single = reply.call, reply.call.answers == 1
    request, longest = call.request, min(call.length + engine.lookahead, MAX_NEW_TOKENS)
    *before, asked = request.messages
    talk: Conversation | None = None
    events: Iterator[Event] | None = None
    if is_single and before and before[-1].role == "assistant" and asked.role == "user":
        talk = waiting.take(_place_of(call, owner, before))
    if talk is not None and not asked.pictures:
        parts: Any = asked.parts  # `follow` takes a text, or several
        with suppress(ConversationOver):  # read afresh there may be room
            events = engine.follow(talk, parts, longest, stop, request.sampling)
            reply.is_warm, reply.cached = True, talk.tokens
    if talk is None or events is None:
        if talk is not None:
            talk.close()
        talk = Conversation()
        columns = dict.fromkeys(call.columns, call.settings)
        longer, kept = replace(request, max_new_tokens=longest), talk if is_single else None
        events = engine.compare(longer, columns, stop, trace=False, conversation=kept)
    text, is_kept, is_whole, is_over = "", False, is_single, False
    try:
        with closing(events):  # type: ignore[type-var]
            for event in events:
                if isinstance(event, Restarted):
                    text, is_over = "", False
                    if event.max_new_tokens is not None:  # memory is short: halved pictures
                        waiting.clear()
                        is_whole = False
                elif isinstance(event, Token):
                    is_over = event.index >= call.length
                    text += "" if is_over else event.text
                yield event
        if is_whole and talk.is_open and (not is_over or talk.shorten(call.length)):
            said = Message("assistant", (clean_text(text),) if clean_text(text) else ())
            waiting.hold(_place_of(call, owner, (*request.messages, said)), talk)
            is_kept = True
    finally:
        if not is_kept:
            talk.close()
