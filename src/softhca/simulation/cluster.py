"""Work on a Dask cluster: chunks of a campaign's worlds run on whatever workers its scheduler has, and so do
parts of other work (`cluster_runner.py`).

A worker that is lost costs nothing: the scheduler runs its chunks again elsewhere, and the campaign takes
each chunk's outcomes once, in the order of the worlds.  Needs the extra ``cluster``.
"""

from __future__ import annotations

import concurrent.futures
import importlib.metadata
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from softhca.simulation.campaign import CampaignError, Chunk, Ran, run_chunk

CONNECT_S = 10
"""How long a scheduler may take to answer."""
FIRST_WORKER_S = 10
WORKERLESS_S = 60
"""How long a campaign waits when no worker is left."""
CHUNKS_A_THREAD = 4
EXTRA = "pip install 'softhca[cluster]'"
_PACKAGE = "softhca"
_ADDRESS = re.compile(r"(?:(tcp|tls)://)?([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


Result = TypeVar("Result")


class AddressError(ValueError):
    """No address of a scheduler; the message is one line."""


def parse_address(text: str) -> str:
    """``HOST:PORT``, ``tcp://HOST:PORT`` or ``tls://HOST:PORT`` as Dask wants it; AddressError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 1 <= int(match[3]) <= 65535:
        raise AddressError(f"{text!r} is no address of a scheduler: expected one like tcp://192.0.2.7:8786")
    return f"{match[1] or 'tcp'}://{match[2]}:{match[3]}"


class Cluster:
    """Runs chunks on the workers of the scheduler at ``address``; leaving it cancels what is left.

    Entering connects and compares versions.  CampaignError when there is no scheduler, no worker, a worker
    with another softhca, or Dask is not installed.
    """

    def __init__(self, address: str) -> None:
        self.address = parse_address(address)
        self.in_flight = CHUNKS_A_THREAD
        self._client: Any = None
        self._futures: dict[Any, None] = {}

    def __enter__(self) -> Cluster:
        try:
            import distributed
        except ImportError:
            raise CampaignError(f"--dask needs Dask: {EXTRA}") from None
        # it logs on stderr what is raised here anyway
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        try:
            self._client = distributed.Client(
                self.address, timeout=CONNECT_S, set_as_default=False, name="softhca-campaign"
            )
        except (OSError, TimeoutError):
            raise CampaignError(f"no Dask scheduler answers at {self.address}") from None
        try:
            self._check_workers()
        except BaseException:
            self._client.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._client.cancel(list(self._futures), force=True)
        except (OSError, concurrent.futures.CancelledError):
            pass  # the scheduler has gone, and with it all that is left
        finally:
            self._client.close()

    def _check_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=FIRST_WORKER_S)
        except TimeoutError:
            raise CampaignError(f"the Dask scheduler at {self.address} has no workers") from None
        # a function of the standard library: it reaches workers that have no softhca at all
        found = self._client.run(importlib.metadata.version, _PACKAGE, on_error="return")
        for worker, version in sorted(found.items()):
            check_version(worker, version)
        self.in_flight = CHUNKS_A_THREAD * max(sum(self._client.nthreads().values()), 1)

    def submit(self, chunk: Chunk) -> ClusterAnswer[Ran]:
        """Run a chunk as soon as a worker is free."""
        return self.call(run_chunk_as, own_version(), chunk)

    def call(self, work: Callable[..., Result], *arguments: Any) -> ClusterAnswer[Result]:
        """Call a function as soon as a worker is free."""
        # not pure: else the scheduler would give what an earlier campaign found
        future = self._client.submit(work, *arguments, pure=False)
        self._futures[future] = None
        return ClusterAnswer(self, future)

    def share(self, value: Any) -> Any:
        """What stands for a value that all workers have, among the arguments of `call`."""
        future = self._client.scatter(value, broadcast=True, hash=False)
        self._futures[future] = None
        return future

    def forget(self, future: Any) -> None:
        """Its outcomes have been taken."""
        self._futures.pop(future, None)

    def has_workers(self) -> bool:
        """Whether any worker is there."""
        return bool(self._client.nthreads())


@dataclass(frozen=True, slots=True)
class ClusterAnswer(Generic[Result]):
    """A call on the cluster."""

    cluster: Cluster
    future: Any

    def result(self) -> Result:
        """What it gives; raises what a world of it raised, and CampaignError when the cluster is lost."""
        import distributed

        while True:
            try:
                result: Result = self.future.result(timeout=WORKERLESS_S)
            except TimeoutError:
                if self.future.status == "error" and isinstance(self.future.exception(), TimeoutError):
                    raise  # a world raised it
                if not self.future.done() and not self.cluster.has_workers():
                    raise CampaignError(
                        f"no workers are left at the Dask scheduler {self.cluster.address}"
                    ) from None
            except distributed.KilledWorker:
                raise CampaignError("a part of the work ended every Dask worker that got it") from None
            except concurrent.futures.CancelledError:
                raise CampaignError(f"lost the Dask scheduler at {self.cluster.address}") from None
            else:
                self.cluster.forget(self.future)
                return result


def own_version() -> str:
    """The version of softhca that is installed here; CampaignError when none is."""
    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise CampaignError("softhca is not installed here, so that workers cannot be compared") from None


def check_version(worker: str, version: object) -> None:
    """CampaignError unless ``worker`` has this process's softhca; an exception stands for none at all."""
    ours = own_version()
    if version != ours:
        theirs = f"softhca {version}" if isinstance(version, str) else "no softhca"
        raise CampaignError(_difference(worker, theirs, ours))


def run_chunk_as(version: str, chunk: Chunk) -> Ran:
    """Run a chunk on a worker, which may have come after the others were asked for their ``version``."""
    return on_worker(version, run_chunk, chunk)


def on_worker(version: str, work: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function on a worker; CampaignError unless that has softhca in this ``version``."""
    ours = own_version()
    if ours != version:
        import distributed

        raise CampaignError(_difference(distributed.get_worker().address, f"softhca {ours}", version))
    return work(*arguments)


def _difference(worker: str, theirs: str, version: str) -> str:
    return f"the Dask worker {worker} has {theirs}, and this is softhca {version}"
