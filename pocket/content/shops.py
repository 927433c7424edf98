"""Shops as their receipts name them, what they sell, and how they write dates and amounts.

Names, streets and numbers are put together from parts; none is a real one's.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocket.content import formats, lexicon, words

FORMS: Final = (
    "SDN BHD|SDN. BHD.|PTE LTD|PTE. LTD.|LTD|LTD.|LIMITED|LLC|L.L.C.|INC|INC.|GMBH|AG|S.A.|S.L.|"
    "SRL|S.R.L.|BV|B.V.|NV|AB|OY|AS|A/S|PTY LTD|PLC|CO.|CO. LTD|& CO|KG|SARL|SP. Z O.O.|LLP|K.K.|"
    "PVT LTD|LTDA|S.P.A."
).split("|")
TRADES: Final = (
    "RESTAURANT|CAFE|KOPITIAM|BAKERY|HARDWARE|TRADING|ENTERPRISE|MARKET|MINI MART|SUPERMARKET|"
    "PHARMACY|BOOKS|STATIONERY|ELECTRICAL|MOTOR|AUTO PARTS|FASHION|SHOES|FLORIST|BUTCHERY|DELI|"
    "SEAFOOD|NOODLES|PIZZERIA|GRILL|BAR|HOTEL|PARKING|PETROL|SERVICES|SUPPLIES|HOLDINGS|RETAIL|"
    "MARKETING|INDUSTRIES|FOODS|GIFTS|HOME|OPTICS|DENTAL|CLINIC|SALON|LAUNDRY|TOYS|SPORTS|GARDEN|"
    "FURNITURE|PACKAGING|PRINTING|COMPUTERS|PHONES|STORES|OUTLET|BROTHERS|GROUP|KITCHEN|HOUSE"
).split("|")
AREAS: Final = "TAMAN BUKIT PARK NEW OLD PORT LAKE EAST WEST UPPER LOWER ST".split()
ROADS: Final = (
    "JALAN {}|JLN {}|LORONG {}|{} ROAD|{} STREET|{} ST|{} AVE|{} BLVD|{} LANE|{}STR.|RUE {}|VIA {}|"
    "CALLE {}|AV. {}|{} DRIVE|{} HWY|{} SQUARE|{} WAY|{}GATAN|{} LAAN|AVENIDA {}|PLOT {}"
).split("|")
REGIONS: Final = "CA NY TX WA ON NSW VIC SELANGOR JOHOR KENT BAVARIA PARIS MH KA OSLO UT FL".split()
SIGNS: Final = (
    "RM RM RM $ $ $ $ £ £ € € € S$ A$ US$ NT$ HK$ kr zł CHF Rs Rs. R$ ¥ P MYR SGD EUR USD GBP"
).split()
NUMBERED: Final = (
    "GST ID: {}|GST ID : {}|GST NO: {}|GST REG. NO : {}|(VAT ID {})|VAT NO {}|VAT REG {}|"
    "VAT: {}|ABN {}|TIN: {}|TAX FILE {}|CO. REG: {}|BUSINESS NO. {}|REG NO: {}|UID: {}|"
    "NIF {}|SIRET {}|EIN {}|SST NO : {}|P.IVA {}|USt-IdNr. {}|GSTIN: {}"
).split("|")


@dataclass(frozen=True)
class Shop:
    """A shop: its name, which may take two lines, and the lines below it."""

    name: str
    lines: tuple[str, ...]  # the name, as broken
    register: str  # a number behind or below the name, or nothing
    address: tuple[str, ...]
    contacts: tuple[tuple[str, str, str], ...]  # what it is, as printed, and the value
    tax: tuple[str, str] | None  # as printed, and the number


@dataclass(frozen=True)
class Notation:
    """A till's formats of amounts and dates."""

    sign: str  # of the currency; may be nothing
    joint: str  # between sign and figure
    behind: bool
    decimal: str
    thousands: str
    date: Callable[[int, int, int], str]
    clock: Callable[[int, int, int], str]

    def bare(self, amount: float) -> str:
        """An amount without a currency."""
        text = f"{abs(amount):,.2f}".replace(",", "\0").replace(".", self.decimal)
        return ("-" if amount < 0 else "") + text.replace("\0", self.thousands)

    def full(self, amount: float) -> str:
        """An amount with its currency, where there is one."""
        if not self.sign:
            return self.bare(amount)
        if self.behind:
            return f"{self.bare(amount)}{self.joint or ' '}{self.sign}"
        return f"{self.sign}{self.joint}{self.bare(amount)}"


