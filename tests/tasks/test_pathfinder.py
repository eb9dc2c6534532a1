"""Pathfinder: curves that grow as described, discs that tell the label, and the same pictures for
the same seed.
"""

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from saccade.data import pathfinder_images
from saccade.data.pathfinder_images import CONTRAST, FINE, Drawing, _lanczos, _smaller, pictures
from saccade.errors import ConfigError
from saccade.tasks.pathfinder import Pathfinder

EASY = Drawing(contour=4, distractors=2)


def grown(drawing: Drawing, count: int = 300) -> tuple[Any, ...]:
    to = pathfinder_images._Directions(drawing)
    canvas, pivots, ways, whole = pathfinder_images._pairs(to, np.random.default_rng(1), count)
    tails, heads = to.ends(to.places(pivots[whole]), ways[whole])
    return to, canvas, tails, heads, whole


def test_curves_are_dashes_in_a_row_without_sharp_turns():
    _, _, tails, heads, whole = grown(EASY)
    assert len(whole) > 100
    along = heads - tails
    np.testing.assert_allclose(np.hypot(*np.moveaxis(along, -1, 0)), EASY.dash)
    gap = np.hypot(*np.moveaxis(tails[:, :, 1:] - heads[:, :, :-1], -1, 0))
    # Twice the margin if straight; joints stand at whole pixels.
    assert gap.max() < 2 * EASY.margin + np.sqrt(0.5) + 1e-9
    cosine = (along[:, :, 1:] * along[:, :, :-1]).sum(-1) / EASY.dash**2
    assert cosine.min() > 0, "below a right angle"
    assert cosine.mean() > 0.7, "mostly ahead"
    assert tails.min() > 0
    assert heads.max() < EASY.size
    apart = np.hypot(*(tails[:, 0, 0] - tails[:, 1, 0]).T)
    assert np.abs(apart - EASY.seed_distance).max() < 2 * EASY.margin + 1.5


def test_curves_keep_apart():
    """Without overlap, dashes of different curves are farther apart than the margin; with that of
    the Long Range Arena, a few touch.
    """
    assert np.min(distances(dataclasses.replace(EASY, overlap=0.9))) > EASY.margin
    few = np.mean(distances(EASY) < EASY.margin)
    assert 0 < few < 0.1


def distances(drawing: Drawing) -> np.ndarray:
    """How far the two curves of each picture keep apart."""
    _, _, tails, heads, _ = grown(drawing)
    part = np.linspace(0, 1, 9)[:, None]
    dashes = tails[..., None, :] + part * (heads - tails)[..., None, :]
    one, other = (dashes[:, curve].reshape(len(dashes), -1, 2) for curve in range(2))
    return np.hypot(*np.moveaxis(one[:, :, None] - other[:, None], -1, 0)).min((1, 2))


def test_discs_lie_at_the_ends_that_the_label_says():
    to, _, tails, heads, whole = grown(EASY)
    pivots = tails - EASY.margin * (heads - tails) / EASY.dash
    assert len(whole) == len(pivots)
    random, labels = np.random.default_rng(2), np.arange(len(whole)) % 2
    _, curves, ways, same = pathfinder_images._pairs(to, np.random.default_rng(1), 300)
    np.testing.assert_array_equal(whole, same)
    images = pathfinder_images._drawn(to, random, (curves[same], ways[same]), [], labels)
    bright = images > 200
    for image, tail, head, label in zip(bright, tails, heads, labels, strict=True):
        begin = [shines(image, tail[curve, 0]) for curve in range(2)]
        end = [shines(image, head[curve, -1]) for curve in range(2)]
        pairs = [(a, b) for a in range(2) for b in range(2) if begin[a] and end[b]]
        assert any((a == b) == bool(label) for a, b in pairs)


