"""The registry of renderers: one file each, with its share of the training mixture.

A renderer is `draw(rng, style) -> Document`. `held_out` ones are drawn only to evaluate.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocket.document import Document
from pocket.layouts.matplotlib import charts
from pocket.layouts.pillow import (
    bars,
    boards,
    card_lists,
    cards,
    colour_keys,
    combs,
    consoles,
    controls,
    dashboards,
    directories,
    figures,
    forms,
    grids,
    invoices,
    kanban_boards,
    leaflets,
    ledgers,
    letters,
    lines,
    menus,
    meters,
    months,
    notes,
    offers,
    package_labels,
    pages,
    passes,
    phone_screens,
    pies,
    printouts,
    receipts,
    review_lines,
    schedules,
    screens,
    signs,
    small_print,
    street_signs,
    tables,
    terminals,
    tickets,
    till_receipts,
    topic_charts,
    vouchers,
)
from pocket.layouts.style import PageStyle


@dataclass(frozen=True)
class Renderer:
    """One way to draw documents; `splits` that measure the model draw it too."""

    draw: Callable[[random.Random, PageStyle], Document]
    weight: float
    held_out: bool = False
    splits: tuple[str, ...] = ("own", "fonts")
    smallest: int = 224  # least shorter side in pixels
    camera: str = (
        "screen"  # or "paper": printed, then scanned or photographed; "lens"; "print"; "none"
    )


REGISTRY: Final[dict[str, Renderer]] = {
    "signs": Renderer(signs.draw, 1.0),
    "pages": Renderer(pages.draw, 2.6),
    "forms": Renderer(forms.draw, 1.6),
    "grids": Renderer(grids.draw, 2.4),
    "listings": Renderer(card_lists.draw, 2.4),
    "receipts": Renderer(receipts.draw, 1.3, smallest=280),
    "tables": Renderer(tables.draw, 2.6),
    "bars": Renderer(bars.draw, 2.2),
    "lines": Renderer(lines.draw, 1.1),
    "pies": Renderer(pies.draw, 1.3),
    "screens": Renderer(screens.draw, 1.2),
    "plots": Renderer(charts.draw, 0.7, smallest=280),
    "invoices": Renderer(invoices.draw, 1.2, smallest=336),
    "cards": Renderer(cards.draw, 0.7),
    "menus": Renderer(menus.draw, 1.0, smallest=280),
    "meters": Renderer(meters.draw, 0.6),
    "schedules": Renderer(schedules.draw, 0.8, smallest=280),
    "consoles": Renderer(consoles.draw, 1.1),
    "charted": Renderer(topic_charts.draw, 3.0, splits=()),
    "leaflets": Renderer(leaflets.draw, 7.0, splits=()),
    "ledgers": Renderer(ledgers.draw, 1.4, splits=()),
    "months": Renderer(months.draw, 0.9, splits=(), smallest=336),
    "notes": Renderer(notes.draw, 1.8, splits=()),
    "offers": Renderer(offers.draw, 1.8, splits=()),
    "printouts": Renderer(printouts.draw, 1.8, splits=(), smallest=280),
    "remarks": Renderer(review_lines.draw, 2.2, splits=()),
    "stubs": Renderer(passes.draw, 1.8, splits=()),  # by its first name, which records hold
    "swatches": Renderer(colour_keys.draw, 2.0, splits=()),
    "tills": Renderer(till_receipts.draw, 1.0, splits=(), smallest=336, camera="paper"),
    "panels": Renderer(dashboards.draw, 1.0, splits=()),
    "workboards": Renderer(kanban_boards.draw, 1.0, splits=(), smallest=280),
    "controls": Renderer(controls.draw, 1.0, splits=()),
    "terminals": Renderer(terminals.draw, 1.0, splits=(), smallest=280),
    "scenes": Renderer(street_signs.draw, 1.0, splits=(), camera="lens"),
    "packages": Renderer(package_labels.draw, 1.0, splits=(), camera="lens", smallest=280),
    "handsets": Renderer(phone_screens.draw, 1.0, splits=(), smallest=280),
    "figures": Renderer(figures.draw, 1.0, splits=()),
    "letters": Renderer(letters.draw, 1.0, splits=(), smallest=336),
    "combs": Renderer(combs.draw, 1.0, splits=(), smallest=280),
    "dense": Renderer(small_print.draw, 1.0, splits=(), smallest=392, camera="print"),
    "tickets": Renderer(tickets.draw, 1.0, held_out=True, splits=("renderers",)),
    "boards": Renderer(boards.draw, 1.0, held_out=True, splits=("renderers",)),
    "vouchers": Renderer(
        vouchers.draw, 1.0, held_out=True, splits=("scanned",), smallest=392, camera="paper"
    ),
    "directories": Renderer(
        directories.draw, 1.0, held_out=True, splits=("small",), smallest=392, camera="none"
    ),
    "new-topics": Renderer(leaflets.draw_held, 1.0, held_out=True, splits=("topics",)),
}
