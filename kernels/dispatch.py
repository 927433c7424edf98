"""Chooses the attention that runs: Triton where it can, the reference everywhere else.

A `Dispatcher` holds the choice and its reason, so that a page can show it. The first failure of
the kernel, or a disagreement with the reference in `self_test`, moves its owner to the reference
for the rest of the process; nothing is probed at import, so a worker may fork after importing this
module.
"""

import importlib
import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from . import fused_dispatch
from .planes import Planes, granules, pack
from .reference import QuantisedText, Text, Visual, append_plain, attend_reference, opened_text
from .window_attention_reference import Window, sample_window, window_attention_plain

log = logging.getLogger(__name__)

TRITON, REFERENCE = "triton", "reference"
SOLVERS: Final = {
    "subspace": ".solver",
    "covariance": ".covariance",
    "project": ".covariance",
    "weigh": ".covariance",
    "pack_states": ".packing",
    "steps_of": ".packing",
}
PLANES, PAST, LOOKS = "planes", "past", "looks"
FORMS: Final = {  # what has code of its own, and what is said where that code is not used
    PLANES: "Caches of a few bits a channel are read in plain PyTorch until a restart.",
    PAST: "Text in 8 bits is read and written in plain PyTorch until a restart.",
    LOOKS: "What a prompt looks at is summed up in plain PyTorch until a restart.",
}
placed = torch.cuda.device  # Triton launches on the current device, wherever its tensors are
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class Status:
    """What runs on a device, and why, in a sentence that may be shown to a user."""

    backend: str
    reason: str