def _dates() -> tuple[Callable[[int, int, int], str], ...]:
    month = lambda m: formats.MONTHS[m - 1]  # noqa: E731
    return (
        lambda y, m, d: f"{d:02}/{m:02}/{y}",
        lambda y, m, d: f"{d:02}/{m:02}/{y}",
        lambda y, m, d: f"{d:02}/{m:02}/{y % 100:02}",
        lambda y, m, d: f"{d:02}-{m:02}-{y}",
        lambda y, m, d: f"{d:02}-{m:02}-{y % 100:02}",
        lambda y, m, d: f"{d}/{m}/{y}",
        lambda y, m, d: f"{m:02}/{d:02}/{y}",
        lambda y, m, d: f"{m}/{d}/{y % 100:02}",
        lambda y, m, d: f"{y}-{m:02}-{d:02}",
        lambda y, m, d: f"{y}/{m:02}/{d:02}",
        lambda y, m, d: f"{d:02}.{m:02}.{y}",
        lambda y, m, d: f"{d:02}.{m:02}.{y % 100:02}",
        lambda y, m, d: f"{d:02} {month(m)[:3].upper()} {y}",
        lambda y, m, d: f"{d} {month(m)[:3]} {y}",
        lambda y, m, d: f"{month(m)[:3]} {d:02}, {y}",
        lambda y, m, d: f"{month(m)} {d}, {y}",
        lambda y, m, d: f"{d:02}-{month(m)[:3]}-{y % 100:02}",
        lambda y, m, d: f"{d:02}-{month(m)[:3]}-{y}",
        lambda y, m, d: f"{month(m)[:3].upper()}{d:02}'{y % 100:02}",
        lambda y, m, d: f"{formats.DAYS[(d * 3 + m) % 7][:3]} {m:02}/{d:02}/{y}",
    )


def _clocks() -> tuple[Callable[[int, int, int], str], ...]:
    half = lambda h: "AM" if h < 12 else "PM"  # noqa: E731
    return (
        lambda h, m, s: f"{h:02}:{m:02}",
        lambda h, m, s: f"{h:02}:{m:02}",
        lambda h, m, s: f"{h:02}:{m:02}:{s:02}",
        lambda h, m, s: f"{h:02}:{m:02}:{s:02}",
        lambda h, m, s: f"{h % 12 or 12}:{m:02} {half(h)}",
        lambda h, m, s: f"{h % 12 or 12}:{m:02}:{s:02} {half(h)}",
        lambda h, m, s: f"{h % 12 or 12:02}:{m:02}{half(h)}",
        lambda h, m, s: f"{h}.{m:02}",
    )


DATES: Final = _dates()
CLOCKS: Final = _clocks()


def notation(rng: random.Random) -> Notation:
    """One till's way to write."""
    sign = rng.choice(SIGNS) if rng.random() < 0.75 else ""
    style = rng.choices(((".", ","), (".", ""), (",", "."), (",", " ")), (5, 4, 1.5, 0.7))[0]
    joint = rng.choice(("", "", " ", " ")) if sign not in ("$", "£", "€") else ""
    behind = rng.random() < (0.35 if style[0] == "," or sign in ("kr", "zł", "CHF") else 0.06)
    return Notation(sign, joint, behind, *style, rng.choice(DATES), rng.choice(CLOCKS))


def case(rng: random.Random) -> Callable[[str], str]:
    """A till's style of words: mostly in capitals."""
    return rng.choices((str.upper, str.title, str), (6, 3, 1))[0]


def shop(rng: random.Random, cased: Callable[[str], str]) -> Shop:
    """A shop, its lines in one case."""
    name = cased(_name(rng))
    if rng.random() < 0.55:
        form = rng.choice(FORMS)
        name += " " + (form if cased is str.upper else form.title() if len(form) > 3 else form)
    lines: tuple[str, ...] = (name,)
    if len(name) > 16 and rng.random() < 0.3:
        parts = name.split()
        cut = rng.randint(1, len(parts) - 1)
        lines = " ".join(parts[:cut]), " ".join(parts[cut:])
    register = ""
    if rng.random() < 0.4:
        digits = formats.run(rng, "0123456789", 5, 9)
        register = rng.choice((f"({digits}-{rng.choice('AHKMTUXP')})", f"({digits})",
                               f"({digits}{rng.choice('AHKMT')})", f"Co. No. {digits}",
                               f"{digits}-{rng.choice('KMT')}"))  # fmt: skip
    tax = None
    if rng.random() < 0.55:
        number = formats.run(rng, "0123456789", 8, 12)
        tax = rng.choice(NUMBERED).format(number), number
    return Shop(name, lines, register, _address(rng, cased), _contacts(rng), tax)


