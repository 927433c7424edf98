"""How the variation of Keys and Values is spread over channels, layer by layer.

Of every head's covariance around its mean: the share of the energy that the largest d/8, d/4 and
d/2 eigenvalues hold; the effective rank, exp(entropy of the eigenvalues as shares), over d; the
mean's share of all energy, which a method that does not centre has to store; and how many times the
median channel the loudest one is. A layer's figures are means over its heads.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rotatek import load
from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.prefill import empty_cache, fill, plan_for
from rotatek.evaluation.real_keys import Spectrum, read, write
from rotatek.inputs.request import make_request, open_image
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import KeepAll

EMBEDDED: Final = ("pocket", "pocket-smol")
PICTURE: Final = Path("assets/examples/receipt.png")
QUESTION: Final = "What is the total?"


def spectrum(states: Tensor, lengths: Tensor) -> tuple[float, ...]:
    """The figures of `Spectrum` behind `part`; states [1, Hkv, N, d] of lengths [1] tokens."""
    numbers = states[0, :, : int(lengths[0])].double()
    d, mean = numbers.shape[-1], numbers.mean(1, keepdim=True)
    centred = numbers - mean
    share = torch.linalg.eigvalsh(centred.mT @ centred).flip(-1).clamp(min=0)
    share = share / share.sum(-1, keepdim=True).clamp(min=1e-300)
    entropy = -torch.special.xlogy(share, share).sum(-1)
    held = [float(share[:, : d // part].sum(-1).mean()) for part in (8, 4, 2)]
    centre = mean.square().sum((1, 2)) / numbers.square().sum(-1).mean(1)
    level = numbers.square().mean(1).sqrt()
    loudest = level.amax(-1) / level.median(-1).values
    found = float(entropy.exp().mean()) / d, *held, float(centre.mean()), float(loudest.mean())
    return tuple(round(one, 4) for one in found)


@dataclass
class _Taken:
    """A recorder that keeps every layer's figures."""

    model: str
    rows: list[Spectrum] = field(default_factory=list)

    def record(self, states: LayerStates) -> None:
        """Take one layer's."""
        tokens = int(states.lengths[0])
        for part, numbers in (("keys", states.keys), ("values", states.values)):
            own = spectrum(numbers, states.lengths)
            self.rows.append(Spectrum(self.model, tokens, states.layer, part, *own))

    def step(self, layer: int, query: Tensor) -> None:
        """Nothing is taken of decoding."""


@dataclass
class Spectra:
    """Rows of all models that a folder has."""

    rows: list[Spectrum] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> "Spectra":
        """Those of a file; none where there is no file."""
        return cls(read(path, Spectrum))

    def save(self, path: Path) -> None:
        """Write them as a tidy table."""
        write(path, self.rows, Spectrum._fields)

    def has(self, model: str, tokens: int) -> bool:
        """Whether a model was measured on so many tokens."""
        return any((row.model, row.tokens) == (model, tokens) for row in self.rows)

    @torch.inference_mode()
    def measure(
        self, model: PreTrainedModel, name: str, ids: Tensor, before: int, context: int
    ) -> None:
        """A text model's, of `context` tokens of ids [1, L] behind `before` others.

        The embedded models' are measured beside the first one, on a picture.
        """
        visual = torch.zeros_like(ids, dtype=torch.bool)
        visual[:, before : before + context] = True
        taken = _Taken(name)
        cache = RotateKCache(model, {"visual": visual}, Settings.of(channels="full"),
                             recorder=taken)  # fmt: skip
        model(input_ids=ids, **with_cache(model, cache), use_cache=True, logits_to_keep=1)
        self.rows += taken.rows
        known = {row.model for row in self.rows}
        for embedded in EMBEDDED:
            if embedded not in known:
                self.rows += of_picture(embedded)

    def tables(self) -> dict[str, Any]:
        """Means over layers, one row a model and part, and the two ends of the layers."""
        found: dict[str, Any] = {}
        for model, tokens, part in dict.fromkeys((r.model, r.tokens, r.part) for r in self.rows):
            own = [r for r in self.rows if (r.model, r.tokens, r.part) == (model, tokens, part)]
            found[f"{model}, {tokens:,} tokens, {part}"] = {
                "effective rank / d": _mean(r.rank for r in own),
                "least": min(r.rank for r in own), "most": max(r.rank for r in own),
                "in d/8": _mean(r.eighth for r in own), "in d/4": _mean(r.quarter for r in own),
                "in d/2": _mean(r.half for r in own), "mean's share": _mean(r.mean for r in own),
                "loudest channel": _mean(r.loudest for r in own),
            }  # fmt: skip
        return {"spectra": found}


def of_picture(name: str) -> list[Spectrum]:
    """An embedded model's, of a picture that is committed."""
    vlm = load(name)
    prompt = vlm.prompt(make_request(open_image(PICTURE), QUESTION, 4))
    embedded, settings = vlm.embed(prompt), Settings.of(channels="full", cache_dtype="int8")
    plan, taken = plan_for(vlm, embedded, KeepAll()), _Taken(name)
    fill(vlm, embedded, plan, [empty_cache(vlm, embedded, settings, plan, taken)], timed=False)
    return taken.rows


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return round(sum(found) / len(found), 4)
