"""A checkpoint from the hub: fetched with progress, kept, and refused in one sentence."""

import shutil
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from rotatek import errors
from rotatek.models import load
from rotatek.models.download import Progress, downloading, fetch
from tests.hub import COMMIT, FILES


def test_a_checkpoint_is_fetched_once_with_progress(hub: ThreadingHTTPServer) -> None:
    progress = Progress()
    with downloading(progress):
        folder = Path(fetch("org/small"))
    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert progress.done == progress.total == 3_000_000 + len(FILES["config.json"])
    hub.shutdown()
    hub.server_close()
    assert fetch("org/small") == str(folder)  # kept, and the hub is not needed any more


@pytest.mark.parametrize(
    "name, kind, says",
    [
        ("org/gated", errors.ModelGated, "Accept its terms"),
        ("org/none", errors.WeightsMissing, "Check the spelling"),
        ("no such name at all", errors.WeightsMissing, "Check the spelling"),
        ("org/broken", errors.HubUnreachable, "Check the connection"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    hub: ThreadingHTTPServer, name: str, kind: type[errors.UserError], says: str
) -> None:
    for attempt in (fetch, load):
        with pytest.raises(kind, match=says) as caught:
            attempt(name)
        assert name in caught.value.message and "\n" not in caught.value.message


def test_a_commit_that_is_kept_whole_needs_no_hub(
    hub: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A registered model is pinned to a commit; without a network there is no wait for it."""
    folder = Path(fetch("org/small", COMMIT))
    hub.shutdown()
    hub.server_close()
    began = time.monotonic()
    assert fetch("org/small", COMMIT) == str(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(errors.HubUnreachable, match="Check the connection"):
        fetch("org/small", COMMIT)
    assert time.monotonic() - began < 5  # the client would ask six times, and log each
    assert not caplog.records


def test_a_full_disk_is_told_before_a_byte_is_fetched(
    hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=50_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(errors.StorageFull, match="set HF_HOME to a folder of another disk"):
        fetch("org/small")