class Dispatcher:
    """Runs decode attention and remembers what may run.

    check_first: compare kernel and reference before the first real call on a GPU (`self_test`).
    """

    def __init__(self, enabled: bool = True, check_first: bool = False) -> None:
        self._fault = "" if enabled else "The GPU kernels are switched off."
        self._unchecked = check_first
        self._solver_fault = ""
        self._faults = dict.fromkeys(FORMS, "")
        self._unproven = set(FORMS) if check_first else set()
        self._bypass = ""

    def attend(self, q: Tensor, visual: Visual | None, text: Text, scale: float) -> Tensor:
        """Decode attention; see `kernels.reference.attend_reference` for shapes.

        Out-of-memory errors pass through: they are the caller's to handle, not a kernel's fault.
        """
        if q.device.type != "cuda" or self._fault or q.shape[2] != 1 or _differ(visual):
            return attend_reference(q, visual, text, scale)
        self._check(q.device)
        forms = _forms(visual, text)
        for form in forms:
            self._check_form(form, q.device)
        if any(self._faults[form] for form in forms):
            return attend_reference(q, visual, text, scale)
        try:
            launch = importlib.import_module(".attention_launch", __package__)
            refusal = self._refusal(launch, q, visual, text)
            if not refusal and not self._fault:
                with placed(q.device):
                    return launch.attend_triton(q, visual, text, scale)
        except Exception as error:
            self._fail_forms(forms, error)
        return attend_reference(q, visual, text, scale)

    def append(self, text: Text, keys: Tensor, values: Tensor, added: Tensor) -> None:
        """Add tokens to a text with a past; see `kernels.reference.append_plain`."""
        if keys.device.type == "cuda" and keys.shape[2] == 1 and not self._fault:
            self._check(keys.device)
            self._check_form(PAST, keys.device)
            try:
                if not self._faults[PAST] and not self._fault:
                    launch = importlib.import_module(".append", __package__)
                    with placed(keys.device):
                        return launch.append_text(text, keys, values, added)
            except Exception as error:
                self._fail_forms([PAST], error)
        return append_plain(text, keys, values, added)

    def look(self, seen: Window) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of the attention of a prompt's last queries; see
        `kernels.window_attention_reference.window_attention_plain`."""
        if self.sums_up(seen.keys):
            self._check(seen.keys.device)
            self._check_form(LOOKS, seen.keys.device)
            try:
                if self.sums_up(seen.keys):
                    launch = importlib.import_module(".window_attention", __package__)
                    with placed(seen.keys.device):
                        return launch.window_attention(seen)
            except Exception as error:
                self._fail_forms([LOOKS], error)
        return window_attention_plain(seen)

    def sums_up(self, keys: Tensor) -> bool:
        """Whether `look` has its kernel for states like these, which writes no scores."""
        half = keys.device.type == "cuda" and keys.dtype != torch.float32
        return half and not self._fault and not self._faults[LOOKS]

    def solve(self, work: str, first: Tensor, *rest: Any) -> Any | None:
        """Run one of `SOLVERS` on the GPU; None where the caller's own code must do it.

        A failure moves the solver alone to plain PyTorch: attention keeps its kernels.
        """
        if first.device.type == "cuda":
            self._check(first.device)
        if first.device.type != "cuda" or self._fault or self._solver_fault:
            return None
        try:
            launch = importlib.import_module(SOLVERS[work], __package__)
            with placed(first.device):
                return getattr(launch, work)(first, *rest)
        except Exception as error:
            fused_dispatch.pass_on_memory(error)
            self._solver_fault = (
                f"The GPU solver failed ({type(error).__name__}): bases come from plain PyTorch."
            )
            log.exception("solver kernel failed; plain PyTorch takes over")
            return None

    def status(self, device_type: str = "cuda") -> Status:
        """The backend in use on a device type, with the reason."""
        if device_type != "cuda":
            return Status(REFERENCE, "No GPU: attention runs in plain PyTorch.")
        if self._fault:
            return Status(REFERENCE, self._fault)
        if importlib.util.find_spec("triton") is None:
            return Status(REFERENCE, "Triton is not installed: attention runs in plain PyTorch.")
        found = (
            self._solver_fault,
            *self._faults.values(),
            self._bypass,
            fused_dispatch.shared().fault,
        )
        return Status(TRITON, next(filter(None, found), "GPU kernels are in use."))

    def self_test(self, device: torch.device | str) -> Status:
        """Compare kernel and reference on `device`; on any disagreement use the reference.

        Takes a few compilations (seconds, cached on disk by Triton) the first time.
        """
        device = torch.device(device)
        self._unchecked = False
        if device.type == "cuda" and not self._fault:
            self._solver_agrees(device)
            bf16, f16 = torch.bfloat16, torch.float16
            for dtype, k, r, narrow in (
                (bf16, 32, None, False),
                (f16, 48, 32, False),
                (bf16, 32, None, True),
            ):
                if not self._agrees(device, dtype, k, r, narrow):
                    break
        return self.status(device.type)

    def _agrees(
        self, device: torch.device, dtype: torch.dtype, k: int, r: int | None, narrow: bool
    ) -> bool:
        """Whether one small case agrees; a disagreement is recorded as a fault."""
        q, visual, text = sample(device, dtype, k, r, narrow)
        scale = q.shape[-1] ** -0.5
        got = self.attend(q, visual, text, scale).float()
        if self._fault:
            return False
        error = (got - attend_reference(q, visual, text, scale).float()).abs().max()
        if not bool(error <= TOLERANCE[dtype]):
            self._fail("The GPU kernel disagreed with the reference in its self-test.")
            log.error("self-test: error %g for %s, k = %d, r = %s", float(error), dtype, k, r)
        return not self._fault

    def _check(self, device: torch.device) -> None:
        """The self-test, once, where it was asked for and nothing is being captured."""
        if self._unchecked and not torch.cuda.is_current_stream_capturing():
            self.self_test(device)

    def _check_form(self, form: str, device: torch.device) -> None:
        """Compare the kernels for one of `FORMS` with the reference, once, before their first
        call."""
        if form not in self._unproven or torch.cuda.is_current_stream_capturing():
            return
        self._unproven.discard(form)
        error = self._look_error(device) if form == LOOKS else self._form_error(form, device)
        if not self._faults[form] and not bool(error <= TOLERANCE[torch.bfloat16]):
            self._faults[form] = (
                f"The GPU kernel disagreed with the reference in its self-test. {FORMS[form]}"
            )
            log.error("self-test: error %g for %s", float(error), form)

    def _form_error(self, form: str, device: torch.device) -> Tensor:
        """Largest error of attention over a small cache of a form, and of adding to its text."""
        q, visual, text = (sample_planes if form == PLANES else sample_past)(device, torch.bfloat16)
        scale = q.shape[-1] ** -0.5
        got = self.attend(q, visual, text, scale).float()
        error = (got - attend_reference(q, visual, text, scale).float()).abs().max()
        return torch.maximum(error, self._append_error(text)) if form == PAST else error

    def _look_error(self, device: torch.device) -> Tensor:
        """Largest relative error of the sums of a small window."""
        seen = sample_window(device, torch.bfloat16)
        pairs = zip(self.look(seen), window_attention_plain(seen), strict=True)
        return torch.stack([(got - want).norm() / want.norm() for got, want in pairs]).max()

    def _append_error(self, text: Text) -> Tensor:
        """Largest error of a text that `append` has added a token to; infinite for a place."""
        assert text.past is not None and text.lengths is not None
        one = torch.ones_like(text.lengths)
        found = []
        for append in (self.append, append_plain):
            past = QuantisedText(*(each.clone() for each in text.past))
            own = Text(text.keys.clone(), text.values.clone(), text.lengths.clone(), past)
            append(own, text.values[:, :, :1], text.keys[:, :, :1], one)
            found.append(opened_text(own._replace(lengths=text.lengths + 1)))
        (*got, place), (*want, true) = found
        worst = max((a - b).abs().max() for a, b in zip(got, want, strict=True))
        return torch.where((place == true).all(), worst, float("inf"))

    def _solver_agrees(self, device: torch.device) -> None:
        """Compare covariance, basis and weights with plain PyTorch; on a disagreement, use that."""
        keys = torch.randn(1, 2, 96, 128, generator=torch.Generator().manual_seed(0)) ** 3
        found = self.solve("covariance", keys.to(device))
        centred = keys.double() - keys.double().mean(2, keepdim=True)
        want = centred.mT @ centred
        best = torch.linalg.eigvalsh(want)[..., -32:].sum(-1)
        basis = None if found is None else self.solve("subspace", want.float().to(device), 32)
        sigma = self.solve("weigh", keys.to(device), 1, None, 0.0, 0.0)
        if found is None or basis is None or sigma is None:
            return
        basis = basis.double().cpu()
        slip = (basis.mT @ basis - torch.eye(32)).abs().max()
        held = ((want @ basis) * basis).sum((-1, -2)) / best
        off = (found[1].double().cpu() - want).norm() / want.norm()
        norms = keys.square().sum((1, 2)).sqrt()[:, None]
        off = torch.maximum(off, (sigma.cpu() / norms - 1).abs().max())
        if not bool((slip <= 1e-4) & (off <= 1e-3) & (held >= 0.98).all()):
            self._solver_fault = (
                "The GPU solver disagreed with plain PyTorch in its self-test: bases come from "
                "plain PyTorch."
            )
            log.error(
                "self-test: basis off by %g, covariance or weights by %g", float(slip), float(off)
            )

    def _refusal(self, launch, q: Tensor, visual: Visual | None, text: Text) -> str | None:
        """Why this call goes to the reference; said once in the log and kept for `status`."""
        reason = launch.supported(q, visual, text)
        if reason and not self._bypass:
            self._bypass = f"GPU kernels are in use, except where a cache has {reason}."
            log.warning("attention kernel bypassed: %s", reason)
        return reason

    def _fail_forms(self, forms: Sequence[str], error: Exception) -> None:
        """Leave what failed to plain PyTorch: some forms, or all of attention where it was none."""
        fused_dispatch.pass_on_memory(error)
        sentence = f"The GPU kernel failed ({type(error).__name__})."
        self._faults |= {form: f"{sentence} {FORMS[form]}" for form in forms}
        if not forms:
            self._fail(sentence)
        log.exception("a kernel failed; plain PyTorch takes over")

    def _fail(self, sentence: str) -> None:
        self._fault = f"{sentence} Attention runs in plain PyTorch until a restart."


def sample(
    device: torch.device, dtype: torch.dtype, k: int, r: int | None, narrow: bool = False
) -> tuple[Tensor, Visual, Text]:
    """A small ragged case from a private generator: two samples, eight query heads, d = 128.

    Args:
        device: where its tensors are.
        dtype: of its numbers.
        k: Key channels that are kept.
        r: Value channels of a rotated Value cache; None for plain Values.
        narrow: 8-bit Keys and Values (int8) with their scales.

    Returns:
        q, visual and text, as `kernels.reference.attend_reference` takes them.
    """
    B, Hkv, G, N, M, d = 2, 2, 4, 300, 40, 128
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    lengths = torch.tensor([N, 77], dtype=torch.int32, device=device)
    basis = torch.linalg.qr(torch.randn(B, Hkv, d, d, generator=generator))[0]
    visual = Visual(draw(B, Hkv, N, k), draw(B, Hkv, N, r or d), lengths)
    visual = visual._replace(basis=basis[..., :k].to(device, dtype), mean=draw(B, Hkv, d) / 4)
    if r is not None:
        up = draw(B, Hkv, r, d) / d**0.5
        visual = visual._replace(value_basis=up, value_mean=draw(B, Hkv, d))
    if narrow:
        stored = [(16 * t).round().clamp(-127, 127).to(torch.int8) for t in visual[:2]]
        visual = visual._replace(keys=stored[0], values=stored[1])
        visual = visual._replace(
            key_scale=torch.full((B, Hkv, k), 1 / 16, device=device),
            value_scale=torch.full((B, Hkv, N), 1 / 16, device=device),
        )
    text = Text(draw(B, Hkv, M, d), draw(B, Hkv, M, d), (lengths // 10).to(torch.int32))
    return draw(B, Hkv * G, 1, d), visual, text


def sample_planes(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Visual, Text]:
    """`sample` with Keys and Values as planes: heads of 2 to 8 bits a channel, one of none."""
    q, visual, text = sample(device, dtype, 48, 48)
    assert visual.value_basis is not None and visual.basis is not None
    counts = [[[48, 16, 0, 0], [32, 32, 16, 16]], [[0, 0, 0, 0], [16, 0, 0, 0]]]
    levels = torch.tensor(counts, dtype=torch.int32, device=device)
    sides = []
    for values, x, rows in (
        (False, visual.keys, visual.basis.mT), (True, visual.values, visual.value_basis),
    ):  # fmt: skip
        steps = torch.full((*levels.shape[:2], 48), 0.5, device=device)
        data, offsets = pack(x, levels, steps, values)
        own = levels[..., 0]
        live = torch.arange(48, device=device) < own[..., None]
        starts = (own.flatten().cumsum(0) - own.flatten()).view(own.shape).int()
        eight = (rows.float() * 100).round().clamp(-127, 127).to(torch.int8)
        widest = int(granules(levels).max())
        sides.append(Planes(data, levels, offsets, eight[live], steps[live] / 100, starts, widest))
    none = q.new_zeros(2, 2, 0, 0)
    found = Visual(none, none, visual.lengths, mean=visual.mean, value_mean=visual.value_mean)
    tokens = visual.keys.shape[2]
    return q, found._replace(tokens=tokens, key_planes=sides[0], value_planes=sides[1]), text


def sample_past(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Visual, Text]:
    """`sample` with a text of 30 and 7 tokens, of which the newest 16 are at full width."""
    q, visual, text = sample(device, dtype, 32, None)
    B, Hkv, M, d = text.keys.shape
    assert text.lengths is not None
    data = torch.zeros(B, Hkv, M, 2, d, dtype=torch.int8, device=device)
    scales = torch.zeros(B, Hkv, M, 2, dtype=torch.bfloat16, device=device)
    past = QuantisedText(data, scales, torch.linspace(0.5, 2, d, device=device).repeat(B, Hkv, 1))
    ring = torch.zeros_like(text.keys[:, :, :16])
    made = Text(ring, ring.clone(), torch.zeros_like(text.lengths), past)
    append_plain(made, text.keys, text.values, text.lengths)
    return q, visual, made._replace(lengths=text.lengths)


def _differ(visual: Visual | None) -> bool:
    """Whether heads differ in how many tokens they hold, which no kernel reads."""
    return visual is not None and visual.lengths is not None and visual.lengths.dim() > 1


def _forms(visual: Visual | None, text: Text) -> list[str]:
    """Those of `FORMS` that a call's caches have."""
    packed = visual is not None and visual.key_planes is not None
    return [form for form, has in ((PLANES, packed), (PAST, text.past is not None)) if has]


