"""`RotateKCache`: the cache a caller hands to `generate`.

inputs = processor(...)                                   # a prompt with images
cache = RotateKCache(model, inputs, Settings(channels=RotateK(keep=0.25)))
model.generate(**inputs, past_key_values=cache)
"""

from collections.abc import Iterator, Mapping

from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from rotatek.attention import decoder_layers, prepare
from rotatek.cache.bytes import ByteCount, count_bytes, dynamic_bytes
from rotatek.cache.filling import Filling, PlannedLayer, Recorder
from rotatek.cache.layer import RewindableCache
from rotatek.cache.metrics import OutputMetrics
from rotatek.cache.plan import TokenPlan, layout_of
from rotatek.errors import ModeUnsupported
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
        self.settings = settings
        self.plan = plan or TokenPlan(layout_of(model, inputs), settings.pruning, count)
        method = settings.channels
        filling = Filling(method, recorder, metrics or OutputMetrics(), method.bases(count))
        super().__init__(layers=[PlannedLayer(i, self.plan, filling) for i in range(count)])

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
