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
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from rotatek.bridge.attention import StopFlag
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, Restarted, Token
from rotatek.errors import ConversationOver
from rotatek.inputs.messages import PICTURE, Message, clean_text
from rotatek.inputs.request import MAX_NEW_TOKENS
from rotatek.server.chat_request import Call
from rotatek.service.session_store import SessionStore

KEY: Final = "chat"  # begins the names of this API's caches


def place_of(call: Call, owner: str, messages: Sequence[Message]) -> str:
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
    return f"{KEY} {digest.hexdigest()}"


class FollowUps:
    """Answers calls, from a warm cache where there is one.

    Args:
        waiting: where caches wait.
    """

    def __init__(self, waiting: SessionStore[Conversation]) -> None:
        self.waiting = waiting

    def take(self, call: Call, owner: str) -> Conversation | None:
        """The cache that `call` can go on from, now its own; None where there is none."""
        *before, asked = call.request.messages
        if call.answers > 1:
            return None
        if not before or before[-1].role != "assistant" or asked.role != "user":
            return None
        found = self.waiting.take(place_of(call, owner, before))
        if found is not None and asked.pictures:
            found.close()
            return None
        return found

    def answer(
        self,
        engine: Engine,
        call: Call,
        owner: str,
        stop: StopFlag,
        found: Conversation | None,
    ) -> Iterator[Event]:
        """One column's events, up to one token more than the answer may have.

        That token shows whether the answer is complete, and the cache does not keep it.

        Args:
            engine: of the call's model.
            call: what is asked.
            owner: whose cache it is; a digest of the API key.
            stop: ends the answer early.
            found: what `take` gave.
        """
        talk, events = self._begin(engine, call, stop, found)
        text, is_kept, is_whole, is_over = "", False, call.answers == 1, False
        try:
            with closing(events):  # type: ignore[type-var]
                for event in events:
                    if isinstance(event, Restarted):
                        text, is_over = "", False
                        if event.max_new_tokens is not None:  # memory is short: halved pictures
                            self.waiting.clear()
                            is_whole = False
                    elif isinstance(event, Token):
                        is_over = event.index >= call.length
                        text += "" if is_over else event.text
                    yield event
            if is_whole and talk.is_open and (not is_over or talk.shorten(call.length)):
                said = Message("assistant", (clean_text(text),) if clean_text(text) else ())
                messages = (*call.request.messages, said)
                self.waiting.hold(place_of(call, owner, messages), talk)
                is_kept = True
        finally:
            if not is_kept:
                talk.close()

    def _begin(
        self, engine: Engine, call: Call, stop: StopFlag, found: Conversation | None
    ) -> tuple[Conversation, Iterator[Event]]:
        request = call.request
        longest = min(request.max_new_tokens + engine.lookahead, MAX_NEW_TOKENS)
        if found is not None:
            parts: Any = request.messages[-1].parts  # `follow` takes a text, or several
            try:
                return found, engine.follow(found, parts, longest, stop, request.sampling)
            except ConversationOver:  # read afresh there may be room
                found.close()
        fresh = Conversation()
        columns = dict.fromkeys(call.columns, call.settings)
        longer = replace(request, max_new_tokens=longest)
        kept = fresh if call.answers == 1 else None
        return fresh, engine.compare(longer, columns, stop, trace=False, conversation=kept)
