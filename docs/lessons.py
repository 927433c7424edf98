"""`python -m docs.lessons`: write and draw the lessons of the page's Learn tab anew.

It answers the first example of the gallery with the embedded model, and draws one of its heads.
Run it whenever the embedded weights or the published results change.
"""

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rotatek.compare.columns import UNCOMPRESSED
from rotatek.inputs import request
from rotatek.inspect import trace_analysis
from rotatek.inspect.trace import Trace
from rotatek.methods.channels import RotateK, SparK, ThinK
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.shares import channels_kept, matched_keep_tokens
from rotatek.methods.tokens import FastV
from rotatek.page import plot_transport
from rotatek.page.inspect.drawings import parts_of
from rotatek.page.learn.lessons import NAME, frame
from rotatek.page.results import answers, files
from rotatek.paths import assets
from rotatek.service.model_list import Example, load_examples, models_on_offer
from rotatek.service.run import Run
from rotatek.service.service import Service
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
QUARTER: Final = 0.25  # of the Key channels, and of the cache where two methods meet
OURS, THINK, SPARK = RotateK(keep=QUARTER), ThinK(keep=QUARTER), SparK(keep=QUARTER)
KEPT: Final = Settings(channels=OURS)  # channels alone: most lessons show this column
JOINT: Final = Settings(FastV(keep=matched_keep_tokens(QUARTER, OURS.nominal_share)), OURS)
BEYOND: Final = KEPT.with_options(keep_values=QUARTER, widths="adaptive")
BITS: Final = KEPT.with_options(bits=0.75)
COLUMNS: Final[Mapping[str, Settings]] = {  # the second is traced, and keeps every token
    UNCOMPRESSED: BASELINE,
    "RotateK": KEPT,
    "FastV alone": Settings(FastV(keep=QUARTER), BASELINE.channels),
    "FastV + ThinK": replace(JOINT, channels=THINK),
    "FastV + RotateK": JOINT,
    "RotateK, Values too": BEYOND,
    "RotateK, 0.75 bits": BITS,
}


class Drawn(NamedTuple):
    """One lesson: title, figures by title, paragraph, and the settings that show it."""

    title: str
    figures: dict[str, Drawing]
    text: str
    settings: Settings


