"""A real Dask cluster of processes on this machine, and what happens when parts of it fail."""

import contextlib
import dataclasses
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cluster_work
import numpy as np
import pytest
from cluster_work import Config
from word_table import without_seconds

from saccade.cli import main
from saccade.errors import ConfigError, SaccadeError
from saccade.records.record import Record, rounded
from saccade.train import job as jobs
from saccade.train.lab import Lab
from saccade.train.storage import read_state
from saccade.train.training import TrainedArm
from saccade.workers.progress import Progress

pytest.importorskip("distributed", reason="needs the extra cluster")
from distributed import Client

from saccade.workers.dask_cluster import DaskScheduler

HERE = Path(__file__).parent
SWEEP = {"optimiser.rate": [0.1, 0.2, 0.4, 0.8]}
CHUNK = 4
LONG = Config(steps=1500, work=20000)
"""Chunks of some seconds."""


class Cluster:
    """A scheduler and workers that are processes of their own; workers have no nanny, so that one
    which is killed stays dead.
    """

    def __init__(self, folder: Path, **environment: str):
        self.folder, self.file = folder, folder / "scheduler.json"
        self._environment = {**os.environ, "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error"}
        self._environment |= environment
        self.workers: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        self.file.unlink(missing_ok=True)
        self.scheduler = self._started("scheduler", "--host", "127.0.0.1", "--port", "0")
        wait_until(self.file.exists)

    def _started(self, kind: str, *options: str) -> subprocess.Popen[bytes]:
        module = f"distributed.cli.dask_{kind}"
        given = ("--scheduler-file", str(self.file), "--no-dashboard", *options)
        with (self.folder / f"{kind}.log").open("ab") as log:
            command = [sys.executable, "-m", module, *given]
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def work(self, *options: str, threads: int = 1) -> subprocess.Popen[bytes]:
        """Another worker."""
        local = self.folder / f"worker-{len(self.workers)}"
        settings = ("--nthreads", str(threads), "--no-nanny", "--local-directory", str(local))
        self.workers.append(self._started("worker", *settings, *options))
        return self.workers[-1]

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    @contextlib.contextmanager
    def lab(self, folder: Path, **how: Any) -> Iterator[Lab]:
        scheduler = DaskScheduler(str(self.file))
        how = {"progress": None, "chunk": CHUNK, "state_interval": 0.2} | how
        try:
            yield Lab(folder, scheduler=scheduler, **how)
        finally:
            scheduler.close()


def wait_until(condition: Callable[[], Any], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "nothing happened in time"
        time.sleep(0.02)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of its own, to be broken, without workers."""
    (tmp_path / "cluster").mkdir()
    one = Cluster(tmp_path / "cluster")
    yield one
    one.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers that no test breaks."""
    one = Cluster(tmp_path_factory.mktemp("sound"))
    one.work()
    one.work()
    yield one
    one.close()


@pytest.fixture(scope="module")
def by_processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedArm]:
    """The short and the long training, by two local processes, without any break."""
    folder = tmp_path_factory.mktemp("local")
    lab = Lab(folder, progress=None, scheduler="local:2", chunk=CHUNK)
    found = {
        "short": cluster_work.train(lab, sweep=SWEEP),
        "long": cluster_work.train(lab, LONG, sweep=SWEEP),
    }
    lab.scheduler.close()  # pyright: ignore[reportOptionalMemberAccess,reportAttributeAccessIssue]
    return found


def assert_same(one: TrainedArm, other: TrainedArm) -> None:
    """Bit by bit, trajectories and models."""
    assert without_seconds(one.trajectory).identical(without_seconds(other.trajectory))
    assert one.snapshot.identical(other.snapshot)
    np.testing.assert_array_equal(one.models.weight, other.models.weight)


def test_dask_and_processes_give_the_same_bits(sound, by_processes, tmp_path):
    heard: list[Progress] = []
    with sound.lab(tmp_path, progress=heard.append) as lab:
        assert lab.device == "CPU, 1 core per worker"
        first = cluster_work.train(lab, sweep=SWEEP)
        assert_same(first, by_processes["short"])
        assert heard[-1].finished
        assert (heard[-1].members, heard[-1].note) == (16, "")
        assert heard[-1].rate is not None
        heard.clear()
        again = cluster_work.train(lab, sweep=SWEEP)
    assert [one.note for one in heard] == ["from the cache"]
    assert_same(again, first)
    assert again.digest == first.digest


def test_another_size_of_chunks_gives_nearly_the_same(sound, by_processes, tmp_path):
    with sound.lab(tmp_path, chunk=3) as lab:
        other = cluster_work.train(lab, sweep=SWEEP)
    short = by_processes["short"]
    assert other.digest != short.digest
    np.testing.assert_allclose(other.trajectory["loss"], short.trajectory["loss"], rtol=1e-6)


