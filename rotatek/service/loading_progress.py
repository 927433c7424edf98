"""Work that takes a while, done in a thread; meanwhile the visitor reads how far it is."""

import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Final

from rotatek.models.download import GB, Progress, downloading

REPORT_S: Final = 0.25  # between two reports of the progress
MB: Final = 1_000_000


def with_progress(
    work: Callable[[], object], label: str, progress: Progress | None = None
) -> Iterator[str]:
    """Do `work`, which may load a model, and tell how far it is.

    Args:
        work: done in a thread, while sentences are yielded.
        label: the model's.
        progress: of its download, which another visitor may have started.

    Raises:
        Exception: the failure of `work`, raised when it has ended.
    """
    failed: list[Exception] = []
    progress = progress or Progress()

    def run() -> None:
        try:
            work()
        except Exception as error:
            failed.append(error)

    with downloading(progress):
        thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    while thread.is_alive():
        yield _progress_line(label, progress)
        thread.join(REPORT_S)
    if failed:
        raise failed[0]


def _progress_line(label: str, progress: Progress) -> str:
    done, total = progress.done, progress.total
    if not total or done >= total:
        return f"Loading {label}…"
    come = f"{done / GB:.1f} of {total / GB:.1f} GB"
    if total < GB:
        come = f"{done // MB} of {total // MB} MB"
    return f"Downloading {label}: {come}…"
