"""Settings as widgets, as short text and as columns; what goes beyond the paper; the step strip."""

import numpy as np
import pytest
import torch
from PIL import Image

from rotatek.cache.compressed import RotateKCache
from rotatek.decode import prefill
from rotatek.errors import SettingError
from rotatek.events import Token
from rotatek.inputs import make_request
from rotatek.page import cards, inside, steps
from rotatek.page.choices import PRESETS, decode, encode, same_budget, settings_of, widgets_of
from rotatek.page.handlers import MAX_OTHERS, Handlers
from rotatek.page.run import BASELINE, columns_for, start, title_of, with_method
from rotatek.page.service import Service
from rotatek.settings import BASELINE as UNCOMPRESSED
from rotatek.settings import Settings

SETTINGS = [
    Settings(),
    Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.25),
    Settings.of(tokens="visionzip", keep_tokens=0.45, channels="think", keep_channels=0.5),
    Settings.of(tokens="fastv", keep_tokens=0.25, channels="full", keep_channels=1.0),
    Settings.of(weighting="none", keep_channels=0.1),
    Settings.of(values="rotate", keep_values=0.3),
    Settings.of(widths="adaptive", values="rotate", keep_values=0.12, keep_channels=0.06),
    Settings.of(cache_dtype="int8", keep_channels=0.5),
]


@pytest.fixture(scope="module")
def image() -> Image.Image:
    noise = np.random.default_rng(3).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((168, 112))


@pytest.mark.parametrize("settings", SETTINGS, ids=encode)
def test_settings_survive_widgets_and_text(settings: Settings) -> None:
    assert settings_of(*widgets_of(settings)) == settings
    assert decode(encode(settings)) == settings


def test_presets_switch_off_what_is_beyond_the_paper(service: Service) -> None:
    for label, settings in PRESETS.items():
        *shown, dropped, adaptive, kind = Handlers(service, []).preset(label)
        beyond = (0.75, True) if settings.values == "rotate" else (0.0, False)
        assert len(shown) == 4 and (dropped, adaptive, kind) == (*beyond, "model")
        assert settings_of(*widgets_of(PRESETS[label])) == PRESETS[label]


def test_only_rotatek_has_values_and_widths() -> None:
    think = settings_of("none", 0.0, "think", 0.75, "paper", 0.5, True, "fp8")
    assert think == Settings.of(channels="think", keep_channels=0.25)
    beyond = Settings.of(values="rotate", keep_values=0.5, widths="adaptive", cache_dtype="fp8")
    assert with_method(beyond, "spark").values == "full"
    assert with_method(beyond, "rotatek") == beyond


@pytest.mark.parametrize(
    "text",
    [
        "tokens:evil", "keep_tokens:0", "keep_tokens:nan", "keep_tokens:1e400", "keep_tokens:",
        "calibration:/etc/passwd", "unknown:1", "tokens", "widths:ragged", "channels:../..",
        "fastv_layer:0.5", "cache_dtype:fp8,channels:think", "weighting:" + "x" * 500,
    ],
)  # fmt: skip
def test_text_from_anywhere_is_checked(text: str) -> None:
    with pytest.raises(SettingError):
        decode(text)


@pytest.mark.parametrize("settings", SETTINGS, ids=encode)
def test_every_method_meets_the_same_budget(settings: Settings) -> None:
    others = same_budget(settings)
    assert 3 <= len(others) <= MAX_OTHERS
    for column in others:
        assert column.nominal_kv == pytest.approx(settings.nominal_kv, rel=1e-4)
    methods = {column.channels for column in (settings, *others)}
    assert methods == {"full", "think", "spark", "rotatek"}


def test_columns_have_titles_of_their_own() -> None:
    chosen = Settings.of(tokens="fastv", keep_tokens=0.4)
    narrower = Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.1)
    narrowest = Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.1, weighting="none")
    columns = columns_for(chosen, [chosen, narrower, narrowest, UNCOMPRESSED])
    assert list(columns) == [
        BASELINE, "FastV + RotateK", "FastV + RotateK, 22 %", "FastV + RotateK, 2"
    ]  # fmt: skip
    assert list(columns_for(UNCOMPRESSED, [])) == [BASELINE]
    assert title_of(SETTINGS[-2]) == "RotateK (K + V, adaptive)"
    assert title_of(SETTINGS[-1]) == "RotateK (int8)"


