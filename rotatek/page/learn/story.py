"""The lessons' example: a single head of one stored run, and what every column of it answered."""

import json
import zipfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from rotatek.compare.columns import UNCOMPRESSED, default_pruner
from rotatek.inputs import request
from rotatek.inputs.token_grid import Grid
from rotatek.inspect import trace_analysis
from rotatek.inspect.trace import Floats, LayerTrace, Trace
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.shares import matched_keep_tokens
from rotatek.methods.tokens import TokenPruner
from rotatek.page.inspect.drawings import parts_of
from rotatek.service.model_list import Example
from rotatek.service.run import Run
from rotatek.service.service import Service

NAME: Final = "tour.npz"
QUARTER: Final = 0.25  # of the Key channels, and of the cache where two methods meet
FEW_BITS: Final = 0.75  # a number on average, of the lesson on bits
ARRAYS: Final = ("keys", "token", "mean", "covariance", "queries", "value_energy", "answer")


@dataclass(frozen=True)
class Cast:
    """The methods that the lessons speak of, each at a quarter of its share.

    Args:
        ours: the default method, which rotates.
        fixed: one that keeps the same channels for every token.
        ragged: one that lets every token choose its own.
        pruner: drops tokens.
    """

    ours: ChannelMethod
    fixed: ChannelMethod
    ragged: ChannelMethod
    pruner: TokenPruner

    @property
    def kept(self) -> Settings:
        """Channels alone: what most lessons look at."""
        return Settings(channels=self.ours)

    @property
    def joint(self) -> Settings:
        """Fewer tokens, and fewer channels of each: a quarter of the cache."""
        share = matched_keep_tokens(QUARTER, self.ours.nominal_share)
        return Settings(self.pruner.at(share), self.ours)

    @property
    def beyond(self) -> Settings:
        """Values too, and heads of widths of their own."""
        return self.kept.with_options(keep_values=QUARTER, widths="adaptive")

    @property
    def bits(self) -> Settings:
        """Every rotated channel at the depth that it earns."""
        return self.kept.with_options(bits=FEW_BITS)

    @property
    def alone(self) -> str:
        """The column of dropped tokens alone."""
        return f"{self.pruner.label} alone"

    @property
    def values_too(self) -> str:
        """The column of `beyond`."""
        return f"{self.ours.label}, Values too"

    @property
    def few_bits(self) -> str:
        """The column of `bits`."""
        return f"{self.ours.label}, {FEW_BITS:g} bits"

    def with_pruner(self, method: ChannelMethod) -> str:
        """The column of dropped tokens and a channel method."""
        return f"{self.pruner.label} + {method.label}"

    def columns(self) -> dict[str, Settings]:
        """What is compared, by title; the second is traced, and keeps every token."""
        return {
            UNCOMPRESSED: BASELINE,
            self.ours.label: self.kept,
            self.alone: Settings(self.pruner, BASELINE.channels),
            self.with_pruner(self.fixed): replace(self.joint, channels=self.fixed),
            self.with_pruner(self.ours): self.joint,
            self.values_too: self.beyond,
            self.few_bits: self.bits,
        }


@cache
def cast() -> Cast:
    """Our own methods, in the order of the registry: the two that do not rotate are told apart by
    their masks, which a test holds them to."""
    ours = [kind().at(QUARTER) for kind in CHANNELS.own.values()]
    fixed, ragged = [one for one in ours if one.drops_channels and not one.rotates][:2]
    return Cast(CHANNELS.default().at(QUARTER), fixed, ragged, default_pruner()().at(QUARTER))


class Story(NamedTuple):
    """One stored run: a single head of it, its place in the model, and each column's outcome.

    spectra: float32 [layers, kv heads, d] of every head, whose Keys share one budget of bits.
    columns: title -> bytes by part, the answer, and the index of the first token that differs from
    the uncompressed answer (None where none does).
    """

    trace: Trace
    layer: int
    head: int
    image: str
    question: str
    columns: dict[str, dict[str, Any]]
    spectra: Floats


def typical_head(trace: Trace) -> tuple[int, int]:
    """The (layer, head) whose lead of the rotation over fixed channels in energy is the median."""
    layers, heads = trace.shape
    ours, fixed = cast().ours, cast().fixed
    leads = {}
    for place in ((layer, head) for layer in range(layers) for head in range(heads)):
        curves = trace_analysis.energy_curves(trace, *place, ours)
        k = round(ours.key_share * (len(curves[ours.name]) - 1))
        leads[place] = float(curves[ours.name][k] - curves[fixed.name][k])
    return sorted(leads, key=lambda place: leads[place])[len(leads) // 2]


def one_head(trace: Trace, layer: int, head: int) -> Trace:
    """A trace of this head alone."""
    whole = trace.layers[layer]
    group = whole.queries.shape[0] // whole.keys.shape[0]
    mine = slice(head, head + 1)
    queries = slice(head * group, (head + 1) * group)
    small = LayerTrace(
        keys=whole.keys[mine],
        token=whole.token,
        mean=whole.mean[mine],
        covariance=whole.covariance[mine],
        queries=whole.queries[queries],
        value_energy=whole.value_energy[mine],
        count=whole.count,
        answer=whole.answer[:, queries],
    )
    return replace(trace, layers=(small,))


def story_of(run: Run, image: str) -> Story:
    """What the lessons keep of a finished run over `Cast.columns`."""
    trace = run.trace
    assert trace is not None
    layer, head = typical_head(trace)
    parts = parts_of(run)
    columns = {
        title: {"bytes": parts[title], "answer": column.answer, "differs": column.diverged_at}
        for title, column in run.columns.items()
    }
    spectra = trace_analysis.spectra(trace, cast().ours)
    return Story(one_head(trace, layer, head), layer, head, image, run.question, columns, spectra)


def save(story: Story, path: Path) -> None:
    """Store a story as compressed arrays and a JSON header."""
    (layer,) = story.trace.layers
    header = {
        "grids": [(grid.rows, grid.columns) for grid in story.trace.grids],
        "visual_tokens": story.trace.visual_tokens,
        "steps": story.trace.steps, "itemsize": story.trace.itemsize, "count": layer.count,
        "layer": story.layer, "head": story.head, "image": story.image,
        "question": story.question, "columns": story.columns,
    }  # fmt: skip
    arrays = {name: getattr(layer, name) for name in ARRAYS}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez_compressed(path, header=text, spectra=story.spectra, **arrays)


def load(path: Path) -> Story | None:
    """A stored story, or None where there is none that can be read."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(stored["header"].tobytes())
            layer = LayerTrace(count=header["count"], **{name: stored[name] for name in ARRAYS})
            spectra = stored["spectra"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    grids = tuple(Grid(rows, columns) for rows, columns in header["grids"])
    trace = Trace(
        (layer,), grids, header["visual_tokens"], tuple(header["steps"]), header["itemsize"]
    )
    names = ("layer", "head", "image", "question", "columns")
    told = {name: header[name] for name in names}
    return Story(trace=trace, spectra=spectra, **told)


def make(service: Service, example: Example, path: Path) -> Story:
    """Answer an example under every column and store the story."""
    image = request.open_image(example.image)
    name = service.models[0].name
    *_, run = service.ask(name, image, example.questions[0], cast().columns(), 64)
    story = story_of(run, example.image.name)
    save(story, path)
    return story
