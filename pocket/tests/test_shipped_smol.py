"""The third pocket's shipped weights: whole, small, and what they read."""

import random
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import Qwen2_5_VLForConditionalGeneration

from pocket.layouts import scenery
from pocket.models.smol import smol_config
from pocket.questions.declining import DECLINED
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import assembly
from rotatek.models.loading import POCKET_SMOL
from tests.fixtures import skip_without

EXAMPLES = Path(__file__).parents[2] / "assets" / "examples"
READ = (  # answers that the shipped model gave when its weights were committed
    ("receipt", "What is the name of the shop?", "Harbour Café"),
    ("receipt", "What is the total?", "£20.10"),
    ("form", "What is the reference?", "QX-4821"),
    ("table", "What is the title?", "Regional stock list"),
)
pytestmark = pytest.mark.skipif(
    not assembly.is_apart(POCKET_SMOL), reason="its weights are not in this checkout"
)


def test_shipped_weights_are_small_and_whole() -> None:
    """Every matrix of the language model has its change, and the tower is the configuration's."""
    shards = sorted(POCKET_SMOL.glob("*.safetensors*"))
    assert shards and all(file.stat().st_size <= 9_000_000 for file in shards)
    assert all(file.suffix == ".gz" for file in shards), "python -m pocket.models.ship makes these"
    assert sum(file.stat().st_size for file in shards) <= 19_300_000
    kept = assembly.stored(POCKET_SMOL)
    with torch.device("meta"):
        made = Qwen2_5_VLForConditionalGeneration._from_config(smol_config())
    wanted = {name: value.shape for name, value in made.state_dict().items()}
    for name, shape in wanted.items():
        if name.startswith(assembly.VISUAL):
            assert kept.pop(name).shape == shape, name
        elif name.endswith("_proj.weight"):
            stem = name.removesuffix("weight")
            up, down = kept.pop(stem + assembly.UP), kept.pop(stem + assembly.DOWN)
            assert (len(up), down.shape[1]) == tuple(shape) and up.any() and down.any(), name
    assert not kept


@pytest.mark.slow
def test_the_shipped_model_reads_through_the_projects_own_loader() -> None:
    """By name: with all channels, with a quarter of them, and a photograph's stand-in declined."""
    skip_without("pocket-smol")
    engine = Engine("pocket-smol")
    columns = {"full": Settings.of(channels="full", keep_channels=1.0), "rotatek": Settings()}
    for name, question, expected in READ:
        image = Image.open(EXAMPLES / f"{name}.png").convert("RGB")
        events = list(engine.compare(make_request(image, question, 32), columns))
        done = {e.column: e for e in events if isinstance(e, Finished)}
        assert {c: e.answer for c, e in done.items()} == dict.fromkeys(columns, expected)
        assert done["rotatek"].metrics["kv_bytes"] < 0.8 * done["full"].metrics["kv_bytes"]
    scene = scenery.draw(random.Random(7), 448, 336, held=True)
    events = list(engine.compare(make_request(scene, "What is this?", 32), columns))
    assert {e.answer for e in events if isinstance(e, Finished)} == {DECLINED}
