"""Chooses the code that runs: a Triton kernel where it can, plain PyTorch everywhere else.

`WORKS` lists the functions of a GPU, `KERNELS` what they need: a self-test before the first use,
and what a user reads where it is not used. A kernel that fails, or disagrees with plain PyTorch in
its self-test, is not used again in this process. Nothing is tested at import, so a worker may fork
after importing this module.
"""

import importlib
import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from .elementwise_reference import CLOSE, PLAIN
from .reference import (
    WIDEST_HEAD,
    Packed,
    Text,
    Unsupported,
    Visual,
    Window,
    attend_reference,
    window_attention_plain,
)
from .samples import sample, sample_elementwise, sample_packed, sample_window

log = logging.getLogger(__name__)

TRITON, REFERENCE = "triton", "reference"
ATTENTION, SOLVER, PLANES, WINDOW = "attention", "solver", "planes", "window"
TOLERANCE: Final = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}
placed = torch.cuda.device  # Triton launches on the current device, wherever its tensors are


class Work(NamedTuple):
    """A function of a GPU: the module that is imported at its first call, and the kernels without
    which it does not run; the last of these is at fault where it fails."""

    module: str
    kernels: tuple[str, ...]


WORKS: Final = {
    "attend_triton": Work(".attention_launch", (ATTENTION,)),
    "attend_rows": Work(".attention_launch", (ATTENTION,)),
    "attend_packed": Work(".packed_attention_launch", (ATTENTION, PLANES)),
    "window_attention": Work(".window_attention", (ATTENTION, WINDOW)),
    "subspace": Work(".solver", (ATTENTION, SOLVER)),
    "covariance": Work(".covariance", (ATTENTION, SOLVER)),
    "project": Work(".covariance", (ATTENTION, SOLVER)),
    "weigh": Work(".covariance", (ATTENTION, SOLVER)),
    "pack_states": Work(".packing", (ATTENTION, SOLVER)),
    "steps_of": Work(".packing", (ATTENTION, SOLVER)),
    **{work: Work(".fused_elementwise", (work,)) for work in PLAIN},
}


@dataclass(frozen=True)
class Status:
    """The backend of a device, and the reason, in a sentence that may be shown to a user."""

    backend: str
    reason: str


@dataclass
class Memory:
    """What this process knows of its kernels.

    faults: why a kernel must not run, by its name; untested: those whose first real call on a GPU
    is preceded by their self-test; unsupported: the first kind of call that no kernel computes.
    """

    faults: dict[str, str] = field(default_factory=dict)
    untested: set[str] = field(default_factory=lambda: set(KERNELS))
    unsupported: str = ""


@lru_cache(maxsize=1)
def shared() -> Memory:
    """The process's: a GPU whose kernel has failed fails for every caller."""
    return Memory()


def run(work: str, plain: Callable[..., Any], device: torch.device, *given: Any) -> Any:
    """One of `WORKS` on a GPU; plain(*given) elsewhere, and where a kernel that it needs must not
    run.

    Out-of-memory errors pass through: the caller handles them, and no kernel is at fault.
    """
    if device.type != "cuda":
        return plain(*given)
    memory, (module, kernels) = shared(), WORKS[work]
    for kernel in kernels:
        if kernel in memory.untested and not torch.cuda.is_current_stream_capturing():
            _test(kernel, device)
        if kernel in memory.faults:
            return plain(*given)
    try:
        launch = getattr(importlib.import_module(module, __package__), work)
        with placed(device):
            return launch(*given)
    except Unsupported as reason:
        if not memory.unsupported:
            memory.unsupported = f"GPU kernels are in use, except where a cache has {reason}."
            log.warning("attention kernel bypassed: %s", reason)
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        if "out of memory" in str(error):  # as a driver reports it
            raise torch.OutOfMemoryError(str(error)) from error
        _blame(kernels[-1], f"failed ({type(error).__name__})")
        log.exception("a kernel failed; plain PyTorch takes over")
    return plain(*given)


def attend(q: Tensor, visual: Visual | None, text: Text, scale: float) -> Tensor:
    """Decode attention; see `kernels.reference.attend_reference` for shapes."""
    several = q.shape[2] != 1
    if visual is not None and not visual.tokens:
        visual = None
    if isinstance(visual, Packed):
        work = "attend_packed"
    elif several and len(q) > 1 and visual is not None:
        return attend_reference(q, visual, text, scale)
    else:
        work = "attend_rows" if several else "attend_triton"
    found: Tensor = run(work, attend_reference, q.device, q, visual, text, scale)
    return found


