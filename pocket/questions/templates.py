"""Question templates: how people ask, at times carelessly."""

import random
from typing import Final, Protocol

from pocket.document import Question

ABSENT: Final = "not in the image"

FORMS: Final[dict[str, tuple[str, ...]]] = {
    "field": (
        "What is the {f}?", "What's the {f}?", "{f}?", "{f}", "Give me the {f}.", "Read the {f}.",
        "Which {f} is shown?", "what does it say for {f}", "Tell me the {f}", "find the {f}",
        "What {f} is given?", "Can you tell me the {f}?", "What is written next to {f}?",
        "value of {f}", "what is \"{f}\"", "{f} please",
    ),
    "title": (
        "What is the title?", "What's the title?", "title?", "What does the heading say?",
        "Read the title.", "What is the heading?", "what is this called", "What is it titled?",
        "which title does it have", "What is written at the top?",
    ),
    "value": (
        "What is the value of {f}?", "What is the value for {f}?", "How much is {f}?", "{f}?",
        "What value does {f} have?", "what is {f}", "value of {f}", "Read the value of {f}.",
        "How many for {f}?", "What number does {f} show?", "how high is {f}", "{f} value",
    ),
    "value2": (
        "What is the value of {f} for {g}?", "What is {f} in {g}?", "{f} in {g}?", "{g}, {f}?",
        "How much is {f} for {g}?", "what is {g} {f}", "What value does {f} have at {g}?",
        "value of {f} for {g}",
    ),
    "cell": (
        "What is the {g} of {f}?", "What is {g} for {f}?", "{g} of {f}?", "{f}: {g}?",
        "What does the column {g} say for {f}?", "In the row {f}, what is the {g}?",
        "what's {f}'s {g}", "{g} for {f}", "look up {g} of {f}", "Give the {g} of {f}.",
    ),
    "highest": (
        "Which {n} has the highest {m}?", "Which {n} is highest?", "What is the largest {n}?",
        "Which has the most {m}?", "Which {n} has the maximum?", "highest {n}?", "which is biggest",
        "Which {n} is the largest?", "Who or what has the highest value?", "max?",
        "Which one is the highest?",
    ),
    "lowest": (
        "Which {n} has the lowest {m}?", "Which {n} is lowest?", "What is the smallest {n}?",
        "Which has the least {m}?", "Which {n} has the minimum?", "lowest {n}?",
        "which is smallest", "Which {n} is the smallest?", "min?", "Which one is the lowest?",
    ),
    "highest_of": (
        "Where is {s} highest?", "In which {n} is {s} highest?", "{s} is highest for?",
        "peak of {s}?", "Which {n} has the highest {s}?", "where does {s} reach its maximum",
    ),
    "lowest_of": (
        "Where is {s} lowest?", "In which {n} is {s} lowest?", "{s} is lowest for?",
        "minimum of {s}?", "Which {n} has the lowest {s}?", "where is {s} at its smallest",
    ),
    "second": (
        "Which {n} is second highest?", "What is the second largest {n}?", "second highest?",
        "Which {n} comes second?", "Which {n} has the second most {m}?",
    ),
    "second_of": ("Where is {s} second highest?", "second highest {n} of {s}?"),
    "highest_value_of": (
        "What is the highest value of {s}?", "maximum of {s} in figures", "How high does {s} get?",
    ),
    "series_at": (
        "Which series is highest for {f}?", "What is largest in {f}?", "highest series at {f}?",
        "Which one leads in {f}?", "For {f}, which series has the highest value?",
    ),
    "reverse": (
        "Which {n} has the value {v}?", "Which {n} shows {v}?", "Where is the value {v}?",
        "what has {v}", "{v} belongs to which {n}?", "Which {n} is at {v}?",
    ),
    "reverse_of": (
        "Where is {s} {v}?", "For which {n} does {s} show {v}?", "{s} is {v} in which {n}?",
    ),
    "above": (
        "How many {n} values are above {v}?", "how many are higher than {v}",
        "How many have more than {v}?", "count those greater than {v}",
    ),
    "legend": (
        "Which series are shown?", "What is in the legend?", "list the legend entries",
        "Name the series.", "legend?",
    ),
    "in_row": (
        "What does the row {f} say?", "Read the row {f}.", "row {f}?", "List the cells of {f}.",
        "everything about {f}",
    ),
    "in_column": (
        "List everything in the column {f}.", "list the {f} column", "What is in the column {f}?",
        "all values of {f}", "Read the column {f}.",
    ),
    "which_row": (
        "Which {n} has {g} {v}?", "Where is {g} {v}?", "Whose {g} is {v}?", "which {n} shows {v}",
        "In which row is {g} {v}?", "{v} is the {g} of which {n}?",
    ),
    "names": (
        'Which field says "{v}"?', "which entry is {v}?", "Where is {v} written?",
        "What is {v} the value of?", 'next to which name is "{v}"?', "{v} belongs to what?",
    ),
    "highest_value": (
        "What is the highest value?", "What is the maximum value?", "highest value?",
        "How high is the largest {n}?", "what is the biggest number", "What is the peak value?",
    ),
    "count": (
        "How many {n} are there?", "How many {n}?", "Count the {n}.", "number of {n}?",
        "how many {n} do you see", "How many {n} are shown?", "How many {n} does it have?",
    ),
    "colour": (
        "What colour is {f}?", "What color is {f}?", "Which colour is {f}?", "colour of {f}?",
        "what color is {f}", "In which colour is {f} shown?", "What is the color of {f}?",
    ),
    "by_colour": (
        "Which {n} is {c}?", "What is shown in {c}?", "Which {n} is drawn in {c}?", "the {c} one?",
        "What does {c} stand for?", "which one is {c}",
    ),
    "greater": (
        "Is {f} higher than {g}?", "Is {f} greater than {g}?", "is {f} more than {g}",
        "Does {f} have more than {g}?", "Is the value of {f} larger than that of {g}?",
        "{f} higher than {g}?",
    ),
    "present": (
        "Is {f} in the image?", "Does the image show {f}?", "Is there {f}?", "is {f} listed",
        "Can you see {f}?", "does it mention {f}", "Is {f} shown?",
    ),
    "text": (
        "What does it say?", "Read the text.", "What is written here?", "what does this say",
        "Which text is shown?", "Read it.", "What does the sign say?", "text?",
        "what is written in the image", "Transcribe the text.",
    ),
    "page": (
        "Transcribe the page.", "Transcribe this page as Markdown.", "Read the whole text.",
        "Write out all the text.", "transcribe", "What does the page say?", "Give the full text.",
        "Convert the page to Markdown.", "transcribe everything", "ocr",
    ),
    "lines": (
        "Read everything line by line.", "Write out all the lines.", "Transcribe it line by line.",
        "Write down every line.", "line by line", "Give all the text, line by line.",
    ),
    "table": (
        "Transcribe the table as Markdown.", "Write the table as Markdown.", "transcribe the table",
        "Convert the table to Markdown.", "Give the table in Markdown.", "table to markdown",
        "Copy the table.", "Read out the whole table.",
    ),
    "list": (
        "List all {n}.", "list the {n}", "Which {n} are there?", "Name all {n}.",
        "What are the {n}?", "name the {n} in order",
    ),
    "kind": (
        "What kind of image is this?", "What is this?", "what is shown here",
        "What type of document is this?", "What kind of chart is it?",
    ),
    "nth": (
        "What is the {k} {n}?", "{k} {n}?", "Which {n} comes {k}?", "Read the {k} {n}.",
        "what does the {k} {n} say",
    ),
    "total": (
        "What is the total?", "How much is the total?", "total?", "What is the total amount?",
        "how much in total", "What does it cost altogether?", "Total amount?", "what do I pay",
    ),
    "price": (
        "How much is the {f}?", "What does the {f} cost?", "price of {f}?",
        "What is the price of {f}?",
        "how much does {f} cost", "{f} price", "What is charged for {f}?",
    ),
    "checked": (
        "Is {f} on?", "Is {f} checked?", "Is {f} enabled?", "is {f} switched on",
        "Is {f} selected?", "{f} enabled?",
    ),
    "top_price": (
        "What is the highest price?", "How much is the most expensive {n}?", "highest price?",
        "What does the dearest {n} cost?", "largest single amount?",
    ),
    "bottom_price": (
        "What is the lowest price?", "How much is the cheapest {n}?", "lowest price?",
        "What does the cheapest {n} cost?", "smallest single amount?",
    ),
    "second_price": (
        "What is the second most expensive {n}?", "Which {n} has the second highest price?",
        "second dearest {n}?",
    ),
    "least_price": (
        "Which {n} costs the least?", "What is the cheapest {n}?", "lowest price: which {n}?",
    ),
    "dearer": (
        "Does {f} cost more than {g}?", "Is {f} more expensive than {g}?", "{f} dearer than {g}?",
        "is {f} pricier than {g}",
    ),
    "over": (
        "How many {n}s cost more than {v}?", "how many are above {v}",
        "number of {n}s dearer than {v}?",
    ),
    "coloured": (
        "What is the value of the {c} {n}?", "How much is the {c} {n}?", "{c} {n} value?",
        "Which value does the {c} {n} have?", "what does the {c} {n} show",
    ),
    "follows": (
        "Which {n} comes after {f}?", "What is the {n} after {f}?", "What is listed below {f}?",
        "the {n} that follows {f}",
    ),
    "axis": (
        "What is the {f} axis label?", "What does the {f} axis show?", "{f} axis?",
        "label of the {f} axis", "What is on the {f} axis?",
    ),
}  # fmt: skip
NATURAL: Final[dict[str, tuple[str, ...]]] = {
    "date": (
        "When was it issued?",
        "What day is it from?",
        "Which date is on it?",
        "when was this",
    ),
    "due date": ("When is it due?", "By when must it be paid?"),
    "due": ("When is it due?", "By when must it be paid?"),
    "time": ("At what time was it?", "What time is shown?", "what time"),
    "cashier": ("Who was the cashier?", "Who served the customer?"),
    "customer": ("Who is the customer?", "Who is it for?", "Who bought it?"),
    "name": ("Who is it?", "Whose name is on it?", "What is the person called?"),
    "phone": ("What number can I call?", "Which phone number is given?"),
    "phone number": ("What number can I call?", "Which phone number is given?"),
    "email": ("What is the email address?", "Where can I write an email to?"),
    "email address": ("Where can I write an email to?", "email?"),
    "company": ("Which company is it?", "What is the company called?"),
    "city": ("Which city is it?", "In which city?"),
    "country": ("Which country?", "In which country?"),
    "arrival": ("When does it arrive?", "What is the arrival time?"),
    "departure": ("When does it leave?", "What is the departure time?"),
    "price": ("How much does it cost?", "What does it cost?"),
    "quantity": ("How many are there of it?", "How many pieces?"),
    "weight": ("How heavy is it?", "What does it weigh?"),
    "height": ("How tall is it?", "How high is it?"),
    "status": ("What is the current status?", "Which state is it in?"),
    "order number": ("Which order is it?", "What is the number of the order?"),
    "invoice no": ("What is the invoice number?", "Which invoice is it?"),
    "table": ("Which table was it?", "What is the table number?"),
    "subtotal": ("What is the amount before tax?", "How much is the subtotal?"),
    "tax": ("How much tax is charged?", "How much is the tax?"),
    "change": ("How much change was given?", "How much change is there?"),
}
LEADS: Final = (
    "In the image, {}", "According to the document, {}", "Please tell me: {}", "Hi, {}",
    "Looking at the picture, {}", "Answer briefly: {}", "In this picture, {}", "Question: {}",
    "I'd like to know, {}", "Based on the image, {}", "Here, {}", "Quick question, {}",
)  # fmt: skip
ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def ask(rng: random.Random, form: str, answer: str, kind: str = "", **slots: str) -> Question:
    """A question of `form` with `slots` filled in, as people type it."""
    text = rng.choice(FORMS[form]).format(**slots)
    natural = NATURAL.get(slots.get("f", "").lower().rstrip(".")) if form == "field" else None
    if natural and rng.random() < 0.4:
        text = rng.choice(natural)
    return Question(kind or form, careless(rng, text), answer)


