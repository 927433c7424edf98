"""Chooses the next token, for the page, the API, the command line and Python, alone and in batches.

The order is that of transformers: penalties and biases, temperature, `top_k`, `top_p`, `min_p`.
Sampled and greedy rows share a step; the logits of greedy rows are not changed. The numbers that
draws depend on are hashes of (seed, draw, position of the token in its answer, token of the
vocabulary): the same on every device, alone and in a batch, without a state that rows could share.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import torch
from torch import Tensor

from rotatek.engine.grammar import Grammars, Matcher
from rotatek.errors import SettingError
from rotatek.inputs.sampling import Sampling
from rotatek.models import VisionLanguageModel

NEVER: Final = float("-inf")
LOW: Final = 0xFFFFFFFF  # the lower 32 bits; tensors have no unsigned arithmetic
BELOW_ONE: Final = 1 - 2**-24  # the largest float32 below 1


def likeliest(logits: Tensor, banned: Tensor) -> Tensor:
    """[rows] the likeliest token of each row that may be said.

    Args:
        logits: [rows, vocabulary].
        banned: tokens that may not be said.
    """
    return logits.index_fill(-1, banned, NEVER).argmax(-1)


class RowChoice:
    """How one row's tokens are chosen, and its tokens so far.

    Args:
        sampling: with a seed, where it draws.
        draw: which of several answers to one request this is.
        read: tokens of the prompt, for the penalty of repetition.
        matcher: the schema's, if there is one.

    Attributes:
        failure: why the row cannot continue.
    """

    def __init__(
        self,
        sampling: Sampling,
        draw: int = 0,
        read: Iterable[int] = (),
        matcher: Matcher | None = None,
    ) -> None:
        self.sampling, self.draw, self.matcher = sampling.seeded(), draw, matcher
        self.read, self.said = frozenset(read), Counter[int]()
        self.failure: Exception | None = None

    @property
    def keys(self) -> tuple[int, int]:
        """The keys of the noise of its next token."""
        return keys_of(self.sampling.seed or 0, self.draw, self.said.total())

    def take(self, token: int) -> None:
        """The token that was chosen."""
        self.said[token] += 1
        if self.matcher is not None:
            self.matcher.take(token)

    def adjust(self, logits: Tensor) -> None:
        """Penalties, biases and the schema on this row's logits [vocabulary], in place."""
        own = self.sampling
        if own.repetition_penalty != 1:
            seen = self._tensor(self.read | self.said.keys(), logits)
            value, by = logits[seen], own.repetition_penalty
            logits[seen] = torch.where(value < 0, value * by, value / by)
        if self.said and (own.presence_penalty or own.frequency_penalty):
            said = self._tensor(self.said, logits)
            counts = torch.tensor([*self.said.values()], device=logits.device)
            logits[said] -= own.presence_penalty + own.frequency_penalty * counts
        if own.logit_bias:
            tokens, added = zip(*own.logit_bias, strict=True)
            logits[self._tensor(tokens, logits)] += torch.tensor(added, device=logits.device)
        if self.matcher is not None and self.failure is None:
            try:
                allowed = self.matcher.allowed(logits.shape[-1], logits.device)
                logits.masked_fill_(~allowed, NEVER)
            except Exception as error:  # this row's alone
                self.failure = error

    @staticmethod
    def _tensor(tokens: Iterable[int], like: Tensor) -> Tensor:
        return torch.tensor([*tokens], dtype=torch.long, device=like.device)


