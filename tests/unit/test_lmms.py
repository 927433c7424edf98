"""The plug-in for lmms-eval: its logic against a stand-in."""

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from rotatek import Engine, Settings, make_request
from rotatek.engine.events import Finished
from rotatek.errors import ModeUnsupported, SettingError
from rotatek.inputs.sampling import GREEDY, Sampling
from tests.tiny import tiny_qwen


class Base:
    """lmms-eval's model: a rank, a cache hook, the tasks' data."""

    rank = _rank = 0
    _world_size = 1

    def __init__(self) -> None:
        self.task_dict: dict[str, Any] = {}
        self.cache_hook = types.SimpleNamespace(add_partial=lambda *_: None)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.SimpleNamespace]:
    """Both modules, imported with a stand-in for lmms-eval, and a tiny model to load."""
    parts: dict[str, dict[str, object]] = {
        "lmms_eval": {},
        "lmms_eval.api": {},
        "lmms_eval.api.instance": {"Instance": types.SimpleNamespace},
        "lmms_eval.api.model": {"lmms": Base},
        "lmms_eval.models": {},
        "lmms_eval.models.registry_v2": {"ModelManifest": types.SimpleNamespace},
    }
    for name, members in parts.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("lmms_model", "lmms_manifest"):
        monkeypatch.delitem(sys.modules, f"rotatek.evaluation.{name}", raising=False)
    model = importlib.import_module("rotatek.evaluation.lmms_model")
    found = importlib.import_module("rotatek.evaluation.lmms_manifest")
    monkeypatch.setattr(model, "load", lambda name, device: tiny_qwen())
    yield types.SimpleNamespace(model=model, manifest=found.manifest)
    for name in ("lmms_model", "lmms_manifest"):
        sys.modules.pop(f"rotatek.evaluation.{name}", None)


def instances(model: Any, docs: list[dict[str, Any]], **options: Any) -> list[Any]:
    """lmms-eval's requests, of which their arguments are all that matters here."""
    model.task_dict = {"task": {"test": docs}}
    given = {"max_new_tokens": 5, **options}
    return [
        types.SimpleNamespace(
            args=(doc["question"], given, lambda doc: [doc["image"]], n, "task", "test")
        )
        for n, doc in enumerate(docs)
    ]


@pytest.mark.parametrize("sampled", [False, True])
def test_answers_are_the_engines(
    plugin: types.SimpleNamespace, picture: Any, sampled: bool
) -> None:
    """Several at a time through the plug-in say what the engine says to each question alone; a
    document that it refuses is unanswered."""
    model = plugin.model.RotateK(batch_size=2, tokens="fastv", keep_tokens=0.5, keep_channels=0.25)
    assert model.settings == Settings.of(tokens="fastv", keep_tokens=0.5, keep_channels=0.25)
    docs = [
        {"question": f"Question {'x' * n}?", "image": picture(120 + 30 * n, 120, seed=n)}
        for n in range(4)
    ]
    narrow = {"question": "?", "image": picture(120, 8)}
    own: dict[str, Any] = {"do_sample": True, "temperature": 1.2, "top_p": 0.95} if sampled else {}
    *said, refused = model.generate_until(instances(model, [*docs, narrow], **own))
    assert refused == ""
    engine = Engine(model.engine.vlm)
    for number, (doc, text) in enumerate(zip(docs, said, strict=True)):
        drawn = Sampling(temperature=1.2, top_p=0.95, seed=number) if sampled else GREEDY
        request = make_request(doc["image"], doc["question"], 5, sampling=drawn)
        events = list(engine.answer(request, model.settings))
        assert [e.answer for e in events if isinstance(e, Finished)] == [text]
    ends = [" ", said[0][-1]]  # a stop string says something
    cut, *_ = model.generate_until(instances(model, docs, until=ends, **own))
    assert ends[1] not in cut and said[0].startswith(cut)


def test_what_is_not_supported_is_refused(plugin: types.SimpleNamespace, picture: Any) -> None:
    model = plugin.model.RotateK()
    docs = [{"question": "?", "image": picture(64, 64)}]
    with pytest.raises(ModeUnsupported):
        model.generate_until(instances(model, docs, num_beams=4))
    for call in (model.loglikelihood, model.generate_until_multi_round):
        with pytest.raises(ModeUnsupported):
            call([])
    with pytest.raises(SettingError, match="keep_tokens"):
        plugin.model.RotateK(tokens="fastv", keep_tokens=3.0)
