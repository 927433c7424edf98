"""Log probabilities in the chat API's form, token by token, beside the text that is shown."""

from typing import Any

from rotatek.engine.events import Likely, Token


class TokenLogs:
    """The entries of one answer's tokens, each once its text is shown."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, dict[str, Any]]] = []  # where the token's text begins
        self._length = 0

    def add(self, event: Token) -> None:
        """A token of the answer; nothing where no log probabilities are wanted."""
        if event.likely:
            own, *best = event.likely
            entry = _entry(own) | {"top_logprobs": [_entry(one) for one in best]}
            self._waiting.append((self._length, entry))
        self._length += len(event.text)

    def take(self, shown: int, *, rest: bool = False) -> list[dict[str, Any]]:
        """New entries: of tokens whose text has begun to be shown.

        Args:
            shown: characters of the answer, as the model said it.
            rest: whether the answer is complete; then entries of tokens without text come, too.
        """
        ready = [entry for start, entry in self._waiting if rest or start < shown]
        self._waiting = [(s, entry) for s, entry in self._waiting if not (rest or s < shown)]
        return ready


def _entry(one: Likely) -> dict[str, Any]:
    return {"token": one.text, "logprob": one.logprob, "bytes": list(one.code)}
