"""Fetching a checkpoint from the hub: checked against the free disk first, with progress, and with
one sentence for each kind of failure."""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub import errors as hub
from huggingface_hub.utils import tqdm

from rotatek import errors

GB: Final = 1_000_000_000
WANTED: Final = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
UNWANTED: Final = ("*/*",)  # other formats are in folders of their own
BYTES: Final = "huggingface_hub.snapshot_download"  # the hub's name of the bar of all bytes
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
SPARE: Final = 100_000_000  # bytes of the disk that a download leaves free


@dataclass
class Progress:
    """Bytes of a download that have come, and all of it; 0 of 0 while nothing is fetched."""

    done: int = 0
    total: int = 0


_PROGRESS: Final[ContextVar[Progress | None]] = ContextVar("rotatek_download", default=None)


@contextmanager
def downloading(progress: Progress) -> Iterator[None]:
    """Let downloads in this context, and in threads that run in it, tell how far they are."""
    token = _PROGRESS.set(progress)
    try:
        yield
    finally:
        _PROGRESS.reset(token)


def fetch(source: str, revision: str | None = None, files: Sequence[str] = WANTED) -> str:
    """The folder of a checkpoint: as it is, or of the hub's cache, filled where it must be.

    Args:
        source: a folder, or a hub id.
        revision: a commit of the hub's repository. A complete copy of it never changes, so the
            hub is not asked again.
        files: patterns of those that are needed.

    Raises:
        UserError: WeightsMissing, ModelGated, HubUnreachable or StorageFull.
    """
    if Path(source).is_dir():
        return source
    options: dict[str, Any] = {
        "repo_id": source, "revision": revision, "allow_patterns": list(files),
        "ignore_patterns": list(UNWANTED), "endpoint": os.environ.get("HF_ENDPOINT"),
    }  # fmt: skip
    try:
        return (_cached(options) if revision else None) or _fetched(options)
    except errors.UserError:
        raise
    except Exception as error:
        raise _refusal(error, source) from error


def _fetched(options: dict[str, Any]) -> str:
    """The hub's copy of a repository, or without a connection, the cached one."""
    source, revision = options["repo_id"], options["revision"]
    try:
        if revision:  # at once: an unreachable hub is asked six times for the files of a commit
            asked = HfApi(endpoint=options["endpoint"])
            asked.model_info(source, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        found = snapshot_download(**options, dry_run=True, tqdm_class=_bars())
    except Exception:
        kept = _cached(options)
        if kept is None:
            raise
        return kept
    fresh = [file.file_size or 0 for file in found if file.will_download]
    if not fresh:
        return str(snapshot_download(**options, local_files_only=True))
    progress, needed = _PROGRESS.get() or Progress(), sum(fresh)
    cache = Path(constants.HF_HUB_CACHE)
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if needed + SPARE > free:
        raise errors.StorageFull(
            f"The download needs {needed / GB:.1f} GB and the disk has {free / GB:.1f} GB free. "
            "Free some space, or set HF_HOME to a folder of another disk."
        )
    progress.done, progress.total = 0, needed
    folder = snapshot_download(**options, tqdm_class=_bars(progress))
    progress.done = needed
    return str(folder)


def _cached(options: dict[str, Any]) -> str | None:
    """The cached copy of a repository, if it is complete: with the weights that its index names."""
    try:
        folder = Path(snapshot_download(**options, local_files_only=True))
        index, needed = folder / "model.safetensors.index.json", {"config.json"}
        if index.exists():
            needed |= {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
        elif "*.safetensors" in options["allow_patterns"] and not any(folder.glob("*.safetensors")):
            return None
    except Exception:
        return None
    return str(folder) if all((folder / name).exists() for name in needed) else None


def _bars(progress: Progress | None = None) -> type[tqdm]:
    """The hub's bars: its own are silent but that of all bytes, where `progress` counts them."""

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.counts = progress is not None and kwargs.get("name") == BYTES
            kwargs["disable"] = None if self.counts else True  # None: where stderr is no terminal
            super().__init__(*args, **kwargs)

        def update(self, n: float | None = 1) -> bool | None:
            if progress is not None and self.counts:
                progress.done = min(progress.done + int(n or 0), progress.total)
            return super().update(n)

    return Bar


def _refusal(error: BaseException, name: str) -> errors.UserError:
    """A failure of the hub's client, or its cause, in a sentence that says what to do."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(link, kinds) for link in links)

    if has(hub.GatedRepoError):
        return errors.ModelGated(
            f"The model {name!r} is gated. Accept its terms on its page of the hub, then set "
            "HF_TOKEN to a token of your account, or run `hf auth login`."
        )
    if any(isinstance(one, OSError) and one.errno in FULL for one in links):
        return errors.StorageFull()
    gone = (hub.RepositoryNotFoundError, hub.RevisionNotFoundError, hub.OfflineModeIsEnabled)
    if has(hub.HTTPError, TimeoutError, ConnectionError) and not has(*gone):
        return errors.HubUnreachable(
            f"The hub cannot be reached, and {name!r} is not on this machine. Check the connection "
            "and try again, or give a folder that holds the model."
        )
    return missing(name)


def shown(name: str) -> str:
    """A model's name as others may read it: of a folder without its path."""
    return Path(name).name if Path(name).is_absolute() else name


def missing(name: str) -> errors.UserError:
    """No such model, by any meaning of its name."""
    return errors.WeightsMissing(
        f"There is no model {shown(name)!r}. Check the spelling: give a registered name "
        "(`python -m rotatek info` lists them), a folder with config.json and safetensors, or a "
        "hub id such as HuggingFaceTB/SmolVLM-256M-Instruct."
    )


def incomplete(name: str) -> errors.UserError:
    """A model of which something is not there."""
    return errors.WeightsMissing(
        f"The files of {name!r} are damaged, or not all there: config.json, safetensors, the "
        "tokenizer's and the image processor's. Fetch them again."
    )
