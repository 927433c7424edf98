"""Questions about dashboards: figures by their labels, what is selected, how many of what."""

import random
from typing import Final

from pocket.document import Question
from pocket.questions.templates import ABSENT, phrased

FORMS: Final[dict[str, tuple[str, ...]]] = {
    "any": ("What is the {f}?", "what's the {f}", "{f}?", "{f}", "What does it show for {f}?",
            "Which value does {f} have?", "Read the {f}.", "What is shown as {f}?",
            "the {f} please"),
    "count": ("How many {f} are there?", "How many {f}?", "number of {f}",
              "What is the number of {f}?",
              "how many {f} does it show"),
    "amount": ("How much is the {f}?", "What is the {f}?", "{f} amount?", "how much {f}"),
    "share": ("How high is the {f}?", "What percentage is the {f}?", "{f} in percent?"),
    "span": ("How long is the {f}?", "What is the {f}?", "{f} time?"),
    "warmth": ("What is the {f}?", "How many degrees is the {f}?", "{f} temperature?"),
    "bytes": ("How large is the {f}?", "What is the {f}?", "How much is the {f}?"),
    "speed": ("What is the {f}?", "What is the {f} reading?", "How much is the {f}?"),
    "state": ("What is the {f}?", "Which {f} is shown?", "How is the {f}?"),
    "of": ("What is the {g} of {f}?", "{g} of {f}?", "What {g} does {f} have?", "{f}: {g}?",
           "What does {f} show for {g}?", "which {g} has {f}", "{f}, {g}",
           "look up the {g} of {f}"),
    "who": ("Which {n} has {g} {v}?", "Where is the {g} {v}?", "{g} {v} belongs to which {n}?",
            "Whose {g} is {v}?"),
    "label": ("What is {v}?", "What does {v} stand for?", "Which label has the value {v}?",
              "What is the figure {v} about?", "{v} is the value of what?"),
    "beside": ("What number is beside {f}?", "Which number stands next to {f}?", "How many {f}?",
               "How many {f} are there?", "count shown for {f}"),
    "part": ("How many {f} {g} are there?", "How many {g} does it count as {f}?",
             "number of {f} {g}",
             "{g}: how many {f}?",
             "How many of the {g} are {f}?"),
    "page": ("Which page is selected?", "Which page is open?", "Which entry of the menu is active?",
             "Which entry is lit at the left?", "What is highlighted in the menu?",
             "Which section is selected on the left?", "Where in the menu am I?"),
    "tab": ("Which tab is selected?", "Which tab is open?", "active tab?", "Which tab is active?",
            "What is the current tab?", "Which tab is highlighted?"),
    "brand": ("What is the name of the program?", "What is the app called?", "Which app is it?",
              "Which product is this?", "name in the top left?"),
    "title": ("What is the title of the page?", "What is the heading?", "title?",
              "Which page is this?",
              "What does the heading say?"),
    "change": ("By how much did {f} change?", "What is the change of {f}?", "trend of {f}?",
               "How much did {f} go up or down?"),
    "user": ("Who is logged in?", "Which user is signed in?", "user name?", "Whose account is it?"),
    "below": ("What is written below {f}?", "What stands under {f}?",
              "Which line comes below {f}?"),
    "button": ("What does the button say?", "Which button is there?", "What is on the button?"),
    "kept": ("What does the search field say?", "What is in the search box?",
             "placeholder of the search?"),
}  # fmt: skip
KINDS: Final = {
    "of": "cell", "who": "reverse", "label": "reverse", "page": "find", "tab": "find",
    "brand": "title",
    "title": "title", "user": "field", "below": "find", "button": "find", "kept": "find",
}  # fmt: skip


def put(rng: random.Random, form: str, answer: str, **slots: str) -> Question:
    """A question of `form`; labels come as they are printed, or in small letters."""
    low = {
        k: v.lower() if k in "fg" and form != "of" and rng.random() < 0.7 else v
        for k, v in slots.items()
    }
    if "g" in low and rng.random() < 0.6:
        low["g"] = low["g"].lower()
    return phrased(rng, KINDS.get(form, "value"), answer, *FORMS[form], **low)


def of_figure(rng: random.Random, label: str, value: str, sort: str) -> Question:
    """Questions for a labelled figure."""
    return put(rng, sort if rng.random() < 0.6 else "any", value, f=label)


def denied(rng: random.Random, form: str, **slots: str) -> Question:
    """A question about what the screen does not show."""
    return Question("absent", put(rng, form, "", **slots).text, ABSENT)
