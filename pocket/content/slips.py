"""Lines of what a till, a terminal or a small printer puts on paper, before anything is drawn."""

from dataclasses import dataclass, field, replace
from typing import Final

from pocket.document import Question

LEFT: Final = "left"
RIGHT: Final = "right"
CENTRE: Final = "centre"
GAP: Final = 2.0  # characters between two cells of a line, at least


@dataclass(frozen=True)
class Cell:
    """A text on a line: its position, as a share of the line's width, and which end is there."""

    text: str
    place: float = 0.0
    align: str = LEFT


@dataclass(frozen=True)
class Line:
    """One printed line.

    Attributes:
        cells: From left to right; none on a rule or an empty line.
        tall: How many times as tall as the others.
        wide: How many times as wide.
        bold: Struck twice.
        rule: What a line across is made of: characters, or "line" for a drawn one.
        pitch: Lines of room that it takes, where that is not `tall`.
    """

    cells: tuple[Cell, ...] = ()
    tall: float = 1.0
    wide: float = 1.0
    bold: bool = False
    rule: str = ""
    pitch: float = 0.0

    @property
    def text(self) -> str:
        """Its text."""
        return " ".join(cell.text for cell in self.cells)

    @property
    def room(self) -> float:
        """Lines that it takes."""
        return self.pitch or self.tall


@dataclass
class Slip:
    """Everything on one piece of paper, and what may be asked about it."""

    lines: list[Line] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    def put(self, *cells: Cell, **style: float | bool) -> None:
        """Add a line of these cells."""
        self.lines.append(replace(Line(cells), **style))  # type: ignore[arg-type]

    def say(self, text: str, align: str = CENTRE, **style: float | bool) -> None:
        """Add a line of one text."""
        place = {LEFT: 0.0, CENTRE: 0.5, RIGHT: 1.0}[align]
        self.put(Cell(text, place, align), **style)

    def pair(self, left: str, right: str, **style: float | bool) -> None:
        """Add a line with a text at either end."""
        self.put(Cell(left), Cell(right, 1.0, RIGHT), **style)

    def rule(self, mark: str) -> None:
        """Add a line across."""
        self.lines.append(Line(rule=mark))

    def gap(self, lines: float = 1.0) -> None:
        """Leave some lines empty."""
        self.lines.append(Line(pitch=lines))

    @property
    def text(self) -> str:
        """All that is read, line by line."""
        return "\n".join(line.text for line in self.lines if line.cells)
