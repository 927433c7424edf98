"""Whole chats through the official client: texts, pictures and files, cold, warm, to the end."""

import base64
import io
from typing import Any

import openai
import pytest
import torch
from PIL import Image

from rotatek import Engine, Settings, errors, open_image
from rotatek.engine.events import Token
from rotatek.inputs import pdf
from rotatek.inputs.messages import PICTURE, Message
from rotatek.inputs.request import Limits, make_chat, make_request
from rotatek.models import VisionLanguageModel
from rotatek.server.api_keys import Keys
from rotatek.server.chat_app import ChatApp
from tests.families import EVERY, tiny_pixtral
from tests.fixtures import Picture
from tests.server.conftest import (
    ask,
    asked,
    client_of,
    door_of,
    image,
    refused,
    said,
    served,
    streamed,
    text,
    texts,
    tiny_door,
    uri,
    user,
)
from tests.unit.test_pdf import drawn, pdf_of

pytestmark = [
    pytest.mark.slow,
    # transformers 5.17's processor of InternVL counts tiles in a way that NumPy 2 warns of.
    pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning"),
]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def test_an_answer_is_the_engines(
    client: openai.OpenAI, vlm: VisionLanguageModel, picture: Picture
) -> None:
    settings = {"tokens": "fastv", "keep_tokens": 0.5, "keep_channels": 0.5}
    reply = ask(client, asked(picture(448, 336)), extra_body={"rotatek": settings})
    request = make_request(open_image(picture(448, 336)), ("What is it?", PICTURE), 8)
    *_, finished = Engine(vlm).answer(request, Settings.of(**settings))
    assert texts(reply)[0].strip() == finished.answer.rstrip("\ufffd")  # type: ignore[union-attr]
    assert reply.choices[0].finish_reason == "length"
    usage, figures = reply.usage, reply.rotatek
    assert usage.completion_tokens == 8 and usage.total_tokens == usage.prompt_tokens + 8
    assert 0 < usage.visual_tokens_kept < usage.visual_tokens < usage.prompt_tokens
    assert 0 < usage.kv_bytes == figures["kv_bytes"] < usage.kv_bytes_full
    assert figures["settings"] == Settings.of(**settings).as_dict() and not figures["warm"]


def test_a_stream_is_the_answer_in_pieces(client: openai.OpenAI, picture: Picture) -> None:
    whole = ask(client, asked(picture(seed=1)))
    chunks = list(ask(client, asked(picture(seed=1)), **USAGE))
    (told,) = streamed(chunks)
    assert (told.text, told.reason) == (texts(whole)[0], "length")
    assert chunks[0].choices[0].delta.role == "assistant" and len({c.id for c in chunks}) == 1
    ends, first = chunks[-1].usage, whole.usage
    assert not chunks[-1].choices
    assert ends.prompt_tokens_details.cached_tokens == first.visual_tokens
    ends.prompt_tokens_details = first.prompt_tokens_details  # the picture was encoded before
    assert ends == first


def test_a_stop_text_ends_the_answer(client: openai.OpenAI, picture: Picture) -> None:
    messages = asked(picture(seed=2))
    whole = texts(ask(client, messages, max_tokens=40))[0]
    stop = whole[3:5]
    given = {"stop": [stop, "never said"], "max_tokens": 40}
    cut = ask(client, messages, **given)
    (told,) = streamed(ask(client, messages, stream=True, **given))
    want = whole[: whole.index(stop)], "stop"
    assert len(stop) == 2 and (told.text, told.reason) == want
    assert (texts(cut)[0], cut.choices[0].finish_reason) == want


def test_an_answer_that_just_fits_is_complete(client: openai.OpenAI, picture: Picture) -> None:
    """The tiny model ends some answers early; one token less is a cut, and the very number not."""
    for seed in range(40):
        messages = asked(picture(seed=seed))
        whole = ask(client, messages, max_tokens=60)
        tokens = whole.usage.completion_tokens
        if whole.choices[0].finish_reason == "stop" and tokens > 1:
            break
    else:
        pytest.fail("no seed ends its answer")
    exact = ask(client, messages, max_tokens=tokens)
    assert exact.choices[0].finish_reason == "stop" and texts(exact) == texts(whole)
    assert exact.usage.total_tokens == whole.usage.total_tokens
    (told,) = streamed(ask(client, messages, max_tokens=tokens - 1, stream=True))
    assert told.reason == "length"


