"""Text that follows rules: codes, dates, times, numbers, addresses, files.

Every notation is drawn from parts, so that no list of usual forms can stand in for reading.
"""

import random
import string
from typing import Final

from pocket.content.lexicon import invented, word

MONTHS: Final = (
    "January February March April May June July August September October November December".split()
)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
UNITS: Final = (
    "kg g mg lb oz t km m cm mm mi ft in l ml cl gal h min s ms d °C °F K kW kWh MW W V A mA Hz "
    "kHz MHz GHz Pa bar hPa kB MB GB TB Mbit/s km/h mph m/s m² m³ ha px pt dB kcal kJ rpm % pcs "
    "people days items pages €/h $/t"
).split()
ENDINGS: Final = (
    "pdf docx xlsx pptx txt csv json md png jpg jpeg gif svg webp zip tar.gz py js ts html css xml "
    "log cfg yaml toml sql mp3 mp4 c cpp h java rs go sh bak"
).split()
HOSTS: Final = "com org net io eu de fr co.uk ch se nl app dev info edu gov".split()


def run(rng: random.Random, alphabet: str, least: int, most: int) -> str:
    """`least` to `most` characters of `alphabet`."""
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(least, most)))


def code(rng: random.Random) -> str:
    """An order number, a plate, a serial number: groups of letters and digits, joined somehow."""
    joint = rng.choice(("-", "-", "-", "", "", "", " ", "/", ".", "_", ":"))
    groups = []
    for _ in range(rng.choice((1, 1, 2, 2, 2, 3, 4))):
        r = rng.random()
        if r < 0.5:
            groups.append(run(rng, string.digits, 1, 7))
        elif r < 0.74:
            groups.append(run(rng, LETTERS, 1, 4))
        elif r < 0.84:
            groups.append(run(rng, LETTERS + string.digits, 2, 8))
        elif r < 0.92:
            groups.append(run(rng, "0123456789abcdef", 2, 8))
        else:
            groups.append(rng.choice(("INV", "PO", "No", "ID", "REF", "SN", "v", "Art", "Nr")))
    text = joint.join(groups)
    front = rng.random()
    if front < 0.08:
        text = rng.choice(("#", "No. ", "Nr. ", "n° ", "ID ")) + text
    elif front < 0.12:
        text = f"({text})"
    while len(text) < 3:
        text += rng.choice(string.digits)
    return text


def ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, ..., 11th, ..."""
    return f"{n}{'th' if 10 < n % 100 < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def date(rng: random.Random) -> str:
    """A date in one of many notations."""
    y, m, d = rng.randint(1950, 2039), rng.randint(1, 12), rng.randint(1, 31)
    name, day = MONTHS[m - 1], rng.choice(DAYS)
    short = name[:3]
    return rng.choice(
        (
            f"{y}-{m:02}-{d:02}", f"{d:02}.{m:02}.{y}", f"{d:02}/{m:02}/{y}", f"{m}/{d}/{y}",
            f"{d} {name} {y}", f"{name} {d}, {y}", f"{d} {short} {y}", f"{short} {d}",
            f"{d}.{m}.{y % 100:02}", f"{name} {y}", f"{day[:3]}, {d} {short}",
            f"{ordinal(d)} {name}",
            f"{y}/{m:02}/{d:02}", f"{d}-{short}-{y % 100:02}", f"{day}, {name} {d}", f"{d}.{m}.",
            f"{short} {d}, {y}", f"{d}/{m}/{y % 100:02}", f"{m:02}/{y % 100:02}",
            f"{y}{m:02}{d:02}",
            f"{day[:2]} {d:02}.{m:02}.", f"{short}. {d}, {y}", f"{d}. {name} {y}", f"{m:02}-{d:02}",
            f"{y}-{m:02}-{d:02} {clock(rng)}", f"{short.upper()} {d:02} {y}", f"Q{m // 4 + 1} {y}",
        )
    )  # fmt: skip


def clock(rng: random.Random) -> str:
    """A time of day, now and then with seconds, or a span of time."""
    h, m = rng.randint(0, 23), rng.choice((0, 15, 30, 45, *(rng.randint(0, 59) for _ in range(4))))
    s, r, twelve = rng.randint(0, 59), rng.random(), h % 12 or 12
    half = "AM" if h < 12 else "PM"
    if r < 0.34:
        return f"{h:02}:{m:02}"
    if r < 0.5:
        return f"{h}:{m:02}"
    return rng.choice(
        (
            f"{twelve}:{m:02} {half}", f"{twelve}:{m:02} {half.lower()}", f"{twelve} {half}",
            f"{twelve}:{m:02}{half.lower()}", f"{h:02}.{m:02}", f"{h}.{m:02}", f"{h}h{m:02}",
            f"{h:02}:{m:02}:{s:02}", f"{h}:{m:02}:{s:02}", f"{h:02}{m:02}", f"{h:02}:{m:02} Uhr",
            f"{h}:{m:02}-{(h + 1) % 24}:{s:02}", f"{h:02}:{m:02}–{(h + 2) % 24:02}:{m:02}",
            f"{h:02}:{m:02}:{s:02}.{rng.randint(0, 999):03}", f"{twelve}{half.lower()}",
        )
    )  # fmt: skip


def phone(rng: random.Random) -> str:
    """A telephone number: groups of digits with any of the usual joints."""
    joint = rng.choice((" ", " ", "-", ".", "/", ""))
    groups = [run(rng, string.digits, 2, 4) for _ in range(rng.randint(2, 4))]
    r = rng.random()
    if r < 0.3:
        groups.insert(0, f"+{rng.randint(1, 99)}")
    elif r < 0.45:
        groups[0] = f"({groups[0]})"
    elif r < 0.6:
        groups[0] = "0" + groups[0]
    elif r < 0.65:
        groups.insert(0, f"00{rng.randint(1, 99)}")
    text = joint.join(groups)
    return text + f" ext. {rng.randint(1, 999)}" if rng.random() < 0.03 else text


def host(rng: random.Random) -> str:
    """An invented host name."""
    joint = rng.choice(("", "", "-"))
    name = word(rng) if rng.random() < 0.6 else word(rng) + joint + word(rng)
    return f"{name}.{rng.choice(HOSTS)}"


def url(rng: random.Random) -> str:
    """A web address, at times with a path and a query."""
    text = rng.choice(("www.", "https://", "http://", "", "https://www.")) + host(rng)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        text += "/" + rng.choice((word(rng), run(rng, string.digits, 1, 5), code(rng)[:6].strip()))
    if rng.random() < 0.15:
        text += f"?{rng.choice(('id', 'q', 'p', 'ref'))}={run(rng, string.hexdigits, 1, 6)}"
    return text.replace(" ", "")


def file_name(rng: random.Random) -> str:
    """A file's name, at times with its folder."""
    joint = rng.choice(("_", "-", "", " ", "."))
    parts = [rng.choice((word(rng), word(rng).capitalize(), word(rng).upper()))]
    for _ in range(rng.choice((0, 1, 1, 2))):
        parts.append(rng.choice((word(rng), str(rng.randint(1, 2030)), f"v{rng.randint(1, 9)}")))
    text = joint.join(parts) + "." + rng.choice(ENDINGS)
    r = rng.random()
    if r < 0.1:
        return f"{word(rng)}/{text}"
    if r < 0.15:
        return f"{rng.choice('CDEX')}:\\{word(rng).capitalize()}\\{text}"
    return f"~/{text}" if r < 0.18 else text


