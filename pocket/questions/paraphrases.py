"""More wordings of questions, as people type them, for documents of training only.

The wordings of `questions` also ask the documents that measure the model, and stay as they are.
"""

import random
from typing import Final

from pocket.document import Question
from pocket.questions.templates import ABSENT, phrased

ASKED: Final[dict[str, tuple[str, ...]]] = {
    "field": (
        "What is the {f}?", "What is the {f}?", "what's the {f}", "{f}", "{f}?", "Tell me the {f}.",
        "I need the {f}", "Which {f} is given?", "Can you read me the {f}?", "what {f} is written",
        "What does it say under {f}?", "What does it give as {f}?", "look up the {f}", "the {f}?",
        "Could you tell me what the {f} is?", "What {f} does it show?", "Please find the {f}.",
        "whats the {f}", "What is the {f} here?", "What stands beside {f}?", "Read out the {f}",
    ),
    "names": (
        'What is "{v}" the value of?', "{v} is the what?", "What does {v} stand for?",
        "To what does {v} belong?", "Which label has {v}?", "What is {v} called here?",
        "Beside which word is {v}?", 'Under which name is "{v}" given?',
    ),
    "of": (
        "What is the {g} of {f}?", "What's the {g} of {f}?", "{f} {g}", "{g} of {f}?", "{f}, {g}?",
        "Which {g} does {f} have?", "What {g} is given for {f}?", "{f}: what is the {g}",
        "look up the {g} for {f}", "I'd like the {g} of {f}", "How about the {g} of {f}?",
    ),
    "price": (
        "How much is {f}?", "What does {f} cost?", "price of {f}", "How much do I pay for {f}?",
        "What is {f} sold for?", "What is the price of {f}?", "how much for {f}", "{f} price?",
        "what would {f} cost me", "How expensive is {f}?",
    ),
    "dearest": (
        "What is the most expensive {n}?", "Which {n} is the most expensive?", "dearest {n}",
        "Which {n} costs the most?", "Which is the priciest {n}?", "Name the most expensive {n}.",
        "Which {n} has the highest price?", "what costs the most here", "Which one is dearest?",
        "Which of the {p} is the most expensive?", "the {n} with the highest price",
    ),
    "cheapest": (
        "What is the cheapest {n}?", "Which {n} is the cheapest?", "cheapest {n}",
        "Which {n} costs the least?", "Which is the least expensive {n}?", "Name the cheapest {n}.",
        "Which {n} has the lowest price?", "what costs the least here", "Which one is cheapest?",
        "Which of the {p} is the cheapest?", "the {n} with the lowest price",
    ),
    "most": (
        "Which {n} has the highest {g}?", "Which {n} has the most {g}?", "Which {n} leads in {g}?",
        "What is the {n} with the highest {g}?", "highest {g}: which {n}", "top {n} by {g}",
        "Which {n} has the largest {g}?", "Name the {n} with the highest {g}.",
        "Which of the {p} has the highest {g}?", "who or what is first by {g}",
    ),
    "least": (
        "Which {n} has the lowest {g}?", "Which {n} has the least {g}?",
        "Which {n} is last in {g}?",
        "What is the {n} with the lowest {g}?", "lowest {g}: which {n}", "bottom {n} by {g}",
        "Which {n} has the smallest {g}?", "Name the {n} with the lowest {g}.",
        "Which of the {p} has the lowest {g}?", "who or what is last by {g}",
    ),
    "second_most": (
        "Which {n} has the second highest {g}?", "second highest {g}: which {n}",
        "Which {n} has the second most {g}?", "Which {n} comes second by {g}?",
        "What is the {n} with the second largest {g}?", "number two by {g}",
    ),
    "second_least": (
        "Which {n} has the second lowest {g}?", "second lowest {g}: which {n}",
        "What is the {n} with the second smallest {g}?", "Which {n} is last but one in {g}?",
    ),
    "falling": (
        "Sort the {p} by {g}, highest first.", "{p} by {g}, from highest to lowest",
        "Rank the {p} by {g}.", "List the {p} by falling {g}.", "{p} sorted by {g}, descending",
        "Order the {p} from the highest {g} to the lowest.", "ranking by {g}",
        "What are the {p} from the highest to the lowest {g}?",
    ),
    "rising": (
        "Sort the {p} by {g}, lowest first.", "{p} by {g}, from lowest to highest",
        "List the {p} by rising {g}.", "{p} sorted by {g}, ascending",
        "Order the {p} from the lowest {g} to the highest.",
        "What are the {p} from the lowest to the highest {g}?",
    ),
    "colour": (
        "What colour is {f}?", "What color is {f}?", "colour of {f}", "Which colour has {f}?",
        "In what colour is {f}?", "what color is used for {f}", "{f}: which colour?",
        "Which color stands for {f}?",
    ),
    "by_colour": (
        "Which {n} is {c}?", "What is {c}?", "the {c} {n}?", "Which {n} has the colour {c}?",
        "Which one is {c}?", "What is shown in {c}?", "Which {n} is marked in {c}?",
        "{c}: which {n}", "what does {c} mean", "Name the {c} {n}.",
    ),
}  # fmt: skip
BEFORE: Final = (
    "Can you tell me: {}", "Short answer: {}", "Look at the image. {}", "From the picture: {}",
    "Hello! {}", "Please answer: {}", "{} Thanks", "{} Please.", "One question: {}", "So, {}",
    "Using the image, {}", "Ok, {}", "In the picture: {}", "{} Answer with the value only.",
    "{} Be brief.", "I am looking at this page. {}", "Given this document: {}", "{} Thank you!",
)  # fmt: skip
SWAPS: Final = (
    ("What is the ", "What's the "), ("what is the ", "whats the "), ("How many ", "how many "),
    ("Which ", "which "), ("What is the ", "what is the "), ("colour", "color"), ("?", "??"),
    ("?", " ?"), ("?", ""), ("What ", "what "), ("shown", "displayed"), ("?", "."),
)  # fmt: skip


def put(rng: random.Random, form: str, answer: str, kind: str, **slots: str) -> Question:
    """A question of one of the forms above, as people type it."""
    return phrased(rng, kind, answer, *ASKED[form], **slots)


def denied(rng: random.Random, form: str, **slots: str) -> Question:
    """A question about something that the document does not hold."""
    return put(rng, form, ABSENT, "absent", **slots)


def reworded(rng: random.Random, question: Question) -> Question:
    """The same question with other words around it, at times."""
    text, r = question.text, rng.random()
    if r < 0.1 and len(text) > 8:
        text = rng.choice(BEFORE).format(text)
    elif r < 0.3:
        old, new = rng.choice(SWAPS)
        text = text.replace(old, new, 1)
    elif r < 0.32 and text[:1].isalpha() and '"' not in text:
        text = text.upper()
    return Question(question.kind, text, question.answer) if text.strip() else question
