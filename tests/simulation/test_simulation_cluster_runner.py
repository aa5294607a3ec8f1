"""Routes of fabrics on a Dask cluster: a scheduler and two workers give the same tables, byte by byte."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest
from cluster_machines import Machines

from softhca.cli.main import main
from softhca.fabric.division import LOCAL_RUNNER, parts_of
from softhca.fabric.generators import fat_tree, torus
from softhca.fabric.routing import route
from softhca.fabric.verify import credit_loop, reach
from softhca.simulation import cluster
from softhca.simulation.cluster_runner import ClusterRunner

if find_spec("distributed") is None:  # not imported here: each worker reads this file, and one runs it
    pytest.skip("the extra 'cluster' is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setattr(cluster, "CONNECT_S", 100)  # however busy this machine is
    patch.setattr(cluster, "FIRST_WORKER_S", 100)
    found = Machines(tmp_path_factory.mktemp("dask"))
    try:
        found.start_scheduler()
        for _ in range(2):
            found.start_worker()
        yield found
    finally:
        found.end()
        patch.undo()


class Watched:
    """A runner that says how many parts it has been given."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.parts = []

    def run(self, work, shared, parts):
        self.parts.append(len(parts))
        return self.inner.run(work, shared, parts)


@pytest.mark.parametrize(
    ("fabric", "engine", "lmc"),
    [
        (fat_tree(8, 3), "fat-tree", 2),
        (torus([6, 5, 4], 1), "dimension-order", 1),
        (torus([5, 4], 2), "min-hop", 0),
    ],
    ids=["tree", "torus", "min-hop"],
)
def test_tables_loads_and_loops_are_the_same(machines, fabric, engine, lmc):
    ours = route(fabric, engine, lmc=lmc)
    with cluster.Cluster(machines.address) as there:
        runner = Watched(ClusterRunner(there))
        theirs = route(fabric, engine, lmc=lmc, runner=runner)
        found, loop = reach(theirs, runner), credit_loop(theirs, runner)
    assert theirs.tables.tobytes() == ours.tables.tobytes()
    here = reach(ours)
    assert (found.hosts_apart, found.switches_apart, found.most_hops) == (
        here.hosts_apart, here.switches_apart, here.most_hops,
    )  # fmt: skip
    assert np.array_equal(found.loads, here.loads)
    assert loop == credit_loop(ours)
    assert (loop is None) == (engine != "min-hop")
    assert len(runner.parts) == 3
    assert max(runner.parts) > 1 or len(fabric.switches) < 64


def test_the_command_says_the_same_by_a_cluster(machines, capsys):
    said = []
    for more in ((), ("--dask", machines.address)):
        assert main(["fabric", "routes", "torus:sizes=5x4", "--json", "--table", "s0.1", *more]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert said[0] == said[1]
    assert said[0]["table"]


def test_a_scheduler_that_is_not_there_is_told(capsys, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 0.2)
    assert main(["fabric", "routes", "fat-tree:radix=4", "--dask", "tcp://127.0.0.1:1"]) == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["fabric", "routes", "fat-tree:radix=4", "--dask", "nowhere"])
    assert "is no address of a scheduler" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "size"), [(0, 4), (1, 4), (4, 4), (5, 4), (13, 4)])
def test_parts_are_all_of_it(count, size):
    parts = parts_of(count, size)
    assert [number for start, end in parts for number in range(start, end)] == list(range(count))
    assert all(0 < end - start <= size for start, end in parts)
    found = list(LOCAL_RUNNER.run(lambda shared, part: (shared, part), "x", parts))
    assert found == [("x", part) for part in parts]
