"""Paper before a lens: turned, curled, folded, cropped; glyphs move with their ink."""

import random
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

Size = tuple[int, int]
STRIPS = 14  # quads from top to bottom of a picture
COLUMNS = 3


@dataclass(frozen=True)
class Bend:
    """A map from a picture to the flat page: a homography, then waves.

    Attributes:
        plane: [3, 3], from the picture to the page, both in pixels.
        waves: Amplitude in pixels, wave length as a share of the height, phase: sideways.
        curl: The same, of lines that bow up and down along the width.
        size: Width and height of the picture.
    """

    plane: np.ndarray
    waves: tuple[float, float, float]
    curl: tuple[float, float, float]
    size: Size

    def aside(self, points: np.ndarray) -> np.ndarray:
        """The displacement by waves at `points` [N, 2] of the picture."""
        w, h = self.size
        a, length, phase = self.waves
        dx = a * np.sin(2 * np.pi * points[:, 1] / (length * h) + phase)
        a, length, phase = self.curl
        dy = a * np.sin(2 * np.pi * points[:, 0] / (length * w) + phase)
        return np.stack([dx, dy], 1)

    def source(self, points: np.ndarray) -> np.ndarray:
        """Points of the page that `points` [N, 2] of the picture show."""
        return _through(self.plane, points) + self.aside(points)

    def seen(self, points: np.ndarray) -> np.ndarray:
        """Points of the picture that show `points` [N, 2] of the page."""
        back = np.linalg.inv(self.plane)
        out = _through(back, points)
        for _ in range(4):
            out = _through(back, points - self.aside(out))
        return out

    def bent(self, page: Image.Image, fill: int | tuple[int, int, int]) -> Image.Image:
        """The picture of a flat page; `fill` is what is seen beside it."""
        w, h = self.size
        ys = np.linspace(0, h, STRIPS + 1).round().astype(int)
        xs = np.linspace(0, w, COLUMNS + 1).round().astype(int)
        grid = np.array([(x, y) for y in ys for x in xs], float)
        at = self.source(grid).reshape(len(ys), len(xs), 2)
        quads = []
        for r in range(STRIPS):
            for c in range(COLUMNS):
                box = (int(xs[c]), int(ys[r]), int(xs[c + 1]), int(ys[r + 1]))
                corners = (at[r, c], at[r + 1, c], at[r + 1, c + 1], at[r, c + 1])
                quads.append((box, tuple(float(v) for corner in corners for v in corner)))
        return page.transform(
            self.size, Image.Transform.MESH, quads, Image.Resampling.BILINEAR, fillcolor=fill
        )

    def outline(self, box: tuple[float, float, float, float]) -> list[tuple[float, float]]:
        """The edge of a rectangle of the page, as it is seen."""
        x0, y0, x1, y1 = box
        t = np.linspace(0, 1, 12)[:, None]
        a, b, c, d = (np.array(p, float) for p in ((x0, y0), (x1, y0), (x1, y1), (x0, y1)))
        edge = np.concatenate([p + (q - p) * t for p, q in ((a, b), (b, c), (c, d), (d, a))])
        return [(float(x), float(y)) for x, y in self.seen(edge)]


def _through(plane: np.ndarray, points: np.ndarray) -> np.ndarray:
    moved = np.c_[points, np.ones(len(points))] @ plane.T
    return moved[:, :2] / moved[:, 2:]


def scanned(rng: random.Random, size: Size, severity: float) -> Bend:
    """Laid on glass: a little askew, hardly bent."""
    waves = rng.choice((0.0, 0.0, rng.uniform(0, 2.5))) * severity
    return _bend(rng, size, rng.gauss(0, 1.1) * severity, 1.0, 0.004 * severity, (waves, 0.0))


def photographed(rng: random.Random, size: Size, severity: float) -> Bend:
    """Held or lying: turned, at an angle, curled."""
    turn = rng.gauss(0, 2.5) * severity
    bow = (rng.uniform(0, 0.006) * size[0] * severity, rng.uniform(0, 0.01) * size[1] * severity)
    return _bend(rng, size, turn, rng.uniform(1.0, 1.12), 0.035 * severity, bow)


def seen_closer(rng: random.Random, size: Size, severity: float) -> Bend:
    """A wall or a board: turned, from the side, nothing seen beside it."""
    return _bend(rng, size, rng.gauss(0, 2.5) * severity, 0.985, 0.045 * severity, (0.0, 0.0))


def _bend(
    rng: random.Random, size: Size, degrees: float, away: float, reach: float, bow: tuple[float,
    float]
) -> Bend:  # fmt: skip
    """A turn by `degrees`, `away` times as far, corners off by `reach`, bent by `bow` pixels."""
    w, h = size
    angle = np.deg2rad(degrees)
    c, s = np.cos(angle), np.sin(angle)
    middle = np.array([w / 2, h / 2])
    corners = np.array([(0, 0), (w, 0), (w, h), (0, h)], float)
    to = (corners - middle) @ np.array([[c, s], [-s, c]]) * away + middle
    to += np.array(
        [(rng.uniform(-reach, reach) * w, rng.uniform(-reach, reach) * h) for _ in range(4)]
    )
    plane = _homography(corners, to)
    waves = (bow[0], rng.uniform(0.6, 2.2), rng.uniform(0, 6.3))
    curl = (bow[1], rng.uniform(0.8, 2.5), rng.uniform(0, 6.3))
    return Bend(plane, waves, curl, size)


def _homography(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    rows, right = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    found = np.linalg.solve(np.array(rows, float), np.array(right, float))
    return np.append(found, 1).reshape(3, 3)


def cut_out(size: Size, edge: list[tuple[float, float]]) -> Image.Image:
    """White (255) where the paper is, which has this edge."""
    mask = Image.new("L", size, 0)
    ImageDraw.Draw(mask).polygon(edge, fill=255)
    return mask
