"""`RotateKCache`: the cache a caller hands to `generate`.

inputs = processor(...)                                   # a prompt with images
cache = RotateKCache(model, inputs, Settings(channels=RotateK(keep=0.25)))
model.generate(**inputs, cache=cache)
"""

import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from kernels.reference import Packed
from rotatek.bridge.attention import accepted
from rotatek.bridge.layers import (
    among_states,
    attention_layers,
    attention_of,
    change,
    decoder_layers,
    device_of,
    forget_states,
    key_layers,
    restore,
    state_layers,
    state_of,
    tensors_of,
)
from rotatek.bridge.scope import SCOPE
from rotatek.cache import cache_file
from rotatek.cache.call_mask import TEXT, check_further, check_prompt
from rotatek.cache.layer import AttendingCache, not_assisted
from rotatek.cache.measures import ByteCount, count_bytes, dynamic_bytes, storage_bytes
from rotatek.cache.output_metric import held_metrics
from rotatek.cache.prefill_layer import PrefillCompressor, PrefillLayer, Recorder
from rotatek.cache.step_graph import CaptureFailed, StepGraph, kind_of
from rotatek.cache.text_buffer import TextBuffer
from rotatek.cache.token_plan import (
    TokenPlan,
    another_prompt,
    is_one_of,
    layout_of,
    visual_ids,
)
from rotatek.errors import CacheNotStorable, ModeUnsupported, SettingError
from rotatek.methods.settings import USUAL, Settings

log = logging.getLogger(__name__)


