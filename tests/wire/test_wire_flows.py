"""Source ports of flows, by the formulas that other stacks use as well."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.wire.flows import flow_label, source_port

QPNS = st.integers(0, 0xFFFFFF)


@pytest.mark.parametrize(
    ("local", "remote", "label", "port"),
    [
        (0x11, 0x11, 0x121, 0xC121),
        (0x400, 0x400, 0x00001, 0xC001),  # bit 20 of the product is folded onto bit 0
        (0xFFFFFF, 0xFFFFFF, 0xFFF1E, 0xFF21),
        (0xFFFFFF, 1, 0xFFFF0, 0xFFCF),
    ],
)
def test_label_and_port_of_queue_pairs(local, remote, label, port):
    assert flow_label(local, remote) == label
    assert source_port(label) == port


@given(QPNS, QPNS)
def test_both_ends_find_the_same(local, remote):
    label = flow_label(local, remote)
    assert label == flow_label(remote, local)
    assert 0 <= label < 1 << 20
    assert 0xC000 <= source_port(label) <= 0xFFFF


def test_a_label_of_14_bits_is_a_port_of_its_own():
    assert [source_port(label) for label in range(1 << 14)] == list(range(0xC000, 0x10000))


@pytest.mark.parametrize("first", [0x11, 0x101, 0xABCDE, 0xFFFF00])
def test_neighbouring_queue_pairs_have_ports_of_their_own(first):
    ports = {source_port(flow_label(first + n, first + n)) for n in range(64)}
    assert len(ports) >= 62
