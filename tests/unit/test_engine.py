"""The engine: events in order, columns side by side, stop, isolation, traces."""

import pickle

from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Finished, Prefilled, Token
from rotatek.errors import CalibrationUnusable
from rotatek.inputs.request import Request, make_request
from rotatek.methods.settings import BASELINE, Settings
from tests.fixtures import Picture

COLUMNS = {
    "baseline": BASELINE,
    "lossless": Settings.of(keep_channels=1.0),
    "RotateK": Settings.of(keep_channels=0.125),
    "FastV": Settings.of(tokens="fastv", keep_tokens=0.4, channels="full", keep_channels=1.0),
    "VisionZip": Settings.of(tokens="visionzip", keep_tokens=0.45, channels="think"),
}


def _request(picture: Picture, seed: int = 0, tokens: int = 6) -> Request:
    return make_request(picture(150, 120, seed=seed), f"question {seed}?", tokens)


def test_every_column_reports_once_in_order_what_live_tensors_take(
    engine: Engine, picture: Picture
) -> None:
    events = list(engine.compare(_request(picture), COLUMNS))
    assert not [e for e in events if isinstance(e, Failed)]
    for name in COLUMNS:
        mine = [e for e in events if e.column == name]
        assert isinstance(mine[0], Prefilled)
        assert isinstance(mine[-1], Finished)
        tokens = [e for e in mine if isinstance(e, Token)]
        assert [t.index for t in tokens] == list(range(len(tokens)))
        assert "".join(t.text for t in tokens).strip() == mine[-1].answer.rstrip("\ufffd")
        assert mine[-1].new_tokens == len(tokens)
    assert [pickle.loads(pickle.dumps(e)).column for e in events] == [e.column for e in events]
    before = {e.column: e for e in events if isinstance(e, Prefilled)}
    after = {e.column: e.metrics for e in events if isinstance(e, Finished)}
    base = before["baseline"]
    assert base.kv_bytes == base.kv_bytes_full > before["RotateK"].kv_bytes
    assert after["baseline"]["kv_bytes"] == after["baseline"]["kv_bytes_full"]
    assert before["FastV"].visual_kept == round(0.4 * base.visual_tokens)
    for name in ("FastV", "VisionZip"):
        kept = before[name].kept
        assert kept is not None and kept.sum() == before[name].visual_kept < base.visual_tokens
    assert base.kept is None
    for figures in after.values():
        assert sum(figures["bytes"].values()) == figures["kv_bytes"]
    # agreement and divergence
    assert after["lossless"]["agreement"] == 1 and after["lossless"]["kl"] < 1e-5
    assert after["lossless"]["first_divergence"] is None
    tokens = [e for e in events if isinstance(e, Token)]
    said = {name: [e.token_id for e in tokens if e.column == name] for name in COLUMNS}
    for name, own in after.items():
        pairs = zip(said[name], said["baseline"], strict=False)
        differs = [i for i, (a, b) in enumerate(pairs) if a != b]
        if own["first_divergence"] is not None and differs:
            assert own["first_divergence"] == differs[0]
        marked = [e.index for e in tokens if e.column == name and e.divergent]
        assert marked[: len(differs)] == differs


def test_first_token_is_the_same_for_every_channel_method(engine: Engine, picture: Picture) -> None:
    columns = {n: Settings.of(channels=n, keep_channels=0.1) for n in ("think", "spark", "rotatek")}
    events = list(engine.compare(_request(picture), {"baseline": BASELINE} | columns))
    first = {e.token_id for e in events if isinstance(e, Token) and e.index == 0}
    assert len(first) == 1


def test_what_goes_wrong_is_an_event(engine: Engine, picture: Picture) -> None:
    unusable = Settings.of(calibration="nowhere.safetensors")
    (event,) = engine.compare(_request(picture), {"x": unusable})
    assert isinstance(event, Failed)
    assert event.message == CalibrationUnusable.sentence
    assert type(event.error) is CalibrationUnusable and event.error.__traceback__ is None

    class Broken(Engine):
        def _prefill(self, *_: object) -> bool:
            raise RuntimeError("/secret/path at 0xdeadbeef")

    (event,) = Broken(engine.vlm).compare(_request(picture), {"x": Settings()})
    assert isinstance(event, Failed)
    assert "secret" not in event.message
    assert "0x" not in event.message
