"""After a failure: its kind, the memory to free, and whether to try a smaller request.

A request that runs out of memory is tried once more under tighter limits. A lost accelerator is not
recovered: every later call of this process would fail too, so its owner has to restart it.
"""

import gc
import logging
import os
import threading
from dataclasses import replace

import torch
from PIL import Image

from rotatek.inputs.images import MIN_SIDE
from rotatek.inputs.request import Request

log = logging.getLogger("rotatek")

LEAST_TOKENS = 16  # an answer is not cut below this
RESTART_S = 1.0  # for visitors to receive the message that the accelerator is lost


def is_lost(failure: BaseException, device: torch.device) -> bool:
    """Whether the accelerator is of no use to this process any more.

    An illegal address, a failed assertion or a memory fault on a GPU is sticky: the next call
    raises it again. A new tensor tells.
    """
    if device.type != "cuda" or not isinstance(failure, torch.AcceleratorError):
        return False
    try:
        probe(device)
    except RuntimeError:
        return True
    return False


def probe(device: torch.device) -> None:
    """One tiny piece of work on `device`.

    Raises:
        RuntimeError: where the device does no work any more.
    """
    torch.zeros(1, device=device).add_(1).cpu()


def leave_for_restart() -> None:
    """Leave with status 1, after visitors have the message. An orderly exit may hang in CUDA."""
    log.critical("the accelerator is lost: leaving for a restart")
    timer = threading.Timer(RESTART_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


def free(device: torch.device) -> None:
    """Give unused memory back. Call it outside of `except`: a traceback keeps tensors alive."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def tighter(request: Request) -> Request:
    """The same question with images of half the side and at most half the answer.

    A quarter of the pixels makes the vision tower, the prompt and the cache smaller in both
    families.
    """
    images = tuple(
        image.resize(
            (max(MIN_SIDE, image.width // 2), max(MIN_SIDE, image.height // 2)),
            Image.Resampling.LANCZOS,
        )
        for image in request.images
    )
    tokens = min(request.max_new_tokens, max(LEAST_TOKENS, request.max_new_tokens // 2))
    return replace(request, images=images, max_new_tokens=tokens)
