"""`Pictures`: add a picture once and ask it later; bounded in memory and on disk."""

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Final, NamedTuple

import torch
from PIL import Image

from rotatek import errors
from rotatek.bridge.attention import StopFlag
from rotatek.cache.cache_file import Draft, coder
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.engine import Engine
from rotatek.inputs.request import clean_question, make_request, whole_tokens
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.inspect.doubt import any_photo, doubt
from rotatek.methods.settings import STORED, Settings
from rotatek.models import VisionLanguageModel
from rotatek.models.base import Pixels
from rotatek.pictures.asking import Answer, Asker, Look
from rotatek.pictures.reading import PictureNotes, PictureReader
from rotatek.pictures.store import Facts, PictureStore

BATCH: Final = 32  # pages that answer in the same steps
UNITS: Final = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Picture:
    """One picture that was read, or a few pages read as one.

    name: a digest of its pixels, the model, its image processor and the method; size: of the first
    page in pixels; tokens: of the chat before a question; cache_bytes: of the compressed cache;
    full_bytes: of an uncompressed one; file_bytes: on disk, or 0; photo: whether a page is a
    photograph, which small models cannot read.
    """

    name: str
    size: tuple[int, int]
    pages: int
    tokens: int
    visual_tokens: int
    cache_bytes: int
    full_bytes: int
    file_bytes: int = 0
    photo: bool = False

    @classmethod
    def of(cls, facts: Facts) -> "Picture":
        """From a page's stored figures."""
        try:
            width, height = facts["size"]
            told = {one.name: facts[one.name] for one in fields(cls)}
            return cls(**told | {"size": (width, height)})
        except (KeyError, TypeError, ValueError) as error:
            raise errors.PictureDamaged from error


class Prepared(NamedTuple):
    """A picture, or a few of one prompt, as the vision tower takes them, before the model reads
    it."""

    name: str
    images: tuple[Image.Image, ...]
    pixels: Pixels


