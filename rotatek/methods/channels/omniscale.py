"""OScaR's form of quantisation (arXiv 2605.19660): a rotation and each token's norm, then groups.

Keys and Values are turned by a Hadamard matrix, which spreads loud channels. A turned Key is
divided by its norm, kept in float16, so that loud tokens do not widen the groups of a channel. Both
are then stored as `kivi` stores them: Keys a channel at a time in groups of 32 tokens, Values a
token at a time in groups of 32 channels. Nothing is calibrated.
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from kernels.reference import Narrow
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.kivi import Kivi, KiviStore
from rotatek.methods.channels.quantised_method import LARGEST, hadamard


@dataclass
class OmniScaledStore(KiviStore):
    """beside: also key_norm, float16 [B, Hkv, N, 1]."""

    def read(self) -> Narrow:
        """Rebuild dense Keys and Values [B, Hkv, N, d]."""
        seen, back = super().read(), hadamard(self.width, self.visual.keys.device)
        keys = seen.keys.float() * self.beside["key_norm"].float() @ back
        return seen._replace(
            keys=keys.to(self.dtype), values=(seen.values.float() @ back).to(self.dtype)
        )


@dataclass(frozen=True)
class OmniScaled(Kivi):
    """KIVI's groups behind a Hadamard rotation and each Key's norm."""

    name: ClassVar[str] = "omniscale"
    label: ClassVar[str] = "OScaR"
    summary: ClassVar[str] = (
        "KIVI's groups behind a Hadamard rotation, Keys divided by each token's norm."
    )
    colour: ClassVar[str] = "#c2608a"
    marker: ClassVar[str] = "star-diamond"
    dash: ClassVar[str] = "dot"

    def compress(self, states: LayerStates) -> OmniScaledStore:
        """Turn Keys and Values, take out the Keys' norms, and quantise as KIVI does."""
        turn = hadamard(states.keys.shape[-1], states.keys.device)  # its own inverse
        keys, values = states.keys.float() @ turn, states.values.float() @ turn
        norms = keys.norm(dim=-1, keepdim=True).clamp(min=2.0**-14, max=LARGEST).half()
        dtype = states.keys.dtype
        keys, values = (keys / norms.float()).to(dtype), values.to(dtype)
        stored = super().compress(replace(states, keys=keys, values=values, made={}))
        assert isinstance(stored, KiviStore)
        given = {each.name: getattr(stored, each.name) for each in fields(stored)}
        return OmniScaledStore(**given | {"beside": stored.beside | {"key_norm": norms}})
