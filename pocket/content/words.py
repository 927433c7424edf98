"""Text for documents: names, products, towns, amounts, dates and sentences in ten languages.

Most of it is drawn from a long word list or invented on the spot (syllables, codes, amounts), so
that a model cannot answer from memory and has to read.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pocket.content import formats
from pocket.content.formats import MONTHS, host
from pocket.content.lexicon import invented, word
from pocket.content.prose import LINKS, sentence

TOTALS: Final = (
    "TOTAL",
    "Total",
    "Total due",
    "Amount due",
    "Grand total",
    "Summe",
    "Total TTC",
    "Razem",
)


FIRST: Final = (
    "Anna Ben Clara David Elena Felix Greta Hugo Ida Jonas Karin Leo Maria Nils Olga Paul Rosa "
    "Simon Tara Viktor Amir Aisha Chen Diego Emma Farah Ivan Jin Kofi Lucia Mateo Noor Omar Priya "
    "Ravi Sofia Tomás Ursula Wei Yara Zoë José François Jürgen Björn Łukasz Zuzana Renée André "
    "Alice Oliver Grace Henry Julia Peter Martin Sarah Daniel Laura Thomas Eva James Mary John"
).split()
LAST: Final = (
    "Adler Becker Costa Dubois Eriksen Fischer García Hansen Ivanov Jensen Keller Lopez Müller "
    "Novák Olsen Petrov Quinn Rossi Schmidt Tanaka Urban Vargas Weber Young Zimmer Almeida Brown "
    "Clark Davies Evans Fernández Gupta Hughes Ito Johnson Kowalski Lindqvist Moreau Nguyen "
    "O'Brien Park Ramos Silva Taylor Usman Virtanen Wright Yılmaz Żak Smith Jones Walker Patel"
).split()
CITIES: Final = (
    "Berlin Paris Madrid Lisbon Rome Vienna Zürich Oslo Lund Aarhus Gdańsk Brno Porto Malmö Bern "
    "Leeds York Dublin Bristol Lyon Nantes Turin Bologna Sevilla Málaga Graz Köln München Utrecht "
    "Ghent Riga Tallinn Helsinki Boston Denver Austin Chicago Seattle Toronto Lima Quito Accra "
    "Nairobi Cairo Delhi Mumbai Osaka Kyoto Seoul Sydney Perth Auckland Santiago Bogotá Oxford"
).split()
COUNTRIES: Final = (
    "Norway Sweden Denmark Finland Germany France Spain Portugal Italy Austria Poland Greece "
    "Ireland Belgium Chile Peru Brazil Mexico Canada Japan India Kenya Ghana Egypt Turkey Iceland "
    "Estonia Latvia Hungary Croatia Vietnam China Korea Australia Malta Cyprus Bolivia Cuba"
).split()
STREETS: Final = (
    "Main Park Oak Station Church Mill River High King Garden Harbour Lake Hill Market".split()
)
PRODUCTS: Final = (
    "Coffee|Green tea|Espresso|Croissant|Bagel|Orange juice|Mineral water|Apple pie|Cheese|Milk|"
    "Butter|Bread|Eggs|Rice 1kg|Pasta|Olive oil|Tomatoes|Bananas|Chicken|Salmon|Chocolate|Honey|"
    "Notebook|Pencil set|Stapler|Desk lamp|USB cable|Keyboard|Mouse|Monitor|Headphones|Charger|"
    "Printer paper|Toner|Backpack|Umbrella|Water bottle|T-shirt|Jacket|Socks|Running shoes|Soap|"
    "Shampoo|Toothpaste|Batteries AA|Light bulb|Screwdriver|Hammer|Paint 5L|Nails|Web hosting|"
    "Design work|Consulting|Translation|Support plan|Installation|Delivery|Café crème|Crème brûlée|"
    "Müsli|Jalapeños|Sandwich|Soup of the day|Caesar salad|Pizza Margherita|Lasagne|Lemonade"
).split("|")
COMPANY_TAILS: Final = (
    "GmbH|Ltd|Inc.|AG|S.A.|& Sons|Group|Labs|Studio|Market|Café|Books|Foods|Hotel|Bank".split("|")
)
METRICS: Final = (
    "Revenue|Sales|Profit|Cost|Visitors|Orders|Users|Downloads|Output|Rainfall|Temperature|"
    "Population|Exports|Imports|Energy use|Emissions|Score|Budget|Hours|Members|Tickets|Votes|"
    "Calories|Distance|Weight|Speed|Views|Clicks|Sign-ups|Returns|Stock|Demand|Growth|Wages|Rent"
).split("|")
CATEGORIES: Final = (
    "North|South|East|West|Online|Retail|Food|Books|Toys|Music|Games|Travel|Health|Sport|Garden|"
    "Kitchen|Office|Mobile|Desktop|Tablet|Cars|Bikes|Trains|Buses|Coal|Gas|Solar|Wind|Hydro|Oil|"
    "Apples|Pears|Plums|Grapes|Cherries|Lemons|Cats|Dogs|Birds|Fish|Wheat|Corn|Barley|Oats|Alpha|"
    "Beta|Gamma|Delta|Team A|Team B|Team C|Plan A|Plan B|Basic|Pro|Enterprise|Students|Staff"
).split("|")
WESTERN: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "sv")


@dataclass(frozen=True)
class Money:
    """A currency and how its amounts are written."""

    sign: str
    before: bool
    decimal: str
    thousands: str
    space: bool
    digits: int = 2

    def __call__(self, amount: float, sign: bool = True) -> str:
        """`amount` as this currency writes it."""
        whole = f"{amount:,.{self.digits}f}".replace(",", "\0").replace(".", self.decimal)
        number = whole.replace("\0", self.thousands)
        if not sign:
            return number
        gap = " " if self.space else ""
        return f"{self.sign}{gap}{number}" if self.before else f"{number}{gap}{self.sign}"


def money(rng: random.Random) -> Money:
    """A way to write amounts, always with cents: sums of them add up as written."""
    sign = rng.choice(
        "$ $ $ £ £ € € € kr CHF zł Kč USD EUR GBP SEK R$ A$ ¥ Fr. Ft lei US$".split() + ["", ""]
    )
    style = rng.choice(((".", ","), (".", ","), (".", ""), (",", "."), (",", " "), (".", "'")))
    before = rng.random() < (0.85 if sign in "$£¥US$A$R$" else 0.4)
    return Money(sign, before, *style, space=bool(sign) and rng.random() < (0.5 if before else 0.8))


def language(rng: random.Random, western: bool = False) -> str:
    """A language code; English half of the time."""
    if rng.random() < 0.5:
        return "en"
    return rng.choice(WESTERN if western else ("en", *LINKS))


def some(rng: random.Random, least: int, most: int) -> str:
    """`least` to `most` words, capitalised in one of the usual ways."""
    count = rng.randint(least, most)
    if count == 1 and rng.random() < 0.05:
        return formats.anything(rng)
    text = " ".join(word(rng) for _ in range(count))
    if count > 1 and rng.random() < 0.08:
        text = text.replace(" ", rng.choice((" & ", "-", " / ", " of ", " and ", ": ", ", ")), 1)
    if rng.random() < 0.05:
        text += rng.choice(
            (f" {rng.randint(1, 2030)}", f" ({word(rng)})", f" #{rng.randint(1, 99)}")
        )
    return rng.choice((text, text.capitalize(), text.capitalize(), text.title(), text.upper()))


def person(rng: random.Random) -> str:
    """First and last name, either of them sometimes invented."""
    first = rng.choice(FIRST) if rng.random() < 0.6 else invented(rng, 2).capitalize()
    last = rng.choice(LAST) if rng.random() < 0.4 else word(rng).capitalize()
    plain = f"{first} {last}"
    rare = (
        f"{first[0]}. {last}", f"{last}, {first}", f"{first} {last[0]}. {word(rng).capitalize()}",
        f"{first}-{word(rng).capitalize()} {last}", plain.upper(), f"Dr. {plain}", f"Mr {last}",
        f"Ms {last}", f"{first} van {last}", f"{first[0]}{last[0]}. {last}",
    )  # fmt: skip
    return plain if rng.random() < 0.7 else rng.choice(rare)


def company(rng: random.Random) -> str:
    """A company's name."""
    head = rng.choice(
        (rng.choice(LAST), word(rng).capitalize(), rng.choice(CITIES), some(rng, 1, 2).title())
    )
    tail = rng.choice(COMPANY_TAILS) if rng.random() < 0.7 else word(rng).capitalize()
    return f"{head} {tail}"


