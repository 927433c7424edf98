"""Qwen's pictures and clips: patches as the processor makes them, padding, videos, margins."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageChops, ImageDraw, ImageFilter
from torch import nn
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from rotatek import RotateKCache, Settings, make_request
from rotatek.bridge.scope import with_cache
from rotatek.inputs.token_grid import Grid, without_margins
from rotatek.models.qwen import patches_of
from tests.families import tiny_qwen2
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "enlarged": {"size": {"shortest_edge": 400 * 784, "longest_edge": 500 * 784}},
    "scaled down": {"size": {"shortest_edge": 56 * 56, "longest_edge": 20 * 784}},
    "patches of 16": {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.25, 0.5, 1]},
    "neither": {"do_normalize": False, "do_rescale": False},
}


def noise(width: int, height: int) -> Image.Image:
    levels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    levels.flat[:256] = np.arange(256)  # every level there is
    return Image.fromarray(levels)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [(168, 112), (90, 400)])
def test_numbers_are_the_processors_own(case: str, size: tuple[int, int]) -> None:
    processor, image = Qwen2VLImageProcessorPil(**CASES[case]), noise(*size)
    wanted = processor(images=[image], return_tensors="pt")
    found, rows, columns = patches_of(processor, image, torch.device("cpu"))
    assert [[1, rows, columns]] == wanted["image_grid_thw"].tolist()
    assert found.dtype == torch.float32 and torch.equal(found, wanted["pixel_values"])


def _narrowed(columns: int) -> tuple:
    """A tiny model whose vision MLPs have so many columns, and pixels."""
    vlm = tiny_qwen()
    for block in vlm.model.model.visual.blocks:
        for name, shape in (("gate_proj", (columns, 64)), ("up_proj", (columns, 64))):
            setattr(block.mlp, name, nn.Linear(shape[1], shape[0]))
        block.mlp.down_proj = nn.Linear(columns, 64)
    return vlm, [block.mlp for block in vlm.model.model.visual.blocks]


@pytest.mark.parametrize(("columns", "padded"), [(44, 64), (72, 72)])
@torch.inference_mode()
def test_columns_are_padded_to_whole_tiles(columns: int, padded: int, picture: Picture) -> None:
    vlm, mlps = _narrowed(columns)
    pixels = vlm.look(make_request(picture(90, 120, seed=1), "what?", 1))
    before = vlm.features(pixels)
    vlm.optimise_for_gpu()
    assert {mlp.gate_proj.out_features for mlp in mlps} == {padded}
    assert {tuple(mlp.down_proj.weight.shape) for mlp in mlps} == {(64, padded)}
    assert {mlp.up_proj.bias.numel() for mlp in mlps} == {padded}
    torch.testing.assert_close(vlm.features(pixels), before)
    vlm.optimise_for_gpu()  # again changes nothing
    assert {mlp.gate_proj.out_features for mlp in mlps} == {padded}


@pytest.mark.parametrize("keep", [1.0, 0.25])
def test_a_processors_video_is_compressed(picture: Picture, keep: float) -> None:
    vlm = tiny_qwen()
    frames = [picture(112, 84, seed=seed) for seed in range(3)]
    shown = [patches_of(vlm.images, frame, vlm.device) for frame in frames]
    prompt = vlm.prompt(make_request(frames[0], "What happens?", 8))
    runs = torch.where(prompt.visual[0])[0]
    seen = vlm.model.config.video_token_id
    ids, first = prompt.ids[0].tolist(), int(runs[0])
    ids[first : int(runs[-1]) + 1] = [seen] * (3 * len(runs))
    video = {
        "input_ids": torch.tensor([ids]),
        "mm_token_type_ids": 2 * (torch.tensor([ids]) == seen).int(),
        "pixel_values_videos": torch.cat([patches for patches, _, _ in shown]),
        "video_grid_thw": torch.tensor([[3, *shown[0][1:]]]),
        "second_per_grid_ts": torch.tensor([2.0]),
    }
    options = {"max_new_tokens": 8, "do_sample": False, "suppress_tokens": [*vlm.banned_ids]}
    plain = vlm.model.generate(**video, **options)
    cache = RotateKCache(vlm.model, video, Settings.of(keep_channels=keep))
    assert cache.plan.visual == 3 * len(runs)
    found = vlm.model.generate(**video, **options, **with_cache(vlm.model, cache))
    if keep == 1.0:
        assert torch.equal(found, plain)
    else:
        held, full = cache.bytes(), RotateKCache(vlm.model, video, Settings.of(keep_channels=1.0))
        vlm.model.generate(**video, **options, **with_cache(vlm.model, full))
        assert held.parts["visual_keys"] < 0.5 * full.bytes().parts["visual_keys"]


# -- blank margins go from pictures that would be scaled down; nothing else does -----------------

UNIT, MOST = 28, 256  # 448 x 448 pixels fit
BOX = (700, 500, 1100, 1300)


def sheet(ground: int = 255, ink: int = 20, size: tuple[int, int] = (1600, 2000)) -> Image.Image:
    """A sheet with lines of letters inside `BOX`."""
    image = Image.new("RGB", size, (ground,) * 3)
    pen = ImageDraw.Draw(image)
    for y in range(BOX[1], BOX[3] - 30, 40):
        pen.text((BOX[0], y), "Receipt number 4711", fill=(ink,) * 3, font_size=34)
    return image


def visible(grid: Grid) -> tuple[float, float, float, float]:
    """The visible part of a picture: left, top, right, bottom, as shares."""
    cells = np.array(grid.tokens).reshape(grid.rows, grid.columns) >= 0
    down, across = np.flatnonzero(cells.any(1)), np.flatnonzero(cells.any(0))
    assert cells.sum() == len(down) * len(across) <= MOST < cells.size
    left, right = across[0] / grid.columns, (across[-1] + 1) / grid.columns
    return left, down[0] / grid.rows, right, (down[-1] + 1) / grid.rows


@pytest.mark.parametrize(("ground", "ink", "specks"), [(255, 20, 0), (18, 235, 0), (255, 20, 300)])
def test_margins_go_and_the_text_stays(ground: int, ink: int, specks: int) -> None:
    image, rng = sheet(ground, ink), random.Random(3)
    written = ImageChops.difference(image, Image.new("RGB", image.size, (ground,) * 3)).getbbox()
    assert written is not None
    for _ in range(specks):  # do not count as text
        x, y = rng.randrange(40, 1560), rng.randrange(40, 1960)
        image.paste((0, 0, 0), (x, y, x + 3, y + 3))
    found = without_margins(image, UNIT, MOST)
    assert found is not None
    left, top, right, bottom = visible(found[1])
    assert left * 1600 <= written[0] and top * 2000 <= written[1]
    assert right * 1600 >= written[2] and bottom * 2000 >= written[3]
    assert (right - left) * (bottom - top) < 0.5


def test_pictures_without_blank_margins_are_left_alone() -> None:
    ramp = np.linspace(0, 255, 1600, dtype=np.uint8)[None, :, None].repeat(2000, 0).repeat(3, 2)
    noise = np.random.default_rng(0).integers(0, 255, (200, 160, 3)).astype(np.uint8)
    photograph = Image.fromarray(noise).resize((1600, 2000)).filter(ImageFilter.GaussianBlur(9))
    framed = sheet()  # the edge has content of its own
    ImageDraw.Draw(framed).rectangle((0, 0, 1599, 1999), outline=(0, 0, 0), width=30)
    white = Image.new("RGB", (1600, 2000), "white")
    for image in (Image.fromarray(ramp), photograph, white, framed):
        assert without_margins(image, UNIT, MOST) is None


def test_a_model_is_shown_the_part_alone_and_its_maps_lie_over_the_whole() -> None:
    vlm = tiny_qwen2()
    plain, large = Image.new("RGB", (280, 224), "white"), sheet()
    pixels = vlm.preprocess([plain, large])
    fits, trimmed = pixels.grids
    assert not fits.trimmed and trimmed.trimmed and trimmed.start == pixels.counts[0]
    left, top, right, bottom = visible(trimmed)
    seen = trimmed.to_cells(np.ones(sum(pixels.counts), dtype=bool))
    rows, columns = (slice(round(a * n), round(b * n)) for a, b, n in (
        (top, bottom, trimmed.rows), (left, right, trimmed.columns),
    ))  # fmt: skip
    assert seen[rows, columns].all() and seen.sum() == pixels.counts[1]


def test_margins_go_within_a_clients_bounds_too() -> None:
    vlm, image = tiny_qwen(), sheet()
    vlm.images.size = {"shortest_edge": UNIT**2, "longest_edge": 4 * MOST * UNIT**2}
    part, _ = without_margins(image, UNIT, MOST) or (image, None)
    shown = vlm.within(image, 1, MOST * UNIT**2)
    assert shown.tobytes() == part.tobytes() and shown.size != image.size
    assert vlm.preprocess([shown]).counts[0] <= MOST