class Pictures:
    """Pictures of one model and one setting. Safe for several threads, and several processes may
    share a folder.

    Where `memory` is full, the least recently used caches leave it; they are loaded from the folder
    again, or lost without one. `counts` has how many were `read`, found in memory (`warm`),
    `loaded` from the folder, and removed from either (`left_memory`, `left_folder`).

    Args:
        model: an engine, whose memory and running batch are shared; a loaded model; or its name.
        settings: how caches are compressed.
        folder: where pictures are kept; None keeps them in memory alone.
        memory: bytes of the caches held ready, a number or a text such as "2GB".
        disk: bytes of the folder's caches; None sets no bound.

    Raises:
        TextBeforePicture: for a model whose chat template cannot be cut.
        CompressorMissing: for a folder, without the package zstandard.
        UserError: of `PictureStore`, for a folder that does not fit.
    """

    def __init__(
        self,
        model: str | VisionLanguageModel | Engine = "pocket",
        settings: Settings | None = None,
        folder: str | os.PathLike[str] | None = None,
        memory: int | str = "2GB",
        disk: int | str | None = None,
    ) -> None:
        if folder is not None:
            coder()  # said before a model is loaded, and once
        self.memory = bytes_of("memory", memory)
        self.disk = None if disk is None else bytes_of("disk", disk)
        self.engine = model if isinstance(model, Engine) else Engine(model)
        vlm, self.settings = self.engine.vlm, settings or STORED
        limit = self.engine.limits.max_prompt_tokens
        self.reader = PictureReader(vlm, self.settings, limit)
        self.asker = Asker(self.engine)
        described = self.reader.description() | {"model_name": vlm.name}
        self.store = None if folder is None else PictureStore(folder, described)
        self.counts: Counter[str] = Counter()
        self._held: OrderedDict[str, tuple[RotateKCache, int]] = OrderedDict()  # and its bytes
        self._told: dict[str, Picture] = {}  # of pictures without a folder
        self._guard = threading.Lock()
        self._lease = self.engine.admission.ask(0)

    def add(
        self, image: Image.Image | Sequence[Image.Image], stop: StopFlag | None = None
    ) -> Picture:
        """Read a picture, unless it has been read before; with a folder, by any process.

        Args:
            image: one picture; or several, up to 8, which are then read as one prompt.
            stop: ends the reading early once it is set, by `Stopped`.

        Raises:
            UserError: for a picture that is refused, or a folder that cannot be written.
        """
        ready = self.prepare(image)
        return ready if isinstance(ready, Picture) else self.begin(ready, stop)()

    def prepare(self, image: Image.Image | Sequence[Image.Image]) -> Picture | Prepared:
        """The first part of `add`, which needs no device: it may run in any thread while the model
        reads the picture before. A picture that is known needs no other part."""
        images = make_request(image, "?").images
        name = self.reader.name_of(images)
        if known := self.find(name):
            return known
        with self.engine.scheduler.preprocessing:
            return Prepared(name, images, self.reader.look(images))

    def begin(self, ready: Prepared, stop: StopFlag | None = None) -> Callable[[], Picture]:
        """The second part of `add`: the model reads the picture now. Returns the last part, which
        keeps it, in any thread: meanwhile the model can read on."""
        name, images, pixels = ready
        draft: Draft | None = None
        with self.engine.scheduler.prefill(stop):
            cache = self.reader.read(images, pixels)
            if self.store is not None:  # copied before the kernels of a next page are queued
                draft = cache.draft(cache.notes, owner=self.reader.owner)

        def complete() -> Picture:
            if here := self.find(name):  # the same picture, read twice at a time
                return here
            notes: PictureNotes = cache.notes
            picture = Picture(
                name, notes.size, notes.pages, notes.tokens, notes.visual_tokens,
                cache.bytes().total, self.engine.vlm.full_bytes(notes.tokens),
                photo=any_photo(images),
            )  # fmt: skip
            gone: list[str] = []
            if self.store is not None and draft is not None:
                picture = Picture.of(self.store.write(name, draft.content(), asdict(picture)))
                gone = [] if self.disk is None else self.store.make_room(self.disk, name)
            with self._guard:
                for one in gone:
                    self._drop(one)
                    self.counts["left_folder"] += 1
                if self.store is None:
                    self._told[name] = picture
                self.counts["read"] += 1
                self._hold(name, cache)
            return picture

        return complete

    def find(self, name: str) -> Picture | None:
        """The picture of a name, or None where it is not held."""
        if self.store is None:
            with self._guard:
                return self._told.get(name)
        facts, path = self.store.facts(name), self.store.path(name)
        return None if facts is None or path is None or not path.exists() else Picture.of(facts)

    def names(self) -> list[str]:
        """Every picture's name."""
        if self.store is not None:
            return self.store.names()
        with self._guard:
            return list(self._told)

    def forget(self, pictures: "Picture | str | Sequence[Picture | str]") -> None:
        """Remove pictures from memory and from the folder."""
        names = _names(pictures)
        with self._guard:
            for name in names:
                self._drop(name)
        if self.store is not None:
            self.store.forget(names)

    @property
    def held_bytes(self) -> int:
        """Live bytes of the caches in memory."""
        return sum(size for _, size in tuple(self._held.values()))

    def _hold(self, name: str, cache: RotateKCache) -> None:
        """Hold a cache in memory, and remove the least recently used ones. The lock is held."""
        self._held[name] = cache, cache.bytes().total
        self._held.move_to_end(name)
        while len(self._held) > 1 and self.held_bytes > self.memory:
            self._drop(next(iter(self._held)))
            self.counts["left_memory"] += 1
        if self.held_bytes > self.memory and self.store is not None:
            self._drop(name)
        self._lease.resize(self.held_bytes, resting=True)

    def _drop(self, name: str) -> None:
        """Remove a cache; questions in progress have a copy. The lock is held."""
        self._held.pop(name, None)
        self._told.pop(name, None)
        self._lease.resize(self.held_bytes, resting=True)

    @torch.inference_mode()  # in which texts are copied in a few launches
    def _cache(self, name: str) -> RotateKCache:
        """A picture's cache, from memory or from the folder."""
        with self._guard:
            held = self._held.get(name)
            if held is not None:
                self._held.move_to_end(name)
                self.counts["warm"] += 1
                return held[0]
        path = None if self.store is None else self.store.path(name)
        if self.store is None or path is None:
            raise errors.PictureGone
        try:
            cache = RotateKCache.load(
                path, self.engine.vlm.model, PictureNotes, owner=self.reader.owner,
                **self.reader.paths,
            )  # fmt: skip
        except errors.FileUnreadable as error:  # forgotten meanwhile, by another process
            raise errors.PictureGone from error
        except (errors.CacheFileDamaged, errors.CacheFileForeign, errors.CacheFileVersion) as error:
            raise errors.PictureDamaged from error
        with suppress(OSError):
            os.utime(path)  # it was used
        with self._guard:
            self.counts["loaded"] += 1
            self._hold(name, cache)
        return cache

    def doubt(self, answer: Answer) -> str:
        """One sentence where an answer is doubtful, for models whose confidence has been measured;
        else empty."""
        found = self.find(answer.picture) if answer.tokens else None
        if found is None:
            return ""
        return doubt(self.engine.vlm.name, answer.text, answer.confidence, lambda: found.photo)

    def ask(
        self,
        pictures: "Picture | str | Sequence[Picture | str]",
        question: str,
        max_new_tokens: int = 64,
        sampling: Sampling = GREEDY,
    ) -> list[Answer]:
        """One question to each of some pictures.

        Args:
            pictures: of `add`, or their names.
            question: the text, as `clean_question` takes it.
            max_new_tokens: the longest answer, 1 to `Limits`.
            sampling: how tokens are chosen; by default greedily.

        Returns:
            their answers, in order.

        Raises:
            UserError: for a question that is refused, or the first picture that cannot answer.
        """
        found = list(self.answers(pictures, question, max_new_tokens, sampling=sampling))
        for answer in found:
            if answer.error:
                raise errors.UserError(answer.error)
        return found

    def answers(
        self,
        pictures: "Picture | str | Iterable[Picture | str]",
        question: str,
        max_new_tokens: int = 64,
        *,
        batch: int = BATCH,
        stop: StopFlag | None = None,
        sampling: Sampling = GREEDY,
    ) -> Iterator[Answer]:
        """As `ask`, batch by batch; a picture that cannot answer says why in `error`.

        Args:
            pictures, question, max_new_tokens: as of `ask`.
            batch: pictures that answer at once.
            stop: ends everything early once it is set.
            sampling: as of `ask`; every picture draws with the same noise.

        Raises:
            UserError: at once, for a question that is refused.
        """
        text, most = clean_question(question), whole_tokens(max_new_tokens)
        if batch < 1:
            raise errors.SettingError("batch", "a whole number from 1", batch)
        ids = self.asker.ids_of(text)
        names, own = _names(pictures), sampling.seeded()

        def told() -> Iterator[Answer]:
            for start in range(0, len(names), batch):
                asked = names[start : start + batch]
                yield from self.asker.batch(asked, self._cache, ids, most, stop, own)

        return told()

    def look(
        self,
        picture: Picture | str,
        question: str,
        max_new_tokens: int = 64,
        *,
        stop: StopFlag | None = None,
    ) -> Look:
        """One picture's answer, token by token, and the attention of each token on the picture.
        Arguments and refusals as of `answers`; `Stopped` where `stop` was set before the question
        was read."""
        text, most = clean_question(question), whole_tokens(max_new_tokens)
        (name,) = _names(picture)
        return self.asker.look(self._cache(name), self.asker.ids_of(text), most, stop)

    def close(self) -> None:
        """Let every cache go; the folder stays."""
        with self._guard:
            self._held.clear()
            self._told.clear()
            self._lease.release()


def bytes_of(name: str, given: int | str) -> int:
    """Bytes, from a number or a text such as "500 MB"; name: of what is refused."""
    text = str(given).strip().upper()
    unit = next((one for one in UNITS if text.endswith(one)), "")
    try:
        number = float(text.removesuffix(unit)) * UNITS.get(unit, 1)
        if number >= 1:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise errors.SettingError(name, "bytes, such as 500MB or 2GB", given)


def _names(pictures: "Picture | str | Iterable[Picture | str]") -> list[str]:
    given = [pictures] if isinstance(pictures, Picture | str) else list(pictures)
    return [one.name if isinstance(one, Picture) else one for one in given]