def test_divergence_and_weights_of_another_training(sound, tmp_path):
    with sound.lab(tmp_path) as lab:
        wild = cluster_work.train(lab, Config(steps=400), sweep={"optimiser.rate": [0.1, 1e9]})
        gone = wild.trajectory["diverged_at"].values >= 0
        assert gone.tolist() == [[False] * 4, [True] * 4]
        further = cluster_work.train(lab, start=wild, sweep={"optimiser.rate": [0.1, 1e9]})
    begun = further.trajectory["loss"].isel(step=0, rate=0)
    np.testing.assert_allclose(begun, wild.trajectory["loss"].isel(step=-1, rate=0), rtol=1e-6)


def test_a_study_file_and_the_module_beside_it_reach_the_workers(sound, tmp_path, capsys):
    """Neither is importable on a worker; the same command by local processes has the same bits."""
    folder = tmp_path / "study"
    folder.mkdir()
    for name in ("cluster_work.py", "cluster_model.py"):
        text = (HERE / name).read_text().replace("cluster_model", "beside_it")
        (folder / name.replace("cluster_model", "beside_it")).write_text(text)
    records = []
    for scheduler in (str(sound.file), "local:2"):
        output = tmp_path / f"runs-{len(records)}"
        command = ["run", str(folder / "cluster_work.py"), "--scheduler", scheduler]
        command += ["--chunk", "3", "--sweep", "rate=0.1,0.4", "-o", str(output), "--json"]
        assert main(command) == 0
        records.append(Record.open(Path(json.loads(capsys.readouterr().out)["record"])))
    assert records[0].arms["slow"].trajectory.equals(records[1].arms["slow"].trajectory)
    assert records[0].device == "CPU, 1 core per worker"


def test_results_travel_where_workers_do_not_see_the_folder(
    sound, by_processes, tmp_path, monkeypatch
):
    """The second run finds them in the folder of the waiting process."""
    elsewhere = lambda prepared, _, *rest: jobs_work(prepared, "/nowhere", *rest)  # noqa: E731
    jobs_work = jobs.Work
    monkeypatch.setattr(jobs, "Work", elsewhere)
    monkeypatch.setattr(DaskScheduler, "sees", lambda *_: False)
    heard: list[Progress] = []
    with sound.lab(tmp_path, progress=heard.append) as lab:
        assert_same(cluster_work.train(lab, sweep=SWEEP), by_processes["short"])
        assert len(list(tmp_path.glob("*.training"))) == 4
        heard.clear()
        assert_same(cluster_work.train(lab, sweep=SWEEP), by_processes["short"])
    assert [one.note for one in heard] == ["from the cache"]
    for place in range(2):
        assert not list((sound.folder / f"worker-{place}").rglob("*.training"))


def state_in_the_middle(folder: Path) -> Callable[[], bool]:
    """Whether a chunk has a saved state that is neither its start nor its end."""

    def found() -> bool:
        headers = [read_state(file)[0] for file in folder.glob("*.training")]
        return any(not one["finished"] and one["step"] > 0 for one in headers)

    return found


def test_a_killed_worker_loses_nothing(cluster, by_processes, tmp_path, monkeypatch):
    """Its chunk goes on elsewhere, at a step above 0."""
    first = cluster.work()
    answers: list[jobs.Trained] = []
    part = jobs.Job._part

    def heard(self, result, *rest):
        answers.append(result)
        return part(self, result, *rest)

    monkeypatch.setattr(jobs.Job, "_part", heard)

    def kill(progress: Progress) -> None:
        if first.poll() is None and state_in_the_middle(tmp_path / "runs")():
            first.send_signal(signal.SIGKILL)
            first.wait()
            cluster.work()

    with cluster.lab(tmp_path / "runs", progress=kill) as lab:
        found = cluster_work.train(lab, LONG, sweep=SWEEP)
    assert first.poll() == -signal.SIGKILL
    assert_same(found, by_processes["long"])
    assert any(one.began_at > 0 for one in answers)


def test_after_the_death_of_the_scheduler_the_same_command_goes_on(cluster, by_processes, tmp_path):
    cluster.work()
    heard: list[Progress] = []

    def kill(progress: Progress) -> None:
        heard.append(progress)
        if progress.done and cluster.scheduler.poll() is None:
            cluster.scheduler.kill()

    with (
        cluster.lab(tmp_path / "runs", progress=kill) as lab,
        pytest.raises(SaccadeError, match="is gone; finished chunks are kept, and the same comm"),
    ):
        cluster_work.train(lab, LONG, sweep=SWEEP)
    cluster.scheduler.wait()
    cluster.workers[0].kill()
    finished = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").glob("*.training")}
    finished = {file: when for file, when in finished.items() if read_state(file)[0]["finished"]}
    assert finished
    cluster.start()
    cluster.work()
    with cluster.lab(tmp_path / "runs") as lab:
        assert_same(cluster_work.train(lab, LONG, sweep=SWEEP), by_processes["long"])
    assert all(file.stat().st_mtime_ns == when for file, when in finished.items())


