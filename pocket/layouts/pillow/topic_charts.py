"""Charts about something: titles, units and categories that belong together."""

import random

from pocket.content import topic
from pocket.content.charts import ORDERED, chart_maker
from pocket.document import Document
from pocket.layouts.pillow import bars, lines, pies
from pocket.layouts.style import PageStyle


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One chart of any sort that suits its subject."""
    about = rng.choice(topic.charts())
    other = lines.draw if about["of"] in ORDERED else pies.draw
    return rng.choice((bars.draw, bars.draw, other))(rng, style, chart_maker(about))
