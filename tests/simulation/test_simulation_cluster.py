"""Campaigns on a Dask cluster: a real scheduler and two worker processes on the loopback."""

import concurrent.futures
import contextlib
import importlib.metadata
import os
import signal
import sys
from importlib.util import find_spec

import pytest
from cluster_machines import Machines

from softhca.cli.main import main
from softhca.simulation import campaign, cluster

if find_spec("distributed") is None:  # not imported here: each worker reads this file, and one runs it
    pytest.skip("the extra 'cluster' is not installed", allow_module_level=True)

SCENARIOS, SEEDS = ("rc-chaos", "ud-chaos"), range(1, 11)

LATE_VERSION = """
import importlib.metadata
right = importlib.metadata.version
importlib.metadata.version = lambda name: "9.9" if name == "softhca" else right(name)
"""


@pytest.fixture
def machines(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 100)  # however busy this machine is
    monkeypatch.setattr(cluster, "FIRST_WORKER_S", 100)
    found = Machines(tmp_path)
    try:
        found.start_scheduler()
        yield found
    finally:
        found.end()


@pytest.fixture
def watcher(machines):
    """A second client of the scheduler, that sees which worker has what."""
    import distributed

    client = distributed.Client(machines.address, timeout=100, set_as_default=False)
    with contextlib.closing(client):
        yield client


@pytest.fixture
def small_chunks(monkeypatch):
    """Many more chunks than may be on their way at once."""
    monkeypatch.setattr(campaign, "CHUNK", 1)


def test_a_killed_worker_changes_nothing(machines, watcher, small_chunks):
    workers = [machines.start_worker() for _ in range(2)]
    pids = watcher.run(os.getpid)
    assert sorted(pids.values()) == sorted(worker.pid for worker in workers)
    killed = []

    def kill_one(tally):
        """After the first world: a worker that computes chunks, or holds outcomes nobody has taken yet."""
        if killed:
            return
        busy, held = watcher.processing(), watcher.has_what()
        pid = next(pids[address] for address in pids if busy[address] or held[address])
        victim = next(worker for worker in workers if worker.pid == pid)
        victim.send_signal(signal.SIGKILL)
        killed.append(victim.wait())

    tally = campaign.run_campaign(SCENARIOS, SEEDS, "", cluster.Cluster(machines.address), kill_one)
    assert killed == [-signal.SIGKILL]
    assert len(watcher.nthreads()) == 1
    assert tally == campaign.run_campaign(SCENARIOS, SEEDS, "", campaign.Local(2))
    assert tally.worlds == 20


def test_what_is_not_wanted_any_more_is_cancelled(machines, watcher, small_chunks):
    machines.start_worker()
    with pytest.raises(KeyError, match="enough"):
        campaign.run_campaign(SCENARIOS, range(500), "", cluster.Cluster(machines.address), enough)
    while watcher.who_has() or any(watcher.processing().values()):
        pass  # a chunk that had begun is still being computed, for nobody


def enough(tally):
    """End a campaign after three worlds."""
    if tally.worlds == 3:
        raise KeyError("enough")


