"""Chooses the code that runs: a Triton kernel where it can, plain PyTorch everywhere else.

`KERNELS` lists what has a kernel: the self-test before its first use, and what a user reads where
it is not used. A kernel that fails, or disagrees with plain PyTorch in its self-test, is not used
again in this process. Nothing is tested at import, so a worker may fork after importing this
module.
"""

import importlib
import importlib.util
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from .elementwise_reference import CLOSE, PLAIN
from .reference import (
    WIDEST_HEAD,
    Text,
    Unsupported,
    Visual,
    attend_reference,
    heads_as_samples,
)
from .samples import sample, sample_elementwise, sample_planes, sample_window
from .window_attention_reference import Window, window_attention_plain

log = logging.getLogger(__name__)

TRITON, REFERENCE = "triton", "reference"
ATTENTION, SOLVER, PLANES, WINDOW = "attention", "solver", "planes", "window"
LAUNCHERS: Final = {  # a function, and the module that is imported at its first call on a GPU
    "attend_triton": ".attention_launch",
    "attend_rows": ".attention_launch",
    "window_attention": ".window_attention",
    "subspace": ".solver",
    "covariance": ".covariance",
    "project": ".covariance",
    "weigh": ".covariance",
    "pack_states": ".packing",
    "steps_of": ".packing",
    **dict.fromkeys(PLAIN, ".fused_elementwise"),
}
TOLERANCE: Final = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}
placed = torch.cuda.device  # Triton launches on the current device, wherever its tensors are


@dataclass(frozen=True)
class Status:
    """The backend of a device, and the reason, in a sentence that may be shown to a user."""

    backend: str
    reason: str


