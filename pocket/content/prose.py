"""Running text that cannot be guessed: grammar from endings, words from a long list."""

import random
from functools import lru_cache
from typing import Final

from pocket.content import formats
from pocket.content.lexicon import dictionary, foreign, invented, word

COMMON: Final = (
    "the of and to in is for on that with as at by from it or an be are was this not have has "
    "had they we you he she his her their our its which who when where what how all any both "
    "each few more most other some such no only own same so than too very can will just should "
    "now after before between because while during without against under over again then once "
    "here there why people water time year day man way thing world life hand part child eye "
    "woman place work week case point company number group problem fact money story month book "
    "room night house area law job home power war state school family system city country car "
    "team door body friend office girl father mother minute idea food music class paper space "
    "game line end member game price good new first last long great little old right big high "
    "different small large next early young important public bad able free real best better "
    "sure clear late hard major whole special simple go make know take see come think look want "
    "give use find tell ask seem feel try leave call keep let begin show hear play run move "
    "live believe hold bring happen write provide sit stand lose pay meet include continue set "
    "learn change lead watch follow stop create speak read allow add spend grow open walk win "
    "offer remember love consider appear buy wait serve die send expect build stay fall cut "
    "reach kill remain was were been being do does did done made said went took saw came about "
    "also back even well still never always often please note new click select save close page "
    "your my me us them him if but up out into through across per via within total date name"
).split()
LINKS: Final = {
    "de": (
        "der die das und ist in den von zu mit sich des auf für nicht eine als auch es an wird "
        "aus bei nach um am sind noch wie über einen so zum war haben nur oder aber vor zur bis "
        "mehr durch man sein wurde Jahre Stadt Zeit heute neue Straße größte können würde "
        "müssen"
    ),
    "fr": (
        "le la les de des et est un une dans pour que qui sur avec pas plus par ne se ce il "
        "elle nous vous leur été être à où très après même aussi sans deux année pays français "
        "première déjà"
    ),
    "es": (
        "el la los las de que y en un una por con no para su se del al lo como más pero sus le "
        "ya este sí porque entre cuando muy sin sobre también años país después según día está "
        "había señor"
    ),
    "it": (
        "il la le di e che in un una per con non è del della si al dei da come più ma anche "
        "sono nel alla questo dopo anni città già perché così può sarà due prima tutti essere "
        "molto lì"
    ),
    "pt": (
        "o a os as de que e em um uma para com não por mais do da se na no como mas foi ao ele "
        "das tem à seu sua ou ser quando muito há nos já está também só até você são país anos "
        "após"
    ),
    "nl": (
        "de het een van en in is dat op te zijn met voor niet aan er om ook als dan maar bij "
        "nog uit naar worden door over ze zich hij wat meer geen jaar tijd twee één goed stad"
    ),
    "sv": (
        "och i att det som en på är av för med till den har de inte om ett han men var sig från "
        "vi så kan när år efter upp där också två över mycket här något stad måste år första "
        "även"
    ),
    "pl": (
        "i w na z do się nie to że jest o jak a od po za przez dla już ale tak co tym był są "
        "które może tylko lub jego bardzo także rok więcej miasto pod nad czy dwa gdzie można "
        "będzie"
    ),
    "cs": (
        "a v na se je že s z do to o k i ale jako za by po pro podle ve už jeho jsou také který "
        "jen více rok let tak při nebo město byl být mezi první však ještě dnes může když až"
    ),
}  # fmt: skip
JOINTS: Final = (
    ", ",
    ", ",
    ", ",
    "; ",
    ": ",
    " - ",
    " – ",
    " / ",
    ", and ",
    " but ",
    " because ",
    " which ",
)


@lru_cache(maxsize=1)
def shelves() -> dict[str, tuple[str, ...]]:
    """The word list by what an ending makes of a word."""
    endings = {
        "adverb": ("ly",),
        "past": ("ed",),
        "doing": ("ing",),
        "noun": ("tion", "ment", "ness", "ity", "er", "or", "ist", "ance", "ism", "age", "th"),
        "adjective": ("ful", "able", "ive", "ous", "al", "ic", "ish", "less", "ant", "y"),
        "plural": ("s",),
    }
    rest, out = set(dictionary()), {}
    for shelf, tails in endings.items():
        found = {w for w in rest if w.endswith(tails) and len(w) > 3}
        out[shelf], rest = tuple(sorted(found)), rest - found
    return out | {"other": tuple(sorted(rest))}


