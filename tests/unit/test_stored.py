"""Caches in files: what is loaded goes on token for token, and what is not whole is refused."""

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from rotatek import errors
from rotatek.cache import cache_file
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import decode, prefill
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TOKENS
from rotatek.models import Embedded, VisionLanguageModel, collate
from tests.families import EVERY
from tests.fixtures import Picture, half
from tests.tiny import TINY, tiny_llava, tiny_qwen
from tests.unit.test_methods import VARIANTS

NEW = 6
MATRIX = [  # every form of every method where no token is dropped, and each with each pruner
    pytest.param(tokens, {"channels": channels, **extra}, samples, id=f"{tokens}-{channels}-{i}")
    for (tokens, samples), channels in itertools.product(
        {name: 2 if name == "fastv" else 1 for name in TOKENS}.items(), CHANNELS
    )
    for i, extra in enumerate(VARIANTS.get(channels, [{}])[: None if tokens == "none" else 1])
]


@pytest.fixture(scope="module", params=[*TINY, "qwen3_5"])
def vlm(request: pytest.FixtureRequest) -> VisionLanguageModel:
    return EVERY[request.param]()


def filled(
    vlm: VisionLanguageModel, picture: Picture, settings: Settings, samples: int = 1
) -> tuple[RotateKCache, Embedded, Tensor]:
    """A cache of one prompt or a padded batch, what it was filled from, and its logits."""
    prompts = []
    for number, size in enumerate(((150, 120), (90, 260))[:samples]):
        request = make_request(picture(*size, seed=number), "what is the total?"[number:], NEW)
        prompts.append(vlm.embed(vlm.prompt(request), settings.tokens))
    embedded = collate(prompts) if samples > 1 else prompts[0]
    cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    return cache, embedded, prefill(vlm, embedded, cache)[0]


def said(
    vlm: VisionLanguageModel, cache: RotateKCache, embedded: Embedded, logits: Tensor
) -> list[tuple[list[int], Tensor]]:
    """Tokens and logits of the answer."""
    steps = decode(vlm, embedded, cache, logits, NEW)
    return [(step.tokens, step.logits) for step in steps]


def same(first: list[tuple[list[int], Tensor]], second: list[tuple[list[int], Tensor]]) -> bool:
    """Whether two answers agree in every bit of every step."""
    pairs = zip(first, second, strict=True)
    return all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in pairs)


@pytest.mark.parametrize(("tokens", "options", "samples"), MATRIX)
def test_a_loaded_cache_goes_on_as_the_saved_one(
    vlm: VisionLanguageModel,
    tokens: str,
    options: dict[str, Any],
    samples: int,
    picture: Picture,
    tmp_path: Path,
) -> None:
    settings = Settings.of(**half(tokens), keep_channels=0.25, **options)
    cache, embedded, logits = filled(vlm, picture, settings, samples)
    path = tmp_path / "answer.cache"
    assert cache.save(path, {"asked": "first"}) == path.stat().st_size
    loaded = RotateKCache.load(path, vlm.model)
    assert loaded.settings == settings and loaded.notes == {"asked": "first"}
    before, after = cache.bytes(), loaded.bytes()
    tensors = [t for _, t in loaded.tensors()]  # in shared storages, with gaps
    gaps = storage_bytes(tensors) - storage_bytes(t for _, t in cache.tensors())
    assert 0 <= gaps < cache_file.ALIGNED * len(tensors)
    assert after.total == storage_bytes([*tensors, *loaded.marks()]) == sum(after.parts.values())
    before.parts["lengths"] = after.parts["lengths"] = 0  # a loaded cache has no marks to reset to
    assert before.parts == after.parts
    assert loaded.get_seq_length() == cache.get_seq_length()
    assert loaded.plan.visual_kept == cache.plan.visual_kept
    assert same(said(vlm, cache, embedded, logits), said(vlm, loaded, embedded, logits))
    assert os.listdir(tmp_path) == ["answer.cache"]