class Dispatcher:
    """Runs kernels and remembers which of them must not run.

    check_first: test each kernel before its first real call on a GPU.
    """

    def __init__(self, enabled: bool = True, check_first: bool = False) -> None:
        self._faults = {} if enabled else {ATTENTION: "The GPU kernels are switched off."}
        self._untested = set(KERNELS) if check_first else set()
        self._unsupported = ""

    def attend(self, q: Tensor, visual: Visual | None, text: Text, scale: float) -> Tensor:
        """Decode attention; see `kernels.reference.attend_reference` for shapes.

        Out-of-memory errors pass through: the caller handles them, and no kernel is at fault.
        """
        if visual is not None and _differ(visual) and q.shape[2] == 1:
            return self.attend(*heads_as_samples(q, visual, text), scale).view(q.shape)
        packed = visual is not None and visual.key_planes is not None
        several = q.shape[2] != 1
        alone = len(q) == 1 or packed or visual is None
        if _differ(visual) or (several and not alone):
            return attend_reference(q, visual, text, scale)
        kernels = [ATTENTION, PLANES] if packed else [ATTENTION]
        found: Tensor = self._run(
            kernels, q.device, "attend_rows" if several else "attend_triton", attend_reference,
            q, visual, text, scale,
        )  # fmt: skip
        return found

    def window_attention(self, window: Window) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of the attention of a prompt's last queries; see
        `kernels.window_attention_reference.window_attention_plain`."""
        if not self.has_window_kernel(window.keys):
            return window_attention_plain(window)
        needed, device = [ATTENTION, WINDOW], window.keys.device
        sums: tuple[Tensor, Tensor, Tensor] = self._run(
            needed, device, "window_attention", window_attention_plain, window
        )
        return sums

    def has_window_kernel(self, keys: Tensor) -> bool:
        """Whether `window_attention` has a kernel (which stores no scores) for such states."""
        half = keys.device.type == "cuda" and keys.dtype != torch.float32
        half = half and keys.shape[-1] <= WIDEST_HEAD
        return half and not self._faults.keys() & {ATTENTION, WINDOW}

    def solve(self, work: str, first: Tensor, *rest: Any) -> Any | None:
        """Run a function of the solver (`LAUNCHERS`) on the GPU.

        None where the caller must compute it, as for heads that are too wide. A failure leaves the
        kernels of attention alone.
        """
        if first.shape[-1] > WIDEST_HEAD:
            return None
        return self._run([ATTENTION, SOLVER], first.device, work, _nothing, first, *rest)

    def elementwise(self, work: str, first: Tensor, *rest: Any) -> Tensor | None:
        """One of `PLAIN` in one pass over its states.

        None where the caller must compute it: without a GPU, in float32, where gradients are
        wanted, or after a failure.
        """
        if first.dtype == torch.float32 or torch.is_grad_enabled():
            return None
        made: Tensor | None = self._run([work], first.device, work, _nothing, first, *rest)
        return made

    def status(self, device_type: str = "cuda") -> Status:
        """The backend in use on a device type, with the reason."""
        if device_type != "cuda":
            return Status(REFERENCE, "No GPU: attention runs in plain PyTorch.")
        if ATTENTION in self._faults:
            return Status(REFERENCE, self._faults[ATTENTION])
        if importlib.util.find_spec("triton") is None:
            return Status(REFERENCE, "Triton is not installed: attention runs in plain PyTorch.")
        found = [*self._faults.values(), self._unsupported, "GPU kernels are in use."]
        return Status(TRITON, next(filter(None, found)))

    def self_test(self, device: torch.device | str) -> Status:
        """Test the kernels of attention and of the solver on `device`.

        Takes a few compilations (seconds, cached on disk by Triton) the first time.
        """
        device = torch.device(device)
        for kernel in (SOLVER, ATTENTION):
            if device.type == "cuda" and not self._faults.keys() & {ATTENTION, kernel}:
                self._test(kernel, device)
        return self.status(device.type)

    def _run(
        self,
        kernels: Sequence[str],
        device: torch.device,
        function: str,
        plain: Callable[..., Any],
        *given: Any,
    ) -> Any:
        """function(*given) on a GPU, or plain(*given) where one of `kernels` must not run.

        Where it fails, all of `kernels` but the first are disabled; a single one is disabled
        itself.
        """
        if device.type != "cuda":
            return plain(*given)
        for kernel in kernels:
            if kernel in self._untested and not torch.cuda.is_current_stream_capturing():
                self._test(kernel, device)
            if kernel in self._faults:
                return plain(*given)
        try:
            launch = getattr(importlib.import_module(LAUNCHERS[function], __package__), function)
            with placed(device):
                return launch(*given)
        except Unsupported as reason:
            if not self._unsupported:
                self._unsupported = f"GPU kernels are in use, except where a cache has {reason}."
                log.warning("attention kernel bypassed: %s", reason)
        except Exception as error:
            _raise_if_memory(error)
            for kernel in kernels[1:] or kernels:
                self._blame(kernel, f"failed ({type(error).__name__})")
            log.exception("a kernel failed; plain PyTorch takes over")
        return plain(*given)

    def _test(self, kernel: str, device: torch.device) -> None:
        """Compare a kernel with plain PyTorch; where it disagrees, it is not used again."""
        self._untested.discard(kernel)
        error = KERNELS[kernel].error(self, device)
        if kernel not in self._faults and not bool(error <= 1):
            self._blame(kernel, "disagreed with plain PyTorch in its self-test")
            log.error("self-test: %g times the error that %s may have", float(error), kernel)

    def _blame(self, kernel: str, reason: str) -> None:
        self._faults[kernel] = f"The GPU kernel {reason}. {KERNELS[kernel].fallback}"


def _nothing(*given: Any) -> None:
    """Leaves the work to the caller."""


def _raise_if_memory(error: Exception) -> None:
    """Raise `torch.OutOfMemoryError` where memory was missing, also if a driver reported it."""
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    if "out of memory" in str(error):
        raise torch.OutOfMemoryError(str(error)) from error


def _attention_error(dispatcher: Dispatcher, device: torch.device) -> Tensor:
    """Of both 16-bit types."""
    cases = ((torch.bfloat16, 32), (torch.float16, 48))
    found = [_error_of(dispatcher, *sample(device, *case)) for case in cases]
    return torch.stack(found).max()


def _error_of(dispatcher: Dispatcher, q: Tensor, visual: Visual, text: Text) -> Tensor:
    scale = q.shape[-1] ** -0.5
    got = dispatcher.attend(q, visual, text, scale).float()
    error = (got - attend_reference(q, visual, text, scale).float()).abs().max()
    return error / TOLERANCE[q.dtype]


def _planes_error(dispatcher: Dispatcher, device: torch.device) -> Tensor:
    """Of one new token, and of several, which are rows."""
    q, visual, text = sample_planes(device, torch.bfloat16)
    several = torch.cat([q, -q, q.flip(1)], 2)
    found = [_error_of(dispatcher, each, visual, text) for each in (q, several)]
    return torch.stack(found).max()


def _window_error(dispatcher: Dispatcher, device: torch.device) -> Tensor:
    """Relative error of each sum."""
    window = sample_window(device, torch.bfloat16)
    pairs = zip(dispatcher.window_attention(window), window_attention_plain(window), strict=True)
    errors = torch.stack([(got - want).norm() / want.norm() for got, want in pairs])
    return errors.max() / TOLERANCE[torch.bfloat16]


def _solver_error(dispatcher: Dispatcher, device: torch.device) -> Tensor:
    """Of covariance and weights, and of a basis: not orthonormal, or of too little energy."""
    keys = torch.randn(1, 2, 96, 128, generator=torch.Generator().manual_seed(0)) ** 3
    centred = keys.double() - keys.double().mean(2, keepdim=True)
    want = centred.mT @ centred
    found = dispatcher.solve("covariance", keys.to(device))
    basis = dispatcher.solve("subspace", want.float().to(device), 32)
    sigma = dispatcher.solve("weigh", keys.to(device), 1, None, 0.0, 0.0)
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


def _elementwise_error(work: str, dispatcher: Dispatcher, device: torch.device) -> Tensor:
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        given = sample_elementwise(work, device, dtype)
        got, want = dispatcher.elementwise(work, *given), PLAIN[work](*given).float()
        found.append(want.new_zeros(()) if got is None else (got.float() - want).abs().max())
        found[-1] = found[-1] / want.abs().max() / CLOSE
    return torch.stack(found).max()


class Kernel(NamedTuple):
    """A kernel's self-test, and the sentence for users where it is not used.

    error: the largest error on small cases, as a multiple of what is allowed.
    """

    fallback: str
    error: Callable[[Dispatcher, torch.device], Tensor]


KERNELS: Final = {
    ATTENTION: Kernel("Attention runs in plain PyTorch until a restart.", _attention_error),
    SOLVER: Kernel("Bases are computed in plain PyTorch until a restart.", _solver_error),
    PLANES: Kernel(
        "Caches of a few bits a channel are read in plain PyTorch until a restart.", _planes_error
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


def _differ(visual: Visual | None) -> bool:
    """Whether heads differ in their numbers of tokens, which kernels read as samples alone."""
    return visual is not None and visual.lengths is not None and visual.lengths.dim() > 1


@lru_cache(maxsize=1)
def shared() -> Dispatcher:
    """The process's dispatcher: a GPU whose kernel has failed fails for every caller."""
    return Dispatcher(check_first=True)


