"""Seven lessons, drawn and worded from what is stored; methods name themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rotatek.compare.columns import UNCOMPRESSED
from rotatek.inputs import request
from rotatek.inspect import trace_analysis
from rotatek.methods.settings import Settings
from rotatek.page import figures
from rotatek.page.learn.story import FEW_BITS, NAME, Cast, Story, cast, load
from rotatek.page.results import answers, files
from viz import (
    Drawing,
    bits,
    budget,
    energy,
    image_overlay,
    keys,
    masks,
    rope_pair,
    scores,
    spectrum,
)
from viz.theme import percent, size

PICTURE: Final = "learn"  # the name by which figures refer to the example's image


class Lesson(NamedTuple):
    """One step: its figures by title, its paragraph, and the settings that show it on the page."""

    title: str
    figures: dict[str, Drawing]
    text: str
    settings: Settings


@dataclass(frozen=True)
class Scene:
    """The story's head as the first lessons look at it, under the methods that they speak of.

    Args:
        story: what is stored.
        cast: the methods.
        view: the head under the rotation.
        masks: by the names of methods.
        curves: by the names of methods.
    """

    story: Story
    cast: Cast
    view: trace_analysis.HeadView
    masks: Mapping[str, np.ndarray]
    curves: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, story: Story) -> "Scene":
        """The scene of a stored example."""
        methods = cast()
        view = trace_analysis.head_view(story.trace, 0, 0, methods.ours)
        compared = {one.name: one for one in (methods.ours, methods.fixed, methods.ragged)}
        curves = {
            name: trace_analysis.energy_curve(story.trace, 0, 0, one, methods.ours, view.k)
            for name, one in compared.items()
        }
        return cls(
            story, methods, view, trace_analysis.masks(story.trace, 0, 0, compared, view.k), curves
        )

    def held(self, name: str) -> float:
        """Share of the energy that a method keeps."""
        return float(self.curves[name][self.view.k])

    @property
    def top(self) -> float:
        """The |K| drawn brightest, in every map of this head."""
        return keys.scale_top(self.view.raw, self.view.rotated)


def lessons(story: Story, pixels: np.ndarray, measured: files.Files) -> list[Lesson]:
    """All lessons, drawn and worded.

    Args:
        story: the stored example.
        pixels: its image, uint8 RGB [height, width, 3].
        measured: `results.files.load`, for the fifth lesson's second figure.
    """
    scene = Scene.of(story)
    return [
        _outliers(scene),
        _fixed(scene),
        _rotation(scene),
        _attention(scene, pixels),
        _budget(scene, measured),
        _values(scene),
        _bits(scene),
    ]


def _outliers(scene: Scene) -> Lesson:
    story, view = scene.story, scene.view
    (layer,) = story.trace.layers
    raw = layer.keys[0].astype(np.float32)
    shared = float(np.square(layer.mean[0]).sum() / np.square(raw).sum(axis=1).mean())
    return Lesson(
        "Why Keys have outliers",
        {
            "One head's Keys": keys.draw_raw(view.raw, top=scene.top, tokens=view.tokens),
            "Two of its channels, token by token": rope_pair.draw(
                raw, story.trace.grids[0].columns
            ),
        },
        f"The model remembers each piece of the picture as a Key of {raw.shape[1]} numbers. Here "
        f"is one head, layer {story.layer}, head {story.head}: a row a piece, a column a channel. "
        f"Some columns are brighter than the rest. {percent(min(shared, 1.0))} of the size of "
        "these Keys is their common mean, which moves the scores of all pieces alike and tells "
        "none of them apart. On top of it, rotary position encoding turns channels in pairs as one "
        "goes along the picture, some quickly and some slowly: the ripples.",
        scene.cast.kept.with_options(keep_channels=1.0),
    )


def _fixed(scene: Scene) -> Lesson:
    view, fixed, ragged = scene.view, scene.cast.fixed, scene.cast.ragged
    own = scene.masks[ragged.name]
    return Lesson(
        "Why fixed channels fail",
        {
            "The same channels for all": masks.draw(
                scene.masks[fixed.name], fixed, tokens=view.tokens
            ),
            "Each piece chooses its own": masks.draw(own, ragged, tokens=view.tokens),
        },
        f"Suppose only {view.k} of {view.raw.shape[1]} channels may stay. {fixed.label} picks the "
        f"best ones once, for the whole head; they hold {percent(scene.held(fixed.name))} of what "
        "varies between pieces, weighed by what the question looks at. Let each piece choose its "
        f"own, as {ragged.label} does, and they hold {percent(scene.held(ragged.name))}, but agree "
        f"on {percent(masks.agreement(own))} of the choice only: so ragged that the Keys must "
        "be put together again before they can be used.",
        replace(scene.cast.kept, channels=fixed),
    )


def _rotation(scene: Scene) -> Lesson:
    view, ours, fixed = scene.view, scene.cast.ours, scene.cast.fixed
    methods = (ours, fixed, scene.cast.ragged)
    curves = [energy.Curve(method, scene.curves[method.name]) for method in methods]
    needed = energy.channels_to_reach(scene.curves[fixed.name], scene.held(ours.name))
    rotated = keys.draw_rotated(view.rotated, view.k, top=scene.top, tokens=view.tokens)
    return Lesson(
        "What the rotation does",
        {"The same Keys, rotated": rotated, "What k channels hold": energy.draw(curves, view.k)},
        f"The channels a model happens to use are not the best axes for its Keys. {ours.label} "
        "takes away the mean and turns the axes until the first one holds as much as any can, the "
        "second as much of the rest, and so on: principal component analysis, weighed by the "
        f"queries, once for each head. Now one straight cut serves every piece: {view.k} rotated "
        f"channels hold {percent(scene.held(ours.name))}, for which {needed} unrotated ones "
        "would be needed. The query is turned in the same way, so nothing is rebuilt.",
        scene.cast.kept,
    )


def _attention(scene: Scene, pixels: np.ndarray) -> Lesson:
    story, ours = scene.story, scene.cast.ours
    under = image_overlay.backdrop(pixels)._replace(source=f"rk:{PICTURE}")
    seen = trace_analysis.attention_view(story.trace, 0, 0, ours, 0)
    shared = float(np.minimum(seen.attention, seen.compressed).sum())
    cells = trace_analysis.on_grid(story.trace, scene.view.token, seen.attention)
    error = scores.relative_error(seen.exact, seen.approximate)
    return Lesson(
        "What the head sees",
        {
            "Where the head looks": image_overlay.draw_attention(under, cells),
            "Exact scores and compressed ones": scores.draw(seen.exact, seen.approximate, ours),
        },
        f"The question was \u201c{story.question}\u201d. A Key has one purpose: its product with "
        "the query is the score of a piece, and scores become attention. From a quarter of the "
        f"channels the scores are off by {percent(error)} of their spread, and "
        f"{percent(shared)} of this head's attention falls where it fell before. On the page you "
        "can step through an answer and watch the look move.",
        scene.cast.kept.with_options(keep_channels=0.09),
    )


def _budget(scene: Scene, measured: files.Files) -> Lesson:
    story, named = scene.story, scene.cast
    shown = (
        UNCOMPRESSED, named.alone, named.with_pruner(named.fixed), named.with_pruner(named.ours)
    )  # fmt: skip
    drawn = {"Where the bytes are": budget.draw(_parts(story, shown))}
    found = answers.answers(measured, files.Asked()).get(f"frontier-{named.pruner.name}")
    many = "" if found is None else "; the lines count many"
    if found is not None:
        drawn["Over many questions"] = found[1]
    return Lesson(
        "What a budget buys",
        drawn,
        "There are two ways to keep a quarter of the visual cache: drop three pieces in four "
        f"({named.alone}), or drop fewer and narrow the Keys of those that stay. Dropped pieces "
        "cannot be looked up again. For this one question the answers were "
        f"{_answers(story, shown)}. One question proves little{many}. Bytes are real, so bases, "
        f"text and the first layers, which {named.pruner.label} leaves whole, are counted too.",
        named.joint,
    )


def _values(scene: Scene) -> Lesson:
    story, named = scene.story, scene.cast
    shown = (UNCOMPRESSED, named.ours.label, named.values_too)
    (layer,) = story.trace.layers
    kept = round(named.beyond.channels.value_share * layer.keys.shape[2])
    held = size(sum(story.columns[named.values_too]["bytes"].values()))
    return Lesson(
        "Beyond the paper: Values",
        {
            "Where the bytes are": budget.draw(_parts(story, shown)),
            "This head's Values, direction by direction": spectrum.draw(
                layer.value_energy[0], kept, of="Values"
            ),
        },
        "Once Keys are narrow, most of what is left are Values, what a piece says when it is "
        "looked at. The paper leaves them whole. As an experiment they can be rotated too, in the "
        "metric of the layer's output, and every head can get the width that its own spectrum "
        f"earns. Here that comes to {held}, and the answers were {_answers(story, shown)}. "
        "This is small-model evidence; the results tab has the figures.",
        named.beyond,
    )


def _bits(scene: Scene) -> Lesson:
    story, named = scene.story, scene.cast
    method = named.bits.channels
    at = story.layer, story.head
    depths = trace_analysis.key_bits(story.trace, method, story.spectra)[at]
    used, level = int((depths > 0).sum()), trace_analysis.water_level(method, story.spectra, *at)
    held, full = (
        sum(story.columns[title]["bytes"].values()) for title in (named.few_bits, UNCOMPRESSED)
    )
    return Lesson(
        "Beyond the paper: the bits a channel earns",
        {
            "Where the water stands": spectrum.draw(scene.view.spectrum, used, level=level),
            "What each direction gets": bits.draw(depths),
        },
        "So far a direction had sixteen bits or none, and few deserve either. Two more bits make "
        "an error about ten times smaller, so pour one water over the spectra of all heads: what "
        "lies below its level gets nothing, and the higher a direction rises above it, the more "
        f"bits it gets. At {FEW_BITS:g} bits a number on average {used} of this head's "
        f"{len(depths)} directions get any, by its Keys alone; the cache also weighs Values, and "
        f"what an error does to the layer's output. Here that comes to {size(held)} of "
        f"{size(full)}, and the answers were {_answers(story, (UNCOMPRESSED, named.few_bits))}.",
        named.bits,
    )


def _parts(story: Story, titles: Sequence[str]) -> dict[str, dict[str, int]]:
    return {title: story.columns[title]["bytes"] for title in titles}


def _answers(story: Story, titles: Sequence[str]) -> str:
    """What each column answered, the first in full and those that agree as `the same`."""
    said = []
    for number, title in enumerate(titles):
        column = story.columns[title]
        same = number > 0 and column["differs"] is None
        words = "the same" if same else f"\u201c{_short(column['answer'])}\u201d"
        said.append(f"{words} ({title})")
    return ", ".join(said)


def _short(text: str, limit: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "\u2026"


@lru_cache(maxsize=2)
def stored_lessons(assets: Path) -> tuple[Lesson, ...]:
    """The lessons of a copy of the repository, drawn once; none where no story is stored."""
    story = load(assets / "traces" / NAME)
    if story is None:
        return ()
    return tuple(lessons(story, _pixels(assets, story), files.load(assets / "results")))


def frame(number: int, place: int) -> str:
    """The element that shows a lesson's figure; both count from 1."""
    return f"learn-figure-{number}-{place}"


def payload(assets: Path) -> str:
    """Every figure of the lessons, and the picture under two of them."""
    story = load(assets / "traces" / NAME)
    if story is None:
        return ""
    drawings = {
        frame(number, place): drawing
        for number, lesson in enumerate(stored_lessons(assets), 1)
        for place, drawing in enumerate(lesson.figures.values(), 1)
    }
    under = image_overlay.backdrop(_pixels(assets, story))
    return figures.payload(drawings, {PICTURE: under.source})


def _pixels(assets: Path, story: Story) -> np.ndarray:
    return np.asarray(request.open_image(assets / "examples" / story.image))
