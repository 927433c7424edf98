"""Full-size configurations without weights: parameters, bytes, prompts and positions."""

from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from PIL import Image

from rotatek.inputs.request import make_request
from rotatek.models import VisionLanguageModel
from rotatek.models.memory import weight_bytes
from tests.families import real_processor
from tests.fixtures import Picture
from tests.full_families import FULL, built

pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
# Millions of parameters as published, bytes of a bfloat16 cache a token, and the visual tokens of a
# picture of 1,000 x 600 pixels.
EXPECTED: dict[str, tuple[int, int, int]] = {
    "qwen2.5-vl-7b": (8_292, 2 * 28 * 4 * 128 * 2, 36 * 21),
    "llava-next-8b": (8_355, 2 * 32 * 8 * 128 * 2, 0),
    "qwen3.5-4b": (4_540, 2 * 8 * 4 * 256 * 2, 31 * 19),
    "smolvlm-256m": (256, 2 * 30 * 3 * 64 * 2, (4 * 3 + 1) * 64),
    "gemma-3-4b": (4_300, 2 * 34 * 4 * 256 * 2, 256),
    # Without its audio tower; 18 of 42 layers borrow, and one owner in six has heads of 512.
    "gemma-4-e4b": (7_632, 2 * 2 * (20 * 256 + 4 * 512) * 2, 0),
}
# Bytes of one prompt's states: layers of linear attention, and what their convolutions read.
STATES = {"qwen3.5-4b": 24 * (32 * 128 * 128 * 4 + (2 * 16 + 32) * 128 * 4 * 2)}


@pytest.fixture(scope="module", params=FULL)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def vlm(name: str) -> Iterator[VisionLanguageModel]:
    """Without weights; prompts are made on the CPU."""
    with mock.patch.object(VisionLanguageModel, "device", torch.device("cpu")):
        yield built(name, "meta")


def test_the_configuration_is_the_published_one(name: str, vlm: VisionLanguageModel) -> None:
    millions, a_token, _ = EXPECTED[name]
    assert round(vlm.model.num_parameters() / 1e6) == pytest.approx(millions, abs=1)
    assert weight_bytes(vlm.model.config, torch.bfloat16) == 2 * vlm.model.num_parameters()
    assert vlm.full_bytes(1, states=0) == a_token
    assert vlm.state_bytes == STATES.get(name, 0)


def test_prompts_and_positions_at_full_size(
    name: str, vlm: VisionLanguageModel, picture: Picture
) -> None:
    image: Image.Image = picture(1000, 600)
    prompt = vlm.prompt(make_request(image, "What is the total?"))
    family = FULL[name].family
    template = vlm.tokenizer.chat_template or vlm.template
    content = [{"type": "image"}, {"type": "text", "text": "What is the total?"}]
    text = vlm.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], chat_template=template, tokenize=False,
        add_generation_prompt=True,
    )  # fmt: skip
    given = real_processor(family, vlm)(images=[image], text=[text], return_tensors="pt")
    assert prompt.ids.tolist() == given["input_ids"].tolist()
    assert prompt.visual_tokens == (EXPECTED[name][2] or prompt.visual_tokens)
    positions, after = vlm.positions(prompt)
    length = prompt.ids.shape[1]
    if family.startswith("qwen"):
        assert positions.shape == (3, 1, length)
        grid = prompt.pixels.grids[0]
        seen = positions[1:, 0, prompt.visual[0]]
        assert (seen.amax(1) - seen.amin(1) + 1).tolist() == [grid.rows, grid.columns]
    else:
        assert positions.tolist() == [list(range(length))]
    assert after.tolist() == [int(positions.max()) + 1]
    covered = sum(
        len(set(g.tokens or range(g.rows * g.columns)) - {-1}) for g in prompt.pixels.grids
    )
    assert covered == prompt.visual_tokens