def test_an_answer_ends_where_the_context_does(vlm: VisionLanguageModel, picture: Picture) -> None:
    engine, shown = Engine(vlm, limits=Limits(max_prompt_tokens=60)), picture(64, 48)
    with served(door_of(engine)) as address, client_of(address) as client:
        messages = asked(shown)
        for more in ({}, USAGE):
            reply = ask(client, messages, max_tokens=5000, **more)
            chunks = list(reply) if more else [reply]
            reason = [c.choices[0].finish_reason for c in chunks if c.choices][-1]
            total = chunks[-1].usage.total_tokens
            assert (reason, total) == ("length", 60) or (reason == "stop" and total <= 60)
        for wrong, kind in (
            ([user(text("x" * 90), image(shown))], errors.QuestionDoesNotFit),
            ([{"role": "system", "content": "x" * 90}, *messages], errors.SystemDoesNotFit),
            ([*messages, said("x" * 90), user("?")], errors.HistoryDoesNotFit),
            ([user(text("?"), *[image(shown)] * 20)], errors.PicturesDoNotFit),
        ):
            error = refused(client, wrong)
            assert error.body["message"] == kind.sentence  # type: ignore[index]
            assert (error.code, error.param) == (kind.code, "messages")


# -- follow-ups ---------------------------------------------------------------------------------


def test_a_follow_up_goes_on_from_its_own_cache_once(
    client: openai.OpenAI, door: ChatApp, picture: Picture
) -> None:
    first = asked(picture(seed=3))
    reply = ask(client, first)
    second = [*first, said(texts(reply)[0]), user("And?")]
    before = len(door.service.conversations)
    warm = ask(client, second)
    assert warm.rotatek["warm"] and len(door.service.conversations) == before
    tokens = reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.choices[0].finish_reason == "length"
    assert tokens - 1 <= warm.usage.prompt_tokens_details.cached_tokens <= tokens, (
        "the token that only shows whether an answer was complete is not in the cache"
    )
    cold = ask(client, second)
    assert not cold.rotatek["warm"], "the cache was given away, and has gone on since"
    assert cold.usage.prompt_tokens_details.cached_tokens == cold.usage.visual_tokens


def test_only_the_very_same_chat_is_warm(client: openai.OpenAI, picture: Picture) -> None:
    shown = picture(seed=60)
    system = {"role": "system", "content": "Be brief."}
    first = [system, user(text("What  is it?"), image(shown))]
    others: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
        ([system, user(text("What is it?"), image(shown))], {}),  # white space
        ([{"role": "system", "content": "Be long."}, first[1]], {}),
        ([system, user(image(shown), text("What  is it?"))], {}),
        ([system, user(text("What  is it?"), image(shown, detail="low"))], {}),
        (first, {"extra_body": {"rotatek": {"keep_channels": 0.75}}}),
        ([system, user(text("What  is it?"), image(picture(seed=61)))], {}),
    ]
    answer, last = said(texts(ask(client, first))[0]), user(text("And?"))
    others.append(([*first, said(answer["content"] + "!")], {}))
    for before, more in others:
        turns = [answer] if before[-1]["role"] == "user" else []
        assert not ask(client, [*before, *turns, last], **more).rotatek["warm"]
    tool = {"type": "function", "function": {"name": "find"}}
    assert ask(client, [*first, answer, last], tools=[tool], tool_choice="none").rotatek["warm"]


