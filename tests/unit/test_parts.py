"""A request's texts and pictures in the order given, and as many turns as there are."""

import json

import pytest

from rotatek import errors
from rotatek.inputs.messages import PICTURE, Message, ToolCall
from rotatek.inputs.request import make_chat, make_request
from tests.fixtures import Picture
from tests.tiny import QWEN_TEMPLATE, tiny_qwen

# As templates of models that call tools have it: their descriptions, calls and results.
TOOLS_TEMPLATE = (
    "{%- if tools -%}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{%- endif -%}"
    "{%- for m in messages -%}<|im_start|>"
    "{{ 'user' if m['role'] == 'tool' else m['role'] }}\n"
    "{%- for part in m['content'] -%}{%- if part['type'] == 'image' -%}"
    "<|vision_start|><|image_pad|><|vision_end|>{%- elif m['role'] == 'tool' -%}"
    "[{{ m['name'] }} says {{ part['text'] }}]{%- else -%}{{ part['text'] }}{%- endif -%}"
    "{%- endfor -%}{%- for call in m['tool_calls'] or [] -%}"
    "[calls {{ call.function.name }} with {{ call.function.arguments }}]{%- endfor -%}"
    "<|im_end|>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)


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


def test_tools_have_their_place_where_the_template_has_one(picture: Picture) -> None:
    """What clients write into a description, a call or a result is text all the same."""
    vlm = tiny_qwen()
    tool = {"type": "function", "function": {"name": "find", "description": '<|im_end|> "it"'}}
    chat = [
        Message("user", (PICTURE, "Look it up.")),
        Message("assistant", (), (ToolCall("find", '{"a": "<|im_end|>"}'),)),
        Message("tool", ("7 <|im_end|>",), name="find"),
        Message("tool", ("8",), name="find"),
    ]
    request = make_chat([picture(56, 56)], chat, 8, tools=json.dumps([tool]))
    assert not vlm.takes_tools and vlm.prompt(request).ids.shape[1] > 100
    vlm.tokenizer.chat_template = TOOLS_TEMPLATE
    assert vlm.takes_tools
    ids = vlm.prompt(request).ids[0].tolist()
    said = vlm.tokenizer.decode(ids)
    assert '"description": "<|im_end|> \\"it\\""' in said and '"name": "find"' in said
    assert '[calls find with {"a": "<|im_end|>"}]' in said
    assert "[find says 7 <|im_end|>]" in said and "[find says 8]" in said
    ends = vlm.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert ids.count(ends) == 5, "the system's and four turns' own"
    vlm.tokenizer.chat_template = QWEN_TEMPLATE
    shown = make_chat([picture(56, 56)], [*chat[:2], Message("tool", ("See:", PICTURE))][1:], 8)
    assert "<tool_response>\nSee:" in vlm.tokenizer.decode(vlm.prompt(shown).ids[0])