def test_an_answer_may_be_saved_in_its_middle(
    vlm: VisionLanguageModel, picture: Picture, tmp_path: Path
) -> None:
    """Text that has grown comes along, static buffers too."""
    cache, embedded, logits = filled(vlm, picture, Settings.of(keep_channels=0.25))
    cache.reserve(4 * NEW)
    whole = said(vlm, cache, embedded, logits)
    again, _, _ = filled(vlm, picture, Settings.of(keep_channels=0.25))
    steps = decode(vlm, embedded, again, logits, NEW)
    for _ in range(3):
        step = next(steps)
    again.save(tmp_path / "half")
    loaded = RotateKCache.load(tmp_path / "half", vlm.model)
    position = embedded.next_position + 2
    rest = type(embedded)(
        embedded.embeds, embedded.positions, embedded.visual, embedded.valid, position
    )
    assert [t for t, _ in said(vlm, loaded, rest, step.logits)][:4] == [t for t, _ in whole][2:6]


def test_saving_twice_gives_the_same_bytes(
    vlm: VisionLanguageModel, picture: Picture, tmp_path: Path
) -> None:
    cache, _, _ = filled(vlm, picture, Settings.of(smaller=8))
    for name in ("one", "two"):
        cache.save(tmp_path / name)
    RotateKCache.load(tmp_path / "one", vlm.model).save(tmp_path / "three")
    first, second, third = ((tmp_path / name).read_bytes() for name in ("one", "two", "three"))
    assert first == second == third
    assert len(first) < cache.bytes().total


