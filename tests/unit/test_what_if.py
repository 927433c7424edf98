"""What if only some heads were compressed, and how much each one's compression hurts."""

from collections.abc import Callable

import pytest
import torch
from PIL import Image

from rotatek import BASELINE, Engine, FastV, KeepAll, RotateK, Settings
from rotatek.engine.events import Token
from rotatek.inputs.request import Request, make_request
from rotatek.methods.channels.what_if import WhatIf
from tests.fixtures import tokens_of
from tests.tiny import tiny_qwen

RANK = 4  # of one head's Keys: two channels, which rotary positions turn with their partners
LAYER, HEAD = 2, 1


@pytest.fixture(scope="module")
def engine() -> Engine:
    """A tiny model, one of whose heads has Keys of few directions."""
    vlm = tiny_qwen()
    attention = vlm.model.model.language_model.layers[LAYER].self_attn
    with torch.no_grad():
        rows = torch.arange(32 * HEAD + RANK // 2, 32 * HEAD + 16)
        for part in (attention.k_proj.weight, attention.k_proj.bias):
            part[rows] = part[rows + 16] = 0
    return Engine(vlm)


@pytest.fixture
def request_(picture: Callable[..., Image.Image]) -> Request:
    return make_request(picture(168, 112), "Which?", 24)


@pytest.mark.parametrize("pruner", [KeepAll(), FastV(keep=0.5)])
@pytest.mark.parametrize("keep", [0.25, 0.5])
def test_with_every_head_it_is_the_real_cache(
    engine: Engine, request_: Request, pruner: KeepAll | FastV, keep: float
) -> None:
    like = RotateK(keep=keep)
    columns = {"real": Settings(pruner, like), "none": Settings(pruner, WhatIf(like))}
    columns["every"] = Settings(pruner, WhatIf(like, whole=True))
    heads = frozenset((layer, head) for layer in range(4) for head in range(2))
    columns["named"] = Settings(pruner, WhatIf(like, heads))
    said = tokens_of(engine.compare(request_, {"full": BASELINE, **columns}))
    assert said["every"] == said["real"] == said["named"]
    assert said["none"] == said["full"] or pruner.kept_share < 1
    assert said["real"] != said["full"], "compression has to change something for this to show"


def test_a_head_of_no_more_directions_than_are_kept_has_no_damage(
    engine: Engine, request_: Request
) -> None:
    like, answer = RotateK(keep=RANK / 32), tokens_of(engine.compare(request_, {"x": BASELINE}))
    found = {one[:2]: one.kl for one in engine.damage(request_, like, answer["x"])}
    assert list(found) == [(layer, head) for layer in range(4) for head in range(2)]
    spared = found.pop((LAYER, HEAD))
    assert spared < 1e-6 and all(kl > 100 * spared and kl > 1e-5 for kl in found.values())


def test_damage_is_what_the_column_of_that_head_loses(engine: Engine, request_: Request) -> None:
    like, head = RotateK(keep=0.25), (1, 0)
    column = Settings(channels=WhatIf(like, frozenset({head})))
    events = engine.compare(request_, {"full": BASELINE, "only": column})
    told = [(e.token_id, e.kl) for e in events if isinstance(e, Token) and e.kl is not None]
    agreed = [token for token, _ in told]
    one = next(one for one in engine.damage(request_, like, agreed[:-1]) if one[:2] == head)
    lost = sum(kl for _, kl in told) / (len(told) - 1)  # the first one lost nothing
    assert one.kl == pytest.approx(lost, rel=1e-3, abs=1e-7)
