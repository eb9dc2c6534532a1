"""Pictures of the Pathfinder task (Linsley et al. 2018, as in the Long Range Arena of Tay et al.
2021): two dashed curves, shorter dashed distractors, and two discs at ends of curves. The label
says whether both discs lie on the same curve.

A curve grows dash by dash. The joint behind a dash lies (length + 2 margin) from the joint before
it, in the direction of the dash. The next dash points to one of the pixels on the circle of radius
(length + margin) round the joint, drawn with a weight of cos^2(continuity x turn), 0 beyond a right
angle and within the margin of another dash. A dash with too many pixels there is drawn again,
twice at most; a curve that cannot go on begins anew, and the other one with it.

Many pictures grow at once, as rows of arrays: a picture costs under a millisecond.
"""

import dataclasses
from typing import Any

import numpy as np

from saccade.errors import ConfigError
from saccade.settings import require, require_count, require_positive, require_single

ROOM = 2000
"""Pictures that grow at once."""
RETRIALS = 2
"""Times that a dash is drawn again."""
FINE = 2
"""Pixels of the drawing per pixel of the picture, in each direction."""
CONTRAST = 0.75
"""Brightness of a dash."""
VAIN = 20
"""Times that no picture of many had room, after which there is none."""


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What a picture consists of."""

    size: int = 32
    """Pixels in each direction."""
    contour: int = 14
    """Dashes of each of the two curves."""
    distractor: int = 4
    """Dashes of a distractor."""
    distractors: int = 5
    """Distractors, at most."""
    dash: float = 2.0
    """Length of a dash."""
    margin: float = 1.0
    """Room round a dash."""
    seed_distance: float = 7.0
    """Distance between the beginnings of the two curves."""
    continuity: float = 1.0
    """How much a turn costs."""
    marker: float = 1.5
    """Radius of a disc."""
    thickness: float = 0.5
    """Thickness of a dash."""
    overlap: float = 1.8
    """Pixels of a dash within the margin of others from which on it is refused. With 1.8, as in the
    Long Range Arena, one in six pictures of 14 dashes has curves that touch; below 1 none has."""

    def __post_init__(self):
        fields = [field.name for field in dataclasses.fields(self)]
        require_single(self, "because a corpus is the same for all members", *fields)
        require_count(self, "size", "contour", "distractor")
        require_count(self, "distractors", least=0)
        sizes = ("dash", "margin", "seed_distance", "continuity", "marker", "thickness", "overlap")
        require_positive(self, *sizes)
        border = 2 * self.seed_distance + 1
        need = f"above {2 * border:g}, twice the border of {border:g} that no curve begins in"
        require(self, "size", need, lambda size: size > 2 * border)


class _Directions:
    """Where the next dash may point: to the pixels on a circle round its joint. All numbers that
    depend on the direction alone, once; places are indices into flattened, padded pictures.
    """

    def __init__(self, drawing: Drawing):
        self.drawing = drawing
        # A joint lies a margin behind a head, and the room of its next dash this much farther.
        self.edge = int(np.ceil(drawing.dash + 3 * drawing.margin + drawing.thickness)) + 2
        self.width = drawing.size + 2 * self.edge
        self.pixels = _ring(drawing.dash + drawing.margin)
        self.angles = np.arctan2(self.pixels[:, 0], self.pixels[:, 1])
        self.units = np.stack([np.sin(self.angles), np.cos(self.angles)], -1)
        self.ring = self._flat(self.pixels)
        self.next = self._flat(
            np.round((drawing.dash + 2 * drawing.margin) * self.units).astype(int)
        )
        self.weights = self.turned(self.angles)
        half = max(drawing.thickness / 2, 0.5)
        self.body = self._covered(half)
        self.covered = self._covered(half + drawing.margin)
        inside = np.zeros((self.width, self.width), bool)
        window = slice(self.edge + 1, -self.edge - 1)
        inside[window, window] = True
        self.inside = inside.ravel()

    def _covered(self, reach: float) -> tuple[np.ndarray, np.ndarray]:
        """Places within reach of the dash of each direction, relative to its joint; filled up by
        repetition, and which are no repetitions.
        """
        tails, heads = self.ends(np.zeros((len(self.units), 2)))
        near = _square(self.edge)
        points = np.broadcast_to(near, (len(tails), *near.shape))
        rows = [self._flat(near[row]) for row in _distance(points, tails, heads) <= reach]
        most = max(map(len, rows))
        return np.stack([np.resize(row, most) for row in rows]), np.stack(
            [np.arange(most) < len(row) for row in rows]
        )

    def _flat(self, places: np.ndarray) -> np.ndarray:
        return places[..., 0] * self.width + places[..., 1]

    def places(self, at: np.ndarray) -> np.ndarray:
        """Rows and columns of indices."""
        return np.stack(np.divmod(at, self.width), -1) - self.edge

    def at(self, places: np.ndarray) -> np.ndarray:
        return self._flat(places + self.edge)

    def turned(self, angles: np.ndarray) -> np.ndarray:
        """Weights of all directions behind dashes with the given angles."""
        turn = np.abs((self.angles - angles[:, None] + np.pi) % (2 * np.pi) - np.pi)
        cost = np.minimum(self.drawing.continuity * turn, np.pi / 2)
        return np.where(cost < np.pi / 2, np.cos(cost) ** 2, 0)

    def ends(self, pivots: np.ndarray, chosen: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Tails and heads of the dashes behind joints, in some directions."""
        units, margin = self.units[chosen], self.drawing.margin
        return pivots + margin * units, pivots + (margin + self.drawing.dash) * units


