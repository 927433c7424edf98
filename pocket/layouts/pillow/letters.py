"""Letters and forms of firms, whose name may be anywhere: at the foot, in a margin, in a stamp.

A second firm or person is addressed, a third may carry the goods. Questions ask in many words for
the sender, and for other values without a label.
"""

import random
from collections.abc import Callable
from typing import Final

from pocket.content import formats, prose, shops, words
from pocket.content.colours import hsv
from pocket.document import Document
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import blank_page, wrap
from pocket.layouts.pillow.letter import INK, Letter
from pocket.layouts.pillow.letter_goods import goods
from pocket.layouts.pillow.paper_strips import printer_and_type
from pocket.layouts.stretched import stretched
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT

HEADINGS: Final = (
    "Order confirmation|Reminder|Statement|Quotation|Membership|Loan slip|Admission|Certificate|"
    "Consignment|Appointment|Notice of arrival|Claim|Rental agreement|Transfer|Permit|Voucher|"
    "Subscription|Return form|Inspection|Offer|Booking|Guarantee|Application|Annual report|"
    "Invitation"
).split("|")
PAPERS: Final = (
    "note slip advice order ticket form sheet card report list request record statement pass docket"
).split()
LABELS: Final[dict[str, tuple[str, Callable[[random.Random], str]]]] = {
    "reference": ("Our ref.|Reference|Ref|File", formats.code),
    "customer number": ("Customer no.|Client|Account no.", lambda r: formats.run(r, "0123456789",
                        4, 9)),
    "contact": ("Contact|Your contact|Handled by|Clerk", words.person),
    "due date": ("Due|Payable by|Valid until", formats.date),
    "carrier": ("Carrier|Forwarder|Shipped by", words.company),
    "bank": ("Bank|Our bank", lambda r: f"{r.choice(words.CITIES)} Bank"),
    "room": ("Room|Hall", lambda r: str(r.randint(1, 480))),
    "plate": ("Vehicle|Plate", lambda r: f"{formats.run(r, formats.LETTERS, 2, 3)} "
              f"{r.randint(1, 9999)}"),
}  # fmt: skip
ISSUER: Final = (
    "Who sent this?", "Who issued it?", "Who issued this document?", "Which company is it from?",
    "Whose letterhead is it?", "Who wrote the letter?", "issuer?", "sender?", "issued by?",
    "Which firm is behind it?", "What is the name of the company?", "Who is it from?",
    "name of the issuing company", "From whom is it?", "Which company sent it?", "company name?",
    "Which business is this from?", "What is the company called?",
)  # fmt: skip
ADDRESSEE: Final = (
    "To whom is it addressed?", "Who is it for?", "Who is the recipient?", "addressee?",
    "Who gets this letter?", "Whom was it sent to?", "recipient",
)  # fmt: skip
PLACES: Final = (
    "foot", "foot", "foot", "low corner", "low corner", "margin", "right", "centre", "line",
    "stamp", "signature", "tall",
)  # fmt: skip


HEADED: Final = 0.45  # share of sheets that begin with their heading
BOXED: Final = 0.35  # share of those whose references stand in boxes, each below a small label
UNADDRESSED: Final = 0.3  # and of those without an addressee