def test_an_empty_cache_and_a_plain_one_are_not_saved(
    vlm: VisionLanguageModel, picture: Picture, tmp_path: Path
) -> None:
    request = make_request(picture(90, 60), "what?", NEW)
    embedded = vlm.embed(vlm.prompt(request))
    cache = RotateKCache(vlm.model, embedded.inputs(), Settings())
    with pytest.raises(errors.CacheNotStorable):
        cache.save(tmp_path / "none")
    prefill(vlm, embedded, cache)
    with pytest.raises(errors.CacheNotStorable):
        cache.save(tmp_path / "none", {"what": DynamicCache()})
    with pytest.raises(errors.CacheFileUnwritable):
        cache.save(tmp_path / "no folder" / "none")
    assert not list(tmp_path.iterdir())
    os.mkfifo(tmp_path / "pipe")  # as a device: it would be replaced by a file
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link", "."):
        with pytest.raises(errors.CacheFileUnwritable):
            cache.save(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"] and (tmp_path / "pipe").is_fifo()


def test_a_failed_write_leaves_the_file_that_was_there(
    vlm: VisionLanguageModel, picture: Picture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, _, _ = filled(vlm, picture, Settings())
    path = tmp_path / "kept"
    path.write_bytes(b"as it was")

    def full(_: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.CacheFileUnwritable):
        cache.save(path)
    assert path.read_bytes() == b"as it was" and os.listdir(tmp_path) == ["kept"]


@pytest.fixture
def file(qwen: VisionLanguageModel, picture: Picture, tmp_path: Path) -> Path:
    """A small stored cache of `qwen`."""
    path = tmp_path / "small.cache"
    cache, _, _ = filled(qwen, picture, Settings.of(keep_channels=0.25))
    cache.save(path)
    return path


REFUSALS = (
    errors.CacheFileForeign,
    errors.CacheFileDamaged,
    errors.CacheFileVersion,
    errors.CacheOfAnotherModel,
)


def refused(path: Path, vlm: VisionLanguageModel) -> type[errors.UserError]:
    """How a file is refused; it has to be."""
    with pytest.raises(REFUSALS) as refusal:
        RotateKCache.load(path, vlm.model)
    return refusal.type


def places(data: bytes) -> list[int]:
    """Every byte of the prefix and of what follows it, and some of all others."""
    first = cache_file.PREFIX.size + 48
    return [*range(first), *range(first, len(data), len(data) // 200), len(data) - 1]


def test_a_flipped_byte_is_refused_wherever_it_is(file: Path, qwen: VisionLanguageModel) -> None:
    data = file.read_bytes()
    for place in places(data):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= flip
            file.write_bytes(damaged)
            kind = refused(file, qwen)
            if place < 8:
                assert kind is errors.CacheFileForeign
            elif place < 12:
                assert kind is errors.CacheFileVersion
            else:
                assert kind is errors.CacheFileDamaged, place


def test_a_flip_that_changes_no_number_is_refused(file: Path, qwen: VisionLanguageModel) -> None:
    """The fourth bit of a frame's descriptor says nothing, so zstd does not look at it."""
    import zstandard

    damaged, start = bytearray(file.read_bytes()), cache_file.PREFIX.size
    before = zstandard.decompress(bytes(damaged[start:]))
    damaged[start + len(b"\x28\xb5\x2f\xfd")] ^= 0x10
    assert zstandard.decompress(bytes(damaged[start:])) == before
    file.write_bytes(damaged)
    assert refused(file, qwen) is errors.CacheFileDamaged


def test_a_truncated_file_is_refused_at_every_length(file: Path, qwen: VisionLanguageModel) -> None:
    data = file.read_bytes()
    for length in places(data):
        file.write_bytes(data[:length])
        assert refused(file, qwen) in (errors.CacheFileForeign, errors.CacheFileDamaged)
    file.write_bytes(data + b"\0")
    assert refused(file, qwen) is errors.CacheFileDamaged


@pytest.mark.parametrize("version", [1, 3, 4, 5, 7])
def test_a_file_of_another_version_is_to_be_made_anew(
    version: int, file: Path, qwen: VisionLanguageModel
) -> None:
    """The oldest ones had a header of another form behind the version's number."""
    file.write_bytes(b"RTKCACHE" + version.to_bytes(4, "little") + bytes(99))
    with pytest.raises(errors.CacheFileVersion, match="Ask again with the image, and save anew"):
        RotateKCache.load(file, qwen.model)


@pytest.mark.parametrize(
    "content",
    [b"", b"RTK", b"\x89PNG\r\n\x1a\n" + bytes(99), b"PK\x03\x04" + bytes(99), bytes(500)],
)
def test_foreign_files_are_refused(
    content: bytes, qwen: VisionLanguageModel, tmp_path: Path
) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(content)
    assert refused(path, qwen) in (errors.CacheFileForeign, errors.CacheFileDamaged)
    with pytest.raises(errors.FileUnreadable):
        RotateKCache.load(tmp_path / "not there", qwen.model)
    with pytest.raises(errors.FileUnreadable):
        RotateKCache.load(tmp_path, qwen.model)


def test_another_model_is_refused(file: Path, qwen: VisionLanguageModel) -> None:
    """Of another class, with other weights, or in another type; a copy elsewhere is the same."""
    assert refused(file, tiny_llava()) is errors.CacheOfAnotherModel
    assert refused(file, tiny_qwen(seed=1)) is errors.CacheOfAnotherModel
    halved = tiny_qwen()
    halved.model.bfloat16()
    assert refused(file, halved) is errors.CacheOfAnotherModel
    same = tiny_qwen()
    same.model.config._name_or_path = "elsewhere"
    assert RotateKCache.load(file, same.model).settings.channels.name == "rotatek"


Told = tuple[list[Any], dict[str, Any]]  # parts and tensors of a file, and its tree


def rewritten(file: Path, change: Callable[[*Told], object]) -> None:
    """A file whose head is another, with the right checksum: no accident makes one."""
    import zstandard

    data = file.read_bytes()
    *_, length = cache_file.PREFIX.unpack(data[: cache_file.PREFIX.size])
    behind = cache_file.PREFIX.size + length
    head = zstandard.decompress(data[cache_file.PREFIX.size : behind])
    owner, parts, tensors, tree = map(json.loads, head.splitlines())
    change([parts, tensors], tree)
    text = "\n".join(map(json.dumps, (owner, parts, tensors, tree)))
    file.write_bytes(b"".join((*cache_file.head_of(text), data[behind:])))


def _other_type(told: list[Any], tree: dict[str, Any]) -> None:
    told[0][0][0] = "float128"


def _no_type(told: list[Any], tree: dict[str, Any]) -> None:
    told[0][0][0] = "load"


def _other_piece(told: list[Any], tree: dict[str, Any]) -> None:
    told[0][0][2][0][2] += 1


def _other_shape(told: list[Any], tree: dict[str, Any]) -> None:
    told[1][0][1][0] += cache_file.ALIGNED


def _no_such_part(told: list[Any], tree: dict[str, Any]) -> None:
    told[1][0][0] = 99


def _no_such_tensor(told: list[Any], tree: dict[str, Any]) -> None:
    tree["layers"][0]["text"]["keys"]["of"] = 9999


def _no_such_store(told: list[Any], tree: dict[str, Any]) -> None:
    tree["layers"][0]["store"][""] = "os:system"


def _other_fields(told: list[Any], tree: dict[str, Any]) -> None:
    tree["layers"][0]["store"]["of"]["unheard-of"] = 1


def _no_layers(told: list[Any], tree: dict[str, Any]) -> None:
    tree["layers"] = []


def _no_settings(told: list[Any], tree: dict[str, Any]) -> None:
    tree.pop("settings")


@pytest.mark.parametrize(
    "change",
    [
        _other_type, _no_type, _other_piece, _other_shape, _no_such_part, _no_such_tensor,
        _no_such_store, _other_fields, _no_layers, _no_settings,
    ],
)  # fmt: skip
def test_a_file_of_another_hand_is_refused(
    change: Callable[[*Told], None], file: Path, qwen: VisionLanguageModel
) -> None:
    rewritten(file, change)
    assert refused(file, qwen) in (errors.CacheFileVersion, errors.CacheFileDamaged)


def test_digits_of_a_file_of_another_hand_are_refused(
    qwen: VisionLanguageModel, picture: Picture, tmp_path: Path
) -> None:
    """Fewer words than channels and tokens would be read beyond their end."""
    path = tmp_path / "bits.cache"
    cache, embedded, logits = filled(qwen, picture, Settings.of(bits=2.0))
    cache.save(path)
    loaded = RotateKCache.load(path, qwen.model)
    for one, other in zip(cache.layers, loaded.layers, strict=True):
        for side in ("key_planes", "value_planes"):
            mine, theirs = (getattr(layer.store.visual, side).data for layer in (one, other))
            assert torch.equal(mine, theirs)

    def turned(told: list[Any], tree: dict[str, Any]) -> None:
        visual = tree["layers"][0]["store"]["of"]["visual"]["of"]
        visual["tokens"] *= 9

    rewritten(path, turned)
    assert refused(path, qwen) is errors.CacheFileVersion


def test_a_method_that_is_not_there_is_named(file: Path, qwen: VisionLanguageModel) -> None:
    def unknown(told: list[Any], tree: dict[str, Any]) -> None:
        tree["settings"]["channels"] = "unheard-of"

    rewritten(file, unknown)
    with pytest.raises(errors.SettingError, match="channels must be one of"):
        RotateKCache.load(file, qwen.model)


def test_without_the_coder_a_sentence_says_what_to_install(
    file: Path, qwen: VisionLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(errors.CompressorMissing, match="rotatek\\[store\\]"):
        RotateKCache.load(file, qwen.model)


TYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_numbers_of_every_type_come_back(dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_qwen().model
    raw = torch.randint(0, 256, (3, 5, 16), generator=torch.Generator().manual_seed(1))
    tensor = (raw > 99) if dtype == torch.bool else raw.to(torch.uint8).view(dtype)
    content = {"it": tensor, "none": tensor[:0], "one": tensor[0]}
    cache_file.Draft(model, content).write(tmp_path / "numbers")
    found = cache_file.read(tmp_path / "numbers", model, torch.device("cpu"))
    for name, wanted in (("it", tensor), ("none", tensor[:0]), ("one", tensor[0])):
        assert found[name].dtype == dtype and found[name].shape == wanted.shape
        assert torch.equal(found[name].view(torch.uint8), wanted.contiguous().view(torch.uint8))
