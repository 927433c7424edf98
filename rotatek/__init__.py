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
    from rotatek.bridge.attention import prepare as prepare
    from rotatek.cache.rotatek_cache import RotateKCache as RotateKCache
    from rotatek.engine.engine import Engine as Engine
    from rotatek.inputs.images import open_image as open_image
    from rotatek.inputs.messages import PICTURE as PICTURE
    from rotatek.inputs.request import make_request as make_request
    from rotatek.inputs.sampling import Sampling as Sampling
    from rotatek.methods.channels import ChannelMethod as ChannelMethod
    from rotatek.methods.channels import Full as Full
    from rotatek.methods.channels import RotateK as RotateK
    from rotatek.methods.channels import SparK as SparK
    from rotatek.methods.channels import ThinK as ThinK
    from rotatek.methods.settings import BASELINE as BASELINE
    from rotatek.methods.settings import Settings as Settings
    from rotatek.methods.tokens import FastV as FastV
    from rotatek.methods.tokens import KeepAll as KeepAll
    from rotatek.methods.tokens import TokenPruner as TokenPruner
    from rotatek.methods.tokens import VisionZip as VisionZip
    from rotatek.models import load as load
    from rotatek.pictures import Pictures as Pictures

__version__ = "0.1.0"

_NAMES: Final = {  # public names by their modules
    "bridge.attention": ("prepare",),
    "cache.rotatek_cache": ("RotateKCache",),
    "engine.engine": ("Engine",),
    "inputs.images": ("open_image",),
    "inputs.messages": ("PICTURE",),
    "inputs.request": ("make_request",),
    "inputs.sampling": ("Sampling",),
    "methods.channels": ("ChannelMethod", "Full", "RotateK", "SparK", "ThinK"),
    "methods.settings": ("BASELINE", "Settings"),
    "methods.tokens": ("FastV", "KeepAll", "TokenPruner", "VisionZip"),
    "models": ("load",),
    "pictures": ("Pictures",),
}
_HOMES: Final = {name: f"rotatek.{module}" for module, names in _NAMES.items() for name in names}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