def product(rng: random.Random) -> str:
    """Something to buy."""
    r = rng.random()
    if r < 0.25:
        return rng.choice(PRODUCTS)
    if r < 0.5:
        return f"{word(rng).capitalize()} {rng.choice(PRODUCTS).lower()}"
    if r < 0.9:
        return some(rng, 1, 3)
    unit = rng.choice(("", "", "ml", "g", "kg", "L", "cm", " pcs", "x", "%", " W"))
    return f"{word(rng).capitalize()} {rng.randint(2, 900)}{unit}"


def address(rng: random.Random) -> str:
    """Street and number, at times with a town."""
    street = rng.choice(STREETS) if rng.random() < 0.3 else word(rng).capitalize()
    if rng.random() < 0.4:
        tail = rng.choice(("straße", "weg", "gatan", "laan", "platz", "gasse", "vej", "str."))
        text = f"{street}{tail} {rng.randint(1, 180)}{rng.choice(('', '', '', 'a', 'B', '/2'))}"
    else:
        tail = rng.choice("Street Road Lane Ave St Rd Blvd Drive Way Court Square Close".split())
        text = f"{rng.randint(1, 9999)} {street} {tail}"
    if rng.random() < 0.15:
        text += f", {rng.randint(1000, 99999)} {rng.choice(CITIES)}"
    return text


