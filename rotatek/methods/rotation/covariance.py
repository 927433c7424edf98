"""The centred covariance of the Keys, the weights of the queries, and projections.

Pure tensors. K: keys [B, Hkv, N, d]; Q_W: window queries [B, Hq, W, d]; sigma: weights [B, Hkv, d];
C: covariance [B, Hkv, d, d]; R: basis [B, Hkv, d, k]. Everything here is float32 or wider.
Source: RotateK (arXiv 2605.19218), section 3 and appendix C, with the deviations stated below.
"""

import torch
from torch import Tensor

from kernels.dispatch import solve

LOGIT_FLOOR = 0.5  # of the median, in logits: the next queries may use what the window's do not
SIGMA_FLOOR = 1e-3  # of the median weight: a channel no query touched keeps a finite inverse


def token_mask(lengths: Tensor, tokens: int) -> Tensor:
    """[B, N] bool, true for the valid tokens of each sample."""
    return torch.arange(tokens, device=lengths.device) < lengths[:, None]


def centred_covariance(keys: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Mean mu [B, Hkv, d] and C = (K - mu)^T (K - mu) [B, Hkv, d, d], in float32.

    Centred before the product: K^T K - N mu mu^T loses 39 % with a large mean.
    """
    done = solve("covariance", keys, lengths)
    if done is not None:
        return done
    alive = token_mask(lengths, keys.shape[2])[:, None, :, None]
    keys = keys.float().masked_fill(~alive, 0.0)
    mean = keys.sum(2) / lengths.clamp(min=1)[:, None, None]
    centred = (keys - mean[:, :, None]).masked_fill(~alive, 0.0)
    return mean, centred.transpose(-1, -2) @ centred


def query_weights(
    queries: Tensor,
    kv_heads: int,
    valid: Tensor | None = None,
    mean_one: bool = False,
    floor: float = SIGMA_FLOOR,
) -> Tensor:
    """The weight of each channel's variation: the L2 norm of its queries.

    The norm runs over all G x W queries that read the head (the natural reading of the paper for
    grouped heads), floored at a share of its median.

    Args:
        queries: [B, Hq, W, d], the window's.
        kv_heads: Hkv.
        valid: [B, W] bool, the queries that are real; None where all are.
        mean_one: divide by the mean over a head's channels.
        floor: the least weight, as a share of the median.

    Returns:
        sigma [B, Hkv, d] float32.
    """
    tiny = torch.finfo(torch.float32).tiny ** 0.5
    done = solve("weigh", queries, kv_heads, valid, floor, tiny, mean_one)
    if done is not None:
        return done
    B, Hq, W, d = queries.shape
    squared = queries.float().square()
    if valid is not None:
        squared = squared.masked_fill(~valid[:, None, :, None], 0.0)
    sigma = squared.sum(2).view(B, kv_heads, Hq // kv_heads, d).sum(2).sqrt()
    least = floor * sigma.median(-1, keepdim=True).values
    sigma = torch.maximum(sigma, least.clamp(min=tiny))
    return sigma / sigma.mean(-1, keepdim=True) if mean_one else sigma


def logit_weights(queries: Tensor, kv_heads: int, valid: Tensor | None = None) -> Tensor:
    """Weight of a Key channel's error in a logit: the root mean square of its queries.

    Over window and group, and over sqrt(d), so that (S x) . (S x) of an error x of a Key is the
    variance of the logit's error: comparable between heads and layers, whatever the scale of their
    Keys. Floored at half the median: a channel that the few last queries leave out may be the next
    one's, and its inverse stays small.

    Args:
        queries: [B, Hq, W, d], the window's.
        kv_heads: Hkv.
        valid: [B, W] bool, the queries that are no padding; None where all are.

    Returns:
        S [B, Hkv, d] float32.
    """
    sigma = query_weights(queries, kv_heads, valid, floor=LOGIT_FLOOR)
    numbers = queries.shape[1] // kv_heads * queries.shape[3]  # of a row, over sqrt(d)
    if valid is None:
        return sigma / (numbers * queries.shape[2]) ** 0.5
    return sigma * (numbers * valid.sum(1).clamp(min=1)).to(sigma).rsqrt()[:, None, None]


def weighted_moments(states: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Mean, in the states' own type, and covariance around it, of weighted tokens.

    Args:
        states: [B, Hkv, N, d].
        shares: [B, 1, N] weight of each token, of sum one (zero for padding).

    Returns:
        mean [B, Hkv, d], and C = sum_n share_n (x_n - mean) (x_n - mean)^T [B, Hkv, d, d] float32.
    """
    done = solve("covariance", states, None, shares[:, 0], states.dtype)
    if done is not None:
        return done
    wide = states.float()
    mean = (shares[:, :, None] @ wide).squeeze(2).to(states.dtype)
    centred = (wide - mean.float()[:, :, None]).mul_(shares.sqrt()[..., None])
    return mean, centred.transpose(-1, -2) @ centred


def weighted(covariance: Tensor, sigma: Tensor | None) -> Tensor:
    """C_q = (sigma sigma^T) * C; C itself without weights."""
    if sigma is None:
        return covariance
    return covariance * sigma[..., :, None] * sigma[..., None, :]


def project(states: Tensor, mean: Tensor, basis: Tensor, lengths: Tensor) -> Tensor:
    """The coordinates of centred Keys or Values in a basis: (states - mean) F.

    Args:
        states: [B, Hkv, N, d].
        mean: [B, Hkv, d].
        basis: F [B, Hkv, d, k].
        lengths: [B] valid tokens.

    Returns:
        [B, Hkv, N, k] in the states' dtype; rows beyond a length are undefined.
    """
    done = solve("project", states, mean, basis)
    if done is not None:
        return done
    centred = (states.float() - mean[:, :, None]) @ basis
    alive = token_mask(lengths, states.shape[2])[:, None, :, None]
    return centred.masked_fill(~alive, 0.0).to(states.dtype)


def captured_energy(covariance: Tensor, basis: Tensor) -> Tensor:
    """Share of C's trace inside the basis [...]: tr(R^T C R) / tr(C); 1 where C is zero."""
    inside = ((covariance @ basis) * basis).sum((-1, -2))
    total = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    return torch.where(total > 0, inside / total, 1.0)


def metric_root(metric: Tensor) -> tuple[Tensor, Tensor]:
    """S = metric^(1/2) and S^-1 of symmetric [..., d, d], floored at 1e-6 of the largest."""
    values, vectors = torch.linalg.eigh(metric.double())
    values = torch.maximum(values, 1e-6 * values.amax(-1, keepdim=True)).clamp(min=1e-30)
    root = values.sqrt()
    forward = (vectors * root[..., None, :]) @ vectors.transpose(-1, -2)
    back = (vectors / root[..., None, :]) @ vectors.transpose(-1, -2)
    return forward.float(), back.float()