def window_attention(window: Window) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of the attention of a prompt's last queries; see
    `kernels.reference.window_attention_plain`."""
    if not has_window_kernel(window.keys):
        return window_attention_plain(window)
    sums: tuple[Tensor, Tensor, Tensor] = run(
        "window_attention", window_attention_plain, window.keys.device, window
    )
    return sums


def has_window_kernel(keys: Tensor) -> bool:
    """Whether `window_attention` has a kernel (which stores no scores) for such states."""
    half = keys.device.type == "cuda" and keys.dtype != torch.float32
    half = half and keys.shape[-1] <= WIDEST_HEAD
    return half and not shared().faults.keys() & {ATTENTION, WINDOW}


def solve(work: str, first: Tensor, *rest: Any) -> Any | None:
    """Run a function of the solver (`WORKS`) on the GPU.

    None where the caller must compute it, as for heads that are too wide. A failure leaves the
    kernels of attention alone.
    """
    if first.shape[-1] > WIDEST_HEAD:
        return None
    return run(work, _nothing, first.device, first, *rest)


def elementwise(work: str, first: Tensor, *rest: Any) -> Tensor | None:
    """One of `PLAIN` in one pass over its states.

    None where the caller must compute it: without a GPU, in float32, where gradients are wanted,
    or after a failure.
    """
    if first.dtype == torch.float32 or torch.is_grad_enabled():
        return None
    made: Tensor | None = run(work, _nothing, first.device, first, *rest)
    return made


def status(device_type: str = "cuda") -> Status:
    """The backend in use on a device type, with the reason."""
    memory = shared()
    if device_type != "cuda":
        return Status(REFERENCE, "No GPU: attention runs in plain PyTorch.")
    if ATTENTION in memory.faults:
        return Status(REFERENCE, memory.faults[ATTENTION])
    if importlib.util.find_spec("triton") is None:
        return Status(REFERENCE, "Triton is not installed: attention runs in plain PyTorch.")
    found = [*memory.faults.values(), memory.unsupported, "GPU kernels are in use."]
    return Status(TRITON, next(filter(None, found)))


def self_test(device: torch.device | str) -> Status:
    """Test the kernels of attention and of the solver on `device`.

    Takes a few compilations (seconds, cached on disk by Triton) the first time.
    """
    device = torch.device(device)
    for kernel in (SOLVER, ATTENTION):
        if device.type == "cuda" and not shared().faults.keys() & {ATTENTION, kernel}:
            _test(kernel, device)
    return status(device.type)


def _test(kernel: str, device: torch.device) -> None:
    """Compare a kernel with plain PyTorch; where it disagrees, it is not used again."""
    shared().untested.discard(kernel)
    error = KERNELS[kernel].error(device)
    if kernel not in shared().faults and not bool(error <= 1):
        _blame(kernel, "disagreed with plain PyTorch in its self-test")
        log.error("self-test: %g times the error that %s may have", float(error), kernel)


def _blame(kernel: str, reason: str) -> None:
    shared().faults[kernel] = f"The GPU kernel {reason}. {KERNELS[kernel].fallback}"


def _nothing(*given: Any) -> None:
    """Leaves the work to the caller."""


def _attention_error(device: torch.device) -> Tensor:
    """Of both 16-bit types."""
    cases = ((torch.bfloat16, 32), (torch.float16, 48))
    return torch.stack([_error_of(*sample(device, *case)) for case in cases]).max()


def _error_of(q: Tensor, visual: Visual, text: Text) -> Tensor:
    scale = q.shape[-1] ** -0.5
    got = attend(q, visual, text, scale).float()
    error = (got - attend_reference(q, visual, text, scale).float()).abs().max()
    return error / TOLERANCE[q.dtype]


def _packed_error(device: torch.device) -> Tensor:
    """Of one new token, and of several, which are rows."""
    q, visual, text = sample_packed(device, torch.bfloat16)
    several = torch.cat([q, -q, q.flip(1)], 2)
    return torch.stack([_error_of(each, visual, text) for each in (q, several)]).max()


def _window_error(device: torch.device) -> Tensor:
    """Relative error of each sum."""
    window = sample_window(device, torch.bfloat16)
    pairs = zip(window_attention(window), window_attention_plain(window), strict=True)
    errors = torch.stack([(got - want).norm() / want.norm() for got, want in pairs])
    return errors.max() / TOLERANCE[torch.bfloat16]


def _solver_error(device: torch.device) -> Tensor:
    """Of covariance and weights, and of a basis: not orthonormal, or of too little energy."""
    keys = torch.randn(1, 2, 96, 128, generator=torch.Generator().manual_seed(0)) ** 3
    centred = keys.double() - keys.double().mean(2, keepdim=True)
    want = centred.mT @ centred
    found = solve("covariance", keys.to(device))
    basis = solve("subspace", want.float().to(device), 32)
    sigma = solve("weigh", keys.to(device), 1, None, 0.0, 0.0)
    if found is None or basis is None or sigma is None:
        return torch.zeros(())  # it failed, and is at fault already
    basis = basis.double().cpu()
    slant = (basis.mT @ basis - torch.eye(32)).abs().max()
    best = torch.linalg.eigvalsh(want)[..., -32:].sum(-1)
    energy = ((want @ basis) * basis).sum((-1, -2)) / best
    covariance = (found[1].double().cpu() - want).norm() / want.norm()
    weights = (sigma.cpu() / keys.square().sum((1, 2)).sqrt()[:, None] - 1).abs().max()
    off = torch.maximum(covariance, weights)
    return torch.stack([slant / 1e-4, off / 1e-3, (1 - energy.min()) / 0.02]).max()


def _elementwise_error(work: str, device: torch.device) -> Tensor:
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        given = sample_elementwise(work, device, dtype)
        got, want = elementwise(work, *given), PLAIN[work](*given).float()
        found.append(want.new_zeros(()) if got is None else (got.float() - want).abs().max())
        found[-1] = found[-1] / want.abs().max() / CLOSE
    return torch.stack(found).max()


class Kernel(NamedTuple):
    """A kernel's self-test, and the sentence for users where it is not used.

    error: the largest error on small cases, as a multiple of what is allowed.
    """

    fallback: str
    error: Callable[[torch.device], Tensor]


KERNELS: Final[dict[str, Kernel]] = {
    ATTENTION: Kernel("Attention runs in plain PyTorch until a restart.", _attention_error),
    SOLVER: Kernel("Bases are computed in plain PyTorch until a restart.", _solver_error),
    PLANES: Kernel(
        "Caches of a few bits a channel are read in plain PyTorch until a restart.", _packed_error
    ),
    WINDOW: Kernel(
        "The attention of a prompt's last queries is summed in plain PyTorch until a restart.",
        _window_error,
    ),
    **{
        work: Kernel(
            f"The step '{work}' of layers runs in plain PyTorch until a restart.",
            partial(_elementwise_error, work),
        )
        for work in PLAIN
    },
}
