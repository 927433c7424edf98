"""Answering a suite under many settings: one prefill serves every setting that prunes alike.

Batches of questions go through the model together. What was answered is in a journal, one JSON
object a line, so an interrupted run continues where it stopped.
"""

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers.cache_utils import Cache, DynamicCache

from rotatek import recovery
from rotatek.attention import decoder_layers
from rotatek.compression import (
    RotateKCache,
    SharedPrefill,
    TokenPlan,
    cache_bytes,
    layout_of,
    release,
)
from rotatek.config import Settings
from rotatek.decode import decode, prefill
from rotatek.errors import UserError
from rotatek.evaluation.suite import LONG_TOKENS, SHORT_TOKENS, Item, Suite
from rotatek.inputs import Request, make_request
from rotatek.models import Embedded, Prompt, VisionLanguageModel
from rotatek.models.base import Pixels, collate
from rotatek.models.memory import is_out_of_memory
from rotatek.tokens import TOKENS

MEMBERS: Final = 24  # caches that share one prefill: bounds the memory of a batch
# The same where several processes divide the work, of short answers and of pages: their shares come
# out even, and what decodes a page for hundreds of steps hardly notices a prefill.
FEW_MEMBERS: Final = (6, 2)
EIGH_STEPS: Final = 12  # decoding steps that take as long as one question's eigh, on a GPU's host

Unit = tuple[list[Item], list[Settings]]  # a batch of questions, and settings that prune alike


@dataclass(frozen=True)
class Answer:
    """What one setting said to one question. tokens: new tokens, the end not counted; kv_share:
    bytes of the batch's caches after prefill over those of uncompressed ones, text included."""

    setting: str
    item: str
    answer: str
    tokens: int
    kv_share: float


def setting_id(settings: Settings) -> str:
    """A short, stable name of one setting."""
    values = settings.as_dict()
    if values["cache_dtype"] == "model":  # journals written before there was a choice stay good
        del values["cache_dtype"]
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def weights_id(vlm: VisionLanguageModel) -> str:
    """A fingerprint of the weights: names, shapes and sums of every parameter."""
    digest = hashlib.sha256()
    with torch.inference_mode():
        for name, value in vlm.model.named_parameters():
            total = float(value.abs().sum(dtype=torch.float64)) if value.is_floating_point() else 0
            digest.update(f"{name} {tuple(value.shape)} {total:.4e}".encode())
    return digest.hexdigest()[:16]


Answers = dict[tuple[str, str], Answer]  # by setting and item


def read_header(path: Path) -> dict[str, Any]:
    """What a journal's answers belong to."""
    with path.open(encoding="utf-8") as file:
        return json.loads(file.readline())


def read_answers(path: Path, header: Mapping[str, Any]) -> Answers:
    """The answers of a journal, none if it is not there; the file stays as it is.

    A line that was cut short by a crash is forgotten.

    Raises:
        UserError: if its first line is not `header`.
    """
    lines = _lines(path)
    if lines and lines[0] != header:
        changed = sorted(k for k in {*header, *lines[0]} if header.get(k) != lines[0].get(k))
        raise UserError(
            f"The journal belongs to another run ({', '.join(changed)} differ). Give another "
            "--out, or delete the journal."
        )
    answers = [Answer(**line) for line in lines[1:]]
    return {(answer.setting, answer.item): answer for answer in answers}


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict)]


class Journal:
    """Answers on disk. The first line says what they belong to; another run's journal is refused.

    earlier: a journal of the same run, whose answers count as given and are not written again.
    """

    def __init__(self, path: Path, header: dict[str, Any], earlier: Path | None = None) -> None:
        self.path, self.header = path, header
        own = read_answers(path, header)
        self.answers = {**(read_answers(earlier, header) if earlier else {}), **own}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write([header, *(asdict(answer) for answer in own.values())])

    def add(self, answers: Iterable[Answer]) -> None:
        """Append and flush."""
        fresh = list(answers)
        self.answers.update({(answer.setting, answer.item): answer for answer in fresh})
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(a), ensure_ascii=False) + "\n" for a in fresh)

    def _write(self, lines: list[dict[str, Any]]) -> None:
        """Replace the file in one step."""
        draft = self.path.with_suffix(".partial")
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.path)


