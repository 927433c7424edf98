"""Text for documents: names, products, places, amounts, dates and sentences in ten languages.

Most of it is drawn from a long word list or invented on the spot (syllables, codes, amounts), so
that a model cannot answer from memory and has to read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FIRST = (
    "Anna Ben Clara David Elena Felix Greta Hugo Ida Jonas Karin Leo Maria Nils Olga Paul Rosa "
    "Simon Tara Viktor Amir Aisha Chen Diego Emma Farah Ivan Jin Kofi Lucia Mateo Noor Omar Priya "
    "Ravi Sofia Tomás Ursula Wei Yara Zoë José François Jürgen Björn Łukasz Zuzana Renée André "
    "Alice Oliver Grace Henry Julia Peter Martin Sarah Daniel Laura Thomas Eva James Mary John"
).split()
LAST = (
    "Adler Becker Costa Dubois Eriksen Fischer García Hansen Ivanov Jensen Keller Lopez Müller "
    "Novák Olsen Petrov Quinn Rossi Schmidt Tanaka Urban Vargas Weber Young Zimmer Almeida Brown "
    "Clark Davies Evans Fernández Gupta Hughes Ito Johnson Kowalski Lindqvist Moreau Nguyen "
    "O'Brien Park Ramos Silva Taylor Usman Virtanen Wright Yılmaz Żak Smith Jones Walker Patel"
).split()
CITIES = (
    "Berlin Paris Madrid Lisbon Rome Vienna Zürich Oslo Lund Aarhus Gdańsk Brno Porto Malmö Bern "
    "Leeds York Dublin Bristol Lyon Nantes Turin Bologna Sevilla Málaga Graz Köln München Utrecht "
    "Ghent Riga Tallinn Helsinki Boston Denver Austin Chicago Seattle Toronto Lima Quito Accra "
    "Nairobi Cairo Delhi Mumbai Osaka Kyoto Seoul Sydney Perth Auckland Santiago Bogotá Oxford"
).split()
COUNTRIES = (
    "Norway Sweden Denmark Finland Germany France Spain Portugal Italy Austria Poland Greece "
    "Ireland Belgium Chile Peru Brazil Mexico Canada Japan India Kenya Ghana Egypt Turkey Iceland "
    "Estonia Latvia Hungary Croatia Vietnam China Korea Australia Malta Cyprus Bolivia Cuba"
).split()
STREETS = (
    "Main Park Oak Station Church Mill River High King Garden Harbour Lake Hill Market".split()
)
PRODUCTS = (
    "Coffee|Green tea|Espresso|Croissant|Bagel|Orange juice|Mineral water|Apple pie|Cheese|Milk|"
    "Butter|Bread|Eggs|Rice 1kg|Pasta|Olive oil|Tomatoes|Bananas|Chicken|Salmon|Chocolate|Honey|"
    "Notebook|Pencil set|Stapler|Desk lamp|USB cable|Keyboard|Mouse|Monitor|Headphones|Charger|"
    "Printer paper|Toner|Backpack|Umbrella|Water bottle|T-shirt|Jacket|Socks|Running shoes|Soap|"
    "Shampoo|Toothpaste|Batteries AA|Light bulb|Screwdriver|Hammer|Paint 5L|Nails|Web hosting|"
    "Design work|Consulting|Translation|Support plan|Installation|Delivery|Café crème|Crème brûlée|"
    "Müsli|Jalapeños|Sandwich|Soup of the day|Caesar salad|Pizza Margherita|Lasagne|Lemonade"
).split("|")
COMPANY_TAILS = (
    "GmbH|Ltd|Inc.|AG|S.A.|& Sons|Group|Labs|Studio|Market|Café|Books|Foods|Hotel|Bank".split("|")
)
METRICS = (
    "Revenue|Sales|Profit|Cost|Visitors|Orders|Users|Downloads|Output|Rainfall|Temperature|"
    "Population|Exports|Imports|Energy use|Emissions|Score|Budget|Hours|Members|Tickets|Votes|"
    "Calories|Distance|Weight|Speed|Views|Clicks|Sign-ups|Returns|Stock|Demand|Growth|Wages|Rent"
).split("|")
CATEGORIES = (
    "North|South|East|West|Online|Retail|Food|Books|Toys|Music|Games|Travel|Health|Sport|Garden|"
    "Kitchen|Office|Mobile|Desktop|Tablet|Cars|Bikes|Trains|Buses|Coal|Gas|Solar|Wind|Hydro|Oil|"
    "Apples|Pears|Plums|Grapes|Cherries|Lemons|Cats|Dogs|Birds|Fish|Wheat|Corn|Barley|Oats|Alpha|"
    "Beta|Gamma|Delta|Team A|Team B|Team C|Plan A|Plan B|Basic|Pro|Enterprise|Students|Staff"
).split("|")
MONTHS = (
    "January February March April May June July August September October November December".split()
)
SENTENCE_PARTS = {
    "en": (
        "The committee|Our team|A small boat|The old library|Every visitor|The new system|"
        "My brother|The second report|Each student|The river|A quiet morning|The manager|"
        "This method|Nobody",
        "opened|describes|has changed|will improve|cannot replace|followed|measured|found|needs|"
        "supports|reached|explains|kept|lost",
        "the main results|a better way|the north gate|three short letters|all of the data|its own "
        "garden|the price of bread|a long journey|every detail|the last page|two large windows|"
        "the weather|a simple question|most of the work",
        "in the evening|after the meeting|without delay|before winter|for many years|"
        "at the station|with great care|during the summer|as expected|near the coast|"
        "on Monday|once again",
    ),
    "de": (
        "Der Bericht|Die Abteilung|Ein kleiner Vogel|Unser Lehrer|Das Fenster|Die Bürgermeisterin",
        "zeigt|öffnet|braucht|findet|erklärt|prüft|ändert",
        "die Ergebnisse|einen größeren Raum|das alte Gebäude|den nächsten Zug|viele Gäste|"
        "die Straße",
        "am Abend|ohne Verzögerung|für zwölf Jahre|über Nacht|im Frühling|gemäß Vertrag",
    ),
    "fr": (
        "Le directeur|La petite école|Notre équipe|Un élève|Cette méthode|La fenêtre",
        "présente|a modifié|préfère|trouve|décrit|reçoit",
        "les résultats|une réponse claire|le marché français|trois élèves|la dernière leçon",
        "à midi|sans délai|après l'été|pendant la fête|près du château|dès demain",
    ),
    "es": (
        "El informe|La señora Núñez|Nuestro equipo|Un niño|La estación|El año pasado",
        "muestra|abrió|necesita|explicó|cambió|encontró",
        "los resultados|una pequeña casa|el último tren|muchas preguntas|la canción",
        "por la mañana|sin duda|después del almuerzo|según el plan|en otoño|más tarde",
    ),
    "it": (
        "Il direttore|La città|Una ragazza|Il nuovo metodo|La stazione|Questo libro",
        "mostra|ha aperto|è|cerca|può cambiare|trova",
        "i risultati|una risposta semplice|il vecchio ponte|tutti i dati|la perché",
        "di sera|senza ritardo|dopo l'estate|così|più tardi|fino a lunedì",
    ),
    "pt": (
        "O relatório|A reunião|Uma criança|A nossa equipa|O avião|A estação",
        "mostra|abriu|precisa de|não mudou|explicou|encontrou",
        "uma solução|as crianças|três lições|o último comboio|muitas opções",
        "à noite|amanhã|depois da reunião|sem dúvida|no verão|até março",
    ),
    "nl": (
        "De commissie|Het kleine huis|Onze ploeg|Een leraar|De nieuwe brug|Iedere bezoeker",
        "toont|opent|vindt|heeft nodig|verandert|beschrijft",
        "de resultaten|een betere manier|het oude boek|vijf brieven|geen enkel idee",
        "in de avond|zonder vertraging|na de zomer|bij het station|op zijn vroegst",
    ),
    "sv": (
        "Rapporten|En liten båt|Vår lärare|Den gamla skolan|Hon|Nästa möte",
        "visar|öppnade|behöver|hittar|förklarar|ändrar",
        "resultaten|ett bättre sätt|två stora fönster|hela vägen|några frågor",
        "på kvällen|utan dröjsmål|efter mötet|före jul|i många år|på måndag",
    ),
    "pl": (
        "Raport|Nasz zespół|Mała łódź|Nauczyciel|Każdy gość|Stara biblioteka",
        "pokazuje|otwiera|znalazł|zmienił|opisuje|wspiera",
        "główne wyniki|cenę chleba|długą podróż|trzy książki|źródło wiedzy",
        "wieczorem|bez zwłoki|przed zimą|na końcu|w środę|każdego dnia",
    ),
    "cs": (
        "Zpráva|Náš tým|Malá loď|Učitel|Každý host|Stará škola",
        "ukazuje|otevřel|našel|změnil|popisuje|potřebuje",
        "hlavní výsledky|cenu chleba|dlouhou cestu|tři knihy|příští vlak",
        "večer|bez prodlení|před zimou|v úterý|každý den|u řeky",
    ),
}
WESTERN = ("en", "de", "fr", "es", "it", "pt", "nl", "sv")
CONSONANTS = (
    "b c d f g h j k l m n p r s t v w z br cr dr fl gl gr kl pl pr sk sl sp st th tr sh ch".split()
)
VOWELS = "a e i o u a e i o ai ea ou ee ia".split()


@dataclass(frozen=True)
class Money:
    """A currency and how its amounts are written."""

    sign: str
    before: bool
    decimal: str
    thousands: str
    space: bool

    def __call__(self, amount: float, sign: bool = True) -> str:
        """``amount`` with two decimals."""
        whole = f"{amount:,.2f}".replace(",", "\0").replace(".", self.decimal)
        number = whole.replace("\0", self.thousands)
        if not sign:
            return number
        gap = " " if self.space else ""
        return f"{self.sign}{gap}{number}" if self.before else f"{number}{gap}{self.sign}"


def money(rng: random.Random) -> Money:
    """A way to write amounts."""
    return rng.choice(
        (
            Money("$", True, ".", ",", False),
            Money("£", True, ".", ",", False),
            Money("€", False, ",", ".", True),
            Money("€", True, ".", ",", False),
            Money("kr", False, ",", " ", True),
            Money("CHF", True, ".", "'", True),
            Money("zł", False, ",", " ", True),
            Money("USD", True, ".", ",", True),
            Money("EUR", False, ",", ".", True),
            Money("", True, ".", ",", False),
            Money("", True, ",", ".", False),
        )
    )


def language(rng: random.Random, western: bool = False) -> str:
    """A language code; English half of the time."""
    if rng.random() < 0.5:
        return "en"
    return rng.choice(WESTERN if western else tuple(SENTENCE_PARTS))


@lru_cache(maxsize=1)
def dictionary() -> tuple[str, ...]:
    """Nine thousand English words (a sample of SCOWL; see the model card)."""
    path = Path(__file__).with_name("words.txt")
    return tuple(path.read_text(encoding="utf-8").split())


SMALL = "the of and to in is a for on that with as at by from it or an be are was this not".split()
ACCENTS = {
    "de": "äöüß", "fr": "éèêàçôîû", "es": "ñáéíóú", "it": "àèéìòù", "pt": "ãõçáéêó", "nl": "ëïé",
    "sv": "åäö", "pl": "ąęłńóśżźć", "cs": "ěščřžýáíéů", "en": "e",
}  # fmt: skip


def word(rng: random.Random) -> str:
    """A word of the list, or an invented one."""
    return rng.choice(dictionary()) if rng.random() < 0.72 else invented(rng)


def foreign(rng: random.Random, lang: str) -> str:
    """An invented word with the letters of ``lang``."""
    text = invented(rng)
    if rng.random() < 0.5:
        i = rng.randrange(len(text))
        text = text[:i] + rng.choice(ACCENTS[lang]) + text[i + rng.randint(0, 1) :]
    return text


def some(rng: random.Random, least: int, most: int) -> str:
    """``least`` to ``most`` words, capitalised in one of the usual ways."""
    text = " ".join(word(rng) for _ in range(rng.randint(least, most)))
    return rng.choice((text, text.capitalize(), text.capitalize(), text.title()))


def invented(rng: random.Random, syllables: int = 0) -> str:
    """A pronounceable word that no dictionary holds."""
    parts = []
    for _ in range(syllables or rng.choice((1, 2, 2, 2, 3, 3))):
        parts.append(rng.choice(CONSONANTS) + rng.choice(VOWELS))
    return "".join(parts) + rng.choice(("", "", "n", "r", "s", "t", "l", "m"))


def code(rng: random.Random) -> str:
    """An order number, a plate, a serial number."""
    letters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
    pattern = rng.choice(
        ("AA-####", "####-##", "AAA ###", "#####", "A##-A##", "AA####AA", "##/####", "INV-#####",
         "#A#A#A", "####.##", "AA-##-AAA", "No. ####", "########", "A###", "##-##-##", "#######",
         "aaa_##", "AAA-###-##", "###-AA", "Q#-####")
    )  # fmt: skip
    out = []
    for ch in pattern:
        if ch == "#":
            out.append(rng.choice("0123456789"))
        elif ch == "A":
            out.append(rng.choice(letters))
        elif ch == "a":
            out.append(rng.choice(letters.lower()))
        else:
            out.append(ch)
    return "".join(out)


def person(rng: random.Random) -> str:
    """First and last name, either of them sometimes invented."""
    first = rng.choice(FIRST) if rng.random() < 0.75 else invented(rng, 2).capitalize()
    last = rng.choice(LAST) if rng.random() < 0.6 else invented(rng).capitalize()
    return rng.choice((f"{first} {last}", f"{first} {last}", f"{first[0]}. {last}"))


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
    if r < 0.45:
        return rng.choice(PRODUCTS)
    if r < 0.65:
        return f"{word(rng).capitalize()} {rng.choice(PRODUCTS).lower()}"
    if r < 0.9:
        return some(rng, 1, 3)
    return f"{word(rng).capitalize()} {rng.randint(2, 900)}"


def date(rng: random.Random) -> str:
    """A date in one of many notations."""
    y, m, d = rng.randint(1985, 2031), rng.randint(1, 12), rng.randint(1, 28)
    name = MONTHS[m - 1]
    return rng.choice(
        (
            f"{y}-{m:02}-{d:02}", f"{d:02}.{m:02}.{y}", f"{d:02}/{m:02}/{y}", f"{m}/{d}/{y}",
            f"{d} {name} {y}", f"{name} {d}, {y}", f"{d} {name[:3]} {y}", f"{name[:3]} {d}",
            f"{d}.{m}.{y % 100:02}", f"{name} {y}",
        )
    )  # fmt: skip


def clock(rng: random.Random) -> str:
    """A time of day."""
    h, m = rng.randint(0, 23), rng.choice((0, 15, 30, 45, rng.randint(0, 59)))
    if rng.random() < 0.25:
        return f"{h % 12 or 12}:{m:02} {'AM' if h < 12 else 'PM'}"
    return f"{h:02}:{m:02}"


def address(rng: random.Random) -> str:
    """Street and number."""
    street = rng.choice(STREETS) if rng.random() < 0.5 else invented(rng, 2).capitalize()
    if rng.random() < 0.4:
        return f"{street}{rng.choice(('straße', 'weg', 'gatan', 'laan'))} {rng.randint(1, 180)}"
    return f"{rng.randint(1, 999)} {street} {rng.choice(('Street', 'Road', 'Lane', 'Ave', 'St'))}"


def email(rng: random.Random) -> str:
    """An address at an invented host."""
    who = rng.choice(FIRST).lower()
    who = "".join(c for c in who if c.isascii()) or "info"
    joint, end = rng.choice((".", "_", "")), rng.choice(("com", "org", "eu", "net", "io"))
    return f"{who}{joint}{word(rng)}@{word(rng)}.{end}"


def phone(rng: random.Random) -> str:
    """A telephone number."""
    n = [rng.randint(100, 999) for _ in range(3)]
    return rng.choice(
        (
            f"+{rng.randint(1, 99)} {n[0]} {n[1]} {n[2]}",
            f"({n[0]}) {n[1]}-{n[2]}7",
            f"0{n[0]}/{n[1]}{n[2]}",
        )
    )


def sentence(rng: random.Random, lang: str) -> str:
    """One sentence: from phrases of ``lang``, or of loose words that cannot be guessed."""
    if rng.random() < 0.62:
        return _loose(rng, lang)
    parts = [p.split("|") for p in SENTENCE_PARTS[lang]]
    a, b, c, d = (rng.choice(p) for p in parts)
    r = rng.random()
    if r < 0.2:
        a = person(rng)
    elif r < 0.4:
        c = f"{rng.randint(2, 990)} {word(rng)}"
    elif r < 0.5:
        d = f"{rng.choice(('on', 'since', 'by', 'am', 'le'))} {date(rng)}"
    elif r < 0.75:
        c = f"{c} {word(rng)}"
    front = a if r < 0.2 else a[0].lower() + a[1:]
    text = rng.choice((f"{a} {b} {c}", f"{a} {b} {c} {d}", f"{d.capitalize()}, {front} {b} {c}"))
    return text + rng.choice(".....!?")


def _loose(rng: random.Random, lang: str) -> str:
    out: list[str] = []
    for _ in range(rng.randint(3, 13)):
        r = rng.random()
        if r < 0.3:
            out.append(rng.choice(SMALL))
        elif r < 0.34:
            out.append(rng.choice((str(rng.randint(2, 2030)), person(rng), rng.choice(CITIES))))
        else:
            out.append(word(rng) if lang == "en" else foreign(rng, lang))
        if rng.random() < 0.06:
            out[-1] += rng.choice(",,,;:")
    text = " ".join(out).rstrip(",;:")
    return text[0].upper() + text[1:] + rng.choice("......!?")


def title(rng: random.Random, lang: str = "en") -> str:
    """A heading of one to five words."""
    r = rng.random()
    if r < 0.2:
        tail = (
            "by region", "report", "per month", "overview", str(rng.randint(1990, 2030)),
            "summary", "in " + rng.choice(CITIES),
        )  # fmt: skip
        return f"{rng.choice(METRICS)} {rng.choice(tail)}"
    if r < 0.65:
        return some(rng, 1, 4)
    if r < 0.75:
        return f"{word(rng).capitalize()} {rng.choice(('of', 'and', 'in', 'for'))} {word(rng)}"
    parts = [p.split("|") for p in SENTENCE_PARTS[lang]]
    if r < 0.9:
        text = rng.choice(parts[2])
        return text[0].upper() + text[1:]
    return f"{rng.choice(parts[0])} {rng.choice(parts[3])}"


def label(rng: random.Random) -> str:
    """A short category name, for a chart or a row."""
    r = rng.random()
    if r < 0.25:
        return rng.choice(CATEGORIES)
    if r < 0.35:
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
    """``n`` different category names, often of one sort: months, years, places."""
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
    """``n`` texts from ``draw`` that differ also when case is ignored."""
    out: dict[str, str] = {}
    while len(out) < n:
        text = draw(rng)
        out.setdefault(text.lower(), text)
    return list(out.values())
