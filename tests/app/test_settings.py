"""Settings as a form, as short text and as columns; what goes beyond the paper; agreement."""

import numpy as np
import pytest
from PIL import Image

from rotatek.compare.columns import UNCOMPRESSED, title_of, titled
from rotatek.engine.events import Token
from rotatek.errors import SettingError
from rotatek.methods.settings import BASELINE, Settings
from rotatek.page.ask import answers, settings, token_agreement
from rotatek.page.ask.settings import MOST_OTHERS
from rotatek.page.form import settings_of, values_of
from rotatek.page.links import decode, encode
from rotatek.service.model_list import presets
from rotatek.service.run import start
from rotatek.service.service import Service
from tests.fixtures import present

SETTINGS = [
    Settings(),
    Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.25),
    Settings.of(tokens="visionzip", keep_tokens=0.45, channels="think", keep_channels=0.5),
    Settings.of(tokens="fastv", keep_tokens=0.25, channels="full", keep_channels=1.0),
    Settings.of(weighting="none", keep_channels=0.1),
    Settings.of(smaller=8),
]


@pytest.fixture(scope="module")
def image() -> Image.Image:
    noise = np.random.default_rng(3).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((168, 112))


@pytest.mark.parametrize("chosen", SETTINGS, ids=encode)
def test_settings_survive_widgets_and_text(chosen: Settings) -> None:
    assert settings_of(values_of(chosen)) == chosen
    assert decode(encode(chosen)) == chosen


def test_presets_set_every_control() -> None:
    for label, chosen in presets().items():
        assert settings_of(settings.preset(label)) == chosen


@pytest.mark.parametrize(
    "text",
    [
        "tokens:evil", "keep_tokens:0", "keep_tokens:nan", "keep_tokens:1e400", "keep_tokens:",
        "calibration:/etc/passwd", "unknown:1", "tokens", "widths:adaptive", "channels:../..",
        "fastv_layer:0.5", "smaller:5,channels:think", "weighting:" + "x" * 500,
    ],
)  # fmt: skip
def test_text_from_anywhere_is_checked(text: str) -> None:
    with pytest.raises(SettingError):
        decode(text)


@pytest.mark.parametrize("chosen", SETTINGS, ids=encode)
def test_every_method_meets_the_same_budget(chosen: Settings) -> None:
    codes = settings.every(**values_of(chosen))["others"]["value"]
    others = [decode(code) for code in codes]
    assert 3 <= len(others) <= MOST_OTHERS
    for column in others:
        assert column.nominal_kv == pytest.approx(chosen.nominal_kv, rel=1e-4)
    methods = {column.channels.name for column in (chosen, *others)}
    assert methods == {"full", "think", "spark", "rotatek"}


def test_columns_have_titles_of_their_own() -> None:
    chosen = Settings.of(tokens="fastv", keep_tokens=0.4)
    narrower = Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.1)
    narrowest = Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.1, weighting="none")
    columns = titled(chosen, [chosen, narrower, narrowest, BASELINE])
    assert list(columns) == [
        UNCOMPRESSED, "FastV + RotateK", "FastV + RotateK, 22 %", "FastV + RotateK, 2"
    ]  # fmt: skip
    assert list(titled(BASELINE, [])) == [UNCOMPRESSED]
    assert title_of(SETTINGS[-1]).startswith("RotateK (8 times smaller")


def test_columns_are_kept_listed_and_taken_off() -> None:
    first, second = values_of(SETTINGS[1]), values_of(SETTINGS[4])

    def pin(others: list[str], form: dict) -> dict:
        return settings.pin(others, **form)["others"]

    shown = pin([], first)
    shown = pin(shown["value"], second)
    assert [decode(code) for code in shown["value"]] == [SETTINGS[1], SETTINGS[4]]
    assert pin(shown["value"], second)["value"] == shown["value"]
    assert shown["choices"][0][0] == "FastV + RotateK, 25 %"
    assert settings.unpin([])["others"]["visible"] is False
    full = settings.every(**first)["others"]["value"]
    more = [f"keep_channels:0.{digit}" for digit in range(1, 9)]
    assert len(full) == 3 and len(pin([*full, *more], second)["value"]) == MOST_OTHERS


def test_many_columns_answer_from_one_page(service: Service, image: Image.Image) -> None:
    chosen = SETTINGS[1]
    others = settings.every(**values_of(chosen))["others"]["value"]
    columns = titled(chosen, [decode(code) for code in others])
    *_, run = service.ask("tiny", image, "Which?", columns, 4)
    assert list(run.columns) == [
        UNCOMPRESSED, "FastV + RotateK", "FastV", "FastV + ThinK", "FastV + SparK",
    ]  # fmt: skip
    html = answers.cards(run, on_cpu=True)
    assert html.count("<article") == 5 and html.count("rk-steps") == 4
    for column in list(run.columns.values())[1:]:
        assert token_agreement.reading(column) in html
        done = present(column.finished)
        assert len(column.same) == len(column.pieces) == done.new_tokens
        same = sum(column.same) / len(column.same)
        if done.new_tokens == present(run.columns[UNCOMPRESSED].finished).new_tokens:
            assert same == pytest.approx(done.metrics["agreement"])


def test_strip_shows_where_columns_part(image: Image.Image) -> None:
    run = start(titled(Settings(), []), np.asarray(image), "?")
    column = run.chosen
    for index, (kl, divergent) in enumerate([(0.001, False), (2.0, True), (None, True)]):
        run.take(Token(column.title, index, 1, "a", 1.0, divergent, kl))
    html = token_agreement.strip(column)
    assert html.count('class="same"') == 1 and html.count('class="other"') == 2
    assert (
        "same token in 33 % of places; logit KL 1 nats a token until they part, 2 at most" in html
    )
    for index in range(5000):
        run.take(Token(column.title, index, 1, "a", 1.0, False, 0.0))
    assert token_agreement.strip(column).count("<rect") <= token_agreement.BARS


def test_readings_say_what_stays() -> None:
    said = settings.readings(SETTINGS[1], 576)
    assert "keeps 230 of 576 tokens" in said["tokens"]
    assert "keeps 32 of 128 channels" in said["channels"] and "<b>25 %</b>" in said["budget"]
    assert "keeps every visual token" in settings.readings(Settings())["tokens"]
    smaller = Settings.of(smaller=5)
    assert "becomes 5 times smaller" in settings.readings(smaller)["channels"]
    assert settings.dropped(smaller) == "5 times smaller"
    assert settings.dropped(SETTINGS[1]) == "60 % of tokens dropped, 75 % of Key channels dropped"
    assert settings.dropped(BASELINE) == "nothing dropped"
