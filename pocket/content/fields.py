"""Keys and values: what forms, sheets of facts and specification plates hold."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.content.formats import number
from pocket.content.tables import figures

FIELDS: Final[dict[str, Callable[[random.Random], str]]] = {
    "Name": words.person,
    "First name": lambda r: r.choice(words.FIRST),
    "Last name": lambda r: r.choice(words.LAST),
    "Customer": words.person,
    "Company": words.company,
    "Date": formats.date,
    "Due date": formats.date,
    "Date of birth": formats.date,
    "Issued": formats.date,
    "Order date": formats.date,
    "Invoice no.": formats.code,
    "Order number": formats.code,
    "Reference": formats.code,
    "Account": formats.code,
    "Serial no": formats.code,
    "Member ID": formats.code,
    "Tracking number": formats.code,
    "Licence": formats.code,
    "Passport no": formats.code,
    "Email": words.email,
    "Phone": formats.phone,
    "Address": words.address,
    "Street": words.address,
    "City": lambda r: r.choice(words.CITIES),
    "Country": lambda r: r.choice(words.COUNTRIES),
    "Place of birth": lambda r: r.choice(words.CITIES),
    "Department": lambda r: r.choice(words.CATEGORIES),
    "Contact": words.person,
    "Manager": words.person,
    "Doctor": words.person,
    "Teacher": words.person,
    "Product": words.product,
    "Model": words.product,
    "Item": words.product,
    "Quantity": lambda r: str(r.randint(1, 99)),
    "Weight": lambda r: f"{r.uniform(0.1, 90):.1f} kg",
    "Height": lambda r: f"{r.randint(90, 210)} cm",
    "Room": lambda r: str(r.randint(1, 999)),
    "Amount": lambda r: words.money(r)(r.uniform(1, 9000)),
    "Balance": lambda r: words.money(r)(r.uniform(1, 90000)),
    "Subtotal": lambda r: words.money(r)(r.uniform(1, 900)),
    "Price": lambda r: words.money(r)(r.uniform(1, 500)),
    "Time": formats.clock,
    "Arrival": formats.clock,
    "Departure": formats.clock,
    "Start": formats.clock,
    "Status": lambda r: r.choice(
        "Open Closed Paid Pending Approved Cancelled Shipped Active Draft".split()
    ),
    "Priority": lambda r: r.choice("Low Medium High Urgent".split()),
    "Colour": lambda r: r.choice("red blue green black white silver yellow".split()),
    "Size": lambda r: r.choice("XS S M L XL 38 40 42 44".split()),
    "Score": number,
    "Rating": lambda r: f"{r.uniform(1, 5):.1f}",
    "Temperature": lambda r: f"{r.uniform(-20, 42):.1f} °C",
    "Distance": lambda r: f"{r.randint(1, 999)} km",
    "Duration": lambda r: f"{r.randint(1, 59)} min",
    "Version": lambda r: f"{r.randint(0, 9)}.{r.randint(0, 20)}.{r.randint(0, 9)}",
    "Language": lambda r: r.choice("English German French Spanish Polish Swedish".split()),
    "Job title": lambda r: r.choice(
        "Engineer|Nurse|Sales manager|Teacher|Designer|Accountant|Driver|Editor".split("|")
    ),
    "Website": lambda r: f"www.{lexicon.invented(r, 2)}.{r.choice(('com', 'org', 'net'))}",
    "Password hint": lambda r: lexicon.invented(r),
    "URL": formats.url,
    "File": formats.file_name,
    "User": formats.handle,
    "Value": formats.measure,
    "Range": formats.rare,
    "Table no.": lambda r: str(r.randint(1, 60)),
    "Kunde": words.person,
    "Datum": formats.date,
    "Betrag": lambda r: words.money(r)(r.uniform(1, 900)),
    "Nom": words.person,
    "Adresse": words.address,
    "Fecha": formats.date,
    "Nombre": words.person,
    "Importe": lambda r: words.money(r)(r.uniform(1, 900)),
    "Ort": lambda r: r.choice(words.CITIES),
}
TITLES: Final = (
    "Registration form|Invoice|Order confirmation|Delivery note|Patient record|Member card|Profile|"
    "Contact details|Booking|Work order|Product data sheet|Application|Visitor badge|Quotation|"
    "Account summary|Shipping label|Rechnung|Facture|Bestellung|Details|Customer file|Report card"
).split("|")


def field_pairs(rng: random.Random, n: int) -> list[tuple[str, str]]:
    """`n` different fields and their values; some fields are invented words."""
    strange = rng.choice((0.1, 0.3, 0.7))
    out: dict[str, tuple[str, str]] = {}
    for key in rng.sample(tuple(FIELDS), min(n, len(FIELDS))):
        value = FIELDS[key](rng)
        if rng.random() < 0.35:
            value = any_value(rng)
        if rng.random() < strange:
            key = words.some(rng, 1, 2)
        out.setdefault(key.lower(), (key, value))
    return list(out.values())


def any_value(rng: random.Random) -> str:
    """A value of any sort."""
    draw_one = rng.choice(
        (
            formats.code,
            number,
            words.person,
            words.company,
            formats.date,
            formats.clock,
            words.product,
        )
    )
    r = rng.random()
    if r < 0.4:
        return draw_one(rng)
    return formats.anything(rng) if r < 0.7 else words.some(rng, 1, 3)


@dataclass
class FieldSet:
    """Fields in reading order; `numbers` are set where all values are figures of one sort."""

    pairs: list[tuple[str, str]]
    numbers: list[float]


def make_fields(rng: random.Random, n: int) -> FieldSet:
    """`n` fields of any sort, or figures alone, at times all of one notation."""
    r = rng.random()
    if r < 0.6:
        return FieldSet(field_pairs(rng, n), [])
    keys = words.unique(rng, lambda k: words.some(k, 1, 2) if k.random() < 0.7 else words.label(k),
                        n)  # fmt: skip
    if r < 0.8:
        made = [rng.choice((number, number, formats.measure, _cash))(rng) for _ in keys]
        return FieldSet(list(zip(keys, made, strict=True)), [])
    row = figures(rng, n)
    rng.shuffle(row)
    return FieldSet([(k, t) for k, (t, _) in zip(keys, row, strict=True)], [v for _, v in row])


def _cash(rng: random.Random) -> str:
    return words.money(rng)(rng.choice((9, 99, 9999)) * rng.random() + 1)
