"""Stored pictures in a folder: one file for each picture, and its figures beside it.

    store.json              the model, the settings and the version that all pages share
    pages/NAME.DIGEST.cache one picture's compressed cache
    pages/NAME.json         its figures and the name of that file; a page is there once this is
    sources/DIGEST.json     one indexed file: its size, its time, and the names of its pages

Every file is written under a temporary name and renamed, so readers never see half a file, and
several processes may share a folder: where two write the same page, its figures name the file that
they belong to. `sweep` removes what a process that died has left.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from rotatek import errors
from rotatek.cache import cache_file

VERSIONS: Final = {"store": 1, "cache": cache_file.VERSION}
DRAFT: Final = ".draft"
OLD_S: Final = 600.0  # a draft of that age has no writer any more
SHORTEST: Final = 6  # letters of a name that may stand for it
Facts = dict[str, Any]


class PictureStore:
    """The folder.

    Args:
        folder: of an existing store; or, with `described`, a new or an empty one.
        described: the `description` of the reader that opens it; None to list what is in it.

    Raises:
        UserError: where it is no store, or one that does not fit: `StoreForeign`,
            `StoreFolderTaken`, `StoreVersion`, `StoreDamaged`, `StoreOfAnotherModel`,
            `StoreOfOtherSettings`; and as `write`.
    """

    def __init__(
        self, folder: str | os.PathLike[str], described: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = Path(folder)
        self.pages, self.sources = self.folder / "pages", self.folder / "sources"
        own = self.folder / "store.json"
        if not own.exists():
            if described is None:
                raise errors.StoreForeign
            with writing():
                self.folder.mkdir(parents=True, exist_ok=True)
                others = {path.name for path in self.folder.iterdir() if DRAFT not in path.name}
                if others - {"pages", "sources", own.name}:
                    raise errors.StoreFolderTaken
                self.pages.mkdir(exist_ok=True)
                self.sources.mkdir(exist_ok=True)
            # of several processes that do so at once, the first one's description counts
            _write_json(own, {"versions": VERSIONS} | dict(described), first=True)
        self.described = _read_json(own) or {}
        if not isinstance(self.described.get("versions"), dict):
            raise errors.StoreDamaged
        if self.described["versions"] != VERSIONS:
            raise errors.StoreVersion
        wanted = json.loads(json.dumps(described or {}, default=str))
        differ = {name for name, value in wanted.items() if self.described.get(name) != value}
        if "model" in differ:
            raise errors.StoreOfAnotherModel
        if differ - {"model_name"}:
            raise errors.StoreOfOtherSettings

    def path(self, name: str) -> Path | None:
        """The file of a page's cache, or None where there is no such page."""
        file = (self.facts(name) or {}).get("file")
        return self.pages / file if isinstance(file, str) else None

    def names(self) -> list[str]:
        """Every page, in the order of their names. No page is opened."""
        try:
            with os.scandir(self.pages) as entries:
                found = [one.name for one in entries]
        except OSError as error:
            raise errors.StoreForeign from error
        return sorted(name[:-5] for name in found if name.endswith(".json") and name[0] != ".")

    def facts(self, name: str) -> Facts | None:
        """A page's figures, or None where there is no such page."""
        return _read_json(self.pages / f"{name}.json")

    def write(self, name: str, content: bytes, facts: Facts) -> Facts:
        """Add a page, completely and durably, or not at all; content: of its cache's file.

        Returns:
            the figures, with `file`, `file_bytes` and `digest`.

        Raises:
            StorageFull, StoreUnwritable: and nothing is left.
        """
        told = facts | {"file_bytes": len(content), "digest": digest(content)}
        told["file"] = f"{name}.{told['digest'][:8]}.cache"
        _write(self.pages / told["file"], content)
        _write_json(self.pages / f"{name}.json", told)
        return told

    def make_room(self, most: int, but: str) -> list[str]:
        """Forget the pages used least recently until `most` bytes are left, and return their names;
        never the page `but`."""
        held = []
        with suppress(OSError), os.scandir(self.pages) as entries:
            for one in entries:
                if one.name.endswith(".cache"):
                    info = one.stat()
                    held.append((info.st_mtime_ns, one.name.split(".")[0], info.st_size))
        total, gone = sum(size for *_, size in held), []
        for _, name, size in sorted(held):
            if total <= most:
                break
            if name != but:
                gone.append(name)
                total -= size
        self.forget(gone)
        return gone

    def forget(self, names: Sequence[str]) -> None:
        """Remove pages; one that is not there is passed over."""
        with writing():
            for name in names:
                path = self.path(name)
                (self.pages / f"{name}.json").unlink(missing_ok=True)
                if path is not None:
                    path.unlink(missing_ok=True)

    def find(self, given: str) -> list[str]:
        """The pages that match a name, the clear beginning of one, or an indexed file."""
        names = self.names()
        if given in names:
            return [given]
        here = set(names)
        pages = (self.source(Path(given)) or {"pages": []})["pages"]
        if found := [name for name in pages if name in here]:
            return found
        begun = [name for name in names if name.startswith(given)]
        if len(given) < SHORTEST or len(begun) != 1:
            raise errors.PageNameUnknown
        return begun

    def check(self) -> Iterator[tuple[str, bool]]:
        """Read every page whole: its name, and whether it is what was written."""
        for name in self.names():
            facts, good = self.facts(name) or {}, False
            with suppress(OSError, KeyError):
                good = facts["digest"] == digest((self.pages / facts["file"]).read_bytes())
            yield name, good

    def sweep(self) -> int:
        """Remove what processes that died have left, and its count: old drafts, and caches that no
        figures name."""
        names = {str((self.facts(name) or {}).get("file")) for name in self.names()}
        swept = 0
        for path in [*self.pages.iterdir(), *self.sources.iterdir(), *self.folder.iterdir()]:
            with suppress(OSError):
                left = DRAFT in path.name or (path.suffix == ".cache" and path.name not in names)
                if left and time.time() - path.stat().st_mtime > OLD_S:
                    path.unlink()
                    swept += 1
        return swept

    def source(self, path: Path) -> Facts | None:
        """The record of an indexed file, under any spelling of its path, or None."""
        found = _read_json(self._source(path))
        return found if found is None or found.get("path") == os.path.realpath(path) else None

    def note_source(
        self, path: Path, size: int, time_ns: int, pages: Sequence[str | None]
    ) -> list[str]:
        """Note a file that was read: its size, its time of change and its pages; None for those
        that could not be read. Returns the ones that it had before and no file has any more."""
        before = (self.source(path) or {"pages": []})["pages"]
        if not any(pages) and not any(before):
            return []
        told = {"path": os.path.realpath(path), "size": size, "time_ns": time_ns}
        _write_json(self._source(path), told | {"pages": list(pages)})
        held = {name for source in self.indexed() for name in source["pages"]} if before else set()
        return sorted({name for name in before if name} - held)

    def indexed(self) -> list[Facts]:
        """Every indexed file, by its path."""
        found = []
        with suppress(OSError):
            found = [_read_json(path) for path in self.sources.glob("[!.]*.json")]
        return sorted((one for one in found if one and "pages" in one), key=lambda o: o["path"])

    def _source(self, path: Path) -> Path:
        return self.sources / f"{digest(os.fsencode(os.path.realpath(path)))}.json"


@contextmanager
def writing() -> Iterator[None]:
    """Say in one sentence why something could not be written."""
    try:
        yield
    except OSError as error:
        full = error.errno in errors.FULL
        raise (errors.StorageFull if full else errors.StoreUnwritable) from error


def _read_json(path: Path) -> Facts | None:
    """A JSON object, or None where there is none that can be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write_json(path: Path, content: Mapping[str, Any], *, first: bool = False) -> None:
    _write(path, json.dumps(content, default=str).encode(), first=first)


def _write(path: Path, content: bytes, *, first: bool = False) -> None:
    """Write a file whole, and lasting; first: only where there is none yet."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{DRAFT}")
    try:
        with writing():
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if first:
                with suppress(FileExistsError):
                    os.link(draft, path)
            else:
                os.replace(draft, path)
            with suppress(OSError):  # the folder's names, where the system can
                number = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
