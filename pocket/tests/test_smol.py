"""The third pocket: its forward, its batches, its training and what is asked of it."""

import hashlib
import json
import math
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from pocket.content import plain
from pocket.document import Question
from pocket.evaluation.measures import Answered, declined_shares
from pocket.evaluation.questions import SCENERY, draw_items
from pocket.evaluation.score import Asked, is_right, read
from pocket.generate import make_document
from pocket.layouts import scenery
from pocket.models.forward import Forward, colour_scale, patchify, rms
from pocket.models.smol import (
    ENTRY,
    TINY,
    Language,
    Smol,
    parts,
    random_state,
    save_smol,
    smol_config,
)
from pocket.models.smol_forward import SmolForward
from pocket.models.subwords import Subwords
from pocket.questions.declining import DECLINED, declined
from pocket.questions.freeform import freeform
from pocket.questions.templates import ABSENT
from pocket.training import glyph_head
from pocket.training.__main__ import main as train
from pocket.training.data import BatchOptions
from pocket.training.options import arguments
from pocket.training.packing import pack
from pocket.training.sample_reuse import uses
from pocket.training.smol_data import SmolOptions, enlarged, make_smol, pictured, surrounded
from pocket.training.smol_trainer import SmolTrainer, seeing
from pocket.training.stacked_muon import StackedMuon
from pocket.training.trainer import see_one_gpu
from rotatek.engine.engine import Engine
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import assembly, load, smollm2
from rotatek.models.smollm2 import Shape
from tests import gguf_file

ROOT = Path(__file__).parents[2]
RUN = BatchOptions(3, 4000)


@pytest.fixture(scope="module")
def codec() -> Subwords:
    return Subwords.of_bytes()


@pytest.fixture(scope="module")
def model() -> Smol:
    torch.manual_seed(4)
    made = Smol(smol_config(TINY, 2, 128), Language(random_state(TINY, 1)), rank=4)
    for _, factor in made.factors():
        torch.nn.init.normal_(factor, 0, 0.1)
    for p in made.visual.parameters():  # as they are stored, so that the file holds the same
        kind = torch.float8_e4m3fn if p.ndim > 1 else torch.bfloat16
        p.data = p.data.to(kind).float()
    return made.eval()


@pytest.fixture(scope="module")
def whole(
    model: Smol, tmp_path_factory: pytest.TempPathFactory
) -> Qwen2_5_VLForConditionalGeneration:
    """What is assembled of the model's parts, as transformers loads it."""
    folder = tmp_path_factory.mktemp("smol")
    gguf_file.small(folder / "small.gguf", random_state(TINY, 1))
    save_smol(model, folder / "parts")
    recipe = json.loads((folder / "parts" / "language.json").read_text())
    assert recipe["sha256"] == smollm2.SHA256
    (folder / "made").mkdir()
    assembly.assemble(folder / "parts", folder / "small.gguf", folder / "made")
    return Qwen2_5_VLForConditionalGeneration.from_pretrained(
        folder / "made", dtype=torch.float32
    ).eval()


def test_the_whole_model_is_as_large_as_it_may_be() -> None:
    shape = Shape()
    with torch.device("meta"):
        state = {name: torch.empty(value.shape) for name, value in _shapes(shape).items()}
        real = Smol(smol_config(), Language(state))
    stored = dict(parts(real))
    assert max(len(json.dumps({n: [str(v.dtype), [9] * 12]})) for n, v in stored.items()) < ENTRY
    assert sum(value.nbytes for value in stored.values()) <= 36_000_000
    tower = sum(p.numel() for p in real.visual.parameters())
    assert 12_000_000 <= tower <= 15_000_000
    assert shape.width == 64 and sum(real.config.text_config.rope_parameters["mrope_section"]) == 32


def _shapes(shape: Shape) -> dict[str, torch.Tensor]:
    small = random_state(replace(shape, layers=1, vocabulary=8), 0)
    out = {"embed_tokens.weight": torch.empty(shape.vocabulary, shape.hidden, device="meta")}
    for name, value in small.items():
        if name.startswith("layers.0."):
            for layer in range(shape.layers):
                out[name.replace(".0.", f".{layer}.", 1)] = value
        elif name == "norm.weight":
            out[name] = value
    return out