def shines(image: np.ndarray, place: np.ndarray) -> bool:
    """Whether a disc lies at a place of the fine drawing, whose pixels have their middles at whole
    numbers.
    """
    row, column = np.round((FINE * place + 0.5) / FINE - 0.5).astype(int).clip(0, len(image) - 1)
    return bool(image[row, column])


def test_the_same_seed_gives_the_same_pictures_and_half_of_them_connected():
    images, labels = pictures(400, 3, EASY)
    again, same = pictures(400, 3, EASY)
    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(labels, same)
    assert images.shape == (400, 32, 32)
    assert images.dtype == np.uint8
    assert not np.array_equal(images, pictures(400, 4, EASY)[0])
    # A fair coin: 400 of them lie within 4.5 standard deviations.
    assert abs(labels.mean() - 0.5) < 0.1125
    assert len({image.tobytes() for image in images}) == 400


def test_grey_values_do_not_depend_on_the_order_in_which_numbers_are_added():
    """Whole numbers without rounding, as Python adds them."""
    random = np.random.default_rng(0)
    canvas = random.choice(np.asarray([0, 0, CONTRAST, 1], np.float32), (3, 16, 16))
    weights = _lanczos(8).astype(int).astype(object)
    quarters = (4 * canvas).astype(int).astype(object)
    sums = weights.sum(1)
    exact = weights @ quarters @ weights.T
    shares = [
        [Fraction(value, int(4 * sums[row] * sums[column])) for column, value in enumerate(line)]
        for picture in exact
        for row, line in enumerate(picture)
    ]
    wanted = [[round(255 * min(max(share, 0), 1)) for share in line] for line in shares]
    np.testing.assert_array_equal(_smaller(canvas).reshape(-1, 8), wanted)
    np.testing.assert_array_equal(_smaller(canvas[:, ::-1, ::-1])[:, ::-1, ::-1], _smaller(canvas))


def test_longer_curves_and_distractors_fill_a_picture():
    few, more, most = (
        (pictures(100, 0, drawing)[0] > 40).mean()
        for drawing in (Drawing(contour=4, distractors=0), Drawing(contour=4), Drawing())
    )
    assert few < more < most


def test_the_task_has_pixels_as_words():
    task = Pathfinder(20, validation=5, held_out=7, drawing=EASY)
    assert {split: batch.words.shape for split, batch in task.splits.items()} == {
        "train": (20, 1024),
        "validation": (5, 1024),
        "test": (7, 1024),
    }
    every = np.concatenate([batch.words for batch in task.splits.values()])
    np.testing.assert_array_equal(every, pictures(32, 0, EASY)[0].reshape(32, -1))
    assert (task.vocabulary_size, task.labels) == (256, 2)
    assert task.splits["train"].mask is None


def test_longer_dashes_stay_in_the_picture():
    """Whatever the size of dashes and margins: what lies outside is no part of another picture."""
    drawing = Drawing(size=64, contour=5, dash=6.0, margin=2.0)
    to, canvas, tails, heads, whole = grown(drawing)
    assert len(whole) > 20
    assert heads.min() > 0
    assert heads.max() < 64
    taken = canvas.taken.reshape(-1, to.width, to.width)
    assert not taken[:, [0, -1]].any(), "the edge is wide enough"
    assert not taken[:, :, [0, -1]].any()
    assert np.hypot(*np.moveaxis(heads - tails, -1, 0)) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("drawing", "message"),
    [
        ({"size": 20}, "size: got 20, allowed: above 30, twice the border of 15"),
        ({"contour": 0}, "contour: got 0, allowed: a whole number, at least 1"),
        ({"dash": -1.0}, "dash: got -1.0, allowed: a finite number above 0"),
    ],
)
def test_drawings_are_checked(drawing, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        Drawing(**drawing)


def test_curves_for_which_there_is_no_room_are_refused():
    with pytest.raises(ConfigError, match=r"^contour: got 200 dashes, for which 32 x 32 pixels"):
        pictures(1, 0, Drawing(contour=200))
