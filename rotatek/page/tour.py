"""The guided tour: six short lessons on one stored example, which need no model.

`python -m rotatek.page.tour` answers the first example of the gallery with the embedded model and
stores one head of it, with every column's bytes and answers, as `assets/traces/tour.npz`. Run it
whenever the embedded weights change: texts and figures are made from what it stores.
"""

import json
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import gradio as gr
import numpy as np

from rotatek import inputs, paths
from rotatek.budget import matched_keep_tokens
from rotatek.page import cards, inside, plots, results
from rotatek.page.choices import Example, load_examples, models_on_offer, widgets_of
from rotatek.page.run import Run
from rotatek.page.service import Service
from rotatek.page.wires import QUIET
from rotatek.settings import BASELINE, Settings
from rotatek.trace import HeadView, LayerTrace, Trace
from viz import Drawing, budget, energy, keys, masks, picture, ripples, scores, spectrum
from viz.theme import percent, size

NAME: Final = "tour.npz"
KEPT: Final = Settings(keep_channels=0.25)
JOINT: Final = Settings(tokens="fastv", keep_tokens=0.4, keep_channels=0.25)
BEYOND: Final = Settings(
    keep_channels=0.25, values="rotate", keep_values=0.25, widths="adaptive"
)  # fmt: skip
COLUMNS: Final = {  # the second is traced, and keeps every token
    "Uncompressed": BASELINE,
    "RotateK": KEPT,
    "FastV alone": Settings(
        tokens="fastv", keep_tokens=matched_keep_tokens(0.25, 1.0), channels="full"
    ),
    "FastV + ThinK": replace(JOINT, channels="think"),
    "FastV + RotateK": JOINT,
    "RotateK, Values too": BEYOND,
}
MISSING: Final = (
    "The stored example is not in this copy of the repository; python -m rotatek.page.tour makes "
    "it."
)
ARRAYS: Final = ("keys", "token", "mean", "covariance", "queries", "value_energy", "answer")


class Story(NamedTuple):
    """One stored run: a single head of it, its place in the model, and each column's outcome.

    columns: title -> bytes by part, the answer, and the index of the first token that differs from
    the uncompressed answer (None where none does).
    """

    trace: Trace
    layer: int
    head: int
    image: str
    question: str
    columns: dict[str, dict[str, Any]]


def typical_head(trace: Trace, settings: Settings = KEPT) -> tuple[int, int]:
    """The (layer, head) whose lead of RotateK over ThinK in captured energy is the median."""
    layers, heads = trace.shape
    leads = {}
    for layer in range(layers):
        for head in range(heads):
            view = trace.head(layer, head, settings)
            curves = inside.energy_curves(trace.layers[layer], head, view, settings)
            leads[layer, head] = float(curves["rotatek"][view.k] - curves["think"][view.k])
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
    """What the tour keeps of a finished run over `COLUMNS`."""
    trace = run.trace
    assert trace is not None
    layer, head = typical_head(trace)
    parts = inside.parts_of(run)
    columns = {
        title: {"bytes": parts[title], "answer": column.answer, "differs": column.diverged_at}
        for title, column in run.columns.items()
    }
    return Story(one_head(trace, layer, head), layer, head, image, run.question, columns)


def save(story: Story, path: Path) -> None:
    """Store a story as compressed arrays and a JSON header."""
    (layer,) = story.trace.layers
    header = {
        "grids": story.trace.grids, "visual_tokens": story.trace.visual_tokens,
        "steps": story.trace.steps, "itemsize": story.trace.itemsize, "count": layer.count,
        "layer": story.layer, "head": story.head, "image": story.image,
        "question": story.question, "columns": story.columns,
    }  # fmt: skip
    arrays = {name: getattr(layer, name) for name in ARRAYS}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez_compressed(path, header=text, **arrays)


