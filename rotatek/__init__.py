"""RotateK: rotate the visual Keys, keep the channels that matter, attend to those directly.

Symbols used throughout:
    B batch, T queries of one step, N visual tokens, M prompt and text tokens
    Hq query heads, Hkv kv heads, G = Hq / Hkv, d head width
    k kept Key channels, r kept Value channels, W = 32 window of recent queries
    K, V Keys (post-RoPE) and Values; Q_W window queries; mu mean visual Key
    C centred covariance of K; sigma query weights; C_q = (sigma sigma^T) * C
    R_k orthonormal basis of C_q's top k eigenvectors; K~ = (K - mu) R_k; q~ = q R_k

Public names load on first use, so that importing the package stays instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rotatek.attention import prepare
    from rotatek.cache.compressed import RotateKCache
    from rotatek.channels import ChannelMethod, Full, RotateK, SparK, ThinK
    from rotatek.engine import Engine
    from rotatek.inputs import make_request, open_image
    from rotatek.models import load
    from rotatek.settings import BASELINE, Settings
    from rotatek.tokens import FastV, KeepAll, TokenPruner, VisionZip

__version__ = "0.1.0"
__all__ = [
    "BASELINE",
    "ChannelMethod",
    "Engine",
    "FastV",
    "Full",
    "KeepAll",
    "RotateK",
    "RotateKCache",
    "Settings",
    "SparK",
    "ThinK",
    "TokenPruner",
    "VisionZip",
    "load",
    "make_request",
    "open_image",
    "prepare",
]

_HOMES: Final = {
    "BASELINE": "rotatek.settings",
    "ChannelMethod": "rotatek.channels",
    "Engine": "rotatek.engine",
    "FastV": "rotatek.tokens",
    "Full": "rotatek.channels",
    "KeepAll": "rotatek.tokens",
    "RotateK": "rotatek.channels",
    "RotateKCache": "rotatek.cache.compressed",
    "Settings": "rotatek.settings",
    "SparK": "rotatek.channels",
    "ThinK": "rotatek.channels",
    "TokenPruner": "rotatek.tokens",
    "VisionZip": "rotatek.tokens",
    "load": "rotatek.models",
    "make_request": "rotatek.inputs",
    "open_image": "rotatek.inputs",
    "prepare": "rotatek.attention",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