@dataclass(frozen=True)
class Head:
    """A finished run over `COLUMNS`, and the head that the lessons draw."""

    run: Run
    layer: int
    head: int

    @classmethod
    def typical(cls, run: Run) -> "Head":
        """The head whose lead of RotateK over ThinK in energy is the median."""
        leads = []
        trace = run.trace
        assert trace is not None
        for layer, head in np.ndindex(*trace.shape):
            one = cls(run, layer, head)
            leads.append((one.held(OURS) - one.held(THINK), layer, head))
        _, layer, head = sorted(leads)[len(leads) // 2]
        return cls(run, layer, head)

    @property
    def at(self) -> tuple[Trace, int, int]:
        """The first arguments of the functions of `trace_analysis`."""
        assert self.run.trace is not None
        return self.run.trace, self.layer, self.head

    @property
    def k(self) -> int:
        """A quarter of the channels."""
        return channels_kept(self.at[0].layers[self.layer].keys.shape[2], QUARTER)

    @cached_property
    def view(self) -> trace_analysis.HeadView:
        """The head under the rotation."""
        return trace_analysis.head_view(*self.at, OURS)

    @cached_property
    def curves(self) -> dict[str, np.ndarray]:
        """Of RotateK, ThinK and SparK: the share of the energy that so many channels keep."""
        methods = (OURS, THINK, SPARK)
        return {
            one.name: trace_analysis.energy_curve(*self.at, one, OURS, self.k) for one in methods
        }

    def held(self, method: RotateK | ThinK | SparK) -> float:
        """Share of the energy that a method keeps in a quarter of the channels."""
        return float(self.curves[method.name][self.k])

    def bytes(self, *titles: str) -> Drawing:
        """Where some columns' bytes are."""
        parts = parts_of(self.run)
        return budget.draw({title: parts[title] for title in titles})

    def total(self, title: str) -> str:
        """A column's bytes, in words."""
        return size(sum(parts_of(self.run)[title].values()))

    def answers(self, *titles: str) -> str:
        """What each column answered, the first in full and those that agree as `the same`."""
        said = []
        for number, title in enumerate(titles):
            column = self.run.columns[title]
            text = " ".join(column.answer.split())
            text = text if len(text) <= 60 else text[:59].rstrip() + "\u2026"
            same = number > 0 and column.diverged_at is None
            said.append(("the same" if same else f"\u201c{text}\u201d") + f" ({title})")
        return ", ".join(said)


def lessons(one: Head, measured: files.Files) -> list[Drawn]:
    """All seven, drawn and worded.

    Args:
        one: the head.
        measured: `results.files.load`, for the fifth lesson's second figure.
    """
    return [
        _outliers(one), _fixed(one), _rotation(one), _attention(one),
        _budget(one, measured), _values(one), _bits(one),
    ]  # fmt: skip


def _outliers(one: Head) -> Drawn:
    trace, view = one.at[0], one.view
    layer = trace.layers[one.layer]
    raw = layer.keys[one.head].astype(np.float32)
    shared = np.square(layer.mean[one.head]).sum() / np.square(raw).sum(axis=1).mean()
    top = keys.scale_top(view.raw, view.rotated)
    return Drawn(
        "Why Keys have outliers",
        {
            "One head's Keys": keys.draw_raw(view.raw, top=top, tokens=view.tokens),
            "Two of its channels, token by token": rope_pair.draw(raw, trace.grids[0].columns),
        },
        f"The model remembers each piece of the picture as a Key of {raw.shape[1]} numbers. Here "
        f"is one head, layer {one.layer}, head {one.head}: a row a piece, a column a channel. "
        f"Some columns are brighter than the rest. {percent(min(float(shared), 1.0))} of the size "
        "of these Keys is their common mean, which moves the scores of all pieces alike and tells "
        "none of them apart. On top of it, rotary position encoding turns channels in pairs as one "
        "goes along the picture, some quickly and some slowly: the ripples.",
        KEPT.with_options(keep_channels=1.0),
    )


def _fixed(one: Head) -> Drawn:
    view = one.view
    fixed, own = trace_analysis.masks(*one.at, {"fixed": THINK, "own": SPARK}, view.k).values()
    return Drawn(
        "Why fixed channels fail",
        {
            "The same channels for all": masks.draw(fixed, THINK, tokens=view.tokens),
            "Each piece chooses its own": masks.draw(own, SPARK, tokens=view.tokens),
        },
        f"Suppose only {view.k} of {view.raw.shape[1]} channels may stay. ThinK picks the "
        f"best ones once, for the whole head; they hold {percent(one.held(THINK))} of what "
        "varies between pieces, weighed by what the question looks at. Let each piece choose its "
        f"own, as SparK does, and they hold {percent(one.held(SPARK))}, but agree "
        f"on {percent(masks.agreement(own))} of the choice only: so ragged that the Keys must "
        "be put together again before they can be used.",
        Settings(channels=THINK),
    )


def _rotation(one: Head) -> Drawn:
    view = one.view
    curves = [energy.Curve(method, one.curves[method.name]) for method in (OURS, THINK, SPARK)]
    needed = energy.channels_to_reach(one.curves[THINK.name], one.held(OURS))
    top = keys.scale_top(view.raw, view.rotated)
    rotated = keys.draw_rotated(view.rotated, view.k, top=top, tokens=view.tokens)
    return Drawn(
        "What the rotation does",
        {"The same Keys, rotated": rotated, "What k channels hold": energy.draw(curves, view.k)},
        "The channels a model happens to use are not the best axes for its Keys. RotateK "
        "takes away the mean and turns the axes until the first one holds as much as any can, the "
        "second as much of the rest, and so on: principal component analysis, weighed by the "
        f"queries, once for each head. Now one straight cut serves every piece: {view.k} rotated "
        f"channels hold {percent(one.held(OURS))}, for which {needed} unrotated ones "
        "would be needed. The query is turned in the same way, so nothing is rebuilt.",
        KEPT,
    )


def _attention(one: Head) -> Drawn:
    under = image_overlay.backdrop(one.run.pixels)._replace(source=f"rk:{PICTURE}")
    seen = trace_analysis.attention_view(*one.at, OURS, 0)
    shared = float(np.minimum(seen.attention, seen.compressed).sum())
    cells = trace_analysis.on_grid(one.at[0], one.view.token, seen.attention)
    error = scores.relative_error(seen.exact, seen.approximate)
    return Drawn(
        "What the head sees",
        {
            "Where the head looks": image_overlay.draw_attention(under, cells),
            "Exact scores and compressed ones": scores.draw(seen.exact, seen.approximate, OURS),
        },
        f"The question was \u201c{one.run.question}\u201d. A Key has one purpose: its product with "
        "the query is the score of a piece, and scores become attention. From a quarter of the "
        f"channels the scores are off by {percent(error)} of their spread, and "
        f"{percent(shared)} of this head's attention falls where it fell before. On the page you "
        "can step through an answer and watch the look move.",
        KEPT.with_options(keep_channels=0.09),
    )


def _budget(one: Head, measured: files.Files) -> Drawn:
    shown = (UNCOMPRESSED, "FastV alone", "FastV + ThinK", "FastV + RotateK")
    drawn = {"Where the bytes are": one.bytes(*shown)}
    found = answers.answers(measured, files.Asked()).get("frontier-fastv")
    if found is not None:
        drawn["Over many questions"] = found[1]
    many = "" if found is None else "; the lines count many"
    return Drawn(
        "What a budget buys",
        drawn,
        "There are two ways to keep a quarter of the visual cache: drop three pieces in four "
        "(FastV alone), or drop fewer and narrow the Keys of those that stay. Dropped pieces "
        "cannot be looked up again. For this one question the answers were "
        f"{one.answers(*shown)}. One question proves little{many}. Bytes are real, so bases, "
        "text and the first layers, which FastV leaves whole, are counted too.",
        JOINT,
    )


def _values(one: Head) -> Drawn:
    shown = (UNCOMPRESSED, "RotateK", "RotateK, Values too")
    layer = one.at[0].layers[one.layer]
    kept = round(BEYOND.channels.value_share * layer.keys.shape[2])
    return Drawn(
        "Beyond the paper: Values",
        {
            "Where the bytes are": one.bytes(*shown),
            "This head's Values, direction by direction": spectrum.draw(
                layer.value_energy[one.head], kept, of="Values"
            ),
        },
        "Once Keys are narrow, most of what is left are Values, what a piece says when it is "
        "looked at. The paper leaves them whole. As an experiment they can be rotated too, in the "
        "metric of the layer's output, and every head can get the width that its own spectrum "
        f"earns. Here that comes to {one.total(shown[-1])}, and the answers were "
        f"{one.answers(*shown)}. "
        "This is small-model evidence; the results tab has the figures.",
        BEYOND,
    )


def _bits(one: Head) -> Drawn:
    trace, method, title = one.at[0], BITS.channels, "RotateK, 0.75 bits"
    spectra = trace_analysis.spectra(trace, OURS)
    depths = trace_analysis.key_bits(trace, method, spectra)[one.layer, one.head]
    used = int((depths > 0).sum())
    level = trace_analysis.water_level(method, spectra, one.layer, one.head)
    return Drawn(
        "Beyond the paper: the bits a channel earns",
        {
            "Where the water stands": spectrum.draw(one.view.spectrum, used, level=level),
            "What each direction gets": bits.draw(depths),
        },
        "So far a direction had sixteen bits or none, and few deserve either. Two more bits make "
        "an error about ten times smaller, so pour one water over the spectra of all heads: what "
        "lies below its level gets nothing, and the higher a direction rises above it, the more "
        f"bits it gets. At 0.75 bits a number on average {used} of this head's "
        f"{len(depths)} directions get any, by its Keys alone; the cache also weighs Values, and "
        f"what an error does to the layer's output. Here that comes to {one.total(title)} of "
        f"{one.total(UNCOMPRESSED)}, and the answers were {one.answers(UNCOMPRESSED, title)}.",
        BITS,
    )


def save(told: Sequence[Drawn], pixels: np.ndarray, path: Path) -> None:
    """Write the lessons as the page shows them, in gzip without a time: the same bytes each run."""
    drawings = {
        frame(number, place): drawing
        for number, lesson in enumerate(told, 1)
        for place, drawing in enumerate(lesson.figures.values(), 1)
    }
    drawn = plot_transport.payload(drawings, {PICTURE: image_overlay.backdrop(pixels).source})
    rows = [
        lesson._asdict() | {"figures": list(lesson.figures), "settings": lesson.settings.as_dict()}
        for lesson in told
    ]
    stored = {"lessons": rows, "drawn": json.loads(drawn)}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(stored, separators=(",", ":")) + "\n"
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def asked(service: Service, example: Example) -> Head:
    """An example's first question, answered under every column."""
    image = request.open_image(example.image)
    name = service.models[0].name
    *_, run = service.ask(name, image, example.questions[0], dict(COLUMNS), 64)
    return Head.typical(run)


def main() -> None:
    """Make the committed lessons anew."""
    service = Service(models_on_offer()[:1])
    one = asked(service, load_examples(assets() / "examples")[0])
    path = assets() / "traces" / NAME
    save(lessons(one, files.load(assets() / "results")), one.run.pixels, path)
    sys.stdout.write(f"{path.name}: layer {one.layer}, head {one.head}\n")


if __name__ == "__main__":
    main()
