"""A till's receipt in the making: its lines so far, and how this till writes."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from pocket.content import shops
from pocket.content.slips import Slip
from pocket.questions.tills import asked


@dataclass
class Till:
    """A receipt in the making."""

    rng: random.Random
    slip: Slip
    write: shops.Notation
    cased: Callable[[str], str]
    joint: str  # between a label and what follows it
    signs: int  # 0: no currency beside amounts, 1: on totals, 2: everywhere, 3: a column of its own
    rule: str
    shown: set[str] = field(default_factory=set)
    items: list[tuple[str, int, float, float]] = field(default_factory=list)

    def note(self, what: str, answer: str, **slots: str) -> None:
        """Something is printed that may be asked for."""
        self.shown.add(what)
        self.slip.questions.append(asked(self.rng, what, answer, **slots))

    def fact(self, label: str, value: str) -> str:
        """A fact as this till prints it; some have no label."""
        return f"{label}{self.joint}{value}" if label else value

    def line(self) -> None:
        """A rule, as this till prints them."""
        self.slip.rule(self.rule) if self.rule else self.slip.gap(0.5)

    def amount(self, value: float) -> str:
        """An item's amount, as this till writes it."""
        return self.write.full(value) if self.signs == 2 else self.write.bare(value)
