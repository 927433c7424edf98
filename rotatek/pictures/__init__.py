"""Pictures that are read once, without a question, and asked any number of times.

    pictures = Pictures("pocket", Settings.of(smaller=8), folder="store")
    page = pictures.add(image)  # the same picture again costs nothing
    (answer,) = pictures.ask(page, "What is the total?")

A chat is cut behind its picture. What comes before a question is read once and compressed; a
question is then its own tokens alone. `docs/how-it-works.md` says how.
"""

from rotatek.pictures.asking import Answer
from rotatek.pictures.pictures import Picture, Pictures

__all__ = ["Answer", "Picture", "Pictures"]