def load(path: Path) -> Story | None:
    """A stored story, or None where there is none that can be read."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(stored["header"].tobytes())
            layer = LayerTrace(count=header["count"], **{name: stored[name] for name in ARRAYS})
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    grids = tuple((rows, columns) for rows, columns in header["grids"])
    trace = Trace(
        (layer,), grids, header["visual_tokens"], tuple(header["steps"]), header["itemsize"]
    )
    names = ("layer", "head", "image", "question", "columns")
    return Story(trace, *(header[name] for name in names))


class Lesson(NamedTuple):
    """One step: its figures by title, its paragraph, and the settings that show it on the page."""

    title: str
    figures: dict[str, Drawing]
    text: str
    settings: Settings


def lessons(story: Story, pixels: np.ndarray, measured: Mapping[str, Any]) -> list[Lesson]:
    """The tour, drawn and worded from what is stored.

    Args:
        pixels: the story's image, uint8 RGB.
        measured: `results.load`, for the fifth lesson's second figure.
    """
    view = story.trace.head(0, 0, KEPT)
    told: Sequence[Callable[..., Lesson]] = (_outliers, _fixed, _rotation)
    return [
        *(tell(story, view) for tell in told),
        _looking(story, pixels),
        _budget(story, measured),
        _values(story),
    ]


def _tokens(view: HeadView) -> int:
    return int(view.token[-1]) + 1


def _outliers(story: Story, view: HeadView) -> Lesson:
    (layer,) = story.trace.layers
    raw = layer.keys[0].astype(np.float32)
    shared = float(np.square(layer.mean[0]).sum() / np.square(raw).sum(axis=1).mean())
    top = keys.scale_top(view.raw, view.rotated)
    return Lesson(
        "Why Keys have outliers",
        {
            "One head's Keys": keys.draw_raw(view.raw, top=top, tokens=_tokens(view)),
            "Two of its channels, token by token": ripples.draw(raw, story.trace.grids[0][1]),
        },
        f"The model remembers each piece of the picture as a Key of {raw.shape[1]} numbers. Here "
        f"is one head, layer {story.layer}, head {story.head}: a row a piece, a column a channel. "
        f"Some columns are brighter than the rest. {percent(min(shared, 1.0))} of the size of "
        "these Keys is their common mean, which moves the scores of all pieces alike and tells "
        "none of them apart. On top of it, rotary position encoding turns channels in pairs as one "
        "goes along the picture, some quickly and some slowly: the ripples.",
        Settings(keep_channels=1.0),
    )


def _fixed(story: Story, view: HeadView) -> Lesson:
    n, d = view.raw.shape
    curves = inside.energy_curves(story.trace.layers[0], 0, view, KEPT)
    tokens = _tokens(view)
    think = masks.draw(np.broadcast_to(view.think, (n, d)), "think", tokens=tokens)
    return Lesson(
        "Why fixed channels fail",
        {
            "The same channels for all": think,
            "Each piece chooses its own": masks.draw(view.spark, "spark", tokens=tokens),
        },
        f"Suppose only {view.k} of {d} channels may stay. ThinK picks the best ones once, for the "
        f"whole head; they hold {percent(float(curves['think'][view.k]))} of what varies between "
        "pieces, weighed by what the question looks at. Let each piece choose its own, as SparK "
        f"does, and they hold {percent(float(curves['spark'][view.k]))}, but agree on "
        f"{percent(masks.agreement(view.spark))} of the choice only: so ragged that the Keys must "
        "be put together again before they can be used.",
        replace(KEPT, channels="think"),
    )


def _rotation(story: Story, view: HeadView) -> Lesson:
    top = keys.scale_top(view.raw, view.rotated)
    curves = inside.energy_curves(story.trace.layers[0], 0, view, KEPT)
    needed = energy.channels_to_reach(curves["think"], float(curves["rotatek"][view.k]))
    rotated = keys.draw_rotated(view.rotated, view.k, top=top, tokens=_tokens(view))
    return Lesson(
        "What the rotation does",
        {"The same Keys, rotated": rotated, "What k channels hold": energy.draw(curves, view.k)},
        "The channels a model happens to use are not the best axes for its Keys. RotateK takes "
        "away the mean and turns the axes until the first one holds as much as any can, the second "
        "as much of the rest, and so on: principal component analysis, weighed by the queries, "
        f"once for each head. Now one straight cut serves every piece: {view.k} rotated channels "
        f"hold {percent(float(curves['rotatek'][view.k]))}, for which {needed} unrotated ones "
        "would be needed. The query is turned in the same way, so nothing is rebuilt.",
        KEPT,
    )


def _looking(story: Story, pixels: np.ndarray) -> Lesson:
    token = story.trace.layers[0].token
    under = picture.backdrop(pixels)._replace(source="rk:tour")
    look = story.trace.look(0, 0, KEPT, 0)
    shared = float(np.minimum(look.attention, look.compressed).sum())
    cells = inside.on_grid(story.trace, token, look.attention)
    error = scores.relative_error(look.exact, look.approximate)
    return Lesson(
        "What the head sees",
        {
            "Where the head looks": picture.draw_attention(under, cells),
            "Exact scores and compressed ones": scores.draw(
                look.exact, look.approximate, "rotatek"
            ),
        },
        f"The question was \u201c{story.question}\u201d. A Key has one purpose: its product with "
        "the query is the score of a piece, and scores become attention. From a quarter of the "
        f"channels the scores are off by {percent(error)} of their spread, and "
        f"{percent(shared)} of this head's attention falls where it fell before. On the page you "
        "can step through an answer and watch the look move.",
        replace(KEPT, keep_channels=0.09),
    )


def _budget(story: Story, measured: Mapping[str, Any]) -> Lesson:
    shown = ("Uncompressed", "FastV alone", "FastV + ThinK", "FastV + RotateK")
    figures = {"Where the bytes are": budget.draw(_parts(story, shown))}
    found = results.answers(measured, results.Question())
    many = "; the lines count many" if "frontier-fastv" in found else ""
    if many:
        figures["Over many questions"] = found["frontier-fastv"][1]
    return Lesson(
        "What a budget buys",
        figures,
        "There are two ways to keep a quarter of the visual cache: drop three pieces in four "
        "(FastV alone), or drop fewer and narrow the Keys of those that stay. Dropped pieces "
        "cannot be looked up again. For this one question the answers were "
        f"{_answers(story, shown)}. One question proves little{many}. Bytes are real, so bases, "
        "text and the first layers, which FastV leaves whole, are counted too.",
        JOINT,
    )


def _values(story: Story) -> Lesson:
    shown = ("Uncompressed", "RotateK", "RotateK, Values too")
    (layer,) = story.trace.layers
    d = layer.keys.shape[2]
    kept = d // 4
    parts = {title: story.columns[title]["bytes"] for title in shown}
    held = size(sum(parts["RotateK, Values too"].values()))
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
        BEYOND,
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
def told(assets: Path) -> tuple[Lesson, ...]:
    """The lessons of a copy of the repository, drawn once; none where no story is stored."""
    story = load(assets / "traces" / NAME)
    if story is None:
        return ()
    pixels = np.asarray(inputs.open_image(assets / "examples" / story.image))
    return tuple(lessons(story, pixels, results.load(assets / "results")))


def payload(assets: Path) -> str:
    """Every figure of the tour, and the picture under two of them."""
    story = load(assets / "traces" / NAME)
    if story is None:
        return ""
    drawings = {
        f"tour-{number}-{place}": drawing
        for number, lesson in enumerate(told(assets), 1)
        for place, drawing in enumerate(lesson.figures.values(), 1)
    }
    pixels = np.asarray(inputs.open_image(assets / "examples" / story.image))
    return plots.payload(drawings, {"tour": picture.backdrop(pixels).source})


class Tour(NamedTuple):
    """The tab's widgets: a button a lesson, and where the figures are sent."""

    assets: Path
    buttons: list[gr.Button]
    drawn: gr.HTML


