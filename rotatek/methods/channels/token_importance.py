"""Importance of visual tokens and heads, from the attention of the prompt's last queries.

A head's output is o = sum_n p_n v_n. To first order, an error e_n of token n's logit moves it by
p_n e_n (v_n - o), and an error x_n of its Value by p_n x_n. Errors of different tokens are
independent, so their squared sizes in the output projection's metric add up:
    logits of variance E:          E * sum_n p_n^2 |v_n - o|^2    (`key_rate` a unit of variance)
    Values of squared error X:     X * sum_n p_n^2                (`value_rate`)
Their quotient is the exchange rate between bits of Keys and bits of Values. The effect of such an
error on later layers depends on the residual stream: both rates are divided by a power of its
squared size there. Otherwise a model's first layers, where it is small, would get too few bits.
Where a norm follows the output projection, as in Gemma, an error is as much
larger or smaller as the output is behind it.
"""

from typing import Final, NamedTuple

from torch import Tensor

from kernels.dispatch import window_attention
from kernels.window_attention_reference import Window

STREAM_POWER: Final = 0.5  # of the residual stream's squared size: what an output's error is over
BYTES_POWER: Final = 0.75  # the same under a budget of bytes


class Importance(NamedTuple):
    """Importance in some layers, B of them all together.

    mass: [B, N] mean attention of the window's queries in all heads, at most one in all.
    key_rate, value_rate: [B, Hkv] squared error of the output, relative to the residual stream,
        for a unit of variance.
    size: [B] the residual stream's squared size, or None where it is not known.
    """

    mass: Tensor
    key_rate: Tensor
    value_rate: Tensor
    size: Tensor | None = None

    def over(self, power: float) -> "Importance":
        """The same with rates relative to another power of the stream's size."""
        if self.size is None or power == STREAM_POWER:
            return self
        more = self.size.pow(STREAM_POWER - power)[:, None]
        return self._replace(key_rate=self.key_rate * more, value_rate=self.value_rate * more)


def importance(seen: Window, stream: Tensor | None, gain: Tensor | None = None) -> Importance:
    """Importance in one layer or in several of one shape.

    Args:
        seen: the window's queries, and the tokens that they attend to.
        stream: the window's rows before the layer [B, 1, W, hidden], zero for padding;
            or None.
        gain: [B] by how much the squared size of the layer's output changes before it is added to
            the stream; or None.
    """
    heads = seen.keys.shape[1]
    mass, spread, squares = window_attention(seen)
    real = seen.alive.sum(1, keepdim=True).clamp(min=1)  # [B, 1]
    count = real * (seen.queries.shape[1] // heads)
    over, size = count if gain is None else count / gain.clamp(min=1e-30)[:, None], None
    if stream is not None:
        size = (stream.float().square().sum((2, 3)) / real).clamp(min=1e-30)
        over = over * size.pow(STREAM_POWER)
        size = size[:, 0]
    return Importance(mass / (heads * count), spread / over, squares / over, size)