def test_a_killed_client_loses_nothing(cluster, by_processes, tmp_path):
    """What its worker is busy with ends, with a whole state."""
    cluster.work()
    script = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import test_cluster as t, cluster_work\n"
        "from pathlib import Path\n"
        "from saccade import Lab\n"
        "lab = Lab(Path(sys.argv[1]), scheduler=sys.argv[2], chunk=t.CHUNK, state_interval=0.2)\n"
        "cluster_work.train(lab, t.LONG, sweep=t.SWEEP)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "runs"), str(cluster.file)]
    client = subprocess.Popen(command, stderr=subprocess.PIPE)
    wait_until(state_in_the_middle(tmp_path / "runs"))
    client.kill()
    client.communicate()
    with cluster.lab(tmp_path / "runs") as lab:
        assert_same(cluster_work.train(lab, LONG, sweep=SWEEP), by_processes["long"])


UNFIT = {
    "saccade.workers.schedulers.device_here = lambda: 'CPU, 1 core per worker'": (
        "saccade.workers.schedulers.device_here = lambda: 'NVIDIA H200 per worker'",
        "its device is CPU, 1 core per worker, that of the others NVIDIA H200 per worker",
    ),
    "def version(name, old=importlib.metadata.version):\n"
    "    return '0.0.1' if name == 'jax' else old(name)\n"
    "importlib.metadata.version = version": (
        "",
        "it has jax 0.0.1, the others ",
    ),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_worker_that_does_not_fit_is_left_out_by_name(cluster, tmp_path, caplog, unfit):
    """Without a GPU among workers that have one; with another version of JAX."""
    fit, why = UNFIT[unfit]
    for name, code in (("unfit", unfit), ("fit", fit)):
        file = tmp_path / f"{name}.py"
        file.write_text(f"import importlib.metadata\nimport saccade.workers.schedulers\n{code}\n")
        cluster.work("--preload", str(file))
    with cluster.lab(tmp_path / "runs") as lab:
        scheduler: Any = lab.scheduler
        wait_until(lambda: len(scheduler._workers()) == 2)
        found = cluster_work.train(lab, sweep=SWEEP)
    assert "not_trained" not in found.trajectory
    (said,) = [record.message for record in caplog.records if record.name == "saccade.workers"]
    assert said.startswith("saccade: worker tcp://127.0.0.1:")
    assert f" is left out: {why}" in said


def test_without_a_fitting_worker_there_is_one_line(cluster, tmp_path):
    cluster.work(threads=2)
    with (
        cluster.lab(tmp_path) as lab,
        pytest.raises(SaccadeError, match=r"no worker fits: .* 2 threads; start it with --nthr"),
    ):
        cluster_work.train(lab)


def test_a_full_disk_on_one_worker_moves_its_chunks(cluster, by_processes, tmp_path, capsys):
    full, _ = cluster.work(), cluster.work()
    with cluster.lab(tmp_path / "runs") as lab:
        scheduler: Any = lab.scheduler
        wait_until(lambda: len(scheduler._workers()) == 2)
        # From now on it can write no file of more than a few bytes.
        resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (64, 64))
        found = cluster_work.train(lab, sweep=SWEEP)
    assert_same(found, by_processes["short"])


def test_a_chunk_that_always_fails_is_a_hole_that_claims_count(sound, tmp_path, capsys):
    """A damaged file in the cache; the rest finishes."""
    study, config = cluster_work.STUDY, cluster_work.STUDY.swept(Config(), {"rate": [10.0, 20.0]})
    with sound.lab(tmp_path) as lab:
        whole = study.run(config, lab)
        assert {one.verdict for one in study.judge(whole)} == {"holds"}
        heard: list[Progress] = []
        lab = dataclasses.replace(lab, progress=heard.append)
        early = whole.arms["slow"].trajectory["loss"].isel(step=1).sel(rate=20).values
        (file,) = [
            file
            for file in tmp_path.glob("*.training")
            # The record has rounded numbers.
            if np.allclose(read_state(file)[1]["probes:loss"][1], early, rtol=2**-13)
        ]
        file.write_bytes(b"damaged" * 20)
        record = study.run(config, lab)
    missing = record.arms["slow"].trajectory["not_trained"]
    assert missing.values.tolist() == [[False] * 4, [True] * 4]
    (said,) = [one.note for one in heard if "missing" in one.note]
    assert said.startswith("members 5-8 (rate 20 seed 0 to rate 20 seed 3): failed 3 times")
    (judgement,) = study.judge(record)
    assert [verdict for _, verdict, _ in judgement.cells] == ["holds", "undetermined"]
    assert "4 of 4 seeds were not trained" in judgement.cells[1][2][0].reason
    record.save(tmp_path / "record.nc")
    (again,) = study.judge(Record.open(tmp_path / "record.nc"))
    assert again.cells == judgement.cells
    file.unlink()
    with sound.lab(tmp_path) as lab:
        mended = study.run(config, lab)
    assert mended.arms["slow"].trajectory.equals(whole.arms["slow"].trajectory)


