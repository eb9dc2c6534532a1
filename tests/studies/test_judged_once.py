"""A record is judged once per process, however many reports are made of it."""

import dataclasses
from collections import Counter

from every_record import RECORDS
from record_parts import checks_of

from saccade.records.record import Record
from saccade.registry import find_study
from saccade.report.ledger import ledger_markdown, ledger_rows
from saccade.report.page import render_page
from saccade.report.terminal import verdict_table


def counted(study, calls: Counter):
    """The study with measures that count their calls."""

    def measured(check):
        def measure(arms, config):
            calls[check.quantity] += 1
            return check.measure(arms, config)

        return dataclasses.replace(check, measure=measure)

    claims = [
        dataclasses.replace(claim, checks=tuple(map(measured, checks_of(claim))))
        for claim in study.claims
    ]
    return dataclasses.replace(study, claims=claims)


def test_a_record_is_judged_once_however_many_reports_are_made(tmp_path):
    calls = Counter()
    study = counted(find_study("sen_convolution"), calls)
    RECORDS["sen_convolution"]().save(tmp_path / "record.nc")
    record = Record.open(tmp_path / "record.nc")
    entries = [(study, record)]
    render_page(entries)
    for _ in range(2):
        ledger_rows(entries)
        ledger_markdown(entries)
        verdict_table(study, record, study.judge(record))
        study.drawn(record)
    quantities = Counter(check.quantity for claim in study.claims for check in checks_of(claim))
    assert calls == quantities


def test_changed_numbers_are_judged_again():
    calls = Counter()
    study = counted(find_study("sen_convolution"), calls)
    record = RECORDS["sen_convolution"]()
    study.judge(record)
    study.judge(dataclasses.replace(record))
    other = counted(find_study("sen_convolution"), calls)
    other.judge(record)
    once = Counter(check.quantity for claim in study.claims for check in checks_of(claim))
    assert calls == {quantity: 3 * number for quantity, number in once.items()}
