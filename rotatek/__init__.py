"""RotateK: rotate the visual Keys, keep the channels that matter, attend to those directly.

Symbols used throughout:
    B batch, T queries of one step, N visual tokens, M prompt and text tokens
    Hq query heads, Hkv Key heads, G = Hq / Hkv, d head width
    k stored Key channels, r stored Value channels, W = 32 window of recent queries
    K, V Keys (post-RoPE) and Values; Q_W window queries; mu mean visual Key
    C centred covariance of K; sigma query weights; C_q = (sigma sigma^T) * C
    R_k orthonormal basis of C_q's top k eigenvectors; K~ = (K - mu) R_k; q~ = q R_k

Public names load on first use, so that importing the package stays instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rotatek.bridge.attention import prepare
    from rotatek.cache.rotatek_cache import RotateKCache
    from rotatek.engine.engine import Engine
    from rotatek.inputs.images import open_image
    from rotatek.inputs.messages import PICTURE
    from rotatek.inputs.request import make_request
    from rotatek.inputs.sampling import Sampling
    from rotatek.methods.channels import ChannelMethod, Full, RotateK, SparK, ThinK
    from rotatek.methods.settings import BASELINE, Settings
    from rotatek.methods.tokens import FastV, KeepAll, TokenPruner, VisionZip
    from rotatek.models import load
    from rotatek.pictures import Pictures

__version__ = "0.1.0"
__all__ = [
    "BASELINE",
    "ChannelMethod",
    "Engine",
    "FastV",
    "Full",
    "KeepAll",
    "PICTURE",
    "Pictures",
    "RotateK",
    "RotateKCache",
    "Sampling",
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
    "BASELINE": "rotatek.methods.settings",
    "ChannelMethod": "rotatek.methods.channels",
    "Engine": "rotatek.engine.engine",
    "FastV": "rotatek.methods.tokens",
    "Full": "rotatek.methods.channels",
    "KeepAll": "rotatek.methods.tokens",
    "PICTURE": "rotatek.inputs.messages",
    "Pictures": "rotatek.pictures",
    "RotateK": "rotatek.methods.channels",
    "RotateKCache": "rotatek.cache.rotatek_cache",
    "Sampling": "rotatek.inputs.sampling",
    "Settings": "rotatek.methods.settings",
    "SparK": "rotatek.methods.channels",
    "ThinK": "rotatek.methods.channels",
    "TokenPruner": "rotatek.methods.tokens",
    "VisionZip": "rotatek.methods.tokens",
    "load": "rotatek.models",
    "make_request": "rotatek.inputs.request",
    "open_image": "rotatek.inputs.images",
    "prepare": "rotatek.bridge.attention",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
