"""Rules of identifiers of RDMA CM in pyverbs' shape, with two adapters of this process: whose domain they
have, what a refused queue pair leaves, and what a request that is dropped means."""

import errno

import pytest
from cm_identifiers import PORT, TCP, UDP, code_of, connected, expect, init_attr, listening, routed

from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import queue_pairs
from softhca.driver.rdmacm.groups import Groups
from softhca.runtime import devices
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID, AddrInfo, CMEventChannel, ConnParam, JoinMCAttrEx
from softhca.verbs.device import Context
from softhca.verbs.pd import PD


@pytest.fixture
def pair(loopback_address):
    """Addresses of two devices of this process."""
    registry.names()
    found = [loopback_address(), loopback_address()]
    for number, address in enumerate(found):
        devices.add(f"cmidrules{number}=udp:{address}", "embedded")
    yield found
    for number in range(len(found)):
        devices.remove(f"cmidrules{number}")


def test_an_identifier_has_one_queue_pair(pair, closing):
    left, right = pair
    active = routed(closing(CMEventChannel()), left, right, closing)
    active.create_qp(init_attr())
    number = active.qpn
    assert code_of(active.create_qp, init_attr()) == errno.EINVAL
    assert active.qpn == number


def test_a_queue_pair_that_does_not_begin_leaves_nothing(pair, closing, monkeypatch):
    left, right = pair
    active = routed(closing(CMEventChannel()), left, right, closing)

    def refuses(*arguments):
        raise DriverError(errno.ENOMEM, "no more")

    with monkeypatch.context() as change:
        change.setattr(queue_pairs, "begin", refuses)
        assert code_of(active.create_qp, init_attr()) == errno.ENOMEM
    assert active.qpn is None
    active.create_qp(init_attr())
    assert active.qpn


def test_a_request_has_the_domain_of_its_listener(pair, closing):
    left, right = pair
    domain = closing(PD(closing(Context(name="cmidrules1"))))
    addresses = AddrInfo(src=right, src_service=PORT, port_space=TCP, flags=ce.RAI_PASSIVE)
    listener = closing(CMID(creator=addresses, pd=domain))
    listener.listen()
    channel = closing(CMEventChannel())
    active = routed(channel, left, right, closing)
    active.create_qp(init_attr())
    active.connect(ConnParam())
    request = closing(listener.get_request())
    assert request.pd is domain
    request.reject()
    expect(channel, ce.RDMA_CM_EVENT_REJECTED)


def test_a_request_that_is_dropped_is_rejected(pair, closing):
    left, right = pair
    listens, asks = closing(CMEventChannel()), closing(CMEventChannel())
    listening(listens, right, closing)
    active = routed(asks, left, right, closing)
    active.create_qp(init_attr())
    active.connect(ConnParam())
    expect(listens, ce.RDMA_CM_EVENT_CONNECT_REQUEST)  # and nobody keeps it
    expect(asks, ce.RDMA_CM_EVENT_REJECTED)


def test_a_receive_has_the_length_that_is_asked_for(pair, closing):
    left, right = pair
    active, passive, _ = connected(left, right, closing)
    sends, receives = active.reg_msgs(64), passive.reg_msgs(64)
    passive.post_recv(receives, 8)
    active.post_send(sends, length=16)
    assert passive.get_recv_comp().status == e.IBV_WC_LOC_LEN_ERR


@pytest.mark.parametrize("said", [False, True])
def test_how_a_group_is_joined_counts_where_the_mask_says_so(pair, closing, monkeypatch, said):
    how = []
    monkeypatch.setattr(Groups, "join", lambda self, group, send_only=False: how.append(send_only))
    sends = closing(CMID(creator=closing(CMEventChannel()), port_space=UDP))
    mask = ce.RDMA_CM_JOIN_MC_ATTR_ADDRESS | (ce.RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS if said else 0)
    group = AddrInfo(src="239.1.2.3", port_space=UDP, flags=ce.RAI_PASSIVE)
    flags = ce.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
    sends.join_multicast(mc_attr=JoinMCAttrEx(group, comp_mask=mask, join_flags=flags))
    assert how == [said]
