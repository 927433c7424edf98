"""Questions about a receipt, by the kinds of its lines."""

import random
from typing import Final

from pocket.document import Question
from pocket.questions.templates import ABSENT, phrased

ASKED: Final[dict[str, tuple[str, ...]]] = {
    "company": (
        "What is the name of the company?", "Which company is it?", "company name",
        "What is the name of the shop?", "Which shop is this from?", "shop name?",
        "Who is the seller?",
        "What is the store called?", "Where was this bought?", "name of the business",
        "Who issued this receipt?", "Which store is the receipt from?", "vendor?", "merchant name",
    ),
    "legal": (
        "What is the name of the company?", "Which company is it?", "company name",
        "Which company runs the shop?", "Who issued this receipt?", "name of the company?",
    ),
    "brand": (
        "What is the name of the shop?", "shop name?", "What does the logo say?",
        "What is the store called?", "Which shop is this from?", "What is the largest text?",
    ),
    "date": (
        "What is the date?", "date?", "When was this bought?", "What date is on the receipt?",
        "On which day was it issued?", "date of purchase", "Which day is it from?", "when was it",
        "What is the date of the receipt?", "transaction date",
    ),
    "time": (
        "What is the time?", "At what time was it?", "time?", "What time was it printed?",
        "When on that day was it bought?", "time of purchase",
    ),
    "total": (
        "What is the total?", "What is the total?", "total?", "How much is the total?",
        "What was paid in total?", "total amount", "How much is to be paid?", "the total please",
        "What does it all cost?", "What is the final amount?", "How much was the bill?",
        "What is the amount due?", "grand total",
    ),
    "subtotal": ("What is the subtotal?", "subtotal?", "How much is the subtotal?", "sub total"),
    "net": ("What is the amount before tax?", "amount without tax",
            "How much is it excluding tax?"),
    "tax": ("How much is the tax?", "What is the tax?", "tax amount?", "How much tax was paid?"),
    "service": ("How much is the service charge?", "service charge?",
                "What is the service charge?"),
    "discount": ("How much is the discount?", "discount?", "What was taken off?",
                 "What discount was given?"),
    "rounding": (
        "What is the rounding?", "rounding adjustment?", "By how much was it rounded?",
        "How much is the rounding adjustment?",
    ),
    "cash": ("How much cash was given?", "cash?", "How much was handed over?",
             "What is the cash amount?",
             "How much did the customer pay in cash?"),
    "card": ("How much was paid by card?", "card amount?", "What was charged to the card?"),
    "change": ("What is the change?", "How much change was given?", "change?",
               "How much came back?"),
    "tip": ("How much is the tip?", "tip?", "What was the tip?"),
    "phone": ("What is the phone number?", "phone?", "Which number can I call?",
              "telephone number"),
    "fax": ("What is the fax number?", "fax?"),
    "email": ("What is the email address?", "email?"),
    "website": ("What is the website?", "web address?"),
    "tax_number": ("What is the tax number?", "What is the tax registration number?", "tax id?"),
    "address": ("What is the address?", "address?", "Where is the shop?", "In which street is it?"),
    "pieces": ("What is the total quantity?", "How many pieces in all?", "total quantity?"),
    "heading": ("What kind of document is it?", "What is the heading?",
                "What does the heading say?"),
    "price": (
        "How much is {f}?", "What does {f} cost?", "price of {f}", "amount for {f}?", "{f}?",
        "What was paid for {f}?", "What is the amount of {f}?",
    ),
    "unit": ("What is the unit price of {f}?", "How much is one {f}?", "price per piece of {f}?"),
    "quantity": (
        "How many {f} were bought?", "quantity of {f}?", "What is the quantity of {f}?",
        "how many {f}",
    ),
    "items": ("How many items are there?", "How many different items were bought?",
              "number of items"),
    "dearest": ("Which item costs the most?", "most expensive item?", "What was the dearest item?"),
    "cheapest": ("Which item costs the least?", "cheapest item?", "What was the cheapest item?"),
    "first": ("What is the first item?", "Which item is listed first?", "first item?"),
    "last": ("What is the last item?", "Which item is listed last?", "last item?"),
    "method": ("How was it paid?", "payment method?", "Which way was it paid?"),
    "labelled": (
        "What is the {f}?", "{f}?", "what is the {f}", "Which {f} is it?", "Read the {f}.", "{f}",
        "What does it say for {f}?", "look up the {f}",
    ),
    "footer": ("What does the last line say?", "What is written at the bottom?",
               "Read the last line."),
}  # fmt: skip
KINDS: Final = {
    "company": "fact", "legal": "fact", "brand": "fact", "total": "total", "price": "value",
    "unit": "value", "quantity": "value", "items": "count", "dearest": "highest",
    "cheapest": "lowest", "first": "nth", "last": "nth", "heading": "find", "footer": "find",
}  # fmt: skip
SELDOM: Final = ("tip", "discount", "service", "rounding", "change", "phone", "email", "website",
                 "fax", "cash", "subtotal")  # fmt: skip


def asked(rng: random.Random, what: str, answer: str, **slots: str) -> Question:
    """A question for `what`, in one of its wordings."""
    return phrased(rng, KINDS.get(what, "field"), answer, *ASKED[what], **slots)


def missing(rng: random.Random, shown: set[str], text: str) -> list[Question]:
    """Questions for one or two things that this receipt does not have."""
    low = text.lower()
    free = [w for w in SELDOM if w not in shown and w.rstrip("s") not in low]
    some = rng.sample(free, min(2, len(free)))
    return [phrased(rng, "absent", ABSENT, *ASKED[w]) for w in some]
