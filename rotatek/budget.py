"""KV bytes: nominal shares as the paper counts them, and the bytes of live tensors.

Arithmetic only. Nominal KV = keep_tokens * (keep_channels + keep_values) / 2 of the visual cache:
it leaves out the text, the bases, masks and unpruned layers. Actual bytes leave out nothing.
"""

from collections.abc import Iterable

from torch import Tensor

from rotatek.config import Settings


def nominal_kv(settings: Settings) -> float:
    """Nominal share of the uncompressed visual KV cache that `settings` keep, in (0, 1]."""
    keep_tokens = settings.keep_tokens if settings.tokens != "none" else 1.0
    keep_channels = settings.keep_channels if settings.channels != "full" else 1.0
    rotated = settings.channels == "rotatek" and settings.values == "rotate"
    keep_values = settings.keep_values if rotated else 1.0
    return keep_tokens * (keep_channels + keep_values) / 2


def matched_keep_tokens(nominal: float, keep_channels: float, keep_values: float = 1.0) -> float:
    """Token share that meets a nominal budget at the given channel shares, capped at 1."""
    return min(1.0, 2 * nominal / (keep_channels + keep_values))


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the unique storages behind `tensors`: what is really held."""
    seen: dict[tuple[str, int], int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        seen[(str(tensor.device), storage.data_ptr())] = storage.nbytes()
    return sum(seen.values())


def full_kv_bytes(layers: int, kv_heads: int, width: int, tokens: int, itemsize: int) -> int:
    """Bytes of an uncompressed cache: Keys and Values of every token in every layer."""
    return 2 * layers * kv_heads * width * tokens * itemsize
