"""Fixtures of the adapter's tests."""

import pytest
from rd_trio import Trio

from softhca.testing.ends import End
from softhca.testing.network import Network


@pytest.fixture
def trio():
    made = []

    def make(*arguments, **options):
        made.append(Trio(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.network.close()


@pytest.fixture
def end():
    """One end on a small adapter."""
    world = Network()
    yield End(
        world.add(
            1,
            max_qp=4,
            max_cq=4,
            max_srq=2,
            max_mr=4,
            max_pd=4,
            max_ah=2,
            max_qp_wr=64,
            max_sge=4,
            max_cqe=1000,
            max_qp_rd_atom=16,
            max_mr_size_bytes=1 << 20,
            max_mcast_grp=1,
            max_mcast_qp_attach=2,
            max_inline_bytes=128,
            max_srq_wr=16,
            max_srq_sge=4,
        )
    )
    world.close()
