"""`RotateKCache`: the cache a caller hands to `generate`.

inputs = processor(...)                                   # a prompt with images
cache = RotateKCache(model, inputs, Settings(channels=RotateK(keep=0.25)))
model.generate(**inputs, past_key_values=cache)
"""

import os
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from rotatek.attention import decoder_layers, prepare
from rotatek.cache import stored
from rotatek.cache.bytes import ByteCount, count_bytes, dynamic_bytes
from rotatek.cache.filling import Filling, PlannedLayer, Recorder
from rotatek.cache.layer import RewindableCache
from rotatek.cache.metrics import OutputMetrics
from rotatek.cache.plan import TokenPlan, layout_of
from rotatek.errors import CacheNotStorable, ModeUnsupported
from rotatek.settings import Settings


class RotateKCache(RewindableCache):
    """A KV cache whose visual part is compressed at the end of prefill.

    Args:
        model: a loaded vision-language model; it is prepared on first use.
        inputs: the prompt as the processor made it: `input_ids` [B, L], and `attention_mask` where
            the batch is padded; or `visual` [B, L] bool in place of `input_ids`.
        settings: which tokens and channels stay.
        recorder: sees every layer's visual tokens before they are compressed, then each query.
        metrics: the model's output metrics, to be kept between caches; else computed when needed.
        plan: an existing token plan, where several caches share one prefill.

    Raises:
        ModelUnsupported: for a model that cannot be prepared.
        CalibrationUnusable: for a calibration file of another model, or none at all.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        inputs: Mapping[str, Tensor],
        settings: Settings | None = None,
        *,
        recorder: Recorder | None = None,
        metrics: OutputMetrics | None = None,
        plan: TokenPlan | None = None,
    ) -> None:
        settings = settings or Settings()
        prepare(model)
        if settings.pruning.stage == "encoder" and "visual" not in inputs:
            raise ModeUnsupported(
                f"{settings.tokens.label} acts before the language model: embed the prompt with "
                "the model's `embed(prompt, settings.tokens)` and hand its `inputs()` to the cache."
            )
        count = len(decoder_layers(model))
        method = settings.channels
        filling = Filling(method, recorder, metrics or OutputMetrics(), method.bases(count))
        plan = plan or TokenPlan(layout_of(model, inputs), settings.pruning, count)
        self._begin(model, settings, plan, filling)

    def _begin(
        self, model: PreTrainedModel, settings: Settings, plan: TokenPlan, filling: Filling
    ) -> None:
        """Empty layers of a plan."""
        self._model = weakref.ref(model)
        self.settings, self.plan = settings, plan
        self.notes: dict[str, Any] = {}
        super().__init__(layers=[PlannedLayer(i, plan, filling) for i in range(plan.layers)])

    def save(self, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> int:
        """Write the filled cache to a file, packed without loss; at once, or not at all.

        Args:
            path: where; a file that is there is replaced when the new one is complete.
            notes: plain values and tensors to be kept beside; `load` gives them back as `notes`.

        Returns:
            the file's bytes.

        Raises:
            CacheNotStorable: where no prefill has run, or a store holds what cannot be written.
            CompressorMissing: without the package zstandard.
            CacheFileUnwritable: where the file cannot be made.
        """
        model = self._model()
        if model is None or not all(layer.is_filled for layer in self.layers):
            raise CacheNotStorable
        content = {
            "settings": self.settings.without_paths().as_dict(),
            "plan": self.plan.state(),
            "layers": [layer.state() for layer in self.layers],
            "notes": dict(notes or {}),
        }
        return stored.write(path, model, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: PreTrainedModel) -> "RotateKCache":
        """A cache as `save` wrote it, on the model's devices: decoding goes on token for token.

        Args:
            path: of the file.
            model: the one that filled it; it is prepared on first use.

        Raises:
            FileUnreadable: where there is no such file.
            CacheFileForeign: for a file of something else.
            CacheFileVersion: for one of another version.
            CacheFileDamaged: for one that is not what was written.
            CacheOfAnotherModel: for one that another model filled.
            CompressorMissing: without the package zstandard.
            SettingError: where its method is not installed here.
        """
        prepare(model)
        places = [next(layer.parameters()).device for layer in decoder_layers(model)]
        content = stored.read(path, model, places[0])
        cache = cls.__new__(cls)
        with stored.same_version():
            settings = Settings.from_dict(content["settings"])
            plan = TokenPlan.finished(settings.pruning, len(places), content["plan"])
            cache._begin(model, settings, plan, Filling(settings.channels, None, OutputMetrics()))
            cache.notes = content["notes"]
            for layer, state, device in zip(cache.layers, content["layers"], places, strict=True):
                layer.restore(stored.moved(state, device))
        return cache

    def make_growing(self) -> None:
        """Let the text grow again after `make_static`: no graph writes here any more, and nobody
        looks on."""
        for layer in self.layers:
            layer.text.static, layer.filling.recorder = False, None

    def advance(self) -> None:
        """Count one token that a graph's replay has added."""
        for layer in self.layers:
            layer.logical += 1
            layer.text.longest += 1

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(part, tensor) of everything the cache holds."""
        for layer in self.layers:
            yield from layer.tensors()

    def bytes(self) -> ByteCount:
        """Live bytes by part, and their total."""
        return count_bytes(list(self.tensors()))

    def close(self) -> None:
        """Drop every tensor."""
        for layer in self.layers:
            layer.reset()


def cache_bytes(cache: Cache) -> ByteCount:
    """Live bytes of any cache: compressed, or plain transformers'."""
    return cache.bytes() if isinstance(cache, RotateKCache) else dynamic_bytes(cache)


def release(cache: Cache) -> None:
    """Drop every tensor of any cache."""
    if isinstance(cache, RotateKCache):
        cache.close()
    else:
        cache.layers.clear()
