"""The closed list, and what reaches the screen and the log."""

import inspect
import logging
import pickle

import pytest

from rotatek import errors

SECRET = "my account number is 998877 /home/someone/file.png 0x7f3a2b"
CLOSED_LIST = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, errors.UserError) and value.__module__ == errors.__name__
    if value is not errors.UserError
]


def example(kind: type[errors.UserError]) -> errors.UserError:
    if kind is errors.SettingError:
        return errors.SettingError("keep_tokens", "a number in (0, 1]", 7)
    if kind is errors.SettingUnknown:
        return errors.SettingUnknown("kep_tokens", "channels, keep_tokens, tokens")
    if kind is errors.SettingRemoved:
        return errors.SettingRemoved("bits", "choose `smaller`")
    return kind()


def test_every_refusal_survives_a_worker_process() -> None:
    assert len({kind.code for kind in CLOSED_LIST}) == len(CLOSED_LIST) >= 20
    for kind in CLOSED_LIST:
        error = example(kind)
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is kind and back.message == error.message and back.code == kind.code


def test_unknown_failures_become_an_id(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the traceback under it; messages only where an operator asks for them."""

    class Awkward(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    caplog.set_level(logging.INFO, "rotatek")
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as cause:
            raise ValueError(SECRET) from cause
    except ValueError as failure:
        message = errors.public_message(failure)
    assert message.startswith("Something went wrong (id ") and len(message) == 30
    assert message[25:29] in caplog.text and "test_errors.py" in caplog.text
    assert "ValueError" in caplog.text and "KeyError" in caplog.text
    assert "998877" not in caplog.text and "998877" not in message
    assert errors.public_message(Awkward()).startswith("Something went wrong")
    caplog.set_level(logging.DEBUG, "rotatek")
    errors.public_message(ValueError(SECRET))
    assert "998877" in caplog.text
