"""The chain of commands that trains the second pocket, run whole in its smallest form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlavaNextForConditionalGeneration

from pocket.models.llava import build_llava, llava_config, save_llava

ROOT = Path(__file__).parents[2]
CHAIN = ROOT / "pocket/training/second.sh"


@pytest.mark.slow
@pytest.mark.timeout(900)  # six processes start one after the other
@pytest.mark.unversioned  # training is torch's; what is saved is read by a test of its own
def test_every_link_of_the_chain_runs_and_the_next_goes_on_from_it(tmp_path: Path) -> None:
    save_llava(build_llava(llava_config(2, 2, 256, 128, 2, side=112)), tmp_path / "start")
    told = {
        "TINY": "1", "RUN": str(tmp_path / "run"), "START": str(tmp_path / "start"),
        "MINUTES": "9", "LINK": "0.1", "MPLCONFIGDIR": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    for link in "123":
        result = tmp_path / f"result-{link}"
        with (tmp_path / "said").open("w+") as said:  # a watch outlives its link, and its pipe
            done = subprocess.run(
                ["sh", str(CHAIN), link, str(result)],
                cwd=ROOT, env=os.environ | told, stdout=said, stderr=said, check=False,
            )  # fmt: skip
            assert done.returncode == 0, (link, (tmp_path / "said").read_text()[-3000:])
        back = list(result.iterdir())
        assert back and len(back) <= 8 and sum(f.stat().st_size for f in back) < 16 * 2**20
    first, second = (
        json.loads((tmp_path / f"result-{link}/log.json").read_text()) for link in "12"
    )
    assert second[: len(first)] == first and len(second) > len(first)
    assert all({"answer_loss", "glyph_loss", "told_loss"} < set(row) for row in second)
    made = LlavaNextForConditionalGeneration.from_pretrained(tmp_path / "run/export")
    assert made.config.text_config.num_hidden_layers == 3 and made.dtype == torch.bfloat16
    assert json.loads((tmp_path / "result-3/own.json").read_text())["questions"] == 1