def phrased(rng: random.Random, kind: str, answer: str, *forms: str, **slots: str) -> Question:
    """A question in one of `forms`, with `slots` filled in, as people type it."""
    text = rng.choice(forms)
    return Question(kind, careless(rng, text.format(**slots) if slots else text), answer)


class Asking(Protocol):
    """A page in the making, with what may be asked about it."""

    rng: random.Random
    questions: list[Question]

    def ask(self, kind: str, answer: str, *forms: str, **slots: str) -> None:
        """Add a question in one of `forms`, with `slots` filled in."""
        self.questions.append(phrased(self.rng, kind, answer, *forms, **slots))


def yes_no(rng: random.Random, form: str, truth: bool, **slots: str) -> Question:
    """A question whose answer is yes or no."""
    return ask(rng, form, "yes" if truth else "no", kind="yes_no", **slots)


def absent(rng: random.Random, form: str, **slots: str) -> Question:
    """A question about something that the document does not hold."""
    return ask(rng, form, ABSENT, kind="absent", **slots)


def worded(rng: random.Random, kind: str, answer: str, *ways: str, **slots: str) -> Question:
    """A question in one of these ways, word for word but for `slots` that are filled in."""
    text = rng.choice(ways)
    return Question(kind, text.format(**slots) if slots else text, answer)


def careless(rng: random.Random, text: str) -> str:
    """Drop the question mark, the capitals, or mistype a letter, now and then."""
    if rng.random() < 0.15 and len(text) > 12:
        text = rng.choice(LEADS).format(text[0].lower() + text[1:])
    r = rng.random()
    if r < 0.25:
        text = text.rstrip("?.")
    if r < 0.12 or r > 0.92:
        text = text[:1].lower() + text[1:]
    if 0.12 < r < 0.18:
        text = text.lower()
    if r > 0.95 and len(text) > 12:
        text = typo(rng, text)
    return text


def typo(rng: random.Random, text: str) -> str:
    """Swap, drop or double one letter of the first words, which ask and do not name."""
    end = min(len(text) - 2, 8)
    i = rng.randint(1, end)
    if not (text[i].isalpha() and text[i + 1].isalpha()):
        return text
    return rng.choice(
        (
            text[:i] + text[i + 1] + text[i] + text[i + 2 :],
            text[:i] + text[i + 1 :],
            text[:i] + text[i] + text[i:],
        )
    )


def typed(rng: random.Random, text: str, answer: str, kind: str = "fact") -> Question:
    """A question as people type it, at times carelessly."""
    return Question(kind, careless(rng, text), answer)
