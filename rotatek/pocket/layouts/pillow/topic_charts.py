"""Charts about something: titles, units and categories that belong together."""

import random

from rotatek.pocket.content import topic
from rotatek.pocket.content.charts import ORDERED, chart_maker
from rotatek.pocket.document import Document
from rotatek.pocket.layouts.pillow import bars, lines, pies
from rotatek.pocket.layouts.style import PageStyle


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One chart of any sort that suits its subject."""
    about = rng.choice(topic.charts())
    other = lines.draw if about["of"] in ORDERED else pies.draw
    return rng.choice((bars.draw, bars.draw, other))(rng, style, chart_maker(about))
