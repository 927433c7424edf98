"""A byte-level tokenizer: 256 bytes, whose ids are their values, and a few special tokens."""

import json
from pathlib import Path
from typing import Final, Protocol

from rotatek.models import smollm2

SPECIAL: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|unused|>",
)
PAD, IM_START, IM_END, VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD, _ = range(256, 264)
VOCAB_SIZE: Final = 256 + len(SPECIAL)
VISION_IDS: Final = (VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)

# The weights were trained on one picture before its question, and on no system message: the only
# picture of a message comes first, and the template has no place for a system message.
CHAT_TEMPLATE: Final = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'system' -%}"
    "{{- raise_exception('there is no place for a system message') -}}"
    "{%- endif -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' -}}"
    "{%- if message['content'] is string -%}"
    "{{- message['content'] -}}"
    "{%- elif message['content'] | selectattr('type', 'equalto', 'image') | list | length == 1 -%}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{{- message['content'] | selectattr('type', 'equalto', 'text') | map(attribute='text')"
    " | join('\\n') -}}"
    "{%- else -%}"
    "{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- elif part['type'] == 'text' -%}"
    "{{- part['text'] -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- endif -%}"
    "{{- '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{- '<|im_start|>assistant\\n' -}}"
    "{%- endif -%}"
)


class Codec(Protocol):
    """How conversations become token ids: this module for bytes, `models.subwords` for words."""

    @property
    def PAD(self) -> int: ...  # noqa: N802 - named as this module's constants
    @property
    def IM_END(self) -> int: ...  # noqa: N802
    @property
    def VISION_END(self) -> int: ...  # noqa: N802
    @property
    def IMAGE_PAD(self) -> int: ...  # noqa: N802

    def encode(self, text: str, /) -> list[int]:
        """Token ids of plain text."""

    def decode(self, ids: list[int], /) -> str:
        """Text of token ids, special ones left out."""

    def prefix(self) -> list[int]:
        """What comes before the visual tokens of a conversation."""

    def question_ids(self, question: str, first: bool) -> list[int]:
        """The ids between the visual tokens (or the last answer) and the answer."""

    def answer_ids(self, answer: str, /) -> list[int]:
        """The answer and its end."""


def encode(text: str) -> list[int]:
    """Token ids of `text`: its UTF-8 bytes. Control tokens in the text stay plain text."""
    return list(text.encode("utf-8"))


def decode(ids: list[int]) -> str:
    """Text of `ids`; special tokens are left out and broken UTF-8 is replaced."""
    return bytes(i for i in ids if i < 256).decode("utf-8", errors="replace")


def prefix() -> list[int]:
    """The text before the visual tokens of a conversation."""
    return [IM_START, *encode("user\n"), VISION_START]


def question_ids(question: str, first: bool) -> list[int]:
    """The tokens between the visual tokens (or the last answer) and the answer."""
    head = [VISION_END] if first else [*encode("\n"), IM_START, *encode("user\n")]
    return [*head, *encode(question), IM_END, *encode("\n"), IM_START, *encode("assistant\n")]


def answer_ids(answer: str) -> list[int]:
    """The answer and its end: the only tokens that the training loss counts."""
    return [*encode(answer), IM_END]


def byte_symbols() -> list[str]:
    """The printable stand-in that byte-level BPE files use for each byte, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols, extra = {}, 0
    for byte in range(256):
        if byte in printable:
            symbols[byte] = chr(byte)
        else:
            symbols[byte] = chr(256 + extra)
            extra += 1
    return [symbols[byte] for byte in range(256)]


def save_tokenizer(folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`."""
    tokenizer = smollm2.byte_level(byte_symbols(), dict(enumerate(SPECIAL, 256)))
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "tokenizer.json", tokenizer)
    _write_json(folder / "tokenizer_config.json", smollm2.CONFIG)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE + "\n", encoding="utf-8")


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
