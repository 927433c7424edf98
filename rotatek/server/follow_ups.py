"""Follow-up questions: the API sends the whole chat each time, and a warm cache spares reading it.

A cache that waits is found by what made it: model, settings and every turn so far with its
pictures, as equal bytes, and by whose API key it was. What the question itself shows is compressed
at its own prefill. It is taken out while it answers, so that two questions
cannot share it; the second one is read from its text and pictures.
"""

import hashlib
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from rotatek.bridge.attention import StopFlag
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, Restarted, Token
from rotatek.errors import ConversationOver
from rotatek.inputs.request import clean_text
from rotatek.server.chat_request import Call
from rotatek.service.conversation_store import ConversationStore, WaitingConversation

KEY: Final = "chat"  # what the places of this door's caches begin with


def place_of(call: Call, owner: str, turns: tuple[tuple[str, str], ...]) -> str:
    """The name under which a chat's cache waits after `turns`."""
    digest = hashlib.sha256()

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "big") + part)

    for text in (owner, call.model, repr(sorted(call.settings.as_dict().items()))):
        add(text.encode())
    for turn, pictures in zip(turns, call.pictures, strict=False):
        add(b"".join(pictures))
        for text in turn:
            add(" ".join(clean_text(text).split()).encode())
    return f"{KEY} {digest.hexdigest()}"


class FollowUps:
    """Answers calls, from a warm cache where there is one.

    Args:
        waiting: where caches wait.
    """

    def __init__(self, waiting: ConversationStore) -> None:
        self.waiting = waiting

    def take(self, call: Call, owner: str) -> WaitingConversation | None:
        """The cache that `call` can go on from, now its own; None where there is none."""
        turns = call.request.history
        return self.waiting.take(place_of(call, owner, turns), KEY) if turns else None

    def answer(
        self,
        engine: Engine,
        call: Call,
        owner: str,
        stop: StopFlag,
        found: WaitingConversation | None,
    ) -> Iterator[Event]:
        """One column's events.

        Args:
            engine: of the call's model.
            call: what is asked.
            owner: whose cache it is; a digest of the API key.
            stop: ends the answer early.
            found: what `take` gave.
        """
        waiting, events = self._begin(engine, call, stop, found)
        text, is_kept = "", False
        try:
            with closing(events):  # type: ignore[type-var]
                for event in events:
                    if isinstance(event, Restarted):
                        text = ""
                        if event.max_new_tokens is not None:  # memory is short
                            self.waiting.clear()
                    text += event.text if isinstance(event, Token) else ""
                    yield event
            if waiting.conversation.is_open:
                turns = (*call.request.history, (call.request.question, text))
                self.waiting.keep(place_of(call, owner, turns), waiting)
                is_kept = True
        finally:
            if not is_kept:
                waiting.close()

    def _begin(
        self, engine: Engine, call: Call, stop: StopFlag, found: WaitingConversation | None
    ) -> tuple[WaitingConversation, Iterator[Event]]:
        request = call.request
        if found is not None:
            try:
                later = request.images[len(request.images) - len(call.pictures[-1]) :]
                return found, engine.follow(
                    found.conversation, request.question, request.max_new_tokens, stop, later
                )
            except ConversationOver:  # read afresh there may be room
                found.close()
        fresh = WaitingConversation(Conversation(), KEY)
        columns = {"answer": call.settings}
        return fresh, engine.compare(
            request, columns, stop, trace=False, conversation=fresh.conversation
        )