def test_a_later_turn_may_bring_pictures(
    client: openai.OpenAI, door: ChatApp, picture: Picture
) -> None:
    """Behind pictures and behind texts: the chat is read afresh, and the next turn is warm."""
    pictures, later = door.service.engine("tiny").pictures, asked(picture(448, 336), "And this?")
    for first in (asked(picture(seed=5)), [user("Hello, you.")]):
        misses = pictures.misses
        one = ask(client, first)
        assert first[0]["content"] != "Hello, you." or pictures.misses == misses
        second = [*first, said(texts(one)[0]), *later]
        before = len(door.service.conversations)
        told = ask(client, second)
        assert not told.rotatek["warm"] and len(door.service.conversations) == before
        assert told.usage.visual_tokens > one.usage.visual_tokens
        assert told.usage.kv_bytes < 0.9 * told.usage.kv_bytes_full, "it is compressed"
        third = [said(texts(told)[0]), user("Sure?")]
        other = [*second[:-1], *asked(picture(448, 336, seed=7), "And this?")]
        assert not ask(client, [*other, *third]).rotatek["warm"], "another later picture"
        assert ask(client, [*second, *third]).rotatek["warm"]


def test_keys_keep_caches_and_pictures_apart(vlm: VisionLanguageModel, picture: Picture) -> None:
    """What is sent again is found by itself, by the key that sent it and no other."""
    shown, keys = picture(224, 168, seed=5), ("first-key-of-the-door", "second-key-of-the-door")
    door = tiny_door(vlm, keys=Keys(keys))

    def cached(client: openai.OpenAI, messages: Any, **given: Any) -> int:
        usage = ask(client, messages, **given).usage
        found = usage.prompt_tokens_details.cached_tokens
        assert found in (0, usage.visual_tokens)
        return found

    with served(door) as address:
        one, other, stranger = (client_of(address, key) for key in (*keys, "a" * 20))
        error = refused(stranger, asked(shown))
        assert (error.status_code, error.code) == (401, "invalid_api_key")  # type: ignore[attr-defined]
        reply = ask(one, asked(shown))
        assert reply.usage.prompt_tokens_details.cached_tokens == 0
        turns = [said(texts(reply)[0]), user("And?")]
        assert not ask(other, [*asked(shown), *turns]).rotatek["warm"]
        assert ask(one, [*asked(shown), *turns]).rotatek["warm"]
        for messages in (asked(shown, "Another question?"), asked(uri(shown, "BMP"), "And?")):
            assert cached(one, messages) > 0, "any file of the same pixels"
        assert cached(one, asked(picture(224, 168, seed=6))) == 0
        assert cached(one, asked(shown), extra_body={"rotatek": {"max_pixels": 9000}}) == 0
        new = picture(224, 168, seed=8)
        assert cached(one, asked(new)) == cached(other, asked(new)) == 0


# -- chats without a picture --------------------------------------------------------------------


@pytest.mark.parametrize("family", ["qwen3_5", "pixtral"])
def test_an_answer_to_texts_is_the_models_own(family: str) -> None:
    """Greedy tokens of every family are those of transformers' `generate` on the same ids."""
    vlm = tiny_pixtral() if family == "pixtral" else EVERY[family]()
    turns = ("system", "Be brief."), ("user", "What is a cache?"), ("assistant", "A store.")
    chat = [Message(role, (words,)) for role, words in (*turns, ("user", "Of what?"))]  # type: ignore[arg-type]
    request = make_chat([], chat, 6)
    own = Settings.of(smaller=4, tokens="fastv", keep_tokens=0.5)
    *events, done = Engine(vlm).answer(request, own)
    ids = vlm.prompt(request).ids
    with torch.inference_mode():
        plain = vlm.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False,
            suppress_tokens=list(vlm.banned_ids),
        )  # fmt: skip
    told = [token for token in plain[0, ids.shape[1] :].tolist() if token not in vlm.stop_ids]
    assert [event.token_id for event in events if isinstance(event, Token)] == told
    assert done.metrics["kv_bytes"] == done.metrics["kv_bytes_full"]  # type: ignore[union-attr]