def _name(rng: random.Random) -> str:
    word = lambda: lexicon.word(rng)  # noqa: E731
    initials = lambda: ".".join(formats.run(rng, formats.LETTERS, 2, 3)) + "."  # noqa: E731
    heads: tuple[Callable[[], str], ...] = (
        word, lambda: f"{word()} {word()}", lambda: rng.choice(words.LAST), initials,
        lambda: f"{lexicon.invented(rng, 1)} {lexicon.invented(rng, 1)}",
        lambda: f"{lexicon.invented(rng, 1)} {lexicon.invented(rng, 1)} {lexicon.invented(rng, 1)}",
        lambda: f"{rng.choice(words.LAST)} & {rng.choice(words.LAST)}", lambda: f"the {word()}",
        lambda: f"{rng.choice(words.FIRST)}'s", lambda: rng.choice(words.CITIES),
        lambda: formats.run(rng, formats.LETTERS, 2, 4), lambda: f"{word()} {rng.randint(2, 99)}",
    )  # fmt: skip
    name = rng.choice(heads)()
    if rng.random() < 0.75:
        name += " " + rng.choice(TRADES).lower()
    if rng.random() < 0.15:
        name += " & " + rng.choice(TRADES).lower()
    if rng.random() < 0.08:
        name += f" ({rng.choice((word(), formats.run(rng, formats.LETTERS, 1, 2)))})"
    return name


def _address(rng: random.Random, cased: Callable[[str], str]) -> tuple[str, ...]:
    """One to four lines of where the shop is."""
    word = lambda: lexicon.word(rng)  # noqa: E731
    number = rng.choice(
        (str(rng.randint(1, 999)), f"No. {rng.randint(1, 200)}",
        f"{rng.randint(1, 99)}-{rng.randint(1, 9)}",
         f"LOT {rng.randint(1, 99)}", f"{rng.randint(1, 60)} & {rng.randint(61, 99)}",
         f"G-{rng.randint(1, 40)}", f"Unit {rng.randint(1, 30)}")
    )  # fmt: skip
    road = rng.choice(ROADS).format(rng.choice((word(),
    f"{word()} {rng.randint(1, 30)}/{rng.randint(1, 9)}",
                                                f"{word()} {word()}")))  # fmt: skip
    town = rng.choice((rng.choice(words.CITIES), word(), f"{word()} {word()}"))
    post = formats.run(rng, "0123456789", 4, 5)
    lines = [f"{number}{rng.choice((', ', ' '))}{road}{rng.choice(('', ','))}"]
    if rng.random() < 0.5:
        lines.append(f"{rng.choice(AREAS)} {word()}{rng.choice(('', ','))}")
    last = rng.choice((f"{post} {town}", f"{town} {post}", f"{town}, {rng.choice(REGIONS)} {post}",
                       f"{post} {town}, {rng.choice(REGIONS)}"))  # fmt: skip
    lines.append(f"{last}{rng.choice(('', '', '.'))}")
    if rng.random() < 0.15:
        lines.append(rng.choice(words.COUNTRIES))
    if rng.random() < 0.2:
        lines = [" ".join(lines)] if len(" ".join(lines)) < 44 else lines
    return tuple(cased(line) for line in lines)


def _contacts(rng: random.Random) -> tuple[tuple[str, str, str], ...]:
    out = []
    number = formats.phone(rng)
    if rng.random() < 0.6:
        front = rng.choice(("Tel: {}", "TEL : {}", "Tel:{}", "Phone: {}", "PH {}", "H/P: {}", "{}"))
        out.append(("phone", front.format(number), number))
    if rng.random() < 0.25:
        other = formats.phone(rng)
        out.append(("fax", rng.choice(("Fax: {}", "FAX : {}", "Fax:{}")).format(other), other))
    if rng.random() < 0.15:
        mail = words.email(rng)
        out.append(("email", rng.choice(("{}", "email: {}", "E-mail: {}")).format(mail), mail))
    if rng.random() < 0.15:
        site = "www." + formats.host(rng)
        out.append(("website", site, site))
    return tuple(out)
