"""One row of the running batch: its cache, its tokens, and how the next one is chosen.

The same for the page, the API, the command line and Python, alone and in batches. The order is that
of transformers: penalties and biases, temperature, `top_k`, `top_p`, `min_p`. Sampled and greedy
rows share a step; the logits of greedy rows are not changed. The numbers that draws depend on are
hashes of (seed, draw, position of the token in its answer, token of the vocabulary): the same on
every device, alone and in a batch, without a state that rows could share.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.attention import StopFlag
from rotatek.engine import grammar
from rotatek.engine.grammar import Matcher
from rotatek.errors import SettingError
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.models import VisionLanguageModel

Watcher = Callable[[int, Tensor], None]  # (layer, query [1, Hq, 1, d]) of one row

NEVER: Final = float("-inf")
LOW: Final = 0xFFFFFFFF  # the lower 32 bits; tensors have no unsigned arithmetic
BELOW_ONE: Final = 1 - 2**-24  # the largest float32 below 1


class SampledToken(NamedTuple):
    """One chosen token.

    probability: the model's own of it; kl: KL(first column || this) of the distributions it was
    chosen from, in nats, or None; ms: of the step, which all its rows share; top: the likeliest
    tokens and their log probabilities, where they are asked for.
    """

    token: int
    probability: float
    kl: float | None
    ms: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(eq=False)
class Sequence:
    """One answer to one question, from its first token to its last."""

    cache: Cache  # that has read the question; empty while the row is in the batch
    logits: Tensor | None  # [1, vocabulary] behind the question, until the row has its first token
    start: int  # position of the answer's first token
    limit: int  # new tokens, at most
    stop: StopFlag | None = None  # ends the answer early once it is set
    sampling: Sampling = GREEDY  # with a seed where tokens are drawn
    draw: int = 0  # which of several answers to one request this is
    request: int = 0  # equal for the rows of one request; a larger number is a later one
    first: "Sequence | None" = None  # the row that this one is compared with
    watcher: Watcher | None = None  # records its queries
    needed: bool = True  # whether its cache is read once the answer has ended; else it stays empty
    read: frozenset[int] = frozenset()  # tokens before the answer, for the penalty of repetition
    matcher: Matcher | None = None  # of its schema
    missed: bool = False  # whether the watcher has missed a step, which would shift its figures
    picks: list[SampledToken] = field(default_factory=list)  # its tokens so far
    taken: int = 0  # of them, by the caller
    joined: bool = False  # whether it is in the batch
    ended: bool = False  # nothing more comes
    failure: Exception | None = None  # why it cannot go on

    @property
    def fed(self) -> tuple[int, int]:
        """The latest token and its position: what the next step reads."""
        return self.picks[-1].token, self.start + len(self.picks) - 1

    @property
    def keys(self) -> tuple[int, int]:
        """Two keys of 32 bits for the noise of its next token."""
        text = f"{self.sampling.seed or 0} {self.draw} {len(self.picks)}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")

    def adjust(self, logits: Tensor) -> None:
        """Penalties, biases and the schema on this row's logits [vocabulary], in place."""
        own = self.sampling
        penalised = own.presence_penalty or own.frequency_penalty or own.repetition_penalty != 1
        said = Counter(pick.token for pick in self.picks if penalised)

        def tensor(tokens: Iterable[int]) -> Tensor:
            return torch.tensor([*tokens], dtype=torch.long, device=logits.device)

        if own.repetition_penalty != 1:
            seen = tensor(self.read | said.keys())
            value, by = logits[seen], own.repetition_penalty
            logits[seen] = torch.where(value < 0, value * by, value / by)
        if said and (own.presence_penalty or own.frequency_penalty):
            counts = tensor(said.values())
            logits[tensor(said)] -= own.presence_penalty + own.frequency_penalty * counts
        if own.logit_bias:
            tokens, added = zip(*own.logit_bias, strict=True)
            logits[tensor(tokens)] += torch.tensor(added, device=logits.device)
        if self.matcher is not None:
            try:
                allowed = self.matcher.allowed(logits.shape[-1], logits.device)
                logits.masked_fill_(~allowed, NEVER)
            except Exception as error:  # this row's alone
                self.failure = error


