"""How events are wired: what is shown while one runs, and which queue it waits in."""

from typing import Any, Final

MODEL_WORK: Final[dict[str, Any]] = {"concurrency_id": "model", "concurrency_limit": 4}
QUIET: Final[dict[str, Any]] = {"show_progress": "hidden", "api_visibility": "private"}
DRAWING: Final[dict[str, Any]] = QUIET | {
    "trigger_mode": "always_last",
    "concurrency_id": "drawing",
    "concurrency_limit": 4,
}
