"""A request's texts and pictures in the order given, and as many turns as there are."""

import pytest

from rotatek import errors
from rotatek.inputs.messages import PICTURE, Message
from rotatek.inputs.request import make_request
from tests.fixtures import Picture


def test_parts_stand_in_the_order_given(picture: Picture) -> None:
    """Pictures come first only where nothing else is said."""
    two = [picture(), picture(seed=1)]
    plain = make_request(two, "Which?")
    assert plain.messages == (Message("user", (PICTURE, PICTURE, "Which?")),)
    asked = (" First:", PICTURE, "Second:", PICTURE, "Which?\r\n")
    mixed = make_request(two, asked)
    assert mixed.messages == (Message("user", ("First:", PICTURE, "Second:", PICTURE, "Which?")),)
    assert mixed.question == "First:\nSecond:\nWhich?" and mixed.shown == (2,)
    later = make_request(two, ("And", PICTURE, "?"), 8, [("One?", "1")])
    assert later.shown == (1, 1) and later.messages[0].parts == (PICTURE, "One?")
    assert len(make_request(two, ("x" * 5000, PICTURE, PICTURE)).question) == 5000
    for wrong in (("One", PICTURE, "?"), (PICTURE, PICTURE, PICTURE, "?")):
        with pytest.raises((errors.PlacesUnequal, errors.HistoryInvalid)):
            make_request(two, wrong)
    with pytest.raises(errors.QuestionNotText):
        make_request(two, ("What?", 7))  # type: ignore[arg-type]
    with pytest.raises(errors.QuestionEmpty):
        make_request(two, (" ", PICTURE, PICTURE))


def test_forty_earlier_turns(picture: Picture) -> None:
    request = make_request(picture(), "What?", 8, [("q", "a")] * 40)
    assert len(request.history) == 40 and len(request.messages) == 81
