"""A record made by hand of every study, made when first asked for, and edits that break it."""

import functools
from collections.abc import Iterable

import diagnosis_records
import encoder_records
import kernels_records
import ktiw_records
import pretrained_records
import sen_records
import text_records
import topics_records
import values_first_records
from record_parts import PARTS

from saccade.records.record import Record
from saccade.registry import find_study

PAPERS = (
    sen_records,
    topics_records,
    ktiw_records,
    kernels_records,
    encoder_records,
    values_first_records,
    diagnosis_records,
    text_records,
    pretrained_records,
)
RECORDS = {
    study: functools.cache(make) for paper in PAPERS for study, make in paper.RECORDS.items()
}
REFUTATIONS = {claim: edits for paper in PAPERS for claim, edits in paper.REFUTATIONS.items()}


@functools.cache
def figure_names(study: str) -> list[str]:
    """Names of the figures of the record made by hand."""
    return [figure.name for figure in find_study(study).drawn(RECORDS[study]())]


def assert_alike(synthetic: Record, real: Record, arms: Iterable[str]) -> None:
    """The real record has these arms, with every variable that was made by hand, on the same dims
    but for sweeps.
    """
    for arm in arms:
        for part in PARTS:
            measured, made = (getattr(one.arms[arm], part) for one in (real, synthetic))
            for name in made.data_vars:
                assert name in measured.data_vars, f"{arm}/{part}/{name}"
                dims = [set(one[name].dims) - set(real.sweeps) for one in (measured, made)]
                assert dims[0] == dims[1], f"{arm}/{part}/{name}"