@lru_cache(maxsize=1)
def shared() -> Dispatcher:
    """The process's dispatcher: a GPU whose kernel has failed fails for every caller."""
    return Dispatcher(check_first=True)


def attend(q: Tensor, visual: Visual | None, text: Text, scale: float) -> Tensor:
    """`Dispatcher.attend` of the shared dispatcher."""
    return shared().attend(q, visual, text, scale)


def append(text: Text, keys: Tensor, values: Tensor, added: Tensor) -> None:
    """`Dispatcher.append` of the shared dispatcher."""
    shared().append(text, keys, values, added)


def look(seen: Window) -> tuple[Tensor, Tensor, Tensor]:
    """`Dispatcher.look` of the shared dispatcher."""
    return shared().look(seen)


def sums_up(keys: Tensor) -> bool:
    """`Dispatcher.sums_up` of the shared dispatcher."""
    return shared().sums_up(keys)


def solve(work: str, first: Tensor, *rest: Any) -> Any | None:
    """`Dispatcher.solve` of the shared dispatcher."""
    return shared().solve(work, first, *rest)


def self_test(device: torch.device | str) -> Status:
    """`Dispatcher.self_test` of the shared dispatcher."""
    return shared().self_test(device)


def status(device_type: str) -> Status:
    """`Dispatcher.status` of the shared dispatcher."""
    return shared().status(device_type)


def backend(device_type: str) -> str:
    """The attention in use on a device type: "triton" or "reference"."""
    return shared().status(device_type).backend
