"""A record of a prefill and its answer in NumPy, enough to draw every figure.

A trace holds ingredients (Keys, covariances, queries of the window and of the answer), not
pictures; `rotatek.inspect.trace_analysis` runs the methods' own functions on them for any
settings the sliders hold. Its size is capped: at most `limit` Keys a head, and as many answer
tokens as `AnswerAttentionRecorder` keeps.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rotatek.inputs.token_grid import Grid
from rotatek.inspect.answer_attention import AnswerAttentionRecorder
from rotatek.methods import rotation
from rotatek.methods.channels.base import HeadStates, LayerStates

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class LayerTrace:
    """One layer, one sample. n: traced tokens (a uniform stride over the layer's visual tokens).

    keys: float16 [Hkv, n, d] post-RoPE; token: int32 [n] number of each among all visual tokens;
    mean: [Hkv, d]; covariance: [Hkv, d, d] over every visual token; queries: float16 [Hq, W, d];
    count: the layer's visual tokens; answer: float16 [S, Hq, d], the query that chose each recorded
    token of the answer.
    """

    keys: NDArray[np.float16]
    token: NDArray[np.int32]
    mean: Floats
    covariance: Floats
    queries: NDArray[np.float16]
    count: int
    answer: NDArray[np.float16]


@dataclass(frozen=True)
class Trace:
    """A prefill and its answer as the figures need them.

    grids: rows and columns of each image's visual tokens, empty if unknown; steps: the number of
    each recorded answer token, 0 being the one that the prompt's last row chose.
    """

    layers: tuple[LayerTrace, ...]
    grids: tuple[Grid, ...]
    visual_tokens: int
    steps: tuple[int, ...] = (0,)

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, kv heads of the layer that has most)."""
        return len(self.layers), max(map(self.heads, range(len(self.layers))), default=0)

    def heads(self, layer: int) -> int:
        """Key heads of one layer: in Gemma 4 full layers may have fewer than others."""
        return self.layers[layer].keys.shape[0]

    def head(self, layer: int, head: int) -> HeadStates:
        """One Key head's ingredients, as the methods' own functions take them."""
        trace = self.layers[layer]
        return HeadStates(
            torch.from_numpy(trace.keys[head].astype(np.float32)),
            torch.from_numpy(_group(trace, trace.queries, head)),
            torch.from_numpy(trace.mean[head]),
            torch.from_numpy(trace.covariance[head]),
        )

    def query(self, layer: int, head: int, step: int) -> Tensor:
        """The queries [G, d] of a Key head's group that chose one token of the answer; step: index
        into `steps`."""
        trace = self.layers[layer]
        if self.steps[step] == 0:  # the prompt's last row
            return torch.from_numpy(_group(trace, trace.queries, head)[:, -1])
        row = trace.answer[step - len(self.steps)]  # `steps` begins with 0
        return torch.from_numpy(_group(trace, row, head))


def _group(trace: LayerTrace, queries: NDArray, head: int) -> Floats:
    """Rows of queries [Hq, ...] that read one Key head."""
    size = trace.queries.shape[0] // trace.keys.shape[0]
    return queries[head * size : (head + 1) * size].astype(np.float32)


@dataclass
class TraceRecorder:
    """Collects a `Trace` of sample 0 while a cache fills: one covariance a layer."""

    limit: int
    layers: list[LayerTrace] = field(default_factory=list)

    def record(self, states: LayerStates) -> None:
        """Called by the cache, once a layer."""
        count = int(states.lengths[0])
        step = max(1, -(-count // self.limit))
        token = torch.arange(0, count, step)
        mean, covariance = rotation.centred_covariance(states.keys[:1], states.lengths[:1])
        queries = states.queries[0][:, states.window_alive[0]]
        self.layers.append(LayerTrace(
            keys=_numpy(states.keys[0, :, token.to(states.keys.device)], torch.float16),
            token=token.to(torch.int32).numpy(),
            mean=_numpy(mean[0]),
            covariance=_numpy(covariance[0]),
            queries=_numpy(queries, torch.float16),
            count=count,
            answer=np.zeros((0, *states.queries.shape[1::2]), dtype=np.float16),
        ))  # fmt: skip

    def finish(
        self,
        grids: tuple[Grid, ...],
        visual_tokens: int,
        kept: NDArray[np.bool_] | None,
        asked: AnswerAttentionRecorder | None,
    ) -> Trace:
        """Close the record and make the trace of it.

        Args:
            grids, visual_tokens: as a `Trace`'s.
            kept: [visual_tokens] the tokens behind a pruner's rows; None where none was dropped.
            asked: who has seen every layer; None where nobody has.
        """
        rows = [[] if asked is None else asked.rows[layer] for layer in range(len(self.layers))]
        whole = max(1, min(map(len, rows)))  # a stopped answer may end inside a step
        layers = []
        for trace, own in zip(self.layers, rows, strict=True):
            token = trace.token
            if kept is not None and trace.count == int(kept.sum()):
                token = np.flatnonzero(kept).astype(np.int32)[token]
            answer = _numpy(torch.stack(own[1:whole]), torch.float16) if whole > 1 else trace.answer
            layers.append(replace(trace, token=token, answer=answer))
        steps = (0,) if asked is None else tuple(asked.steps[:whole])
        return Trace(tuple(layers), grids, visual_tokens, steps)


def _numpy(tensor: Tensor, dtype: torch.dtype = torch.float32) -> NDArray:
    return tensor.detach().to("cpu", dtype).numpy().copy()
