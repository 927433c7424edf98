"""Methods of a package outside the repository, installed as an installer would leave it: they are
in settings, help, tables, comparisons, and in `model.generate`; on the page in tests/app."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.unversioned]
ROOT = Path(__file__).resolve().parents[2]
RECEIPT = ROOT / "assets" / "examples" / "receipt.png"
METADATA = "Metadata-Version: 2.1\nName: own-methods\nVersion: 1.0\n"
ENTRY_POINTS = """\
[rotatek.channels]
loudest = own_methods:Loudest

[rotatek.tokens]
stride = own_methods:Stride
"""

LIBRARY = """
import contextlib, io, json, sys
from pathlib import Path
import torch
from rotatek import RotateKCache, Settings, load, make_request, open_image
from rotatek.cli.main import main
from rotatek.methods.settings import matched
from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS

flat = dict(tokens="stride", keep_tokens=0.5, stride_phase=0.25, channels="loudest",
            keep_channels=0.5, loudness_norm="one")
chosen = Settings.of(**flat)
assert Settings.from_dict(chosen.as_dict()) == chosen
found = {
    "registered": [list(TOKENS)[-1], list(CHANNELS)[-1]], "settings": chosen.as_dict(),
    "columns": {name: one.nominal_kv for name, one in matched(chosen).items()},
}

vlm, image = load("pocket", "cpu"), open_image(Path(sys.argv[1]))
prompt = vlm.prompt(make_request(image, "What is the total?", 32))
inputs = {"input_ids": prompt.ids, "attention_mask": torch.ones_like(prompt.ids),
          "mm_token_type_ids": prompt.visual.int(), **prompt.pixels.tensors}
settings = Settings.of(tokens="stride", keep_tokens=0.9, channels="loudest", keep_channels=0.75)
cache = RotateKCache(vlm.model, inputs, settings)
ids = vlm.model.generate(**inputs, cache=cache, max_new_tokens=32, do_sample=False)
found["said"] = vlm.tokenizer.decode(ids[0, prompt.ids.shape[1]:], skip_special_tokens=True)
found["smaller"] = cache.bytes().total < 0.9 * vlm.full_bytes(prompt.ids.shape[1])

def printed(*words):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main(words)
    return out.getvalue()

found["help"] = printed("ask", "--help")
found["reports"] = printed(
    "compare", sys.argv[1], "What is the total?", "--max-new-tokens", "4", "--tokens", "stride",
    "--keep-tokens", "0.8", "--option", "loudness_norm=one", "--json")
print(json.dumps(found))
"""


def test_library_and_command_line_have_them(tmp_path: Path) -> None:
    """In a fresh process, from a folder that an installer has left."""
    shutil.copy(Path(__file__).with_name("own_methods.py"), tmp_path)
    about = tmp_path / "own_methods-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(METADATA)
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
        "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "COLUMNS": "100",
    }  # fmt: skip
    env.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY, str(RECEIPT)],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["registered"] == ["stride", "loudest"]
    assert found["settings"] == {
        "tokens": "stride", "keep_tokens": 0.5, "stride_phase": 0.25,
        "channels": "loudest", "keep_channels": 0.5, "loudness_norm": "one",
    }  # fmt: skip
    columns = found["columns"]
    assert {"stride only", "loudest"} <= set(columns) and columns.pop("baseline") == 1
    assert all(share == pytest.approx(0.375, abs=2e-6) for share in columns.values())
    assert "20.10" in found["said"] and found["smaller"]

    words = " ".join(found["help"].split())
    assert "stride: Stride" in words and "loudest: Loudest channels" in words
    for one in ("stride_phase of stride: ", "loudness_norm of loudest: ", "(one, two)"):
        assert one in words
    reports = {each["method"]: each for each in map(json.loads, found["reports"].splitlines())}
    assert {"baseline", "stride only", "loudest", "rotatek"} <= set(reports)
    assert reports["loudest"]["settings"]["loudness_norm"] == "one"
    shares = [one["nominal_kv"] for name, one in reports.items() if name != "baseline"]
    assert shares == pytest.approx([0.5] * len(shares), abs=2e-6)
    kept = reports["stride only"]["visual_tokens_kept"]
    assert kept == pytest.approx(0.5 * reports["baseline"]["visual_tokens"], abs=1)
