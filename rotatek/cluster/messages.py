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
    """A later question of a conversation; sampling: how its tokens are chosen, with a seed where
    they are drawn."""

    question: Question
    max_new_tokens: int
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
        past: the later questions before `asked`.
        trace: as of `Engine.compare`.
        talk: the key of the caches that are kept for a follow-up; empty where none are.
    """

    key: str
    columns: Mapping[str, Settings]
    request: Request | None
    asked: RemoteRequest | None = None
    past: tuple[RemoteRequest, ...] = ()
    trace: bool = False
    talk: str = ""


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
    """The caches are kept. kv_bytes: their size."""

    kv_bytes: int