def test_a_worker_with_another_version_is_named(machines, capsys, tmp_path):
    preload = tmp_path / "late_version.py"
    preload.write_text(LATE_VERSION)
    machines.start_worker("--name", "old", "--preload", str(preload))
    assert main(["campaign", "--seeds", "1..5", "--dask", machines.address]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "the Dask worker tcp://127.0.0.1:" in error
    assert "softhca 9.9" in error


def test_a_chunk_that_reaches_another_version_is_not_run(machines, tmp_path, monkeypatch):
    preload = tmp_path / "late_version.py"
    preload.write_text(LATE_VERSION)
    machines.start_worker("--preload", str(preload))
    # as if it had come after the others were asked
    monkeypatch.setattr(cluster, "check_version", lambda worker, version: None)
    with pytest.raises(campaign.CampaignError, match=r"tcp://127\.0\.0\.1:\d+ has softhca 9\.9, and this is"):
        campaign.run_campaign(["ud-mix"], range(1, 3), "", cluster.Cluster(machines.address))


def test_a_worker_without_softhca_is_named():
    absent = importlib.metadata.PackageNotFoundError("softhca")
    with pytest.raises(campaign.CampaignError, match=r"tcp://192\.0\.2\.7:1 has no softhca, and this"):
        cluster.check_version("tcp://192.0.2.7:1", absent)


def test_what_is_on_its_way_follows_the_workers_threads(machines):
    machines.start_worker("--nthreads", "3")
    machines.start_worker()
    with cluster.Cluster(machines.address) as entered:
        assert entered.in_flight == 4 * cluster.CHUNKS_A_THREAD


def test_a_softhca_that_is_not_installed_is_one_line(monkeypatch, capsys):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(campaign.CampaignError, match="not installed here"):
        cluster.check_version("tcp://192.0.2.7:1", "0.1.0")


def test_a_world_that_raises_ends_the_campaign_with_that_error(machines):
    machines.start_worker()
    with pytest.raises(ValueError, match="unknown scenario 'nothing'"):
        campaign.run_campaign(["nothing"], range(1, 100), "", cluster.Cluster(machines.address))


class Reluctant:
    """A future that is not there at first, and then is done when nobody waits any more."""

    def __init__(self, status, outcome):
        self.status = status
        self.outcome = outcome
        self.asked = 0

    def done(self):
        return self.status != "pending"

    def exception(self):
        return self.outcome if self.status == "error" else None

    def result(self, timeout):
        self.asked += 1
        if self.asked == 1:
            raise TimeoutError
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Workerless:
    """A cluster that has no worker now."""

    address = "tcp://192.0.2.7:1"

    def has_workers(self):
        return False

    def forget(self, future):
        pass


@pytest.mark.parametrize(("status", "outcome", "expected"), [
    ("pending", [], campaign.CampaignError), ("error", TimeoutError("of a world"), TimeoutError),
    ("error", ValueError("of a world"), ValueError), ("finished", [], None),
    ("finished", concurrent.futures.CancelledError(), campaign.CampaignError),
])  # fmt: skip
def test_a_chunk_that_is_done_just_after_its_time_counts(status, outcome, expected):
    answer = cluster.ClusterAnswer(Workerless(), Reluctant(status, outcome))
    if expected is None:
        assert answer.result() is outcome
        return
    with pytest.raises(expected):
        answer.result()
    assert answer.future.asked == (2 if expected is ValueError or status == "finished" else 1)


def test_a_scheduler_without_workers_is_one_line(machines, monkeypatch, capsys):
    monkeypatch.setattr(cluster, "FIRST_WORKER_S", 1)
    assert main(["campaign", "--seeds", "1", "--dask", machines.address.removeprefix("tcp://")]) == 1
    assert capsys.readouterr().err == (
        f"softhca campaign: the Dask scheduler at {machines.address} has no workers\n"
    )


def test_when_the_last_worker_is_lost_the_campaign_says_so(machines, monkeypatch, small_chunks):
    monkeypatch.setattr(cluster, "WORKERLESS_S", 1)
    worker = machines.start_worker()
    killed = []

    def kill(tally):
        if not killed:
            worker.kill()
            killed.append(worker.wait())

    with pytest.raises(campaign.CampaignError, match="no workers are left"):
        campaign.run_campaign(SCENARIOS, SEEDS, "", cluster.Cluster(machines.address), kill)


def test_when_the_scheduler_is_lost_the_campaign_says_so(machines, small_chunks):
    machines.start_worker()
    killed = []

    def kill(tally):
        if not killed:
            scheduler = machines.processes[0]
            scheduler.kill()
            killed.append(scheduler.wait())

    with pytest.raises(campaign.CampaignError, match="lost the Dask scheduler"):
        campaign.run_campaign(SCENARIOS, SEEDS, "", cluster.Cluster(machines.address), kill)


def test_a_scheduler_that_is_not_there_is_one_line(monkeypatch, capsys, loopback_address):
    monkeypatch.setattr(cluster, "CONNECT_S", 1)
    address = f"{loopback_address()}:1"
    assert main(["campaign", "--seeds", "1", "--dask", address]) == 1
    assert capsys.readouterr().err == f"softhca campaign: no Dask scheduler answers at tcp://{address}\n"


def test_without_dask_one_line_tells_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["campaign", "--seeds", "1", "--dask", "127.0.0.1:8786"]) == 1
    error = capsys.readouterr().err
    assert error == "softhca campaign: --dask needs Dask: pip install 'softhca[cluster]'\n"


@pytest.mark.parametrize(("text", "address"), [
    ("192.0.2.7:8786", "tcp://192.0.2.7:8786"), ("tls://head.example:1", "tls://head.example:1"),
    ("tcp://[2001:db8::1]:65535", "tcp://[2001:db8::1]:65535"),
])  # fmt: skip
def test_addresses_of_schedulers(text, address):
    assert cluster.parse_address(text) == address


@pytest.mark.parametrize("text", [
    "", "head", "head:", "head:0", "head:65536", "http://head:1", "tcp://:1", "head:1/x",
    "2001:db8::1:1", "h d:1",
])  # fmt: skip
def test_a_malformed_address_is_one_line_and_status_2(text, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["campaign", "--seeds", "1", "--dask", text])
    assert exit_info.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert repr(text) in error
