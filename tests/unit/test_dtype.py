"""`ROTATEK_DTYPE`: what models compute in where nothing else is said."""

import pytest
import torch

from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished
from rotatek.errors import SettingError
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import load
from rotatek.models.loading import DTYPES
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

FORMS = {
    "baseline": BASELINE,
    "k = 1/4": Settings.of(keep_channels=0.25),
    ".75 bits": Settings.of(smaller=16),
    "SparK": Settings.of(channels="spark", keep_channels=0.5),
    "FastV": Settings.of(tokens="fastv", keep_tokens=0.5, channels="think"),
}


@pytest.mark.parametrize("name", [*DTYPES, ""])
def test_the_environment_names_the_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTATEK_DTYPE", name)
    wanted = DTYPES.get(name, torch.float32)
    assert load(device="cpu").model.dtype == wanted
    assert load(device="cpu", dtype=torch.float32).model.dtype == torch.float32


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTATEK_DTYPE", "int3")
    with pytest.raises(SettingError, match="ROTATEK_DTYPE must be float32 or bfloat16"):
        load(device="cpu")


def test_every_form_answers_in_bfloat16_on_a_processor(
    picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And holds half the bytes."""
    monkeypatch.setenv("ROTATEK_DTYPE", "bfloat16")
    engine, request = Engine(device="cpu"), make_request(picture(224, 224, seed=1), "What?", 6)
    found = {
        event.column: event.metrics
        for event in engine.compare(request, FORMS, trace=False)
        if isinstance(event, Finished)
    }
    assert found.keys() == FORMS.keys()
    monkeypatch.setenv("ROTATEK_DTYPE", "float32")
    exact = next(
        event
        for event in Engine(device="cpu").answer(request, BASELINE)
        if isinstance(event, Finished)
    )
    assert 2 * found["baseline"]["kv_bytes_full"] == exact.metrics["kv_bytes_full"]


@pytest.mark.parametrize("form", [".75 bits", "4 times smaller"])
def test_a_default_of_float64_changes_no_form(form: str, picture: Picture) -> None:
    """Programs set it for their own tensors; what is stored has types of its own."""
    settings = FORMS.get(form, Settings.of(smaller=4))
    request = make_request(picture(150, 120, seed=4), "what?", 6)
    torch.set_default_dtype(torch.float64)
    try:
        events = list(Engine(tiny_qwen()).answer(request, settings))
    finally:
        torch.set_default_dtype(torch.float32)
    (done,) = [event for event in events if isinstance(event, Finished)]
    assert done.new_tokens
