"""Contents of dashboards: figures with a unit, counts, states, and things that have several."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocket.content import formats, lexicon, program_output, words

Make = Callable[[random.Random], str]


def _short(rng: random.Random, value: float) -> str:
    """A figure as dashboards cut it: 7.10m, 372k, 1.2B."""
    unit = rng.choice(("k", "K", "m", "M", "B", "bn", "G"))
    return f"{value:.{rng.choice((0, 1, 2))}f}{rng.choice(('', '', ' '))}{unit}"


def count(rng: random.Random) -> str:
    """A count."""
    r = rng.random()
    if r < 0.3:
        return str(rng.randint(0, 20))
    if r < 0.6:
        return str(rng.randint(10, 999))
    if r < 0.85:
        return f"{int(10 ** rng.uniform(3, 6)):,}".replace(
            ",", rng.choice((",", ",", " ", ".", ""))
        )
    return _short(rng, rng.uniform(1, 999))


def amount(rng: random.Random) -> str:
    """An amount of money."""
    sign, value = rng.choice("$ $ € € £ ¥ kr CHF".split()), 10 ** rng.uniform(0, 4.5)
    text = f"{value:,.{rng.choice((0, 2, 2, 2))}f}"
    if rng.random() < 0.1:
        text = _short(rng, rng.uniform(1, 99))
    return f"{sign}{text}" if sign in "$€£¥" and rng.random() < 0.8 else f"{text} {sign}"


def share(rng: random.Random) -> str:
    """A share in percent."""
    return f"{rng.uniform(0, 100):.{rng.choice((0, 0, 1, 2))}f}{rng.choice(('%', '%', ' %'))}"


def _span(rng: random.Random) -> str:
    h, m, s = rng.randint(0, 40), rng.randint(0, 59), rng.randint(0, 59)
    return rng.choice((
        f"{h}h {m}m", f"{m}m {s}s", f"{m}:{s:02}", f"{h}:{m:02}:{s:02}",
        f"{rng.uniform(1, 9):.1f} years",
        f"{rng.uniform(1, 300):.1f} days", f"{rng.randint(2, 90)} days",
        f"{rng.uniform(0.1, 9):.2f} s",
        f"{rng.randint(1, 900)} ms", f"{rng.randint(2, 50)} min", f"{h} hours",
        f"{rng.randint(1, 9)}d {h % 24}h",
    ))  # fmt: skip


def _warmth(rng: random.Random) -> str:
    return f"{rng.randint(-15, 96)}{rng.choice(('°C', '°C', '°', ' °C', '°F'))}"


def _bytes(rng: random.Random) -> str:
    unit = rng.choice("GB TB MB GiB MiB kB G M".split())
    return f"{rng.uniform(0.1, 999):.{rng.choice((0, 1, 2))}f}{rng.choice((' ', ' ', ''))}{unit}"


def _speed(rng: random.Random) -> str:
    unit = rng.choice(
        "km/h mph MB/s Mbit/s req/s rpm fps kW W ppm dB hPa mm % kWh bpm kcal".split()
    )
    return f"{rng.choice((str(rng.randint(0, 400)), f'{rng.uniform(0, 90):.1f}'))} {unit}"


def _state(rng: random.Random) -> str:
    return rng.choice(
        "Fine|Failed|OK|Online|Offline|Healthy|Degraded|Running|Stopped|Good|Fair|Moderate|Poor|"
        "Active|Paused|Up|Down|Low|High|Normal|Warning|Enabled|Disabled|Synced".split("|")
    )


FIGURES: Final[dict[str, tuple[tuple[str, ...], Make]]] = {
    "count": (
        ("Users", "Active users", "Parcels", "Orders", "Visitors", "Sessions", "Page views",
         "Requests", "Errors", "Warnings", "Alerts", "Tasks", "Deliveries", "Shifts", "Members",
         "Views",
         "Forms received", "Downloads", "Open issues", "Pull requests", "Tickets", "Products",
         "Comments",
         "New customers", "Repairs", "Machines", "Nodes", "Containers", "Hosts", "Entries",
         "Followers",
         "Steps", "Calls", "Bookings", "Invoices", "Clicks", "Sign-ups", "Returns", "Likes",
         "Files"),
        count,
    ),
    "amount": (
        ("Revenue", "Cost", "Cost this week", "Rent", "Balance", "Income", "Spending",
        "Savings",
         "Budget", "Profit", "Average order", "Amount due", "Sales today", "Cost per head",
         "Net worth",
         "Expenses", "Outstanding", "Refunds", "Tax", "Wages", "Deposits"),
        amount,
    ),
    "share": (
        ("CPU usage", "Memory", "Disk usage", "Bounce rate", "Conversion rate", "Uptime",
        "Humidity",
         "Battery", "Open rate", "Click rate", "Progress", "Completion", "Coverage", "Load",
         "Cache hits"),
        share,
    ),
    "span": (
        ("Time at work", "Average visit", "Response time", "Uptime", "Duration", "Latency",
        "Build time",
         "Time spent", "Screen time", "Last backup", "Moving time", "Sleep", "Time to fix"),
        _span,
    ),
    "warmth": (("Temperature", "Feels like", "CPU temperature", "Inside", "Outside", "Dew point"),
                _warmth),
    "bytes": (("Capacity", "Storage", "Memory used", "Traffic", "Free space", "Swap",
               "Database size",
               "Transferred", "Upload", "Download"), _bytes),
    "speed": (("Wind", "Speed", "Throughput", "Power", "Pressure", "Noise", "Rain", "Heart rate",
               "Energy", "Frame rate", "Fan"), _speed),
    "state": (("Status", "State", "Health", "Air quality", "Security", "Connection", "Self-test"),
               _state),
}  # fmt: skip
PARTS: Final = (
    "running active archived pending failed open closed blocked planned new overdue done verified "
    "expired late early rejected approved waiting shipped missing"
).split()


@dataclass(frozen=True)
class Figure:
    """A label, what it shows, and what sort of thing that is."""

    label: str
    value: str
    sort: str


def figure(rng: random.Random) -> Figure:
    """A labelled figure; a third of the labels are made up."""
    sort = rng.choice(("count",) * 4 + ("amount",) * 3 + tuple(FIGURES))
    labels, make = FIGURES[sort]
    label = rng.choice(labels)
    if rng.random() < 0.35:
        word = lexicon.word(rng)
        label = rng.choice(
            (f"{word} {label.lower()}", word, f"{word} {lexicon.word(rng)}", f"{label} {word}")
        )
    return Figure(cased(rng, label), make(rng), sort)


def cased(rng: random.Random, text: str) -> str:
    """As labels are written: mostly one capital."""
    return rng.choice(
        (
            text[:1].upper() + text[1:],
            text[:1].upper() + text[1:],
            text.title(),
            text.upper(),
            text.lower(),
        )
    )


def figures(rng: random.Random, n: int) -> list[Figure]:
    """`n` figures, no label within another."""
    out: list[Figure] = []
    while len(out) < n:
        made = figure(rng)
        low = made.label.lower()
        if not any(low in f.label.lower() or f.label.lower() in low for f in out):
            out.append(made)
    return out


def thing(rng: random.Random) -> str:
    """The subject of a card: a disk, a host, a town, a person."""
    return rng.choice((
        lambda: f"Line {rng.randint(1, 40)}", lambda: formats.host(rng),
        lambda: program_output.short(rng),
        lambda: f"{program_output.short(rng)}-{rng.randint(1, 99):02}",
        lambda: rng.choice(words.CITIES),
        lambda: words.some(rng, 1, 2), lambda: words.product(rng),
        lambda: f"Hall {rng.randint(1, 9)}",
        lambda: formats.code(rng), lambda: words.person(rng), lambda: words.company(rng),
        lambda: f"Room {rng.randint(1, 400)}", lambda: f"eth{rng.randint(0, 9)}",
    ))()  # fmt: skip


def things(rng: random.Random, n: int) -> list[str]:
    """`n` of one sort mostly, no name within another."""
    out: list[str] = []
    sort = rng.getrandbits(32)
    tries = 0
    while len(out) < n:
        tries += 1
        own = random.Random(sort)
        made = thing(rng) if tries > 60 else _same(own, rng)
        low = made.lower()
        if len(made) < 34 and not any(low in o.lower() or o.lower() in low for o in out):
            out.append(made)
    return out


def _same(own: random.Random, rng: random.Random) -> str:
    """A name of the sort that `own` picks, spelt by `rng`."""
    makers: tuple[Make, ...] = (
        lambda r: f"Line {r.randint(1, 90)}", formats.host, words.person, words.product,
        lambda r: f"{program_output.short(r)}-{r.randint(1, 99):02}",
        lambda r: r.choice(words.CITIES),
        lambda r: words.some(r, 1, 2), lambda r: words.some(r, 2, 3), words.company, formats.code,
        lambda r: f"Hall {r.randint(1, 60)}", lambda r: lexicon.word(r).capitalize(),
    )  # fmt: skip
    return own.choice(makers)(rng)
