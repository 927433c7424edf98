"""The second pocket: its tiling against the stock processor, its forward, its training loop."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import LlavaNextForConditionalGeneration
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)

from pocket.document import Document
from pocket.evaluation.llava_next import answer, pixel_values
from pocket.generate import make_document
from pocket.glyphs import N_CLASSES
from pocket.models import tokenizer
from pocket.models.batch import TileBatch
from pocket.models.config import PATCH
from pocket.models.forward import rms
from pocket.models.llava import build_llava, llava_config, save_llava
from pocket.models.llava_forward import TileForward
from pocket.models.llava_tiles import glyph_places, join, order, tiling, views
from pocket.training.__main__ import main as train
from pocket.training.data import BatchOptions
from pocket.training.llava_data import curriculum, make_tiles
from pocket.training.packing import pack
from pocket.training.sample_reuse import retouched, uses
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models.loading import load

ASSETS = Path(__file__).parents[2] / "assets"
SHIPPED = ASSETS / "pocket-llava"
SMALL = 112  # a tile's side here: 8 x 8 patches
READ = (  # answers that the shipped model gave when its weights were committed
    ("receipt", "What is the total?", "£20.10"),
    ("sign", "Which line comes third?", "Closed on Monday"),
    ("bars", "What is the title?", "Museum visitors 2025"),
    ("form", "What is the reference?", "QX-4821"),
)
# One tile, a row, a column, four tiles with padding on either axis: 2, 3 or 4, and 5 views each.
SIZES = [(112, 112), (84, 112), (196, 112), (84, 308), (224, 196), (140, 224), (448, 392)]


@pytest.fixture(scope="module")
def model() -> LlavaNextForConditionalGeneration:
    return build_llava(llava_config(2, 2, 256, 128, 2, side=SMALL), seed=3).eval()


@pytest.fixture(scope="module")
def folder(
    model: LlavaNextForConditionalGeneration, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("llava")
    save_llava(model, path)
    return path


def _noise(size: tuple[int, int]) -> Image.Image:
    pixels = np.random.default_rng(size[0]).integers(0, 255, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(pixels)


def _batch(image: Image.Image, text: torch.Tensor) -> TileBatch:
    plan = tiling(*image.size, SMALL)
    base, grid = (torch.from_numpy(v.copy())[None] for v in views(image, plan))
    none = torch.zeros(0, dtype=torch.int64)
    nowhere = torch.full_like(text, -1)
    return TileBatch(base, grid, order(plan), text, text, text, none, none, plan, nowhere)


@pytest.mark.parametrize("size", SIZES)
def test_pixels_of_training_are_those_of_the_processor(size: tuple[int, int], folder: Path) -> None:
    processor = LlavaNextImageProcessorPil.from_pretrained(folder)
    image = _noise(size)
    wanted = processor(images=[image], return_tensors="pt")["pixel_values"]
    got, count = pixel_values([np.asarray(image)], SMALL)
    assert got.shape == wanted.shape and torch.allclose(got, wanted, atol=1e-5)
    assert load(folder).preprocess([image]).counts == (count,)


@pytest.mark.parametrize("size", SIZES)
def test_training_forward_is_the_model(
    size: tuple[int, int], model: LlavaNextForConditionalGeneration, folder: Path
) -> None:
    image = _noise(size)
    text = torch.randint(0, 256, (1, 40), generator=torch.Generator().manual_seed(1))
    processor = LlavaNextImageProcessorPil.from_pretrained(folder)
    pixels = processor(images=[image], return_tensors="pt")
    batch = _batch(image, text)
    before = torch.tensor([tokenizer.prefix() + [tokenizer.IMAGE_PAD] * len(batch.order)])
    ids = torch.cat((before, text), 1)
    with torch.no_grad():
        wanted = model(input_ids=ids, attention_mask=torch.ones_like(ids), **pixels).logits
        forward = TileForward(model, compile_blocks=False)
        hidden, _ = forward.read(forward.see(batch)[1], batch)
        language = model.model.language_model
        got = rms(hidden, language.norm.weight) @ language.embed_tokens.weight.T
    assert torch.allclose(got, wanted[:, -40:], atol=1e-4)
    assert wanted.std() > 0.1


def test_the_trained_shape_is_small_and_its_heads_are_full_size() -> None:
    with torch.device("meta"):
        made = LlavaNextForConditionalGeneration(llava_config())
    stored = sum(p.numel() * (1 if p.ndim > 1 else 2) for p in made.parameters())
    assert 18_000_000 < stored < 19_000_000
    assert made.config.text_config.head_dim == 128
    assert len(order(tiling(672, 672))) == 24 * 24 + 48 * 49
    assert len(order(tiling(300, 300))) == 24 * 24 + 24 * 25


@pytest.mark.parametrize("size", [(112, 112), (196, 112), (224, 140), (448, 392)])
def test_a_glyphs_patch_shows_the_glyph(size: tuple[int, int]) -> None:
    """A dot where the glyph is: the patch it is given to must be the one that changes most."""
    rng = random.Random(size[0])
    for _ in range(12):
        x, y = rng.uniform(8, size[0] - 8), rng.uniform(8, size[1] - 8)
        plain, dotted = Image.new("RGB", size, "white"), Image.new("RGB", size, "white")
        left, top = round(x) - 3, round(y) - 3
        dotted.paste((0, 0, 0), (left, top, left + 6, top + 6))
        plan = tiling(*size, SMALL)
        changed = (_tiles(dotted, plan) - _tiles(plain, plan)).abs()
        b, side = changed.shape[0], SMALL // PATCH
        patches = changed.view(b, side, PATCH, side, PATCH).sum((2, 4)).flatten()
        centre = np.array([[5, left + 2.5, top + 2.5]], np.float32)
        places, kinds = glyph_places(centre, plan)
        assert list(kinds) == [5] * len(places) and len(places) in (1, 2)
        for place in places:
            view = patches[place // side**2 * side**2 :][: side**2]
            assert patches[place] > 0 and patches[place] >= 0.2 * view.max()


def _tiles(image: Image.Image, plan) -> torch.Tensor:  # type: ignore[no-untyped-def]
    base, grid = (torch.from_numpy(v.copy())[None] for v in views(image, plan))
    return join(base, grid, plan)[0].float().mean(-1)


def test_glyphs_outside_or_in_an_illegible_base_view_are_left_out() -> None:
    glyphs = np.array([[1, -3, 5], [2, 10, 10], [3, 500, 10]], np.float32)
    assert list(glyph_places(glyphs, tiling(448, 448, SMALL))[1]) == [2]
    assert list(glyph_places(glyphs, tiling(112, 112, SMALL))[1]) == [2, 2]


def test_losses_fall_on_one_batch_and_gradients_reach_every_weight_in_use() -> None:
    small = build_llava(llava_config(2, 2, 256, 128, 2, side=SMALL))
    head = torch.nn.Linear(128, N_CLASSES)
    batch = make_tiles(BatchOptions(1, 3_000), SMALL, 0, 0.0)
    forward = TileForward(small, compile_blocks=False)
    optimiser = torch.optim.AdamW([*small.parameters(), *head.parameters()], lr=2e-3)
    seen = []
    for _ in range(4):
        spoken, drawn, told = forward.losses(batch, head)
        (spoken + 0.3 * drawn + 0.3 * told).backward()
        idle = {name for name, p in small.named_parameters() if p.grad is None}
        assert all("post_layernorm" in name for name in idle)  # CLIP's pooled output is not read
        optimiser.step()
        optimiser.zero_grad()
        seen.append(spoken.item())
    assert seen[-1] < seen[0] - 0.3


def test_batches_come_from_their_seed_and_sizes_grow() -> None:
    one, other = (make_tiles(BatchOptions(4, 6_000), SMALL, 10, 0.3) for _ in range(2))
    assert torch.equal(one.grid, other.grid) and torch.equal(one.labels, other.labels)
    assert not torch.equal(one.text, make_tiles(BatchOptions(5, 6_000), SMALL, 10, 0.3).text[:1])
    views_at = {}
    for progress in (0.0, 0.3, 0.5, 0.9):
        drawn = [curriculum(random.Random(i), progress) for i in range(300)]
        views_at[progress] = [tiling(w, h).tiles for w, h, _ in drawn]
    assert set(views_at[0.0]) == set(views_at[0.3]) == {2}
    assert np.mean(np.array(views_at[0.5]) == 5) < 0.15
    assert 0.3 < np.mean(np.array(views_at[0.9]) == 5) < 0.65 and set(views_at[0.9]) == {2, 3, 4, 5}


def test_an_echo_shows_both_views_of_a_picture_in_one_light() -> None:
    batch = make_tiles(BatchOptions(4, 6_000, echo=2), SMALL, 10, 0.3)
    first, other = uses(batch)
    plain = make_tiles(BatchOptions(4, 6_000), SMALL, 10, 0.3)
    assert torch.equal(first.text, plain.text) and torch.equal(first.grid, plain.grid)
    assert not torch.equal(other.text, first.text) and other.grid is batch.grid
    again = retouched(other, torch.Generator().manual_seed(1))
    middle = [
        (getattr(again, name).float() - getattr(batch, name).float()).flatten(1).median(1)[0]
        for name in ("images", "grid")
    ]
    assert (middle[0] - middle[1]).abs().max() < 4 and middle[0].std() > 2


def test_answers_do_not_depend_on_their_batch(folder: Path) -> None:
    loaded = LlavaNextForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    image = np.asarray(_noise((196, 112)))
    questions = ["Title?", "What is the total of the invoice?"]
    both = answer(loaded, [image, image], questions, 6)
    alone = [answer(loaded, [image], [q], 6)[0] for q in questions]
    assert [a for a, _ in both] == [a for a, _ in alone]


def test_the_projects_prompt_is_that_of_training(folder: Path) -> None:
    loaded = load(folder)
    document: Document = make_document(2, 224, 224)
    prompt = loaded.prompt(make_request(document.image, "Title?"))
    n = len(order(tiling(224, 224, SMALL)))
    wanted = (
        tokenizer.prefix()
        + [tokenizer.IMAGE_PAD] * n
        + tokenizer.question_ids("Title?", first=True)
    )
    assert prompt.ids[0].tolist() == wanted
    text, *_ = pack(random.Random(0), document.questions, 64)
    assert text[0] == tokenizer.VISION_END == wanted[-len(tokenizer.question_ids("Title?", True))]


def test_shipped_weights_are_whole_small_and_in_small_shards() -> None:
    shards = sorted(SHIPPED.glob("*.safetensors"))
    assert shards and all(s.stat().st_size <= 9_000_000 for s in shards)
    assert sum(s.stat().st_size for s in shards) <= 20_000_000
    loaded, report = LlavaNextForConditionalGeneration.from_pretrained(
        SHIPPED, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    same = llava_config().to_dict()
    kept = {k: v for k, v in loaded.config.to_dict().items() if k.startswith(("image", "vision_f"))}
    assert kept and kept == {k: same[k] for k in kept}


@pytest.mark.slow
def test_the_shipped_model_reads_through_the_projects_own_loader() -> None:
    """By name, on three and five views, with all channels and with a quarter of them."""
    engine = Engine("pocket-llava")
    columns = {"full": Settings.of(channels="full", keep_channels=1.0), "rotatek": Settings()}
    for name, question, expected in READ:
        image = Image.open(ASSETS / "examples" / f"{name}.png").convert("RGB")
        events = list(engine.compare(make_request(image, question, 32), columns))
        done = {e.column: e for e in events if isinstance(e, Finished)}
        assert {c: e.answer for c, e in done.items()} == dict.fromkeys(columns, expected)
        assert done["rotatek"].metrics["kv_bytes"] < 0.7 * done["full"].metrics["kv_bytes"]


@pytest.mark.slow
@pytest.mark.unversioned  # training is torch's; what is saved is read by a test of its own
def test_training_runs_stops_and_goes_on(tmp_path: Path) -> None:
    options = [
        "--out",
        str(tmp_path),
        "--family",
        "llava_next",
        "--tiny",
        "--cost",
        "1600",
        "--workers",
        "1",
    ]
    train([*options, "--steps", "2", "--log-every", "1"])
    train([*options, "--steps", "4", "--log-every", "1"])
    log = json.loads((tmp_path / "log.json").read_text())
    assert [row["step"] for row in log] == [1, 2, 3, 4]
    loaded, report = LlavaNextForConditionalGeneration.from_pretrained(
        tmp_path / "export", output_loading_info=True
    )
    assert loaded.dtype == torch.bfloat16 and not report["missing_keys"]