MISSING: Final = {  # and what would show that a sheet has it
    "email address": "@", "website": "www", "balance": "due", "amount paid": "paid",
    "total": "total|due|pay|sum", "tax": "tax|net", "room": "room|hall",
    "carrier": "carr|forw|ship", "vehicle": "vehicle|plate", "tip": "tip",
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One sheet."""
    letter, printer = _open(rng, style)
    place = rng.choice(PLACES)
    if not _issued(letter, place):
        return letter.canvas.document([])
    headed = rng.random() < HEADED
    if headed:
        _headed(letter)
    if rng.random() > UNADDRESSED:
        _addressed(letter)
    _dated(letter, headed)
    _told(letter)
    for _ in range(3):
        letter.ask("fact", letter.issuer, *ISSUER)
    _missing(letter)
    document = letter.canvas.document(letter.questions)
    document.printer = printer
    return document


def _open(rng: random.Random, style: PageStyle) -> tuple[Letter, str]:
    """An empty sheet: who writes, in which type."""
    white = rng.random() < 0.7 or style.theme.dark
    canvas = blank_page(style, (255, 255, 255) if white else None)
    size = rng.triangular(8.8, max(12.0, min(18.0, style.width / 34)), 10.8)
    printer, set_ = "", _families(style)
    if rng.random() < 0.45:
        printer, type_ = printer_and_type(rng, style.split)

        def set_(size: float, heavy: bool, tall: float) -> Face:
            slug = type_.bold if heavy else type_.slug
            return stretched(slug, size * tall, type_.wide / tall)

    cased = rng.choice((str.upper, str.upper, str.title, str))
    made = shops.shop(rng, cased)
    issuer = made.name if rng.random() < 0.6 else words.company(rng)
    if rng.random() < 0.25:
        issuer = issuer.upper()
    m = style.width * rng.uniform(0.05, 0.11)
    top, foot = style.height * rng.uniform(0.03, 0.07), style.height * rng.uniform(0.94, 0.98)
    letter = Letter(
        rng, style, canvas, set_, size, issuer, made.address, top, foot, m, style.width - m
    )
    return letter, printer


def _families(style: PageStyle) -> Callable[[float, bool, float], Face]:
    """The style's own family; tall letters are pulled."""

    def set_(size: float, heavy: bool, tall: float) -> Face:
        face = style.family.bold(size) if heavy else style.family.regular(size)
        return face if tall == 1 else stretched(face.slug, size * tall, 1 / tall)

    return set_


def _issued(letter: Letter, place: str) -> bool:
    """The sender, where this sheet has it; whether it fits."""
    rng, right, left = letter.rng, letter.right, letter.left
    if place == "margin":
        return _upright(letter)
    if place == "stamp":
        return _stamped(letter)
    share = rng.uniform(0.95, 1.7)
    tall = rng.choice((1.6, 2.0, 2.4)) if place == "tall" else 1.0
    face = letter.face(share, rng.random() < 0.5, tall)
    small = letter.face(rng.uniform(0.8, 1.0))
    lines = [", ".join(letter.address)] if rng.random() < 0.5 else list(letter.address)
    if place == "signature":
        return _signed(letter, face)
    if place in ("foot", "low corner"):
        high = face.line + small.line * len(lines)
        y = letter.foot - high
        align = "centre" if place == "foot" and rng.random() < 0.6 else "left"
        align = "right" if place == "low corner" and rng.random() < 0.7 else align
        if rng.random() < 0.5:
            letter.canvas.line([(left, y - 4), (right, y - 4)], INK)
        letter.foot = y - face.line
    else:
        y = letter.top
        align = {"right": "right", "centre": "centre", "line": "left"}.get(
            place, rng.choice(("left", "centre"))
        )
        letter.top = y + face.line + small.line * (len(lines) + rng.uniform(0.6, 2.5))
    x = {"left": left, "centre": (left + right) / 2, "right": right}[align]
    if place == "line":  # all in one small line above the address of who gets it
        small = letter.face(0.8)
        text = " · ".join((letter.issuer, *letter.address[:1]))
        letter.top = y + small.line * 1.2
        if letter.put(x, y, text, small):
            return True
        return letter.put(x, y, letter.issuer, small)
    if not letter.put(x, y, letter.issuer, face, align):
        face = letter.face()
        if not letter.put(x, y, letter.issuer, face, align):
            return False
    for i, line in enumerate(lines):
        if letter.put(x, y + face.line + i * small.line, line, small, align):
            letter.ask("field", line, "What is the address of the sender?",
                       f"Which line stands below {letter.issuer}?" if i == 0 else
                       f"What is written below {lines[i - 1]}?")  # fmt: skip
    return True


def _upright(letter: Letter) -> bool:
    """Along the left or right edge, from bottom to top or from top to bottom."""
    rng, face = letter.rng, letter.face(letter.rng.uniform(0.9, 1.4), True)
    high, style = face.width(letter.issuer), letter.style
    if high > style.height * 0.8:
        return False
    at_left = rng.random() < 0.6
    x = face.line * 0.9 if at_left else style.width - face.line * 0.9
    y = rng.uniform(high / 2 + 8, style.height - high / 2 - 8)
    letter.canvas.text_rotated(x, y, letter.issuer, face, INK, 90 if at_left else rng.choice(
        (90, -90)))  # fmt: skip
    letter.left = max(letter.left, face.line * 2.0)
    letter.right = min(letter.right, style.width - face.line * 2.0)
    return True


def _stamped(letter: Letter) -> bool:
    """In a rubber stamp near the foot, straight or a little askew."""
    rng, face = letter.rng, letter.face(letter.rng.uniform(1.0, 1.3), True)
    ink = hsv(rng.choice((0.0, 0.62, 0.66, 0.75, 0.4)), 0.7, rng.uniform(0.35, 0.75))
    wide, degrees = face.width(letter.issuer), rng.choice((0, 0, -4, 3, 6, -8))
    if wide > (letter.right - letter.left) * 0.9:
        return False
    x = rng.uniform(letter.left + wide / 2, letter.right - wide / 2)
    y = letter.foot - face.line * rng.uniform(1.6, 3)
    letter.canvas.text_rotated(x, y, letter.issuer, face, ink, degrees)
    small = letter.face(0.85)
    town = letter.address[-1]
    if small.width(town) < wide and degrees == 0:
        letter.put(x, y + face.line * 0.7, town, small, "centre", ink)
    if degrees == 0:
        letter.canvas.frame(
            (x - wide / 2 - 6, y - face.line, x + wide / 2 + 6, y + face.line * 1.9), ink, 4, 2
        )
    letter.foot = y - face.line * 1.6
    letter.ask("find", letter.issuer, "What does the stamp say?", "Which company stamped it?")
    return True


def _signed(letter: Letter, face: Face) -> bool:
    """Below the text: a greeting, a name, and its firm."""
    rng, body = letter.rng, letter.face()
    who = words.person(rng)
    lines = [rng.choice(("Yours sincerely", "Kind regards", "With best wishes")), "", who,
             letter.issuer]  # fmt: skip
    y = letter.foot - body.line * 3 - face.line
    letter.foot = y - body.line
    for line in lines[:3]:
        letter.put(letter.left, y, line, body)
        y += body.line
    letter.ask("fact", who, "Who signed it?", "Who signed the letter?", "signed by?")
    return letter.put(letter.left, y, letter.issuer, face)


def _addressed(letter: Letter) -> None:
    """The addressee: a person or another firm, with a street and a town, mostly without a label."""
    rng, face = letter.rng, letter.face()
    name = words.person(rng) if rng.random() < 0.5 else words.company(rng)
    lines = [name, words.address(rng).split(",")[0],
             f"{formats.run(rng, '0123456789', 4, 5)} {rng.choice(words.CITIES)}"]  # fmt: skip
    if rng.random() < 0.4:
        lines.insert(
            0, rng.choice(("To", "Messrs", "Deliver to:", "Customer", "For the attention of"))
        )
    at = letter.left if rng.random() < 0.75 else (letter.left + letter.right) / 2
    for line in lines:
        letter.put(at, letter.top, line, face)
        letter.top += face.line * 1.05
    for _ in range(2):
        letter.ask("fact", name, *ADDRESSEE)
    letter.ask("find", lines[-1], f"In which town is {name}?", f"Where does {name} live?",
               "What is the recipient's town?")  # fmt: skip
    letter.top += face.line * rng.uniform(0.6, 2)


def _headed(letter: Letter) -> None:
    """The kind of document; it must differ from the sender."""
    rng = letter.rng
    kinds = (
        lambda: rng.choice(HEADINGS),
        lambda: f"{words.some(rng, 1, 1)} {rng.choice(PAPERS)}",
        lambda: words.some(rng, 2, 4),
    )
    heading = rng.choices(kinds, (4, 4, 2))[0]()
    if rng.random() < 0.45:
        heading = heading.upper()
    bold = letter.face(rng.uniform(1.0, 1.5), True)
    if letter.put(letter.left, letter.top, heading, bold):
        letter.ask("title", heading, "What is the heading?", "What is it about?", "subject?",
                   "What kind of document is it?")  # fmt: skip
        letter.top += bold.line * 1.2


def _dated(letter: Letter, headed: bool) -> None:
    """Heading, date and references: unlabelled, in a line, in two columns or in a list."""
    rng, face = letter.rng, letter.face()
    day, place = formats.date(rng), rng.choice(words.CITIES)
    shown = f"{place}, {day}" if rng.random() < 0.5 else day
    at_right = rng.random() < 0.6
    letter.put(letter.right if at_right else letter.left, letter.top, shown, face,
               "right" if at_right else "left")  # fmt: skip
    letter.ask("fact", day, "What is the date?", "date?", "When was it written?",
               "On which day was it issued?", "date of the letter")  # fmt: skip
    if shown != day:
        letter.ask("fact", place, "Where was it written?", "In which town was it issued?", "place?")
    letter.top += face.line * rng.uniform(1.2, 2)
    if not headed:
        _headed(letter)
    pairs = [(what, rng.choice(labels.split("|")), make(rng)) for what, (labels, make) in
             rng.sample(list(LABELS.items()), rng.randint(1, 5))]  # fmt: skip
    if rng.random() < BOXED:
        _boxed(letter, pairs)
        return
    columns, joint = rng.choice((1, 1, 2)), rng.choice((": ", " ", "   "))
    wide = (letter.right - letter.left) / columns
    for i, (what, label, value) in enumerate(pairs):
        x = letter.left + (i % columns) * wide
        text = f"{label}{joint}{value}"
        if face.width(text) < wide - 4 and letter.put(x, letter.top, text, face):
            letter.ask("field", value, f"What is the {what}?", f"{what}?", f"{label}?",
                       f"Which {what} is given?")  # fmt: skip
        if i % columns == columns - 1:
            letter.top += face.line * 1.1
    letter.top += face.line * rng.uniform(0.8, 1.6)


def _boxed(letter: Letter, pairs: list[tuple[str, str, str]]) -> None:
    """References in ruled boxes, their labels small above them or on a ground of their own."""
    rng, face, small = letter.rng, letter.face(), letter.face(letter.rng.uniform(0.65, 0.9))
    columns, banded = min(len(pairs), rng.choice((2, 2, 3, 4))), rng.random() < 0.3
    wide = (letter.right - letter.left) / columns
    high = small.line + face.line * rng.uniform(1.05, 1.7) + 2
    upper = rng.random() < 0.5
    for i, (what, label, value) in enumerate(pairs):
        x, y = letter.left + (i % columns) * wide, letter.top + i // columns * high
        text = label.upper() if upper else label
        if face.width(value) > wide - 8 or small.width(text) > wide - 8 or y + high > letter.foot:
            continue
        if banded:
            letter.canvas.box(x, y, x + wide, y + small.line, fill=(222, 222, 222))
        letter.canvas.frame((x, y, x + wide, y + high), INK, 0, 1)
        letter.put(x + 3, y, text, small)
        at = rng.choice((x + 4, x + 4, x + face.size))
        if letter.put(at, y + high - face.line - 1, value, face):
            letter.ask("field", value, f"What is the {what}?", f"{what}?", f"{label}?",
                       f"Which {what} is it?", f"What does it say under {label}?")  # fmt: skip
    letter.top += -(-len(pairs) // columns) * high + face.line * rng.uniform(0.5, 1.4)


def _told(letter: Letter) -> None:
    """The body: goods with amounts, or paragraphs."""
    if letter.rng.random() < 0.5:
        goods(letter)
        return
    face = letter.face()
    while letter.top + face.line * 3 < letter.foot:
        text = " ".join(prose.sentence(letter.rng) for _ in range(letter.rng.randint(1, 4)))
        for line in wrap(text, face, letter.right - letter.left):
            if letter.top + face.line > letter.foot:
                return
            letter.put(letter.left, letter.top, line, face)
            letter.top += face.line * 1.05
        letter.top += face.line * 0.6
        if letter.rng.random() < 0.4:
            return


def _missing(letter: Letter) -> None:
    """A thing that the sheet does not have, and that nothing on it resembles."""
    whole = "\n".join(letter.canvas.content).lower()
    asked = " ".join(q.text.lower() for q in letter.questions)
    for what, signs in MISSING.items():
        shown = what in asked or any(sign in whole for sign in signs.split("|"))
        if not shown and letter.rng.random() < 0.3:
            letter.ask("absent", ABSENT, f"What is the {what}?", f"{what}?")
