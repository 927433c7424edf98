"""What one column did, as plain numbers: the fields of `--json`, of the API, and of exports."""

from typing import Any, Final

from rotatek.engine.events import Finished, Prefilled
from rotatek.methods.settings import Settings

METRICS: Final = (
    "kv_bytes", "kv_bytes_full", "nominal_kv", "prefill_ms", "agreement", "first_divergence", "kl",
    "confidence", "stopped",
)  # fmt: skip


def report(
    settings: Settings, filled: Prefilled | None, done: Finished | None, answer: str = ""
) -> dict[str, Any]:
    """One column of a comparison; what is not known yet is None.

    Bytes are live when the answer ends, times are milliseconds; `METRICS` are those of
    `Engine.compare`.

    Args:
        settings: the column's.
        filled: its `Prefilled` event.
        done: its `Finished` event.
        answer: what it has said so far.
    """
    metrics = {} if done is None else done.metrics
    return {
        "answer": answer if done is None else done.answer,
        "new_tokens": None if done is None else done.new_tokens,
        "visual_tokens": None if filled is None else filled.visual_tokens,
        "visual_tokens_kept": None if filled is None else filled.visual_kept,
        **{name: metrics.get(name) for name in METRICS},
        "nominal_kv": settings.nominal_kv,
        "kv_bytes_by_part": metrics.get("bytes"),
        "decode_ms_per_token": None if done is None else done.decode_ms_per_token,
        "attention": None if filled is None else filled.attention,
        "settings": settings.as_dict(),
    }
