"""Figures as JSON: what the browser's plotly reads, arrays as base64 and never as digits."""

import base64
from typing import Any

import numpy as np

from .theme import Drawing, Figure

NARROWER = {"int64": np.int32, "uint64": np.uint32, "float64": np.float32, "bool": np.uint8}


def packed_array(values: np.ndarray) -> dict[str, str] | list:
    """An array as plotly's typed-array object; text and empty arrays as lists.

    Eight-byte numbers travel as four bytes: a screen has no use for more.
    """
    if values.dtype.kind not in "biuf" or values.size == 0:
        return values.tolist()
    wire = np.ascontiguousarray(values.astype(NARROWER.get(values.dtype.name, values.dtype)))
    if wire.dtype.byteorder == ">":
        wire = wire.astype(wire.dtype.newbyteorder("<"))
    body = {
        "dtype": f"{wire.dtype.kind}{wire.dtype.itemsize}",
        "bdata": base64.b64encode(wire.tobytes()).decode("ascii"),
    }
    if wire.ndim > 1:
        body["shape"] = ", ".join(str(length) for length in wire.shape)
    return body


def packed(value: Any) -> Any:
    """`value` ready for `json.dumps`: no arrays, no numpy scalars, no entries of None."""
    if isinstance(value, np.ndarray):
        return packed_array(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: packed(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [packed(entry) for entry in value]
    return value


def packed_figure(figure: Figure) -> dict[str, Any]:
    """A figure as the `data` and `layout` of plotly's `react`."""
    return {"data": packed(figure.data), "layout": packed(figure.layout)}


def packed_drawing(drawing: Drawing) -> dict[str, Any]:
    """A figure with its words, as the page's script takes it."""
    words = {"reading": drawing.reading, "summary": drawing.summary}
    return packed_figure(drawing.figure) | words
