"""The mixture that training draws from: one table, so that it can be weighted in one place.

`SHARES` says how often each renderer is drawn; only the ratios count. `ON_PAPER` says how often a
document of a renderer that a screen could show is printed and scanned or photographed instead.
`python -m pocket.costs` prints the shares and what a picture of each costs to draw.
"""

from typing import Final

# of a hundred pictures, about: first what the earlier weights were trained on, then what they miss
SHARES: Final[dict[str, float]] = {
    "signs": 0.8, "pages": 3.6, "forms": 1.8, "grids": 3.0, "listings": 3.0, "receipts": 0.8,
    "tables": 2.6, "bars": 3.4, "lines": 1.8, "pies": 1.0, "screens": 1.0, "plots": 0.6,
    "invoices": 1.8, "cards": 0.6, "menus": 1.6, "meters": 0.5, "schedules": 0.9, "consoles": 1.2,
    "charted": 3.4, "leaflets": 12.0, "ledgers": 0.9, "months": 0.5, "notes": 1.1, "offers": 1.0,
    "printouts": 2.5, "remarks": 1.4, "stubs": 1.0, "swatches": 1.0,
    "tills": 14.0, "panels": 7.0, "workboards": 3.5, "controls": 2.5,
    "terminals": 5.0, "scenes": 6.5, "packages": 2.5, "handsets": 4.5, "figures": 6.0,
    "dense": 9.0, "letters": 7.0, "combs": 2.0,
}  # fmt: skip
SLENDER: Final = 1.5  # height over width from which on a picture is tall; there, times as often:
TALL: Final[dict[str, float]] = {
    "tills": 1.6, "handsets": 3.0, "receipts": 2.0, "menus": 1.5, "packages": 1.3, "panels": 0.4,
    "workboards": 0.5, "bars": 0.6, "lines": 0.5, "charted": 0.6, "plots": 0.3, "terminals": 0.4,
}  # fmt: skip
LARGE: Final = 600  # visual tokens from which on a picture is large; there, times as often:
MANY: Final[dict[str, float]] = {"dense": 3.5, "letters": 1.2, "printouts": 1.5, "ledgers": 1.5}
STORED: Final = 0.06  # of all pictures, where there is a folder of stored ones
ON_PAPER: Final[dict[str, float]] = {
    "pages": 0.5, "forms": 0.5, "receipts": 0.9, "tables": 0.3, "invoices": 0.7, "menus": 0.4,
    "schedules": 0.25, "leaflets": 0.35, "ledgers": 0.4, "notes": 0.3, "stubs": 0.4,
    "months": 0.25, "grids": 0.2, "remarks": 0.2, "printouts": 0.1, "bars": 0.1, "charted": 0.1,
    "letters": 0.5, "combs": 0.6,
}  # fmt: skip