class RotateKCache(AttendingCache):
    """A KV cache whose visual part is compressed at the end of prefill.

    On a GPU the decoding steps of `generate` are replayed as a CUDA graph. With `graph` False they
    are launched kernel by kernel with the same capacity, so that kernels split their work in the
    same way, and the tokens are the same.

    Args:
        model: a loaded vision-language model, or a wrapper around one; hooks are put on it once,
            which do nothing in other calls.
        inputs: the prompt as the processor made it: `input_ids` [B, L], and `attention_mask` where
            the batch is padded; or `visual` [B, L] bool in place of `input_ids`. `generate` may
            repeat its rows, for beams or several samples.
        settings: token pruner and channel method; `USUAL` where None.
        recorder: receives every layer's visual tokens before they are compressed.
        plan: an existing token plan, where several caches share one prefill.

    Raises:
        ModelUnsupported: for one whose attention is not computed here.
        ModeUnsupported: for weights by general questions without a plan, as `generate` has none.
        SettingError: for inputs or settings of another form.
        CalibrationUnusable: for a calibration file of another model, or a missing one.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        inputs: Mapping[str, Tensor],
        settings: Settings | None = None,
        *,
        recorder: Recorder | None = None,
        plan: TokenPlan | None = None,
    ) -> None:
        settings = USUAL if settings is None else settings
        if not isinstance(settings, Settings):
            raise SettingError("settings", "a Settings, as Settings.of(smaller=8) makes", settings)
        if plan is None and settings.channels.asks_generally:
            raise ModeUnsupported(
                "General questions are read by an `Engine` or `Pictures`, not by `generate`. Take "
                "another `weighting`."
            )
        model = accepted(model)
        _refuse_shards(model, settings)
        count = len(attention_layers(model))
        plan = plan or TokenPlan(layout_of(model, inputs), settings.pruning, count)
        if settings.pruning.stage == "encoder" and "visual" not in inputs:
            raise ModeUnsupported(
                f"{settings.tokens.label} acts before the language model: embed the prompt with "
                "the model's `embed(prompt, settings.tokens)` and hand its `inputs()` to the cache."
            )
        self._begin(model, settings, plan, settings.channels.bases(count), recorder)
        self._by_ids = "visual" not in inputs

    def _begin(
        self,
        model: PreTrainedModel,
        settings: Settings,
        plan: TokenPlan,
        bases: Sequence[Tensor] | None,
        recorder: Recorder | None = None,
    ) -> None:
        """Empty layers of a plan."""
        self._model = weakref.ref(model)
        self.settings, self.plan = settings, plan
        method, pruner = settings.channels, settings.pruning
        self.filling = filling = PrefillCompressor(method, recorder, bases, pruner)
        self._visual = visual_ids(model.config)
        self.notes: Any = None
        self._by_ids = True  # whether visual tokens are known by their ids
        self._columns: Tensor | None = None  # see `call_mask`; None where the plan tells them
        self._whole: bool | None = None  # whether the prompt has no padding, once it was asked
        keys = [PrefillLayer(number, plan, filling) for number in range(plan.layers)]
        super().__init__(layers=among_states(model, keys))
        self._steps = StepGraph()

    def run(
        self,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        may_replay: bool = True,
    ) -> Any:
        """The model's forward pass on this cache: one-token steps replayed, others run normally.
        may_replay: whether nothing of the model has to see every call."""
        if not self._filled:
            return forward(*args, **kwargs)
        kind = self._replayable(kwargs) if may_replay and not args else None
        if kind is None:
            self._steps.forget()
            self.make_growing()
            return forward(*args, **kwargs)
        try:
            return self._steps.step(kind, forward, self, kwargs)
        except CaptureFailed:
            log.warning("a step could not be captured and is launched by kernel", exc_info=True)
            self.graph = False
            return forward(**kwargs)

    def meet(self, model: PreTrainedModel, given: Mapping[str, Any]) -> None:
        """See a call's arguments before the model, or a part of it, does.

        Raises:
            ModeUnsupported: for assisted decoding, another model or another prompt, pictures of a
                later turn, masks that cannot be honoured, and behind a call that broke off.
        """
        owner, ids, mask = self._model(), given.get("input_ids"), given.get("attention_mask")
        if owner is None or (
            model is not owner
            and owner not in {*model.modules()}
            and model not in {*owner.modules()}
        ):
            raise ModeUnsupported(
                "The cache was made for another model. Make one for this model, or load it anew."
            )
        layers, self.filling.real = key_layers(self), None
        if len({layer.logical for layer in layers}) > 1 or self.filling.unfinished:
            raise ModeUnsupported(
                "An earlier call with this cache broke off. Call its `reset`, and give the whole "
                "prompt again."
            )
        if self._filled:
            self.filling.finish()
            several = ids if ids is not None and ids.shape[1] > 1 else None
            if several is not None and is_one_of(several, self._visual).any():
                raise ModeUnsupported(
                    "A filled cache takes no further pictures. Make one for the whole chat."
                )
            if not torch.is_inference_mode_enabled():
                for layer in layers:
                    layer.text.leave_inference()
                for layer in state_layers(self):
                    change(layer, lambda t: t.clone() if t.is_inference() else t)
            if torch.is_grad_enabled():
                self._check_gradients()
            rows = given.get("inputs_embeds") if ids is None else ids
            tokens = None if rows is None else rows.shape[1]
            if mask is not None and not self._shows_all(mask, tokens):
                found = check_further(layers, self._columns_now(), mask, tokens)
                if found is not None:
                    self._columns, self.filling.real = found
            return
        if not self.plan.is_open:
            self._begin_again(given)
        kept = given.get("logits_to_keep")
        drafted = kept - 1 if isinstance(kept, int) else 0
        if drafted > 0 and ids is not None and ids.shape[1] == self.plan.length + drafted:
            raise not_assisted()
        check_prompt(self.plan, mask)
        if self._by_ids and ids is not None and not self.plan.is_of(is_one_of(ids, self._visual)):
            raise another_prompt()

    def _filler(self) -> PreTrainedModel:
        """The model that has filled this cache, which is complete then; or `CacheNotStorable`."""
        model = self._model()
        if model is None:
            raise CacheNotStorable(
                "The model of this cache is gone, without which it cannot be written or copied. "
                "Keep the model as long as the cache."
            )
        if not self._filled:
            raise CacheNotStorable
        self.filling.finish()
        return model

    def _shows_all(self, mask: Any, tokens: int | None) -> bool:
        """Whether nothing was ever hidden, and a mask hides nothing: a usual step's one look at the
        device, where `check_further` takes ten launches, 4 % of a 7B model's step."""
        if self._columns is not None or not isinstance(mask, Tensor):
            return False
        if self._whole is None:
            self._whole = bool(self.plan.prompt.stays[:, : self.plan.logical].all())
        layer = key_layers(self)[0]
        shape = len(layer.text.lengths), layer.logical + (tokens or 0)
        return self._whole and mask.shape == shape and bool(mask.all())

    def _columns_now(self) -> Tensor:
        """The kinds of all columns of a mask so far, [B, n] int8."""
        layer, known = key_layers(self)[0], self._columns
        if known is None:
            prompt = self.plan.prompt.repeated(len(layer.text.lengths))
            known = prompt.stays.to(torch.int8) + (prompt.stays & prompt.visual)  # see `call_mask`
            known = known[:, : self.plan.logical]
        return pad(known, (0, layer.logical - known.shape[1]), value=TEXT)

    def _select(self, how: Callable[[Tensor], Tensor]) -> None:
        if self._filled:
            self.filling.finish()
            self._columns = how(self._columns_now())
        super()._select(how)

    def _check_gradients(self) -> None:
        """Refuse a step with gradients where PyTorch would, in other words."""
        visual = key_layers(self)[-1].visual()
        packed = isinstance(visual, Packed) and visual.keys.data.device.type == "cpu"
        if packed or any(t.is_inference() for _, t in self.tensors()):
            why = "`smaller` packs it in few bits" if packed else "it was filled in inference mode"
            raise ModeUnsupported(
                f"Gradients do not go through this cache: {why}. Call the model under "
                "`torch.no_grad()`."
            )

    @property
    def _filled(self) -> bool:
        """Whether the prefill has been stored, in every layer."""
        filled = all(layer.text is not None for layer in key_layers(self))
        return filled and not self.filling.unfinished

    @property
    def only_grows(self) -> bool:
        """Whether it is filled, has no states or windows, and no graph writes to its text."""
        return (
            self.graph
            and not state_layers(self)
            and all(
                layer.text is not None and not layer.text.static and layer.span is None
                for layer in key_layers(self)
            )
        )

    def end(self) -> None:
        """The prefill is over, if this was one. What it leaves to be compressed waits for
        `filling.finish`: in a further call, or whatever reads the whole cache."""
        self.filling.end()
        self.plan.end()

    def reset(self) -> None:
        """Forget everything: the next call brings a prompt, this one again or another."""
        self.close()
        self.plan.end()

    def _begin_again(self, given: Mapping[str, Any]) -> None:
        """Make the plan of a prompt that comes behind `reset`."""
        model, names = self._model(), ("input_ids", "attention_mask")
        known = {name: given[name] for name in names if given.get(name) is not None}
        by_ids = self._by_ids and model is not None and "input_ids" in known
        layout = layout_of(model, known) if by_ids else self.plan.prompt
        self.plan = TokenPlan(layout, self.settings.pruning, self.plan.layers)
        for layer in key_layers(self):
            layer.plan = self.plan

    def _replayable(self, given: Mapping[str, Any]) -> tuple | None:
        """The kind of a call with one token; None for one that has to run normally."""
        watched = SCOPE.get().queries is not None
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or watched:
            return None
        kind = kind_of(given)
        if kind is None or self.filling.real is not None:
            return None
        device = given["input_ids"].device
        return kind if all(la.text.keys.device == device for la in key_layers(self)) else None

    def save(self, path: str | os.PathLike[str], notes: Any = None) -> int:
        """Write the filled cache to a file, compressed without loss. It is complete, or not there.

        Args:
            path: of the file; an existing one is replaced when the new one is complete.
            notes: plain values and tensors to store with it, as a mapping or a dataclass; `load`
                returns them as the cache's `notes`.

        Returns:
            the file's bytes.

        Raises:
            CacheNotStorable: where no prefill has run, the model is gone, or a store is of an
                unknown kind.
            CompressorMissing: without the package zstandard.
            CacheFileUnwritable: where the file cannot be written.
        """
        return self.draft(notes).write(path)

    def draft(self, notes: Any = None, *, owner: str | None = None) -> cache_file.Draft:
        """All that `save` would write, copied now: any thread may write it, without the device.
        owner: the model's `cache_file.identity`, where it is known already."""
        model = self._filler()
        content = {
            "settings": self.settings.without_paths().as_dict(),
            "plan": self.plan.state(),
            "layers": [
                (la.logical, la.store, la.text.trimmed(), la.span) for la in key_layers(self)
            ],
            "states": [state_of(layer) for layer in state_layers(self)],
            "columns": self._columns_now(),
            "notes": notes,
        }
        return cache_file.Draft(model, content, owner)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: PreTrainedModel,
        notes: type = dict,
        *,
        owner: str | None = None,
        **paths: str,
    ) -> "RotateKCache":
        """A cache as `save` wrote it, on the model's devices: decoding goes on token for token.

        Args:
            path: of the file.
            model: the one that filled it.
            notes: the dataclass of its notes, where they are one.
            owner: the model's `cache_file.identity`, where it is known already.
            paths: the files that its settings named, which are not in the file: `calibration`.

        Raises:
            CalibrationUnusable: without that very file.
            FileUnreadable: where there is no such file.
            CacheFileForeign: for a file of something else.
            CacheFileVersion: for one of another version.
            CacheFileDamaged: for one that was changed after it was written.
            CacheOfAnotherModel: for one that another model filled.
            CompressorMissing: without the package zstandard.
            SettingError: where its method is not installed here.
        """
        model = accepted(model)
        places = [device_of(layer) for layer in attention_layers(model)]
        content = cache_file.read(path, model, places[0], notes, owner)
        cache = cls.__new__(cls)
        with cache_file.same_version():
            settings = Settings.from_dict(content["settings"])
            plan = TokenPlan.finished(settings.pruning, len(places), content["plan"])
            settings = settings.with_options(**paths) if paths else settings
            cache._begin(model, settings, plan, settings.channels.bases(len(places)))
            cache.notes = content["notes"]
            layers = zip(key_layers(cache), content["layers"], places, strict=True)
            for layer, held, device in layers:
                held = held if device == places[0] else cache_file.moved(held, device)
                layer.logical, layer.store, layer.text, layer.span = held
            states = list(state_layers(cache))
            modules = decoder_layers(model) if states else ()
            others = [layer for layer in modules if attention_of(layer) is None]
            for layer, state, module in zip(states, content["states"], others, strict=True):
                restore(layer, cache_file.moved(state, device_of(module)))
            cache._columns = content["columns"].to(places[0])
        return cache

    def fork(self, tokens: int = 0) -> "RotateKCache":
        """A copy that continues from here: it shares the stored visual tokens, which no step
        writes to, and copies text and states; tokens: that its text gets room for at once.

        Raises:
            CacheNotStorable: where no prefill has run, or the model is gone.
        """
        model = self._filler()
        cache = type(self).__new__(type(self))
        cache._begin(model, self.settings, self.plan, self.filling.bases)
        cache.notes, cache._columns = self.notes, self._columns
        layers = key_layers(self)
        texts = TextBuffer.all_copied([layer.text for layer in layers], tokens)
        for layer, from_, text in zip(key_layers(cache), layers, texts, strict=True):
            layer.logical, layer.span, layer.text = from_.logical, from_.span, text
            layer.store = copy(from_.store)  # a selection of samples replaces its tensors
        for layer, from_ in zip(state_layers(cache), state_layers(self), strict=True):
            restore(layer, state_of(from_))
        return cache

    def __deepcopy__(self, memo: Any) -> "RotateKCache":
        return self.fork()

    def __reduce__(self) -> Any:
        raise CacheNotStorable(
            "A compressed cache is not pickled. Write it with its `save`, and read it with `load`."
        )

    def make_growing(self) -> None:
        """No graph writes to the text any more, which grows again."""
        for layer in key_layers(self):
            layer.text.static = False

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(kind, tensor) of all tensors of the complete cache."""
        self.filling.finish()
        for layer in key_layers(self):
            yield from layer.tensors()
        for layer in state_layers(self):
            yield from (("state", tensor) for tensor in tensors_of(layer))

    def marks(self) -> Iterator[Tensor]:
        """Which tokens of its prompt are visual, padding or kept: two or three bytes a token. An
        empty cache counts none."""
        if any(layer.text is not None for layer in key_layers(self)):
            yield from self.plan.tensors()
            yield from () if self._columns is None else (self._columns,)

    def shared(self) -> Iterator[Tensor]:
        """The output metrics of its model, which all its caches read and none holds."""
        model = self._model()
        if model is not None and self.settings.channels.times_smaller is not None:
            yield from held_metrics(model)

    def bytes(self) -> ByteCount:
        """Live bytes by kind, and apart from their total those of what is `shared`."""
        marks = (("lengths", mark) for mark in self.marks())
        count = count_bytes([*self.tensors(), *marks])
        count.shared = storage_bytes(self.shared())
        return count

    def close(self) -> None:
        """Drop every tensor."""
        self._steps.forget()
        self._columns = self._whole = None
        for layer in key_layers(self):
            layer.logical, layer.store, layer.text, layer.span = 0, None, None, None
        self.filling.forget()
        forget_states(self)


def _refuse_shards(model: PreTrainedModel, settings: Settings) -> None:
    """Refuse what tensor parallel ranks would choose apart."""
    if (getattr(model, "tp_size", None) or 1) < 2:
        return
    pruner = settings.pruning
    chosen = pruner.stage in ("decoder", "cache") and pruner.kept_share < 1
    if chosen or settings.channels.times_smaller is not None:
        how = f'tokens="{pruner.name}"' if chosen else "`smaller`"
        raise ModeUnsupported(
            f"Under tensor parallelism every rank sees its own heads alone, and {how} chooses by "
            "all of them. Choose `keep_channels` without a pruner, or one device map."
        )


def cache_bytes(cache: Cache) -> ByteCount:
    """Live bytes of any cache: compressed, or plain transformers'."""
    return cache.bytes() if isinstance(cache, RotateKCache) else dynamic_bytes(cache)


def release(cache: Cache) -> None:
    """Drop every tensor of any cache."""
    if isinstance(cache, RotateKCache):
        cache.close()
    else:
        cache.layers.clear()