def version(rng: random.Random) -> str:
    """A version number."""
    text = ".".join(str(rng.randint(0, 30)) for _ in range(rng.choice((2, 3, 3, 4))))
    tail = (
        ("-beta", "-rc1", "b2", "+cu121", "a0", ".dev1", "-alpha.3")
        if rng.random() < 0.2
        else ("",)
    )
    return rng.choice(("", "", "v", "V", "r")) + text + rng.choice(tail)


def measure(rng: random.Random) -> str:
    """A number with its unit."""
    v = rng.choice((rng.uniform(0, 10), rng.uniform(0, 100), rng.uniform(0, 2000)))
    text = rng.choice((f"{v:.0f}", f"{v:.1f}", f"{v:.2f}", f"{v:.1f}".replace(".", ",")))
    sign = rng.choice(("", "", "", "", "-", "+", "±", "~", "<", "> "))
    return sign + text + rng.choice((" ", " ", "")) + rng.choice(UNITS)


def handle(rng: random.Random) -> str:
    """A user's name or a tag."""
    text = rng.choice((word(rng), word(rng).capitalize(), invented(rng)))
    tail = rng.choice(("", str(rng.randint(1, 99)), "_" + word(rng), word(rng).capitalize()))
    return rng.choice("@#@#") + text + tail


def rare(rng: random.Random) -> str:
    """Something that a table seldom holds: ratios, ranges, addresses of machines, formulas."""
    a, b, c = rng.randint(0, 99), rng.randint(1, 999), rng.randint(0, 255)
    x, y = rng.choice(string.ascii_lowercase), rng.choice(string.ascii_lowercase)
    return rng.choice(
        (
            f"{a}:{b % 100}", f"{a}-{a + b}", f"{a}–{a + b}", f"{a}/{b}",
            f"{a}.{b % 100}e-{c % 12}",
            f"192.168.{a}.{c}", f"{b}x{b + a}", f"{b} × {a}", f"{x} = {a}{y} + {b}",
            f"{x}({y}) = {y}² - {a}", f"[{a}, {b}]", f"({a}, {b})", f"{a}% of {b}",
            f"§ {a} ({c % 9})",
            f"{a},{b:03}.{c % 10}", f"1/{b}", f"{a}°{c % 60}'{LETTERS[c % 26]}",
            f"0x{c:02X}{a:02x}",
            f"*{b}*", f"<{word(rng)}>", f"{{{word(rng)}: {a}}}", f"{word(rng)}[{c % 10}]",
            f"-{a}.{b}",
            f"'{word(rng)}'", f"{word(rng)}()", f"«{word(rng)}»", f"{a} & {b}", f"{b}k", f"€{a}m",
            f"{a}th", f"{x}{y}_{c}", f"+{a}.{c % 10}%", f"{x.upper()}{a}{y}", f"{a}/{c % 10 + 1} *",
        )
    )  # fmt: skip


def anything(rng: random.Random) -> str:
    """Any of the notations of this module."""
    kinds = (code, code, date, clock, phone, url, file_name, version, measure, measure, handle)
    return rng.choice((*kinds, rare, rare))(rng)


def number(rng: random.Random) -> str:
    """A figure as tables show it: plain, grouped, decimal, percent."""
    r = rng.random()
    if r < 0.3:
        return str(rng.randint(0, 99))
    if r < 0.5:
        return str(rng.randint(100, 9999))
    if r < 0.62:
        return f"{rng.randint(1000, 9_999_999):,}"
    if r < 0.8:
        return f"{rng.uniform(0, 100):.{rng.choice((1, 1, 2))}f}"
    if r < 0.92:
        return f"{rng.uniform(0, 100):.{rng.choice((0, 0, 1))}f}%"
    return f"{rng.choice('+-')}{rng.uniform(0, 30):.1f}"
