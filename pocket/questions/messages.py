"""Questions about messages that people have written."""

import random

from pocket.document import Question
from pocket.questions.templates import worded


def message_questions(rng: random.Random, name: str, when: str, said: str) -> list[Question]:
    """The text of a message, and its time."""
    what = (f"What does {name} write?", f"message from {name}?", f"What did {name} say?")
    times = (f"When did {name} write?", f"time of {name}'s message?")
    return [worded(rng, "find", said, *what), worded(rng, "find", when, *times)]