def attend(q: Tensor, visual: Visual | None, text: Text, scale: float) -> Tensor:
    """`Dispatcher.attend` of the shared dispatcher."""
    return shared().attend(q, visual, text, scale)


def window_attention(window: Window) -> tuple[Tensor, Tensor, Tensor]:
    """`Dispatcher.window_attention` of the shared dispatcher."""
    return shared().window_attention(window)


def has_window_kernel(keys: Tensor) -> bool:
    """`Dispatcher.has_window_kernel` of the shared dispatcher."""
    return shared().has_window_kernel(keys)


def solve(work: str, first: Tensor, *rest: Any) -> Any | None:
    """`Dispatcher.solve` of the shared dispatcher."""
    return shared().solve(work, first, *rest)


def elementwise(work: str, first: Tensor, *rest: Any) -> Tensor | None:
    """`Dispatcher.elementwise` of the shared dispatcher."""
    return shared().elementwise(work, first, *rest)


def self_test(device: torch.device | str) -> Status:
    """`Dispatcher.self_test` of the shared dispatcher."""
    return shared().self_test(device)


def status(device_type: str) -> Status:
    """`Dispatcher.status` of the shared dispatcher."""
    return shared().status(device_type)


def backend(device_type: str) -> str:
    """The attention in use on a device type: "triton" or "reference"."""
    return shared().status(device_type).backend
