"""OScaR's form of quantisation (arXiv 2605.19660): a rotation and each token's norm, then groups.

Keys and Values are turned by a Hadamard matrix, which spreads loud channels. A turned Key is
divided by its norm, kept in float16, so that loud tokens do not widen the groups of a channel. Both
are then stored as `kivi` stores them: Keys a channel at a time in groups of 32 tokens, Values a
token at a time in groups of 32 channels. Nothing is calibrated.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.kivi import Kivi
from rotatek.methods.channels.rebuilt import LARGEST, RebuiltStore, hadamard


@dataclass(frozen=True)
class OmniScaled(Kivi):
    """KIVI's groups behind a Hadamard rotation and each Key's norm."""

    name, label = "omniscale", "OScaR"
    summary = "KIVI's groups behind a Hadamard rotation, Keys divided by each token's norm."
    colour = "#c2608a"

    def compress(self, states: LayerStates) -> RebuiltStore:
        """Turn Keys and Values, take out the Keys' norms, and quantise as KIVI does.

        beside: also key_norm, float16 [B, Hkv, N, 1].
        """
        turn = hadamard(states.keys.shape[-1], states.keys.device)  # its own inverse
        keys, values = states.keys.float() @ turn, states.values.float() @ turn
        norms = keys.norm(dim=-1, keepdim=True).clamp(min=2.0**-14, max=LARGEST).half()
        dtype = states.keys.dtype
        keys, values = (keys / norms.float()).to(dtype), values.to(dtype)
        store = super().compress(replace(states, keys=keys, values=values, made={}))
        store.beside["key_norm"] = norms
        return store

    def rebuild(self, store: RebuiltStore) -> tuple[Tensor, Tensor]:
        """KIVI's numbers times the norms, turned back."""
        keys, values = super().rebuild(store)
        back = hadamard(store.width, keys.device)
        return keys.float() * store.beside["key_norm"].float() @ back, values.float() @ back
