"""The table of coverage in docs/claims.md, simulated again with fewer trials."""

import math
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from interval_coverage import ROWS, SIZES, coverage  # noqa: E402  # pyright: ignore[reportMissingImports]

TRIALS = 600
NEEDED = 0.92
"""At n = 32, of the statistic that docs/claims.md names for the law."""
DISCOURAGED = re.compile("percentile|use `GeometricMean`")


def documented() -> dict[str, list[float]]:
    text = (ROOT / "docs" / "claims.md").read_text()
    rows = re.findall(r"^\| (.+?) \| ([\d.]+)% \| ([\d.]+)% \| ([\d.]+)% \|$", text, re.MULTILINE)
    return {name: [float(share) / 100 for share in shares] for name, *shares in rows}


def test_the_table_has_every_row():
    assert list(documented()) == list(ROWS)


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name][3] > 0.1])
@pytest.mark.parametrize("size", SIZES)
def test_a_cell_is_what_a_simulation_gives(name: str, size: int):
    written = documented()[name][SIZES.index(size)]
    trials = ROWS[name][3] * TRIALS
    allowed = 4.5 * math.sqrt(written * (1 - written) / trials) + 0.001
    assert abs(coverage(name, size, TRIALS) - written) < allowed


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name][3] <= 0.1])
def test_a_slow_cell_is_what_a_simulation_gives(name: str, size: int):
    written, trials = documented()[name][SIZES.index(size)], 200
    allowed = 4.5 * math.sqrt(written * (1 - written) / trials)
    assert abs(coverage(name, size, int(trials / ROWS[name][3])) - written) < allowed


def test_every_recommended_statistic_covers_enough():
    for name, shares in documented().items():
        if not DISCOURAGED.search(name):
            assert shares[-1] >= NEEDED, name