class TokenChoice:
    """Chooses the next tokens of one model.

    Args:
        vlm: whose tokens may be said.
        preparing: held by those who use its tokenizer.
    """

    def __init__(self, vlm: VisionLanguageModel, preparing: "threading.Lock | None" = None) -> None:
        self.vlm, self._grammars = vlm, Grammars(vlm, preparing or threading.Lock())
        self._banned: Tensor | None = None
        self._lock = threading.Lock()

    def row(
        self, sampling: Sampling, draw: int, prompt: Tensor, later: Sequence[int] = ()
    ) -> RowChoice | None:
        """How a row's tokens are chosen; None where the likeliest one is.

        Args:
            sampling: of the request.
            draw: which of several answers to it this is.
            prompt: [1, tokens], the first one.
            later: tokens of later turns and of the answers before.

        Raises:
            SettingError: for a bias on a token that the model does not have.
            UserError: where the answer is to follow a schema, and cannot.
        """
        if sampling.is_plain:
            return None
        count = self.vlm.model.config.get_text_config().vocab_size
        unknown = next((token for token, _ in sampling.logit_bias if token >= count), None)
        if unknown is not None:
            raise SettingError("logit_bias", f"about tokens below {count}", unknown)
        matcher = self._grammars.matcher(sampling.grammar) if sampling.grammar else None
        penalised = sampling.repetition_penalty != 1
        read = {*prompt.unique().tolist(), *later} if penalised else ()
        return RowChoice(sampling, draw, read, matcher)

    def banned(self, device: torch.device) -> Tensor:
        """Tokens that may not be said."""
        with self._lock:
            if self._banned is None or self._banned.device != device:
                self._banned = torch.tensor(self.vlm.banned_ids, device=device).long()
            return self._banned

    def choose(self, logits: Tensor, rows: Sequence[tuple[int, RowChoice]] = ()) -> Tensor:
        """The next token of every row.

        Args:
            logits: [rows, vocabulary]; they stay as they are.
            rows: (place among the logits, choice) of those that are not plainly greedy.

        Returns:
            [rows] of tokens.
        """
        banned = self.banned(logits.device)
        found = likeliest(logits, banned)
        if rows:
            places = torch.tensor([place for place, _ in rows], device=logits.device)
            own = logits[places].float().index_fill_(-1, banned, NEVER)
            found[places] = chosen(own, [choice for _, choice in rows])
        return found


def chosen(logits: Tensor, rows: Sequence[RowChoice]) -> Tensor:
    """[rows] one token a row.

    Args:
        logits: [rows, vocabulary] in float32, which are changed.
        rows: how each is chosen.
    """
    for own, row in zip(logits, rows, strict=True):
        row.adjust(own)
    drawing = [place for place, row in enumerate(rows) if row.sampling.draws]
    if len(drawing) < len(rows):
        found = logits.argmax(-1)
    if drawing:
        some = logits if len(drawing) == len(rows) else logits[torch.tensor(drawing)]
        drawn = _drawn(some, [rows[place] for place in drawing])
        if len(drawing) == len(rows):
            return drawn
        found[torch.tensor(drawing, device=logits.device)] = drawn
    return found


def _drawn(logits: Tensor, rows: Sequence[RowChoice]) -> Tensor:
    """[rows] a token of each row's warped distribution."""
    scores = warped(logits, [row.sampling for row in rows])
    noise = gumbel([row.keys for row in rows], logits.shape[-1], logits.device)
    return (scores + noise).argmax(-1)


def warped(logits: Tensor, samplings: Sequence[Sampling]) -> Tensor:
    """Logits of the distributions that tokens are drawn from: [rows, vocabulary], minus infinity
    where a token is left out."""

    def column(values: Sequence[float]) -> Tensor:
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


def keys_of(seed: int, draw: int, position: int) -> tuple[int, int]:
    """Two keys of 32 bits for one token of one answer.

    Args:
        seed: of the request.
        draw: 0 for its first answer, 1 for the second, and so on.
        position: of the token in its answer.
    """
    digest = hashlib.blake2b(f"{seed} {draw} {position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def gumbel(keys: Sequence[tuple[int, int]], vocabulary: int, device: torch.device) -> Tensor:
    """[rows, vocabulary] of standard Gumbel numbers in float32.

    The largest of log-probabilities plus these is a draw from the distribution. Where two models
    nearly agree on it, they nearly always draw the same token.

    Args:
        keys: of each row.
        vocabulary: numbers a row.
        device: where they are needed.
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