class TokenChoice:
    """Chooses the next tokens of one model; preparing: held by those who use its tokenizer."""

    def __init__(self, vlm: VisionLanguageModel, preparing: "threading.Lock | None" = None) -> None:
        self.vlm, self._preparing = vlm, preparing or threading.Lock()
        self._spelt: Any = None  # what its tokens spell, once a schema needs it
        self._banned: Tensor | None = None  # tokens that may not be said

    def prepare(self, row: Sequence, prompt: Tensor, later: Iterable[int] = ()) -> None:
        """What the sampling of a row that has not begun needs; prompt: [1, tokens], the first one;
        later: tokens of later turns and of the answers before.

        Raises:
            SettingError: for a bias on a token that the model does not have.
            UserError: where the answer is to follow a schema, and cannot.
        """
        own, count = row.sampling, self.vlm.model.config.get_text_config().vocab_size
        unknown = next((token for token, _ in own.logit_bias if token >= count), None)
        if unknown is not None:
            raise SettingError("logit_bias", f"about tokens below {count}", unknown)
        if own.grammar:
            with self._preparing:
                self._spelt = self._spelt or grammar.spelt(self.vlm)
            row.matcher = Matcher(self._spelt, own.grammar)
        if own.repetition_penalty != 1:
            row.read = frozenset([*prompt.unique().tolist(), *later])

    def choose(self, logits: Tensor, rows: Iterable[tuple[int, Sequence]] = ()) -> Tensor:
        """The next token of every row, [rows], from logits [rows, vocabulary], which stay as they
        are; rows: (place among them, row) of those whose sampling counts."""
        if self._banned is None or self._banned.device != logits.device:
            self._banned = torch.tensor(self.vlm.banned_ids, device=logits.device).long()
        banned = self._banned
        found = logits.index_fill(-1, banned, NEVER).argmax(-1)
        if own := [(place, row) for place, row in rows if not row.sampling.is_plain]:
            places = torch.tensor([place for place, _ in own], device=logits.device)
            some = logits[places].float().index_fill_(-1, banned, NEVER)
            found[places] = chosen(some, [row for _, row in own])
        return found

    @torch.inference_mode()
    def next(
        self, rows: list[Sequence], places: list[int], logits: Tensor, ms: float
    ) -> list[SampledToken]:
        """The next token of each row, in one transfer to the host; places: their indices in the
        logits [n, vocabulary]; ms: of the step."""
        best = self.choose(logits, zip(places, rows, strict=True))
        logs = logits.log_softmax(-1)
        found = [best.double(), logs.gather(-1, best[:, None])[:, 0].double().exp()]
        place_of = dict(zip(map(id, rows), places, strict=True))
        pairs = [
            (place, place_of[id(row.first)])
            for place, row in zip(places, rows, strict=True)
            if row.first is not None
            and id(row.first) in place_of
            and len(row.first.picks) == len(row.picks)  # both are at the same token
        ]
        if pairs:
            mine, first = logs[torch.tensor(pairs, device=logits.device).T]
            found.append((first.exp() * (first - mine)).sum(-1).double())
        most = min(max(row.sampling.top_logprobs or 0 for row in rows), logs.shape[-1])
        if most:
            values, index = logs.topk(most)
            found += [values.double().flatten(), index.double().flatten()]
        told, count = torch.cat(found).tolist(), len(logits)
        kls = dict(zip([place for place, _ in pairs], told[2 * count :], strict=False))
        told_logs = told[2 * count + len(pairs) :]
        told_tokens = told_logs[most * count :]
        picks = []
        for place, row in zip(places, rows, strict=True):
            start, kl = place * most, kls.get(place)
            likeliest = range(start, start + min(most, row.sampling.top_logprobs or 0))
            picks.append(SampledToken(
                int(told[place]), told[count + place], None if kl is None else max(0.0, kl), ms,
                tuple((int(told_tokens[n]), told_logs[n]) for n in likeliest),
            ))  # fmt: skip
        return picks


def chosen(logits: Tensor, rows: list[Sequence]) -> Tensor:
    """[rows] one token a row, from logits [rows, vocabulary] in float32, which are changed."""
    for own, row in zip(logits, rows, strict=True):
        row.adjust(own)
    drawing = [place for place, row in enumerate(rows) if row.sampling.draws]
    if not drawing:
        return logits.argmax(-1)
    alike = len(drawing) == len(rows)
    places = torch.tensor(drawing, device=logits.device)
    some, drawn = logits if alike else logits[places], [rows[place] for place in drawing]
    scores = warped(some, [row.sampling for row in drawn])
    noise = gumbel([row.keys for row in drawn], logits.shape[-1], logits.device)
    tokens = (scores + noise).argmax(-1)
    return tokens if alike else logits.argmax(-1).index_put((places,), tokens)


def warped(logits: Tensor, samplings: list[Sampling]) -> Tensor:
    """Logits of the distributions that tokens are drawn from: [rows, vocabulary], minus infinity
    where a token is left out."""

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=logits.device)[:, None]

    scores = logits - logits.amax(-1, keepdim=True)
    scores = scores / column([one.temperature for one in samplings])
    most = max(one.top_k for one in samplings)
    if most:
        count = scores.shape[-1]
        best = scores.topk(min(most, count)).values
        last = [min(one.top_k or count, best.shape[-1]) - 1 for one in samplings]
        least = best.gather(-1, torch.tensor(last, device=logits.device)[:, None])
        least = least.masked_fill(column([one.top_k for one in samplings]) == 0, NEVER)
        scores = scores.masked_fill(scores < least, NEVER)
    if any(one.top_p < 1 for one in samplings):
        share = column([one.top_p for one in samplings])
        ordered, index = scores.sort(dim=-1, descending=True, stable=True)  # 16 bits tie
        probability = ordered.softmax(-1)
        before = probability.cumsum(-1) - probability  # of the likelier ones
        left_out = (before >= share) & (share < 1)
        left_out[:, 0] = False
        scores = scores.masked_fill(left_out.scatter(-1, index, left_out), NEVER)
    if any(one.min_p > 0 for one in samplings):
        share = column([one.min_p for one in samplings])
        probability = scores.softmax(-1)
        least = share * probability.amax(-1, keepdim=True)
        scores = scores.masked_fill(probability < least, NEVER)
    return scores


def gumbel(keys: list[tuple[int, int]], vocabulary: int, device: torch.device) -> Tensor:
    """[rows, vocabulary] of standard Gumbel numbers in float32, by the keys of each row.

    The largest of log-probabilities plus these is a draw from the distribution. Where two models
    nearly agree on it, they nearly always draw the same token.
    """
    first, second = torch.tensor(keys, dtype=torch.long, device=device).T[:, :, None]
    mixed = torch.arange(vocabulary, device=device)[None] * 0x9E3779B1
    for key in (first, second):
        mixed = (mixed + key) & LOW
        mixed ^= mixed >> 16
        mixed = (mixed * 0x7FEB352D) & LOW
        mixed ^= mixed >> 15
        mixed = (mixed * 0x846CA68B) & LOW
        mixed ^= mixed >> 16
    uniform = (mixed.float() * 2**-32 + 2**-33).clamp_(max=BELOW_ONE)
    return -(-torch.log1p(-uniform)).log_()
