"""A video's tokens, as the model's own processor made them, are compressed in `generate`."""

import pytest
import torch

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models.patches import patches_of
from tests.fixtures import Picture
from tests.tiny import tiny_qwen


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