@pytest.mark.parametrize("size", [(448, 336), (280, 560)])
def test_training_forward_is_the_assembled_model(
    size: tuple[int, int],
    model: Smol,
    codec: Subwords,
    whole: Qwen2_5_VLForConditionalGeneration,
) -> None:
    document = make_document(2, *size)
    text, *_ = pack(random.Random(0), document.questions, 64, codec=codec)
    n = size[0] * size[1] // 784
    ids = torch.tensor([codec.prefix() + [codec.IMAGE_PAD] * n + list(text)])
    image = torch.from_numpy(np.array(document.image))[None]
    patches = patchify(image, *colour_scale(torch.device("cpu")))
    both = patches.unflatten(-1, (3, 1, 196)).expand(-1, -1, 3, 2, 196).reshape(-1, 1176)
    grid = torch.tensor([[1, size[1] // 14, size[0] // 14]])
    with torch.no_grad():
        wanted = whole(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=(ids == codec.IMAGE_PAD).int(),
            pixel_values=both,
            image_grid_thw=grid,
        ).logits[0, -64:]
        forward = SmolForward(model, False, codec)
        _, seen = forward.see(image)
        hidden = forward.read(seen, torch.from_numpy(text)[None], size[1] // 28, size[0] // 28)
        got = rms(hidden, model.language.norm, 1e-5) @ model.language.embed.T
    # the assembled matrices are rounded to bfloat16
    assert torch.nn.functional.cosine_similarity(got[0], wanted, dim=-1).min() > 0.999


def test_turns_that_are_apart_do_not_see_each_other(model: Smol, codec: Subwords) -> None:
    forward = SmolForward(model, False, codec)
    questions = [Question("field", "What is the date?", "2 May"), Question("find", "Who?", "Ann")]
    rows = [pack(random.Random(0), part, 96, True, codec)[0] for part in (questions, questions[:1])]
    seen = torch.randn(1, 16, TINY.hidden)
    with torch.no_grad():
        both, one = (forward.read(seen, torch.from_numpy(r)[None], 4, 4, True) for r in rows)
    same = next(i for i, (a, b) in enumerate(zip(*rows, strict=True)) if a != b)
    place = 0
    if same < 8:  # the other question came first: compare its second turn with the one alone
        place = list(rows[0]).index(codec.VISION_END, 1)
        same = int((rows[1] != codec.PAD).sum())
    assert torch.allclose(both[0, place : place + same], one[0, :same], atol=1e-4)


def test_text_alone_is_held_to_what_the_language_model_says(codec: Subwords) -> None:
    torch.manual_seed(0)
    fresh = Smol(smol_config(TINY, 2, 128), Language(random_state(TINY, 1)), rank=4)
    forward = SmolForward(fresh, False, codec)
    batch = make_smol(SmolOptions(RUN, codec), 0, 0.1)
    assert batch.plain is not None and batch.plain.shape == (24, 96)
    assert make_smol(SmolOptions(RUN, codec), 1, 0.1).plain is None
    assert forward.plain_loss(batch.plain).abs() < 1e-5
    with torch.no_grad():
        for _, factor in fresh.factors():
            torch.nn.init.normal_(factor, 0, 0.2)
    away = forward.plain_loss(batch.plain)
    away.backward()
    assert away > 1e-3
    assert all(f.grad is not None for _, f in fresh.factors())
    assert not any(buffer.requires_grad for buffer in fresh.language.buffers())


def test_a_batch_has_documents_scenes_and_the_same_pixels_again(codec: Subwords) -> None:
    options = SmolOptions(replace(RUN, cost=9000, echo=2, alone=1.0), codec)
    one, two = (make_smol(options, 5, 0.3) for _ in range(2))
    assert torch.equal(one.images, two.images) and torch.equal(one.text, two.text)
    assert len(one.text) == 2 * len(one.images) and one.alone
    assert one.glyph_patch.max() < len(one.images) * one.images[0, :, :, 0].numel() // 196
    said = one.labels[one.labels >= 0]
    assert (said == codec.IM_END).sum() > len(one.images)
    for use in uses(one):  # known without looking at the labels, which a GPU may hold
        where = (use.labels.flatten() >= 0).nonzero()[:, 0]
        assert use.counts == (len(where),)
        assert torch.equal(use.labelled(), where)
        assert torch.equal(replace(use, counts=()).labelled(), where)
    assert torch.equal(one.labelled(), (one.labels.flatten() >= 0).nonzero()[:, 0])


def test_scenes_are_declined_and_documents_in_scenes_are_not() -> None:
    rng = random.Random(1)
    kinds = {"scenery": 0, "other": 0}
    for _ in range(60):
        document = pictured(rng, (336, 280), None, RUN, ["Who signed it?", "And when?"])
        scene = document.renderer == "scenery"
        kinds["scenery" if scene else "other"] += 1
        answers = {q.answer for q in document.questions if q.kind != "plain"}
        assert answers == {DECLINED} if scene else DECLINED not in answers
        assert document.image.size == (336, 280)
    assert kinds["scenery"] >= 1 and kinds["other"] > 40
    document = surrounded(rng, (448, 448), RUN)
    assert document.image.size == (448, 448) and len(document.glyphs)
    assert all(q.answer != DECLINED for q in document.questions) and DECLINED != ABSENT


def test_large_type_is_large() -> None:
    document = enlarged(random.Random(3), (672, 448), RUN)
    assert document.image.size == (672, 448) and len(document.glyphs) < 600


def test_held_out_scenes_are_never_drawn_for_training() -> None:
    assert not set(scenery.HELD) & set(scenery.DRAWN) and len(scenery.HELD) >= 5
    a, b = (scenery.draw(random.Random(7), 224, 168, held=True) for _ in range(2))
    assert a.tobytes() == b.tobytes() and a.size == (224, 168)
    for maker in (*scenery.DRAWN, *scenery.HELD):
        assert maker(random.Random(2), (308, 224)).size == (308, 224)
    items = [item for _, mine in draw_items(SCENERY, (224, 224), 3, 3) for item in mine]
    assert len(items) == 9 and {item.truth for item in items} == {DECLINED}


def test_what_others_were_asked_is_declined_too() -> None:
    asked = declined(random.Random(0), ["Who is the tenant?"])
    assert any("tenant" in q.text.lower() for q in asked)
    assert {q.answer for q in asked} == {DECLINED}


def test_matrices_are_updated_together_as_they_would_be_one_by_one() -> None:
    torch.manual_seed(0)
    shapes = [(8, 24), (8, 24), (24, 8), (16, 16)]
    one, other = ([torch.nn.Parameter(torch.randn(s)) for s in shapes] for _ in range(2))
    for a, b in zip(one, other, strict=True):
        b.data.copy_(a.data)
    ours = StackedMuon([{"params": one, "weight_decay": 0.1}], 1e-2)
    theirs = torch.optim.Muon(
        other, lr=1e-2, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(3):
        for a, b in zip(one, other, strict=True):
            a.grad = torch.randn(a.shape)
            b.grad = a.grad.clone()
        ours.step()
        theirs.step()
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a, b, atol=1e-3)
    again = StackedMuon([{"params": one, "weight_decay": 0.1}], 1e-2)
    again.load_state_dict(ours.state_dict())
    assert len(again.state) == len(shapes)


def test_the_tower_waits_and_then_learns_more_slowly(tmp_path: Path) -> None:
    options = ["--family", "smol", "--tiny", "--no-compile", "--out", str(tmp_path), "--steps", "9"]
    args = arguments([*options, "--tower-from", "0.5", "--tower-rate", "0.3"])
    trainer = SmolTrainer(args, 0, 1)
    groups = [g for o in trainer.optimisers for g in o.param_groups]
    tower = [g for g in groups if g["apart"]]
    inside = {id(p) for g in tower for p in g["params"]}
    blocks = {id(p) for n, p in trainer.model.named_parameters() if n.startswith("visual.blocks.")}
    assert inside == blocks
    assert [trainer.rate_of(g) for g in groups if not g["apart"]] == [1.0] * (
        len(groups) - len(tower)
    )
    assert all(trainer.rate_of(g) == 0.0 for g in tower)
    trainer.clock.step = 5
    assert all(trainer.rate_of(g) == 0.3 for g in tower)


def test_gradients_of_several_ranks_are_averaged_and_clipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = arguments(["--family", "smol", "--tiny", "--no-compile", "--out", str(tmp_path)])
    trainer = SmolTrainer(args, 0, 1)
    trainer.world = 2
    generator = torch.Generator().manual_seed(1)
    for p in trainer.params[1:]:  # the batches hold nothing for the first
        p.grad = torch.randn(p.shape, generator=generator)
    grads = torch.cat([p.grad.flatten() for p in trainer.params[1:] if p.grad is not None])

    def other_rank_has_three_times_as_much(flat: torch.Tensor) -> None:
        flat.mul_(4)

    monkeypatch.setattr(torch.distributed, "all_reduce", other_rank_has_three_times_as_much)
    trainer.share_gradients()
    assert trainer.params[0].grad is not None and not trainer.params[0].grad.any()
    shared = torch.cat([p.grad.flatten() for p in trainer.params[1:] if p.grad is not None])
    assert torch.allclose(shared, grads / grads.norm(), atol=1e-4)
    for p in trainer.params:
        p.grad = torch.full_like(p, 1e-6)
    trainer.share_gradients()  # what is small stays
    assert all(torch.allclose(p.grad, torch.full_like(p, 2e-6), rtol=0.01) for p in trainer.params)


def test_a_rank_sees_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for seen, own in (("", "1"), ("4,5", "5")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
        see_one_gpu(1)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == own


def test_a_frozen_language_model_is_not_changed(tmp_path: Path) -> None:
    usual = ["--family", "smol", "--tiny", "--no-compile", "--workers", "1", "--cost", "900",
             "--skip", "0.1"]  # fmt: skip
    train([*usual, "--frozen", "--out", str(tmp_path), "--steps", "2"])
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["model"]
    assert not any(value.any() for name, value in state.items() if name.endswith(".up"))


def test_what_is_declined_is_counted_by_split() -> None:
    rows = [Answered("own", "", "", "", "", "", DECLINED), Answered("own", "", "", "", "", "", "4")]
    assert declined_shares(rows) == {"own": 0.5}


PAGE = """| Fruit | Price | Stock |
| --- | --- | --- |
| Plum | 1.20 | 40 |
| Pear | 2.30 | 15 |
| Fig | 4.00 | 8 |"""


def _is_true(working: str) -> bool:
    """Whether "2.50 + 1.25 = 3.75" is so, for any number of terms."""
    terms, _, result = working.partition(" = ")
    for sign, of in ((" + ", sum), (" - ", lambda x: x[0] - x[1]), (" x ", math.prod)):
        if sign in terms:
            return math.isclose(of([float(term) for term in terms.split(sign)]), float(result))
    return False


def test_free_questions_have_true_answers() -> None:
    prices, stock = {"plum": "1.20", "pear": "2.30", "fig": "4.00"}, {"plum": "40", "pear": "15"}
    found = set()
    for seed in range(200):
        for q in freeform(random.Random(seed), PAGE):
            text = q.text.lower()
            named = [n for n in prices if n in text]
            worked = q.answer.split(" ")
            if " = " in q.answer:
                assert _is_true(q.answer), q
                found.add(worked[1])
            if "together" in text and "price" in text and len(named) == 2:
                assert {worked[0], worked[2]} == {prices[n] for n in named}
                found.add("pair")
            if text.startswith(("how much are two of", "how much are 2 of")):
                assert q.answer == f"2 x {prices[named[0]]} = {2 * float(prices[named[0]]):.2f}"
                found.add("twice")
            if "full sentence" in text or "whole sentence" in text:
                assert q.answer.endswith(".") and named[0] in q.answer.lower()
                found.add("sentence")
            if "difference in stock" in text and set(named) == {"plum", "pear"}:
                assert q.answer == f"{stock['plum']} - {stock['pear']} = 25"
                found.add("difference")
            if text == "what is the sum of stock?":
                assert q.answer == "40 + 15 + 8 = 63"
                found.add("column")
    assert found == {"+", "-", "x", "pair", "twice", "sentence", "difference", "column"}
    medals = "| Club | Gold | Silver |\n| --- | --- | --- |\n| Ayr | 3 | 5 |\n| Ely | 0 | 4 |"
    across = {q.answer for s in range(40) for q in freeform(random.Random(s), medals)}
    assert {"3 + 5 = 8", "0 + 4 = 4"} <= across
    shares = "| Way | Share |\n| --- | --- |\n| Bus | 25% |\n| Car | 75% |"
    said = {(q.text, q.answer) for s in range(60) for q in freeform(random.Random(s), shares)}
    parts = {a for text, a in said if "200" in text}
    assert parts & {"25% of 200 = 50", "75% of 200 = 150"}
    fields = "Name: Ann Lee\nDate: 4 May\nRoom: 12"
    asked = [q for seed in range(20) for q in freeform(random.Random(seed), fields)]
    assert {"yes", "no"} <= {q.answer for q in asked}
    assert any(q.answer == "The room is 12." for q in asked)
    assert freeform(random.Random(0), "Only a line of words.") == []


def test_plain_conversations_are_many_and_about_itself_honest() -> None:
    rows = plain.conversations()
    assert len(rows) > 200 and all(asked and said for asked, said in rows)
    assert (
        len(plain.prompts(random.Random(0), 900))
        == 900
        == len(set(plain.prompts(random.Random(0), 900)))
    )
    assert not {asked for asked, _ in rows} & {asked for asked, _ in plain.SELF}
    for seed in range(200):
        asked, said = plain.reckoned(random.Random(seed))
        if found := re.fullmatch(r"What is (\d+) plus (\d+)\?", asked):
            assert int(said) == int(found[1]) + int(found[2])
        if "one word" in asked or "yes or no" in asked.lower():
            assert " " not in said or said in plain.CAPITALS.values()
    about = dict(plain.SELF)
    assert "RotateK" in about["Who are you?"] and about["Are you ChatGPT?"].startswith("No")


def test_the_first_pockets_tower_is_taken_over() -> None:
    shape = replace(TINY, hidden=64)
    made = Smol(smol_config(shape, 12, 256), Language(random_state(shape, 1)), rank=2).eval()
    seeing(made, ROOT / "assets" / "pocket")
    first = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        ROOT / "assets" / "pocket", dtype=torch.float32
    ).eval()
    image = torch.from_numpy(np.array(make_document(5, 224, 224).image))[None]
    with torch.no_grad():
        ours, seen = SmolForward(made, False, Subwords.of_bytes()).see(image)
        theirs, _ = Forward(first, False).see(image)
    assert torch.allclose(ours, theirs, atol=1e-3)
    assert 0.2 < float(seen.pow(2).mean().sqrt() / made.language.embed.pow(2).mean().sqrt()) < 5


@pytest.mark.slow
def test_a_training_is_resumed_exported_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = ["--family", "smol", "--tiny", "--no-compile", "--workers", "1", "--cost", "1500",
             "--skip", "0.1", "--log-every", "1", "--seed", "2"]  # fmt: skip
    out = tmp_path / "run"
    train([*usual, "--out", str(out), "--steps", "4", "--alone", "0.5", "--tower-from", "0.6"])
    log = json.loads((out / "log.json").read_text())
    assert [row["step"] for row in log] == [1, 2, 3, 4]
    assert all(np.isfinite([row["answer_loss"], row["glyph_loss"]]).all() for row in log)
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    assert not any(name.startswith("language.") for name in state["model"])
    train([*usual, "--out", str(out), "--steps", "5"])  # goes on from the checkpoint
    assert json.loads((out / "log.json").read_text())[-1]["step"] == 5
    again = tmp_path / "again"
    train([*usual, "--out", str(again), "--start", str(out / "export"), "--steps", "1"])
    assert {f.name for f in (again / "export").iterdir()} == {
        f.name for f in (out / "export").iterdir()
    }

    path = tmp_path / "small.gguf"
    gguf_file.small(path, random_state(TINY, 2))
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    recipe = out / "export" / "language.json"
    changed = json.loads(recipe.read_text()) | {"sha256": smollm2.SHA256}
    recipe.write_text(json.dumps(changed))
    monkeypatch.setenv(smollm2.VARIABLE, str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    engine = Engine(load(out / "export", "cpu"))
    request = make_request(make_document(1, 224, 224).image, "What is the title?", 4)
    settings = {"a": Settings(), "b": Settings()}
    names = [type(e).__name__ for e in engine.compare(request, settings, trace=False)]
    assert names.count("Finished") == 2 and "Failed" not in names


def test_the_pages_that_are_asked_freely() -> None:
    asked = read(ROOT / "assets" / "freeform" / "questions.jsonl")
    assert len(asked) == 60 and len({one.picture for one in asked}) == 20
    assert all(one.picture.exists() for one in asked)
    kinds = {one.kind for one in asked}
    assert kinds == {"understand", "compare", "reckon", "word", "sentence"}
    for one in asked:
        said = one.accepted[0]
        assert is_right(one, f"I would say {said}." if one.kind == "sentence" else said)


def test_form_counts_where_it_was_asked_for() -> None:
    word = Asked(Path("a"), "One word?", ("no",), "word")
    assert is_right(word, "No.") and not is_right(word, "no, dogs are not allowed")
    sentence = Asked(Path("a"), "A sentence?", ("1931",), "sentence")
    assert is_right(sentence, "The house was built in 1931.") and not is_right(sentence, "1931")
    assert not is_right(sentence, "The house was built in 1932.")


def test_a_head_is_fitted_to_a_tower_as_it_is(tmp_path: Path) -> None:
    words = ["--family", "smol", "--tiny", "--no-compile", "--cost", "900", "--out", str(tmp_path)]
    trainer = SmolTrainer(arguments(words), 0, 1)
    before = [p.clone() for p in trainer.model.parameters()]
    first = glyph_head.fit(trainer, 1, 1)
    assert glyph_head.fit(trainer, 1, 60) < first / 2
    after = list(trainer.model.parameters())
    assert all(map(torch.equal, before, after)) and all(p.grad is None for p in after)
