"""Single words: nine thousand English ones, invented ones, ones with the accents of a language."""

import random
from functools import lru_cache
from pathlib import Path
from typing import Final

CONSONANTS: Final = (
    "b c d f g h j k l m n p r s t v w z br cr dr fl gl gr kl pl pr sk sl sp st th tr sh ch".split()
)
VOWELS: Final = "a e i o u a e i o ai ea ou ee ia".split()
ACCENTS: Final = {
    "de": "äöüß", "fr": "éèêàçôîû", "es": "ñáéíóú", "it": "àèéìòù", "pt": "ãõçáéêó", "nl": "ëïé",
    "sv": "åäö", "pl": "ąęłńóśżźć", "cs": "ěščřžýáíéů", "en": "e",
}  # fmt: skip


@lru_cache(maxsize=1)
def dictionary() -> tuple[str, ...]:
    """Nine thousand English words (a sample of SCOWL; see the model card)."""
    path = Path(__file__).with_name("words.txt")
    return tuple(path.read_text(encoding="utf-8").split())


def word(rng: random.Random) -> str:
    """A word of the list, or an invented one."""
    return rng.choice(dictionary()) if rng.random() < 0.72 else invented(rng)


def foreign(rng: random.Random, lang: str) -> str:
    """An invented word with the letters of `lang`."""
    text = invented(rng)
    if rng.random() < 0.5:
        i = rng.randrange(len(text))
        text = text[:i] + rng.choice(ACCENTS[lang]) + text[i + rng.randint(0, 1) :]
    return text


def invented(rng: random.Random, syllables: int = 0) -> str:
    """A pronounceable word that no dictionary holds."""
    parts = []
    for _ in range(syllables or rng.choice((1, 2, 2, 2, 3, 3))):
        parts.append(rng.choice(CONSONANTS) + rng.choice(VOWELS))
    return "".join(parts) + rng.choice(("", "", "n", "r", "s", "t", "l", "m"))
