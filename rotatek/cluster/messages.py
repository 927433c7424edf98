"""Messages between the gateway and a replica of a model. Picklable, and without Ray."""

from collections.abc import Mapping
from dataclasses import dataclass

from rotatek.errors import UserError
from rotatek.inputs.request import Asked as Question
from rotatek.inputs.request import Request
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.methods.settings import Settings


@dataclass(frozen=True)
class RemoteRequest:
    """A question of a conversation; answer: the reply to it, where there is one column;
    sampling: how its tokens are chosen, with a seed where they are drawn."""

    question: Question
    max_new_tokens: int
    answer: str = ""
    sampling: Sampling = GREEDY


@dataclass(frozen=True)
class Job:
    """One answer to compute.

    Args:
        key: names this answer, to stop it.
        columns: settings by name.
        request: the first question with its pictures; None for a follow-up whose cache should be
            at its replica.
        asked: the follow-up question, or None for the first one.
        past: the turns before `asked`, the first question included.
        trace: as of `Engine.compare`.
        talk: the key of the caches that are kept for a follow-up; empty where none are.
        is_exact: a part of the answer has been delivered, so lost caches must be rebuilt exactly:
            earlier questions are answered again, not read.
    """

    key: str
    columns: Mapping[str, Settings]
    request: Request | None
    asked: RemoteRequest | None = None
    past: tuple[RemoteRequest, ...] = ()
    trace: bool = False
    talk: str = ""
    is_exact: bool = False


@dataclass(frozen=True)
class Started:
    """A replica has taken the job; home: its id."""

    home: str


@dataclass(frozen=True)
class ConversationLost:
    """The cache of the conversation is not there, and nothing to make it from was sent."""


@dataclass(frozen=True)
class Refused:
    """The job is refused; a conversation is as it was."""

    error: UserError


@dataclass(frozen=True)
class KeptConversation:
    """The caches are kept. kv_bytes: their size; read: the request that made them, where earlier
    turns were read as text."""

    kv_bytes: int
    read: Request | None = None