def part(assets: Path) -> Tour:
    """Six lessons one below the other, each with its figures and a button."""
    buttons = []
    steps = told(assets)
    if not steps:
        gr.HTML(cards.section("Learn", MISSING), js_on_load=None)
    for number, lesson in enumerate(steps, 1):
        heading = cards.section(f"{number}. {lesson.title}", lesson.text)
        gr.HTML(heading, js_on_load=None, elem_id=f"lesson-{number}")
        buttons.append(gr.Button("Set the controls to this", size="sm", elem_id=f"try-{number}"))
        names = {f"tour-{number}-{i}": title for i, title in enumerate(lesson.figures, 1)}
        plots.sheet(names, [list(names)], f"tour-{number}")
    return Tour(assets, buttons, plots.box("tour-drawn"))


def wire(tour: Tour, tab: gr.Tab, tabs: gr.Tabs, controls: Sequence[Any]) -> None:
    """Figures come when the tab is opened; a button sets the controls and goes back to them."""
    tab.select(lambda: payload(tour.assets), None, tour.drawn, queue=False, **QUIET)
    for lesson, button in zip(told(tour.assets), tour.buttons, strict=True):
        values = (gr.update(selected="ask"), *widgets_of(lesson.settings))
        button.click(lambda values=values: values, None, [tabs, *controls], queue=False, **QUIET)


def make(service: Service, example: Example, path: Path) -> Story:
    """Answer an example under every column and store the story."""
    image = inputs.open_image(example.image)
    name = service.models[0].name
    *_, run = service.ask(name, image, example.questions[0], COLUMNS, 64)
    story = story_of(run, example.image.name)
    save(story, path)
    return story


def main() -> None:
    """Make the tour's example anew."""
    folder = paths.assets()
    path = folder / "traces" / NAME
    story = make(Service(models_on_offer()[:1]), load_examples(folder / "examples")[0], path)
    sys.stdout.write(
        f"{path.name}: layer {story.layer}, head {story.head}, {path.stat().st_size:,} bytes\n"
    )


if __name__ == "__main__":
    main()