def email(rng: random.Random) -> str:
    """An address at an invented host."""
    who = rng.choice((rng.choice(FIRST), rng.choice(LAST), word(rng), invented(rng))).lower()
    who = "".join(c for c in who if c.isascii()) or "info"
    joint = rng.choice((".", "_", "", "-", "+"))
    tail = rng.choice((word(rng), str(rng.randint(1, 2030)), ""))
    return f"{who}{joint if tail else ''}{tail}@{host(rng)}"


def title(rng: random.Random, lang: str = "en") -> str:
    """A heading of one to six words."""
    r = rng.random()
    if r < 0.15:
        tail = (
            "by region", "report", "per month", "overview", str(rng.randint(1990, 2030)),
            "summary", "in " + rng.choice(CITIES), f"({word(rng)})", "and " + word(rng),
        )  # fmt: skip
        return f"{rng.choice(METRICS)} {rng.choice(tail)}"
    if r < 0.55:
        return some(rng, 1, 5)
    if r < 0.7:
        return f"{word(rng).capitalize()} {rng.choice(('of', 'and', 'in', 'for'))} {word(rng)}"
    if r < 0.8:
        return f"{some(rng, 1, 2)}{rng.choice((': ', ' - ', ' – ', ' | '))}{some(rng, 1, 2)}"
    text = sentence(rng, lang).rstrip(".:;!")
    return " ".join(text.split()[: rng.randint(2, 6)])


def label(rng: random.Random) -> str:
    """A short category name, for a chart or a row."""
    r = rng.random()
    if r < 0.18:
        return rng.choice(CATEGORIES)
    if r < 0.2:
        return formats.anything(rng)
    if r < 0.3:
        return rng.choice(COUNTRIES)
    if r < 0.43:
        return rng.choice(CITIES)
    if r < 0.5:
        return rng.choice(FIRST)
    if r < 0.57:
        head = rng.choice(("Q", "W", "FY", "Item ", "Site ", "Zone ", "v"))
        return f"{head}{rng.randint(1, 30)}"
    if r < 0.65:
        return some(rng, 2, 2)
    return word(rng).capitalize()


def labels(rng: random.Random, n: int) -> list[str]:
    """`n` different category names, often of one sort: months, years, towns."""
    r = rng.random()
    if r < 0.12:
        start = rng.randint(0, 11)
        long = rng.random() < 0.25
        return (
            [MONTHS[(start + i) % 12][: None if long else 3] for i in range(n)]
            if n <= 12
            else unique(rng, label, n)
        )
    if r < 0.24:
        start, step = rng.randint(1950, 2020), rng.choice((1, 1, 2, 5))
        return [str(start + i * step) for i in range(n)]
    if r < 0.34 and n <= 7:
        return "Mon Tue Wed Thu Fri Sat Sun".split()[:n]
    if r < 0.44:
        return rng.sample(COUNTRIES, n)
    return unique(rng, label, n)


def unique(rng: random.Random, draw: Callable[[random.Random], str], n: int) -> list[str]:
    """`n` texts from `draw` that differ also when case is ignored."""
    out: dict[str, str] = {}
    while len(out) < n:
        text = draw(rng)
        out.setdefault(text.lower(), text)
    return list(out.values())


def overlaps(text: str, others: Iterable[str]) -> bool:
    """Whether `text` is a part of one of `others`, or one of them of it, in any case."""
    low = text.lower()
    return any(low in other.lower() or other.lower() in low for other in others)