class Runner:
    """Answers a suite's questions with one model.

    suffix: appended to every question, e.g. " Answer with a single word or phrase."
    limits: new tokens of a short answer, and of a page; graph: replay steps as CUDA graphs.
    notice: told once of every setting that this model or version does not support.
    """

    def __init__(
        self,
        vlm: VisionLanguageModel,
        suite: Suite,
        journal: Journal,
        *,
        batch: int,
        suffix: str = "",
        limits: tuple[int, int] = (SHORT_TOKENS, LONG_TOKENS),
        graph: bool = False,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.vlm, self.suite, self.journal = vlm, suite, journal
        self.batch, self.suffix, self.limits, self.graph = batch, suffix, limits, graph
        self.notice = notice
        self.refused: dict[str, str] = {}
        self.eager: set[str] = set()  # settings whose steps a graph cannot hold

    def missing(self, wanted: Sequence[tuple[Settings, str]]) -> list[tuple[Item, list[Settings]]]:
        """Unanswered questions, pages last, each with the settings that still owe an answer."""
        todo = []
        for item in sorted(self.suite.items, key=lambda item: (item.long, item.document)):
            owed = [
                settings
                for settings, scope in wanted
                if (scope == "all" or item.long)
                and (setting_id(settings), item.name) not in self.journal.answers
            ]
            if owed:
                todo.append((item, owed))
        return todo

    def units(
        self, wanted: Sequence[tuple[Settings, str]], part: tuple[int, int] = (0, 1)
    ) -> list[Unit]:
        """What is missing, in portions of one prefill each: short questions first, pages last.

        part: (i, n) is the i-th of n equal shares, for n processes side by side. All of them work
        on the same questions, so that a run cut short leaves some that every setting has answered.
        """
        index, count = part
        found: list[Unit] = []
        for batch in _batches(self.missing(wanted), self.batch):
            items = [item for item, _ in batch]
            members = MEMBERS if count == 1 else FEW_MEMBERS[items[0].long]
            for group in _groups(batch[0][1]):
                starts = range(0, len(group), members)
                found += [(items, group[start : start + members]) for start in starts]
        loads, mine = [0] * count, []
        for unit in found:
            lightest = loads.index(min(loads))
            loads[lightest] += self._steps(unit)
            if lightest == index:
                mine.append(unit)
        return mine

    def run(self, units: Sequence[Unit]) -> Iterator[int]:
        """Answer `units`; yields how many answers each one added or gave up."""
        asked: list[Item] = []
        for items, group in units:
            if items is not asked:
                asked, prompts = items, self._prompts(items)
                whole = self._embed(items, prompts)
            embedded = whole
            if TOKENS[group[0].tokens].stage == "encoder" and group[0].prunes_tokens:
                embedded = self._embed(items, prompts, group[0])
            full = self.vlm.full_bytes(whole.valid.numel())
            self._answer(items, embedded, full, group)
            yield size([(items, group)])

    def _steps(self, unit: Unit) -> int:
        """How long a unit takes at most, in decoding steps."""
        items, group = unit
        solved = sum(s.channels == "rotatek" and s.solver == "eigh" for s in group)
        return self._limit(items) * len(group) + EIGH_STEPS * len(items) * solved

    def _prompts(self, items: Sequence[Item]) -> list[Prompt]:
        """Encoded questions; a picture asked several times is read and preprocessed once."""
        images = {item.document: self.suite.image(item.document) for item in items}
        pixels: dict[int, Pixels] = {}
        prompts = []
        for item in items:
            text = item.question + self.suffix
            request = make_request(images[item.document], text, self._limit(items))
            prompts.append(self.vlm.prompt(request, pixels=pixels.get(item.document)))
            pixels[item.document] = prompts[-1].pixels
        return prompts

    def _embed(
        self, items: Sequence[Item], prompts: Sequence[Prompt], settings: Settings | None = None
    ) -> Embedded:
        """One padded batch; the vision tower sees each picture once."""
        pixels = {item.document: p.pixels for item, p in zip(items, prompts, strict=True)}
        seen = {document: self.vlm.look(p, settings) for document, p in pixels.items()}
        return collate(
            [
                self.vlm.embed(prompt, settings, seen[item.document])
                for item, prompt in zip(items, prompts, strict=True)
            ]
        )

    def _answer(
        self, items: Sequence[Item], embedded: Embedded, full: int, group: list[Settings]
    ) -> None:
        """Prefill once, decode under every setting of a group, write the answers down."""
        group = [settings for settings in group if self._is_owed(settings, items)]
        try:
            self._answer_group(items, embedded, full, group)
            return
        except Exception as error:
            if not self._is_worth_another_try(error, group):
                raise
        recovery.free(self.vlm.device)  # outside the handler: the error held what did not fit
        for settings in group:  # one by one: who was refused, or less memory at once
            self._answer(items, embedded, full, [settings])

    def _is_worth_another_try(self, error: Exception, group: list[Settings]) -> bool:
        """Always, one by one, for several settings; a single one is refused or loses its graph."""
        if len(group) > 1:
            return True
        name = setting_id(group[0])
        if isinstance(error, UserError):
            self.refused[name] = error.message
            self.notice(f"Left out: {error.message}")
            return True
        graphed = self.graph and name not in self.eager and isinstance(error, RuntimeError)
        if graphed and not is_out_of_memory(error):
            self.eager.add(name)
            self.notice(f"Without a CUDA graph ({type(error).__name__}): {group[0]}")
            return True
        return False

    def _is_owed(self, settings: Settings, items: Sequence[Item]) -> bool:
        """Whether a setting is neither refused nor answered."""
        name = setting_id(settings)
        answered = all((name, item.name) in self.journal.answers for item in items)
        return name not in self.refused and not answered

    def _answer_group(
        self, items: Sequence[Item], embedded: Embedded, full: int, group: list[Settings]
    ) -> None:
        if not group:
            return
        model, inputs = self.vlm.model, embedded.inputs()
        layers = len(decoder_layers(model))
        plan = TokenPlan(layout_of(model, inputs), group[0], layers)
        caches = [
            DynamicCache()
            if s.is_baseline
            else RotateKCache(model, inputs, s, metrics=self.vlm.metrics, plan=plan)
            for s in group
        ]
        try:
            logits, _ = prefill(self.vlm, embedded, SharedPrefill(plan, caches))
            shares = [cache_bytes(cache).total / full for cache in caches]
            for settings, cache, share in zip(group, caches, shares, strict=True):
                limit = self._limit(items)
                graph = self.graph and setting_id(settings) not in self.eager
                steps = decode(self.vlm, embedded, cache, logits, limit, graph=graph)
                rows = [step.tokens for step in steps]
                self.journal.add(self._answers(items, settings, rows, share))
                release(cache)
        finally:
            for cache in caches:
                release(cache)

    def _limit(self, items: Sequence[Item]) -> int:
        return self.limits[any(item.long for item in items)]

    def _answers(
        self, items: Sequence[Item], settings: Settings, rows: list[list[int]], share: float
    ) -> list[Answer]:
        """Token rows [steps][B] as texts."""
        answers = []
        for item, tokens in zip(items, _said(self.vlm, rows), strict=True):
            text = self.vlm.tokenizer.decode(tokens, skip_special_tokens=True).strip()
            answers.append(Answer(setting_id(settings), item.name, text, len(tokens), share))
        return answers


def size(units: Iterable[Unit]) -> int:
    """How many answers there are to give."""
    return sum(len(items) * len(group) for items, group in units)


def _said(vlm: VisionLanguageModel, rows: list[list[int]]) -> list[list[int]]:
    """Steps [T][B], -1 behind an end, as each sample's own tokens without that end."""
    return [
        [t for t in column if t >= 0 and t not in vlm.stop_ids]
        for column in zip(*rows, strict=True)
    ]


def generate(
    vlm: VisionLanguageModel, requests: Sequence[Request], settings: Settings
) -> list[str]:
    """Answers of one padded batch, outside of any suite. All requests have the same limit."""
    embedded = collate([vlm.embed(vlm.prompt(request), settings) for request in requests])
    cache: Cache = DynamicCache()
    if not settings.is_baseline:
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    try:
        logits, _ = prefill(vlm, embedded, cache)
        steps = decode(vlm, embedded, cache, logits, requests[0].max_new_tokens)
        said = _said(vlm, [step.tokens for step in steps])
    finally:
        release(cache)
    return [vlm.tokenizer.decode(tokens, skip_special_tokens=True).strip() for tokens in said]


def _groups(settings: Sequence[Settings]) -> list[list[Settings]]:
    """Settings that drop the same tokens, together."""
    groups: dict[tuple, list[Settings]] = defaultdict(list)
    for one in settings:
        key: tuple = ("none",)
        if one.prunes_tokens:
            key = (one.tokens, one.keep_tokens, one.fastv_layer, one.contextual)
        groups[key].append(one)
    return list(groups.values())


def _batches(
    todo: list[tuple[Item, list[Settings]]], size: int
) -> Iterator[list[tuple[Item, list[Settings]]]]:
    """Neighbours that owe the same settings and are of one length, at most `size` at once."""
    batch: list[tuple[Item, list[Settings]]] = []
    for item, owed in todo:
        fits = batch and batch[0][1] == owed and batch[0][0].long == item.long
        if batch and (not fits or len(batch) == size):
            yield batch
            batch = []
        batch.append((item, owed))
    if batch:
        yield batch
