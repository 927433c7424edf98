"""Topics: what a document is about, how its facts are written, and how people ask for them.

`topics/*.toml` holds them. A topic has `name`, `layouts` (of `LAYOUTS`), `heads` (titles;
`head_ask` has questions that the title answers), and `facts` or `records` or both:

- a fact has `v` (what is to be read: a template or several), `say` (how the document writes it,
  `{v}` in a label and a colon, a line of its own, or a sentence with a full stop) and `ask`;
  `check` has pairs of a yes-no question and the value for which the answer is yes. `ask` may
  use `{other}` for the value of the fact whose `id` is `other`, if that is shown, too;
- `reckon` is what facts come to: `of` (ids, or a number of times), `by` ("+", "-" or "x"), `ask`;
- records are rows of a table or list: `n` (least, most), `noun` (their plural), `cols` (a
  template each), `heads` (column headings), `say` (a row as one line), `ask` (question and
  the column of its answer; `{col}` is the row's value), `most` and `least` (question, column
  compared, column of the answer) and `count`.

`charts.toml` holds subjects of charts: `titles`, `unit`, `noun`, `of` (a list of entries,
a template, or months, weekdays, quarters, years), `range` of the values and their `decimals`,
`series`, and the questions `value`, `value2`, `most` and `least`.

Templates hold generators in braces, `{person}` or `{int 1 40}`; see `GENERATORS`. A topic with
`held = true` is never trained on.
"""

import random
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pocket.content import formats, lexicon, words

LAYOUTS: Final = ("lines", "pairs", "prose", "bubbles", "table")
SLOT: Final = re.compile(r"\{([a-z]+)((?: [0-9.]+)*)\}")
FOODS: Final = (
    "Tomato soup|Garlic bread|Grilled salmon|Mushroom risotto|Beef burger|Caesar salad|Apple pie|"
    "Lentil curry|Fish and chips|Pumpkin ravioli|Onion rings|Chicken wings|Vegetable stew|Pancakes|"
    "Goulash|Spring rolls|Fried rice|Lamb kebab|Potato salad|Cheesecake|Brownie|Fruit bowl"
).split("|")
INGREDIENTS: Final = (
    "flour sugar butter salt eggs milk yeast onions garlic rice oats cream honey cinnamon carrots "
    "tomatoes beans cheese lemon basil pepper oil vinegar spinach"
).split()
JOBS: Final = (
    "Engineer|Sales manager|Head of design|Accountant|Photographer|Dentist|Architect|Translator|"
    "Florist|Data analyst|Plumber|Solicitor|Consultant|Editor|Chef|Chief scientist|Nurse|Teacher|"
    "Project lead|Electrician|Librarian|Product owner|Managing director|Researcher|Carpenter"
).split("|")
ANIMALS: Final = (
    "dog cat horse goat owl fox bear whale parrot rabbit turtle lion wolf eagle deer".split()
)
SPORTS: Final = (
    "tennis football chess rowing hockey judo swimming golf cycling volleyball rugby".split()
)
SUBJECTS: Final = (
    "Maths History Biology Physics Chemistry Art Music Latin French Geography Ethics".split()
)
LANGUAGES: Final = (
    "English German French Spanish Polish Swedish Italian Dutch Czech Portuguese".split()
)
COLOURS: Final = (
    "red blue green black white yellow orange purple brown grey silver navy pink".split()
)
SPECIAL: Final = ("money", "rank")  # consistent in a document: one currency, ranks in order


@lru_cache(maxsize=1)
def remark_templates() -> Mapping[str, Any]:
    """Templates of lines and heads, and questions by the sort of a fact."""
    path = Path(__file__).with_name("topics") / "remarks.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _int(rng: random.Random, low: float = 1, high: float = 99) -> str:
    return str(rng.randint(int(low), int(high)))


def _big(rng: random.Random, low: float = 100, high: float = 99_999) -> str:
    value = int(10 ** rng.uniform(len(str(int(low))) - 1, len(str(int(high)))))
    value = min(int(high), max(int(low), value))
    return f"{value:,}" if rng.random() < 0.6 else str(value)


def _decimal(rng: random.Random, low: float = 0, high: float = 100) -> str:
    return f"{rng.uniform(low, high):.{rng.choice((1, 2))}f}"


def _score(rng: random.Random) -> str:
    return f"{rng.randint(0, 9)}{rng.choice((' - ', ':', ' : ', '-'))}{rng.randint(0, 9)}"


def _title(rng: random.Random) -> str:
    return words.some(rng, 2, 4)