def _noun(rng: random.Random) -> str:
    shelf = shelves()[rng.choice(("noun", "plural", "other", "other"))]
    head = rng.choice(("the", "a", "each", "this", "our", "every", "no", "some", "their", "", ""))
    middle = rng.choice(shelves()["adjective"]) if rng.random() < 0.4 else ""
    last = invented(rng) if rng.random() < 0.12 else rng.choice(shelf)
    return " ".join(x for x in (head, middle, last) if x)


def _verb(rng: random.Random) -> str:
    s, r = shelves(), rng.random()
    if r < 0.5:
        return rng.choice(s["past"])
    if r < 0.7:
        return rng.choice(("is", "was", "are", "keeps", "has been")) + " " + rng.choice(s["doing"])
    return (
        rng.choice(("will", "can", "must", "may", "did not", "should"))
        + " "
        + rng.choice(s["other"])
    )


def _clause(rng: random.Random) -> str:
    """Subject, verb, object, and where or how."""
    parts = [_noun(rng), _verb(rng), _noun(rng)]
    if rng.random() < 0.5:
        place = (
            "in",
            "on",
            "after",
            "without",
            "near",
            "for",
            "under",
            "with",
            "before",
            "against",
        )
        parts.append(f"{rng.choice(place)} {_noun(rng)}")
    if rng.random() < 0.25:
        parts.insert(rng.choice((0, 1, 3)), rng.choice(shelves()["adverb"]))
    return " ".join(parts)


def _loose(rng: random.Random, lang: str, least: int = 3, most: int = 14) -> str:
    """Words in no order, held together by small ones."""
    small = COMMON if lang == "en" else _links(lang)
    out: list[str] = []
    for _ in range(rng.randint(least, most)):
        r = rng.random()
        if r < 0.42:
            out.append(rng.choice(small))
        elif r < 0.46 and out:
            out.append(out[-1] if rng.random() < 0.4 else rng.choice(out))  # words do come twice
        else:
            out.append(word(rng) if lang == "en" else foreign(rng, lang))
        if lang == "de" and rng.random() < 0.3:
            out[-1] = out[-1].capitalize()
    return " ".join(out)


@lru_cache(maxsize=16)
def _links(lang: str) -> tuple[str, ...]:
    return tuple(LINKS[lang].split())


def _spice(rng: random.Random, text: str) -> str:
    """Numbers, quotes, brackets, capitals and other things that stand in real text."""
    tokens = text.split()
    for i in range(len(tokens)):
        if rng.random() > 0.09:
            continue
        t = tokens[i]
        tokens[i] = rng.choice(
            (
                formats.anything(rng), str(rng.randint(2, 2030)), f'"{t}"', f"({t})", f"“{t}”",
                t.upper(), t.capitalize(), t.capitalize(), t + ",", t + ",", t + ";", f"{t}'s",
                f"{t}-{word(rng)}", f"{t}/{word(rng)}", f"‘{t}’", f"*{t}*", f"{t}…", f"[{t}]",
                f"{rng.randint(1, 99)}%", f"{t}!", f"{t}?", f"& {t}", f"{t}:", f"{t} –",
                formats.measure(rng), formats.date(rng),
                t.capitalize() + " " + invented(rng).capitalize(),
            )
        )  # fmt: skip
    return " ".join(tokens)


def sentence(rng: random.Random, lang: str = "en") -> str:
    """One sentence of `lang`, of random words."""
    if lang == "en" and rng.random() < 0.55:
        text = _clause(rng)
        if rng.random() < 0.35:
            text += rng.choice(JOINTS) + _clause(rng)
    else:
        text = _loose(rng, lang)
    if rng.random() < 0.45:
        text = _spice(rng, text)
    end = rng.choice((".", ".", ".", ".", ".", ".", "!", "?", "", ":", "..."))
    start = text if rng.random() < 0.08 else text[0].upper() + text[1:]
    return (start.upper() if rng.random() < 0.02 else start) + end
