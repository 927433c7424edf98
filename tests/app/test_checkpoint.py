"""Load a checkpoint: its size is checked, progress is shown, errors are one sentence."""

import re
from html import unescape
from pathlib import Path

import pytest

from rotatek import errors
from rotatek.engine.engine import Engine
from rotatek.models.loading import POCKET, MemoryNeed, weigh
from rotatek.page.ask.load_checkpoint import CheckpointEvents
from rotatek.service.model_list import Model, checkpoints_allowed
from rotatek.service.service import Service
from tests.tiny import tiny_qwen

SENTENCE = re.compile(r">([^<]+)</p>")


@pytest.fixture
def service() -> Service:
    vlm = tiny_qwen()
    return Service([Model("tiny", "Tiny", "nowhere")], lambda source: Engine(vlm))


def weighed(source: str) -> MemoryNeed:
    return MemoryNeed(1000, "cpu")


def said(shown: list[dict]) -> list[str]:
    found = [SENTENCE.search(one["progress"]) for one in shown if "progress" in one]
    return [unescape(one.group(1)) for one in found if one]


def test_the_host_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTATEK_ALLOW_MODELS", raising=False)
    assert not checkpoints_allowed()
    monkeypatch.setenv("ROTATEK_ALLOW_MODELS", "1")
    assert checkpoints_allowed()


def test_a_checkpoint_is_weighed_loaded_and_chosen(service: Service) -> None:
    order: list[str] = []

    def weigh_it(source: str) -> MemoryNeed:
        order.append(source)
        return weighed(source)

    events = CheckpointEvents(service, weigh_it)
    shown = list(events.load(" some/other-tiny "))
    words = said(shown)
    assert order == ["some/other-tiny"] and words[0] == "Weighing it…"
    assert any(line.startswith("Loading other-tiny") for line in words)
    assert words[-1] == "other-tiny is ready, and chosen."
    assert shown[-1]["model"]["value"] == "other-tiny"
    assert [model.name for model in service.models] == ["tiny", "other-tiny"]
    assert service.engine("other-tiny")
    assert events.offer()["model"]["choices"][-1] == ("other-tiny", "other-tiny")
    again = list(events.load("some/other-tiny"))
    assert order == ["some/other-tiny"] and said(again)[-1].endswith("chosen.")


def test_two_of_one_name_are_told_apart(service: Service) -> None:
    list(CheckpointEvents(service, weighed).load("elsewhere/tiny"))
    assert [model.name for model in service.models] == ["tiny", "tiny-2"]


@pytest.mark.parametrize(
    "failure",
    [errors.ModelTooLarge("It needs 99 GB and cpu has 1 GB free."), errors.WeightsMissing(),
     errors.ModelUnsupported("Models of this type are not supported.")],
    ids=lambda failure: failure.code,
)  # fmt: skip
def test_a_refusal_is_one_sentence_and_leaves_everything_as_it_was(
    service: Service, failure: errors.UserError
) -> None:
    def refuse(source: str) -> MemoryNeed:
        raise failure

    shown = list(CheckpointEvents(service, refuse).load("some/model"))
    assert said(shown)[-1] == failure.message
    assert shown[-1]["load"]["interactive"] and "model" not in shown[-1]
    assert [model.name for model in service.models] == ["tiny"]


def test_a_failed_load_is_told_without_its_inside() -> None:
    def fail(source: str) -> Engine:
        raise KeyError("/secret/path")

    service = Service([Model("tiny", "Tiny", "nowhere")], fail)
    shown = list(CheckpointEvents(service, weighed).load("some/model"))
    assert said(shown)[-1].startswith("Something went wrong (id ")
    assert "secret" not in str(shown)


def test_one_at_a_time_and_never_without_a_name(service: Service) -> None:
    events = CheckpointEvents(service, weighed)
    first = events.load("some/model")
    next(first)
    with pytest.raises(Exception, match="Another checkpoint is being loaded"):
        next(events.load("some/second"))
    first.close()
    with pytest.raises(Exception, match="No checkpoint is named"):
        next(events.load("  "))


def test_weighing_reads_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((Path(POCKET) / "config.json").read_bytes())
    assert weigh(tmp_path, "cpu").needed > 10_000_000
    with pytest.raises(errors.WeightsMissing):
        weigh(tmp_path / "none", "cpu")
