"""Methods from outside in settings, help, tables, comparisons and `model.generate`."""

import json
from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.unversioned]
Run = Callable[..., str]

CODE = """
import json
from rotatek.methods.channels import CHANNELS
from rotatek.compare.columns import matched
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TOKENS

flat = dict(tokens="stride", keep_tokens=0.5, stride_phase=0.25, channels="loudest",
            keep_channels=0.5, loudness_norm="one")
chosen = Settings.of(**flat)
assert Settings.from_dict(chosen.as_dict()) == chosen
print(json.dumps({
    "registered": [list(TOKENS), list(CHANNELS)],
    "settings": chosen.as_dict(),
    "nominal": chosen.nominal_kv,
    "columns": {name: one.nominal_kv for name, one in matched(chosen).items()},
}))
"""

GENERATE = """
from pathlib import Path
import torch
from rotatek import RotateKCache, Settings, load, make_request, open_image

vlm = load("pocket", "cpu")
prompt = vlm.prompt(make_request(open_image(Path({picture!r})), "What is the total?", 32))
inputs = {{
    "input_ids": prompt.ids,
    "attention_mask": torch.ones_like(prompt.ids),
    "mm_token_type_ids": prompt.visual.int(),
    **prompt.pixels.tensors,
}}
settings = Settings.of(tokens="stride", keep_tokens=0.9, channels="loudest", keep_channels=0.75)
cache = RotateKCache(vlm.model, inputs, settings)
ids = vlm.model.generate(**inputs, cache=cache, max_new_tokens=32, do_sample=False)
print(vlm.tokenizer.decode(ids[0, prompt.ids.shape[1]:], skip_special_tokens=True))
print(cache.bytes().total < 0.9 * vlm.full_bytes(prompt.ids.shape[1]), cache.plan.visual_kept)
"""


PAGE = """
import json
from rotatek.page.build import build
from rotatek.service.model_list import load_examples, models_on_offer
from rotatek.page.inspect.drawings import mask_frames
from rotatek.service.service import Service
from rotatek.page.page_context import PageContext
from rotatek.paths import assets

site = PageContext(Service(models_on_offer(["pocket"])), load_examples(assets() / "examples"), {})
page = build(site, assets())
info = page.get_api_info()["named_endpoints"]
print(json.dumps({
    "widgets": [c["props"].get("elem_id") for c in page.get_config_file()["components"]],
    "fields": {name: [p["parameter_name"] for p in info[name]["parameters"]]
               for name in ("/ask",)},
    "frames": mask_frames(),
}))
"""

MASK = """
import json
import numpy as np
from pathlib import Path
from rotatek import Engine, RotateK, Settings, make_request, open_image
from rotatek.methods.channels import CHANNELS
from rotatek.compare.columns import titled
from rotatek.page.inspect.drawings import Place, View, head_drawings
from rotatek.service.run import start

image, columns = open_image(Path({picture!r})), titled(Settings(), [])
run = start(columns, np.asarray(image), "What is the total?")
for event in Engine("pocket", "cpu").compare(make_request(image, run.question, 2), columns):
    run.take(event)
method = RotateK(keep=0.25)
drawn = head_drawings(View(run, run.trace, Place(3, 1), method, CHANNELS["loudest"]()))
cells = drawn["mask-loudest"].figure.data[0]
print(json.dumps([int(cells["z"].sum()), cells["colorscale"][1][1]]))
"""


def test_the_page_and_its_api_have_them(said: Callable[[str], str]) -> None:
    found = json.loads(said(PAGE))
    assert {"loudness-norm", "stride-phase"} <= set(found["widgets"])
    assert "mask-loudest" in found["frames"]
    for fields in found["fields"].values():
        assert {"loudness_norm", "stride_phase"} <= set(fields)


def test_the_mask_draws_it(said: Callable[[str], str], receipt: str) -> None:
    cells, colour = json.loads(said(MASK.format(picture=receipt)))
    assert (cells, colour) == (32, "#7a4fb5")  # a quarter of 128 channels, the same for every token


def test_settings_tables_and_columns(said: Callable[[str], str]) -> None:
    found = json.loads(said(CODE))
    tokens, channels = found["registered"]
    assert tokens[-1] == "stride" and channels[-1] == "loudest"
    assert found["settings"] == {
        "tokens": "stride", "keep_tokens": 0.5, "stride_phase": 0.25,
        "channels": "loudest", "keep_channels": 0.5, "loudness_norm": "one",
    }  # fmt: skip
    assert found["nominal"] == pytest.approx(0.375)
    columns = found["columns"]
    assert {"stride only", "loudest"} <= set(columns) and columns.pop("baseline") == 1
    assert all(share == pytest.approx(0.375, abs=2e-6) for share in columns.values())


def test_the_command_line_has_its_options(with_package: Run) -> None:
    said = " ".join(with_package("-m", "rotatek", "ask", "--help").split())
    assert "stride: Stride" in said and "loudest: Loudest channels" in said
    for words in ("stride_phase of stride: ", "loudness_norm of loudest: ", "(one, two)"):
        assert words in said


def test_a_comparison_on_the_command_line(with_package: Run, receipt: str) -> None:
    words = [
        "--tokens",
        "stride",
        "--keep-tokens",
        "0.8",
        "--option",
        "loudness_norm=one",
        "--json",
    ]
    lines = with_package(
        "-m", "rotatek", "compare", receipt, "What is the total?", "--max-new-tokens", "4", *words
    ).splitlines()
    reports = {report["method"]: report for report in map(json.loads, lines)}
    assert {"baseline", "stride only", "loudest", "rotatek"} <= set(reports)
    assert reports["loudest"]["settings"]["loudness_norm"] == "one"
    shares = [one["nominal_kv"] for name, one in reports.items() if name != "baseline"]
    assert shares == pytest.approx([0.5] * len(shares), abs=2e-6)
    kept = reports["stride only"]["visual_tokens_kept"]
    assert kept == pytest.approx(0.5 * reports["baseline"]["visual_tokens"], abs=1)


def test_generate_answers_with_them(said: Callable[[str], str], receipt: str) -> None:
    answer, facts = said(GENERATE.format(picture=receipt)).splitlines()
    assert "20.10" in answer
    assert facts.startswith("True ")
