"""Parts of a piece of work on a Dask cluster (`fabric.division.Runner`).

Workers are compared with this process's softhca as for campaigns; a part whose worker is lost is done again
elsewhere.  Needs the extra ``cluster``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from softhca.fabric.division import Part
from softhca.simulation.cluster import Cluster, on_worker, own_version

Result = TypeVar("Result")


class ClusterRunner:
    """Does parts on the workers of a cluster, which has been entered."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def run(
        self, work: Callable[[Any, Part], Result], shared: Any, parts: Sequence[Part]
    ) -> Iterator[Result]:
        """`Runner.run`.  ``shared`` goes to each worker once.  CampaignError: the cluster is lost."""
        there = self._cluster.share(shared)
        version = own_version()
        answers = [self._cluster.call(on_worker, version, work, there, part) for part in parts]
        for answer in answers:
            yield answer.result()