class _Canvas:
    """Pictures that grow: what lies where, with room round it."""

    def __init__(self, directions: _Directions, count: int, random: np.random.Generator):
        self.to, self.random = directions, random
        self.taken = np.zeros(count * directions.width**2, bool)

    def grow(
        self, picture: np.ndarray, pivot: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The direction of one more dash behind the joints `pivot` (indices into a picture), with
        given weights of the directions, and whether there was room.
        """
        to = self.to
        start = picture * to.width**2 + pivot
        free = to.inside[pivot[:, None] + to.ring] & ~self.taken[start[:, None] + to.ring]
        weight = weights * free
        found, done = np.zeros(len(picture), int), np.zeros(len(picture), bool)
        left = np.arange(len(picture))
        for _ in range(1 + RETRIALS):
            sums = np.cumsum(weight[left], axis=1)
            left, sums = left[sums[:, -1] > 0], sums[sums[:, -1] > 0]
            drawn = self.random.random(len(left)) * sums[:, -1]
            pick = (sums <= drawn[:, None]).sum(1)
            places, once = (one[pick] for one in to.body)
            fits = (self.taken[start[left, None] + places] & once).sum(1) < to.drawing.overlap
            found[left[fits]], done[left[fits]] = pick[fits], True
            left, pick = left[~fits], pick[~fits]
            weight[left, pick] = 0
        return found, done

    def take(self, picture: np.ndarray, pivot: np.ndarray, direction: np.ndarray) -> None:
        """Dashes that lie from now on."""
        start = picture * self.to.width**2 + pivot
        self.taken[start[:, None] + self.to.covered[0][direction]] = True


def _square(reach: int) -> np.ndarray:
    """The places of a square round the origin."""
    grid = np.arange(-reach, reach + 1)
    return np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)


def _ring(radius: float) -> np.ndarray:
    """Pixels on a circle."""
    places = _square(int(np.ceil(radius)) + 1)
    return places[np.abs(np.hypot(*places.T) - radius) < 0.5]


def _distance(points: np.ndarray, tail: np.ndarray, head: np.ndarray) -> np.ndarray:
    """Distances of points [picture, point, 2] from the dashes of their pictures."""
    along = head - tail
    length = np.maximum((along**2).sum(-1), 1e-12)
    part = ((points - tail[:, None]) * along[:, None]).sum(-1) / length[:, None]
    nearest = tail[:, None] + part.clip(0, 1)[..., None] * along[:, None]
    return np.sqrt(((points - nearest) ** 2).sum(-1))


def _pairs(
    to: _Directions, random: np.random.Generator, count: int
) -> tuple[_Canvas, np.ndarray, np.ndarray, np.ndarray]:
    """Two curves in each of some pictures: the canvas, joints and directions of all dashes
    [picture, curve, dash], and the pictures in which both are whole.
    """
    drawing, canvas = to.drawing, _Canvas(to, count, random)
    size, border = drawing.size, int(2 * drawing.seed_distance) + 1
    first = random.integers(border, size - border, (count, 2))
    away = random.uniform(0, 2 * np.pi, count)
    shift = drawing.seed_distance * np.stack([np.sin(away), np.cos(away)], -1)
    begin = np.stack([first, np.round(first + shift).astype(int)], 1)
    weights = to.turned(np.deg2rad(random.integers(0, 360, 2 * count))).reshape(count, 2, -1)
    pivots, ways = np.zeros((2, count, 2, drawing.contour), int)
    going = np.arange(count)
    for dash in range(drawing.contour):
        for curve in range(2):
            if dash:
                last = ways[going, curve, dash - 1]
                pivot = pivots[going, curve, dash - 1] + to.next[last]
                weight = to.weights[last]
            else:
                pivot, weight = to.at(begin[going, curve]), weights[going, curve]
            way, fits = canvas.grow(going, pivot, weight)
            going, pivot, way = going[fits], pivot[fits], way[fits]
            canvas.take(going, pivot, way)
            pivots[going, curve, dash], ways[going, curve, dash] = pivot, way
    return canvas, pivots, ways, going


def _distractors(canvas: _Canvas, pictures: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """Shorter curves in what room is left: pictures, joints and directions of their dashes."""
    to, random = canvas.to, canvas.random
    found = []
    for _ in range(to.drawing.distractors):
        taken = canvas.taken.reshape(-1, to.width**2)[pictures]
        free = to.inside & ~taken
        some = free.sum(1) >= 0.01 * to.drawing.size**2
        going = pictures[some]
        # A free pixel at random: the first of those that a random one is followed by.
        begin = random.integers(0, to.width**2, len(going))
        order = (begin[:, None] + np.arange(to.width**2)) % to.width**2
        first = np.take_along_axis(free[some], order, 1).argmax(1)
        pivot = order[np.arange(len(going)), first]
        weight = to.turned(random.uniform(0, 2 * np.pi, len(going)))
        for _ in range(to.drawing.distractor):
            way, fits = canvas.grow(going, pivot, weight)
            going, pivot, way = going[fits], pivot[fits], way[fits]
            canvas.take(going, pivot, way)
            found.append((going, pivot, way))
            pivot, weight = pivot + to.next[way], to.weights[way]
    return found


def pictures(count: int, seed: int, drawing: Drawing = Drawing()) -> tuple[np.ndarray, np.ndarray]:  # noqa: B008
    """Pictures [picture, row, column] with numbers from 0 to 255, and their labels."""
    random, to = np.random.default_rng(seed), _Directions(drawing)
    images: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    vain = 0
    while sum(map(len, images)) < count:
        canvas, pivots, ways, whole = _pairs(to, random, ROOM)
        vain = 0 if whole.size else vain + 1
        if vain == VAIN:
            raise ConfigError(
                f"contour: got {drawing.contour} dashes, for which {drawing.size} x {drawing.size}"
                " pixels have no room, allowed: fewer"
            )
        if not whole.size:
            continue
        curves = (pivots[whole], ways[whole])
        numbers = np.zeros(ROOM, int)
        numbers[whole] = np.arange(len(whole))
        others = [(numbers[one], *rest) for one, *rest in _distractors(canvas, whole)]
        label = random.integers(0, 2, len(whole))
        images.append(_drawn(to, random, curves, others, label))
        labels.append(label)
    return np.concatenate(images)[:count], np.concatenate(labels)[:count].astype(np.int32)


def _drawn(
    to: _Directions,
    random: np.random.Generator,
    curves: tuple[np.ndarray, np.ndarray],
    others: list[tuple[np.ndarray, ...]],
    label: np.ndarray,
) -> np.ndarray:
    """The pictures, drawn finely and made smaller."""
    drawing, count = to.drawing, len(label)
    tails, heads = to.ends(to.places(curves[0]), curves[1])
    row = np.arange(count)
    lines = [
        (row, tails[:, curve, dash], heads[:, curve, dash])
        for curve in range(2)
        for dash in range(drawing.contour)
    ]
    lines += [(one, *to.ends(to.places(pivot), way)) for one, pivot, way in others]
    size = drawing.size * FINE
    canvas = np.zeros((count, size, size), np.float32)
    half = max(drawing.thickness * FINE / 2, 0.5)
    for picture, tail, head in lines:
        _stamp(canvas, picture, FINE * tail, FINE * head, half, CONTRAST)
    one = random.integers(0, 2, count)
    other = np.where(label == 1, one, 1 - one)
    for end in (tails[row, one, 0], heads[row, other, -1]):
        _stamp(canvas, row, FINE * end, FINE * end, FINE * drawing.marker, 1.0)
    return _smaller(canvas)


def _stamp(
    canvas: np.ndarray,
    picture: np.ndarray,
    tail: np.ndarray,
    head: np.ndarray,
    reach: float,
    value: float,
) -> None:
    """Pixels within `reach` of dashes are at least so bright."""
    size, half = canvas.shape[1], np.abs(head - tail).max(initial=0) / 2
    near = _square(int(np.ceil(half + reach)))
    middle = np.round((tail + head) / 2).astype(int)
    covers = _distance(near + middle[:, None], tail, head) <= reach
    chosen, which = np.nonzero(covers)
    place = middle[chosen] + near[which]
    inside = ((place >= 0) & (place < size)).all(-1)
    at = (picture[chosen[inside]], *place[inside].T)
    canvas[at] = np.maximum(canvas[at], value)


def _smaller(canvas: np.ndarray) -> np.ndarray:
    """Pictures of FINE x size pixels with brightness from 0 to 1 as grey values of size pixels.

    Weights are whole numbers, and brightness is a whole number of quarters, so that all sums are
    exact: every machine draws the same pictures, in whatever order its library adds.
    """
    weights = _lanczos(canvas.shape[-1] // FINE)
    sums = weights.sum(1)
    found = np.matmul(np.matmul(weights, canvas), weights.T) / np.outer(sums, sums)
    return np.round(255 * found.clip(0, 1)).astype(np.uint8)


def _lanczos(size: int, lobes: int = 3) -> np.ndarray:
    """The matrix that makes a line of FINE x size pixels a line of `size` pixels, but for a factor
    per row: whole numbers, as float64.
    """
    middle = (np.arange(size)[:, None] + 0.5) * FINE - 0.5
    away = (np.arange(size * FINE) - middle) / FINE
    weight = np.where(np.abs(away) < lobes, np.sinc(away) * np.sinc(away / lobes), 0)
    return np.round(2**20 * weight)