def _name(rng: random.Random) -> str:
    """A proper name: of a house, a café, a boat, a product."""
    return " ".join(lexicon.word(rng).capitalize() for _ in range(rng.choice((1, 1, 2))))


GENERATORS: Final[dict[str, Callable[..., str]]] = {
    "person": words.person,
    "first": lambda r: r.choice(words.FIRST),
    "last": lambda r: r.choice(words.LAST),
    "firm": words.company,
    "city": lambda r: r.choice(words.CITIES),
    "country": lambda r: r.choice(words.COUNTRIES),
    "address": words.address,
    "email": words.email,
    "phone": formats.phone,
    "url": formats.url,
    "handle": formats.handle,
    "file": formats.file_name,
    "version": formats.version,
    "date": formats.date,
    "day": lambda r: f"{r.randint(1, 28)} {r.choice(formats.MONTHS)}",
    "weekday": lambda r: r.choice(formats.DAYS),
    "month": lambda r: r.choice(formats.MONTHS),
    "year": lambda r: str(r.randint(1900, 2039)),
    "clock": formats.clock,
    "time": lambda r: f"{r.randint(0, 23):02}:{r.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02}",
    "int": _int,
    "big": _big,
    "decimal": _decimal,
    "number": lambda r: r.choice((_int, _big, _decimal))(r),
    "percent": lambda r: f"{r.randint(1, 99)}{r.choice(('%', '%', ' %'))}",
    "rating": lambda r: f"{r.uniform(1, 5):.1f}",
    "score": _score,
    "code": formats.code,
    "letter": lambda r: r.choice(formats.LETTERS),
    "product": words.product,
    "food": lambda r: r.choice(FOODS) if r.random() < 0.5 else words.product(r),
    "ingredient": lambda r: r.choice(INGREDIENTS) if r.random() < 0.7 else lexicon.word(r),
    "job": lambda r: r.choice(JOBS),
    "animal": lambda r: r.choice(ANIMALS),
    "sport": lambda r: r.choice(SPORTS),
    "subject": lambda r: r.choice(SUBJECTS),
    "language": lambda r: r.choice(LANGUAGES),
    "colour": lambda r: r.choice(COLOURS),
    "word": lexicon.word,
    "name": _name,
    "title": _title,
    "measure": formats.measure,
}


@lru_cache(maxsize=2)
def topics(held: bool = False) -> tuple[Mapping[str, Any], ...]:
    """The topics to train on, or those held out."""
    found: list[Mapping[str, Any]] = []
    for path in sorted(Path(__file__).with_name("topics").glob("*.toml")):
        found += tomllib.loads(path.read_text(encoding="utf-8")).get("topic", [])
    return tuple(t for t in found if t.get("held", False) == held)


@lru_cache(maxsize=1)
def charts() -> tuple[Mapping[str, Any], ...]:
    """Subjects of charts."""
    path = Path(__file__).with_name("topics") / "charts.toml"
    return tuple(tomllib.loads(path.read_text(encoding="utf-8"))["chart"])


class Filler:
    """Fills the templates of one document, whose amounts are all of one currency."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.cash = rng, words.money(rng)

    def __call__(self, template: str | list[str], known: Mapping[str, str] | None = None) -> str:
        """One of the templates with `known` values and generators put in."""
        text = template if isinstance(template, str) else self.rng.choice(template)
        return SLOT.sub(lambda found: self.one(found[1], found[2], known or {}), text)

    def one(self, name: str, bounds: str, known: Mapping[str, str]) -> str:
        """The text for one slot."""
        if name in known:
            return known[name]
        limits = [float(x) for x in bounds.split()]
        if name == "money":
            return self.cash(self.rng.uniform(*(limits or (1, 400))))
        return GENERATORS[name](self.rng, *limits)


def figure(text: str) -> float | None:
    """The number that a cell shows, or None: "1,250", "12.5 kg", "€ 3,20"."""
    found = re.search(r"\d[\d., ']*", text)
    if not found or len(re.findall(r"\d[\d., ']*", text)) > 1:
        return None
    digits = found[0].strip(" .,'")
    whole, mark, cents = re.fullmatch(r"(.*?)(?:([.,])(\d{1,2}))?", digits).groups()  # type: ignore[union-attr]
    whole = re.sub(r"[ ,.']", "", whole)
    sign = -1 if text[: found.start()].rstrip().endswith(("-", "−")) else 1
    return sign * float(f"{whole}.{cents}" if mark else whole)