def test_a_template_that_wants_a_picture_is_a_sentence(vlm: VisionLanguageModel) -> None:
    own = vlm.tokenizer.chat_template
    vlm.tokenizer.chat_template = "{{ messages[0]['content'][1]['text'] }}"
    try:
        with pytest.raises(errors.PictureNeeded):
            vlm.prompt(make_chat([], [Message("user", ("Hi?",))], 4))
        with pytest.raises(errors.ControlTokens):
            shown = Image.new("RGB", (56, 56))
            vlm.prompt(make_chat([shown], [Message("user", ("Hi?", PICTURE))], 4))
    finally:
        vlm.tokenizer.chat_template = own


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava_next", "gemma3"])
def test_detail_is_a_budget_of_the_family(family: str, picture: Picture) -> None:
    """Where tokens follow the picture's size, less detail is fewer of them; elsewhere nothing."""
    large = picture(640, 470)
    with served(door_of(Engine(EVERY[family]()))) as address, client_of(address) as client:

        def used(detail: str | None, **sizes: int) -> int:
            shown = image(large, **({} if detail is None else {"detail": detail}))
            asked = [user(text("What?"), shown)]
            reply = ask(client, asked, max_tokens=1, extra_body={"rotatek": sizes})
            return reply.usage.prompt_tokens_details.image_tokens

        usual = used(None)
        assert used("auto") == used("high") == usual
        low, small = used("low"), used("high", max_pixels=60 * 45)
        assert low == usual if family != "llava_next" else low < usual
        assert small == usual if family == "gemma3" else small < usual


# -- PDF files ----------------------------------------------------------------------------------


def data_of(file: bytes, kind: str = "application/pdf") -> str:
    return f"data:{kind};base64,{base64.b64encode(file).decode()}"


def document(data: Any, **more: Any) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": data, "filename": "a.pdf"} | more}


@pytest.fixture(scope="module")
def two() -> bytes:
    """A PDF of two pages."""
    pages = [Image.new("RGB", (150, 120), "white"), Image.linear_gradient("L").convert("RGB")]
    return pdf_of(pages)


def test_pages_of_a_pdf_are_pictures(client: openai.OpenAI, two: bytes) -> None:
    pages, question = pdf.pictures_of(two), text("What is it?")
    here = ask(client, [user(question, *map(image, pages))])
    for part in (
        document(data_of(two)),
        document(base64.b64encode(two).decode()),
        image(data_of(two, "image/png")),
    ):
        told = ask(client, [user(question, part)])
        assert told.usage.prompt_tokens == here.usage.prompt_tokens and texts(told) == texts(here)
    file = io.BytesIO()
    pages[0].save(file, format="PNG")
    one = ask(client, [user(question, document(data_of(file.getvalue(), "image/png")))])
    assert one.usage.visual_tokens < told.usage.visual_tokens
    first, other = ([user(document(data_of(two + more)), text("A?"))] for more in (b"", b"\n"))
    turns = [said(texts(ask(client, first))[0]), user("And?")]
    assert not ask(client, [*other, *turns]).rotatek["warm"], "another file"
    assert ask(client, [*first, *turns]).rotatek["warm"]


def test_files_that_cannot_be_read_are_a_sentence(client: openai.OpenAI, monkeypatch: Any) -> None:
    two_pages = document(data_of(drawn(b"", pages=2)))
    for parts, kind in (
        ([document(data_of(b"%PDF-1.7\n" + b"x" * 99))], errors.PdfDamaged),
        ([document(data_of(drawn(b"", pages=9)))], errors.PdfManyPages),
        ([document("https://example.org/a.pdf")], errors.FileNotGiven),
        ([document(7)], errors.FileNotGiven),
    ):
        error = refused(client, [user(text("What?"), *parts)])
        assert error.body["message"] == kind.sentence  # type: ignore[index]
        assert error.param == "messages[0].content[1].file"
    monkeypatch.setattr("rotatek.server.chat.MOST_PAGES", 3)
    assert refused(client, [user(text("?"), two_pages, two_pages)]).code == "pdfs_many_pages"
    monkeypatch.setattr("rotatek.server.chat.DRAWN_S", -1.0)
    assert refused(client, [user(text("?"), two_pages)]).code == "pdf_page_too_long"
