"""`saccade data`, in this process."""

import json
from pathlib import Path

import pooch
import pytest

from saccade.cli import main
from saccade.data import store


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(store.VARIABLE, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.setenv("COLUMNS", "120")
    store._read.cache_clear()


def test_the_list_says_what_there_is_and_where(capsys, tmp_path):
    folder = tmp_path / "sms_spam"
    folder.mkdir()
    (folder / "SMSSpamCollection").write_text("ham\tgood\n")
    assert main(["data", "list", "--data", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Socher et al. 2013" in shown
    assert "6,920 train, 872 validation, 1,821 test" in shown
    assert "licence: CC BY 4.0" in shown
    assert main(["data", "--json", "--data", str(tmp_path)]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["sms_spam"]["folder"] == str(folder)
    assert found["sst2"]["folder"] is None
    assert found["sst2"]["download"]


def test_a_corpus_that_is_not_whole_fails_the_check(capsys, tmp_path):
    folder = tmp_path / "sms_spam"
    folder.mkdir()
    (folder / "SMSSpamCollection").write_text("ham\tgood\n")
    assert main(["data", "check", "--data", str(tmp_path)]) == 1
    assert "got 1 train, allowed: the examples of sms_spam, 5,574 train" in capsys.readouterr().err
    (folder / "SMSSpamCollection").write_text("ham\tgood\n" * 5574)
    store._read.cache_clear()
    assert main(["data", "check", "--data", str(tmp_path)]) == 0
    assert "sms_spam: 5,574 train; no SHA-256 is known to compare" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["list", "check"])
@pytest.mark.parametrize("given", [True, False])
def test_a_folder_that_is_none_is_one_line(action, given, capsys, tmp_path, monkeypatch):
    folder = str(tmp_path / "nothing")
    monkeypatch.setenv("SACCADE_DATA", folder)
    assert main(["data", action, *(("--data", folder) if given else ())]) == 1
    source = "--data" if given else "SACCADE_DATA"
    assert f"{source}: got {folder}, allowed: a folder" in capsys.readouterr().err


def test_nothing_here_is_no_error(capsys, tmp_path):
    assert main(["data", "check", "--data", str(tmp_path)]) == 0
    assert "no corpus is here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch"], "got 'saccade data fetch', allowed: saccade data list, "),
        (["look"], "got 'saccade data look', allowed: "),
        (["list", "sst2"], "got 'saccade data list sst2', allowed: "),
        (["check", "sst9"], "corpus: got 'sst9', allowed: sst2, sst5, "),
        (["fetch", "ag_news"], "corpus ag_news: cannot be downloaded; make a folder ag_news, put "),
    ],
)
def test_wrong_requests_are_one_line(capsys, tmp_path, arguments, message):
    assert main(["data", *arguments, "--data", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_missing_corpus_is_one_line_and_exit_code_one(capsys, tmp_path):
    assert main(["data", "check", "sst2", "--data", str(tmp_path)]) == 1
    assert "run 'saccade data fetch sst2', or make a folder sst, put" in capsys.readouterr().err