def test_where_every_chunk_fails_there_is_no_record(sound, tmp_path):
    with sound.lab(tmp_path) as lab:
        cluster_work.train(lab)
        for file in tmp_path.glob("*.training"):
            file.write_bytes(b"damaged" * 20)
        with pytest.raises(SaccadeError, match=r"every chunk failed; the first: failed 3 times \("):
            cluster_work.train(lab)


def test_a_mistake_of_the_user_is_raised_at_once(sound, tmp_path):
    recipe = dataclasses.replace(Config().recipe, frozen=("nowhere",))
    with sound.lab(tmp_path) as lab, pytest.raises(ConfigError, match="frozen"):
        lab.train(recipe, 4)


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:1", "nowhere.json"])
def test_a_scheduler_that_is_not_there_is_one_line(text):
    with pytest.raises(SaccadeError, match=f"scheduler {text}: cannot be reached: "):
        DaskScheduler(text, patience=0.5)


def test_a_cluster_of_this_machine_binds_to_loopback(tmp_path):
    scheduler = DaskScheduler("dask:1")
    try:
        assert scheduler._cluster is not None
        assert scheduler._cluster.scheduler_address.startswith("tls://127.0.0.1:")
        with pytest.raises(Exception, match="ssl_context"):  # whoever has no key
            Client(scheduler._cluster.scheduler_address, timeout=2)
        found = cluster_work.train(Lab(tmp_path, progress=None, scheduler=scheduler))
        assert found.trajectory.sizes["seed"] == 4
    finally:
        scheduler.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, to make a certificate")
def test_tls_settings_of_dask_are_used(tmp_path, monkeypatch, by_processes):
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    settings = {"CA_FILE": certificate}
    for role in ("CLIENT", "SCHEDULER", "WORKER"):
        settings |= {f"{role}__KEY": key, f"{role}__CERT": certificate}
    environment = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": it for name, it in settings.items()}
    environment["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] = "true"
    script = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import cluster_work\nfrom pathlib import Path\nfrom saccade import Lab\n"
        "lab = Lab(Path(sys.argv[1]), scheduler=sys.argv[2], chunk=4)\n"
        "print(cluster_work.train(lab, sweep={'optimiser.rate': [0.1, 0.2, 0.4, 0.8]}).digest)\n"
    )
    (tmp_path / "cluster").mkdir()
    environment["DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME"] = "tls"
    cluster = Cluster(tmp_path / "cluster", **environment)
    try:
        address = json.loads(cluster.file.read_text())["address"]
        assert address.startswith("tls://127.0.0.1")
        cluster.work()
        command = [sys.executable, "-c", script, str(tmp_path / "runs"), address]
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
        )
        assert done.stdout.strip() == by_processes["short"].digest, done.stderr
    finally:
        cluster.close()


def test_the_job_script_for_slurm(tmp_path, by_processes):
    """With a stand-in for srun that starts its tasks on this machine."""
    (tmp_path / "srun").write_text(
        "#!/bin/bash\n"
        "while [[ $1 == --* ]]; do [[ $1 == --ntasks=* ]] && tasks=${1#*=}; shift; done\n"
        'for _ in $(seq "$tasks"); do "$@" & done\n'
        "trap 'kill $(jobs -p); wait' TERM\n"
        "wait\n"
    )
    (tmp_path / "srun").chmod(0o755)
    beside = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{beside}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "17",
        "SLURM_NTASKS": "2",
        "SACCADE_HOST": "127.0.0.1",
        "TMPDIR": str(tmp_path / "scratch"),
    }
    (tmp_path / "scratch").mkdir()
    script = HERE.parents[1] / "docs/examples/ensemble.sbatch"
    settings = ["--sweep", "rate=0.1,0.2,0.4,0.8", "--chunk", "4", "--json"]
    command = ["bash", str(script), "run", str(HERE / "cluster_work.py"), *settings]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    record = Record.open(tmp_path / json.loads(done.stdout)["record"])
    loss, same = (
        run["loss"] for run in (record.arms["slow"].trajectory, by_processes["short"].trajectory)
    )
    np.testing.assert_array_equal(loss, rounded(same.values, 14), "the record has rounded numbers")
    assert not list((tmp_path / "runs").glob("scheduler-*.json"))
