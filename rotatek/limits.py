"""What one request may ask of the machine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one request; those of pictures and questions are in `rotatek.inputs`."""

    max_new_tokens: int = 1024
    max_prompt_tokens: int = 16384
    trace_tokens: int = 512  # tokens a trace keeps per head
    kept_answer_tokens: int = 256  # default length of an answer: a form or a short page
    turns: int = 8  # questions that one conversation answers