def test_columns_are_kept_listed_and_taken_off(service: Service) -> None:
    handlers = Handlers(service, [])
    first, second = widgets_of(SETTINGS[1]), widgets_of(SETTINGS[4])
    shown = handlers.pin([], *first)
    shown = handlers.pin(shown["value"], *second)
    assert [decode(code) for code in shown["value"]] == [SETTINGS[1], SETTINGS[4]]
    assert handlers.pin(shown["value"], *second)["value"] == shown["value"]
    assert shown["choices"][0][0] == "FastV + RotateK, 25 %"
    assert handlers.unpin([])["visible"] is False
    full = handlers.every(*first)["value"]
    assert len(full) == 3 and len(handlers.pin([*full, "keep_channels:0.1"], *second)["value"]) == 4


def test_many_columns_answer_from_one_page(service: Service, image: Image.Image) -> None:
    chosen = SETTINGS[1]
    columns = columns_for(chosen, same_budget(chosen))
    *_, run = service.ask("tiny", image, "Which?", columns, 4)
    assert list(run.columns) == [
        BASELINE, "FastV + RotateK", "FastV", "FastV + ThinK", "FastV + SparK",
    ]  # fmt: skip
    html = cards.answers(run, on_cpu=True)
    assert html.count("<article") == 5 and html.count("rk-steps") == 4
    for column in list(run.columns.values())[1:]:
        assert steps.reading(column) in html
        assert len(column.same) == len(column.pieces) == column.finished.new_tokens
        agreement = sum(column.same) / len(column.same)
        if column.finished.new_tokens == run.columns[BASELINE].finished.new_tokens:
            assert agreement == pytest.approx(column.finished.metrics["agreement"])


def test_strip_shows_where_columns_part(image: Image.Image) -> None:
    run = start(columns_for(Settings(), []), np.asarray(image), "?")
    column = run.chosen
    for index, (kl, divergent) in enumerate([(0.001, False), (2.0, True), (None, True)]):
        run.take(Token(column.title, index, 1, "a", 1.0, divergent, kl))
    html = steps.strip(column)
    assert html.count('class="same"') == 1 and html.count('class="other"') == 2
    assert (
        "same token in 33 % of places; logit KL 1 nats a token until they part, 2 at most" in html
    )
    for index in range(5000):
        run.take(Token(column.title, index, 1, "a", 1.0, False, 0.0))
    assert steps.strip(column).count("<rect") <= steps.BARS


def test_readings_of_what_is_beyond_the_paper(service: Service, image: Image.Image) -> None:
    settings = Settings.of(keep_channels=0.25, values="rotate", keep_values=0.5, widths="adaptive")
    *_, run = service.ask("tiny", image, "Which?", columns_for(settings, []), 2)
    *_, beyond = Handlers(service, []).read(24, run, *widgets_of(settings))
    vlm = service.engine("tiny").vlm
    embedded = vlm.embed(vlm.prompt(make_request(image, "Which?")))
    cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    prefill(vlm, embedded, cache)
    widths = torch.cat([layer.store.visual.key_widths.flatten() for layer in cache.layers])
    shown = inside.widths(run, run.trace, settings)
    least, most = shown.min(), shown.max()
    assert abs(least - int(widths.min())) <= 4 and abs(most - int(widths.max())) <= 4
    assert f"{least} to {most} on this image" in beyond and "64 of 128 Value channels" in beyond
    assert "beyond the paper: K + V, adaptive" in cards.budget_reading(settings)
    assert "beyond" not in cards.budget_reading(Settings())
    assert "with RotateK only" in cards.beyond_reading(UNCOMPRESSED, 128, None)
    assert "keeps all 128 Value channels" in cards.beyond_reading(Settings(), 128, None)
