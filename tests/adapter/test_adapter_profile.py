"""What a channel adapter has by its profile: targets' adapters (TCA) lack what they need not have."""

import errno

import pytest

from softhca.adapter.config import AdapterConfig
from softhca.adapter.profile import OPTIONS, Profile
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.memory.regions import FLUSH_GLOBAL, FLUSH_PERSISTENT
from softhca.testing.addressing import gid
from softhca.testing.ends import (
    ALL_RIGHTS,
    COMPARE_SWAP,
    FETCH_ADD,
    LOCAL_WRITE,
    QKEY,
    RC,
    READ,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    SEND,
    UC,
    UD,
    WRITE,
    WRITE_IMM,
    End,
    post,
)
from softhca.testing.network import Network
from softhca.transport import states

LOC_QP_OP_ERR, REM_INV_REQ_ERR = 2, 9


@pytest.mark.parametrize("text", ["hca", "tca", "tca+rc", "tca+uc+write", "tca+rc+uc+write+read+atomic"])
def test_profiles_have_names(text):
    assert str(Profile.of(text)) == text
    assert Profile.of(text) == Profile(text[:3], frozenset(text.split("+")[1:]))


def test_the_order_of_options_does_not_matter():
    assert str(Profile.of("tca+write+uc")) == "tca+uc+write"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither"),
        ("TCA", "neither"),
        ("hca+uc", "everything"),
        ("tca+", "no option"),
        ("tca+udp", "no option"),
        ("tca+write", "needs rc or uc"),
        ("tca+uc+read", "needs rc"),
        ("tca+uc+atomic", "needs rc"),
        ("tca+write+read", "needs rc"),
    ],
)
def test_what_is_no_profile_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        Profile.of(text)


ATOMIC_WRITE, FLUSH = 15, 14
FLUSHES = FLUSH_GLOBAL | FLUSH_PERSISTENT


@pytest.mark.parametrize(
    ("text", "has", "rights", "lacks"),
    [
        ("hca", {states.RC, states.UC, states.UD, states.XRC, states.RD, states.FRAMES}, 14 | FLUSHES, ()),
        ("tca", {states.UD}, 0, (WRITE, WRITE_IMM, READ, COMPARE_SWAP, FETCH_ADD, ATOMIC_WRITE, FLUSH)),
        ("tca+uc+write", {states.UC, states.UD}, REMOTE_WRITE | FLUSHES, (READ, COMPARE_SWAP, FETCH_ADD)),
        ("tca+rc+read", {states.RC, states.UD}, REMOTE_READ,
         (WRITE, WRITE_IMM, COMPARE_SWAP, FETCH_ADD, ATOMIC_WRITE, FLUSH)),
        ("tca+rc+atomic", {states.RC, states.UD}, REMOTE_ATOMIC,
         (WRITE, WRITE_IMM, READ, ATOMIC_WRITE, FLUSH)),
    ],
)  # fmt: skip
def test_what_profiles_mean(text, has, rights, lacks):
    profile = Profile.of(text)
    assert profile.services == has | {states.RAW}
    assert profile.rights == rights
    assert profile.withheld_operations == sum(1 << opcode for opcode in lacks)
    assert {option for option in OPTIONS if profile.has(option)} == (
        set(OPTIONS) if text == "hca" else set(text.split("+")[1:])
    )


def test_an_adapter_is_an_hca_unless_told():
    assert str(AdapterConfig(gids=(gid(1),)).profile) == "hca"


def end_of(text, world=None):
    return End((world or Network()).add(1, profile=Profile.of(text)))


@pytest.mark.parametrize(
    ("text", "kinds"), [("tca", {UD}), ("tca+uc", {UC, UD}), ("tca+rc", {RC, UD}), ("hca", {RC, UC, UD})]
)
def test_queue_pairs_of_a_service_that_is_not_there_are_refused(text, kinds):
    end = end_of(text)
    for kind in (RC, UC, UD):
        if kind in kinds:
            end.qp(kind)
            continue
        with pytest.raises(DriverError) as caught:
            end.qp(kind)
        assert caught.value.errno == errno.EOPNOTSUPP
    assert end.device.query_device()["profile"] == text


def test_device_attributes_tell_what_is_missing():
    def of(text):
        device = end_of(text).device.query_device()
        names = ("max_qp_rd_atom", "max_qp_init_rd_atom", "max_res_rd_atom", "atomic_cap")
        return [device[name] for name in names]

    full = of("hca")
    assert full[0] > 0
    assert full[3] == 1
    assert of("tca+uc+write") == [0, 0, 0, 0]
    assert of("tca+rc+read") == [*full[:3], 0]
    assert of("tca+rc+atomic") == full


@pytest.mark.parametrize("right", [REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC])
def test_rights_to_operations_that_are_not_there_cannot_be_given(right):
    end = end_of("tca+rc+uc")
    for kind in (RC, UC):
        qp = end.qp(kind)
        attributes = {"qp_state": states.INIT, "pkey_index": 0, "port_num": 1}
        with pytest.raises(DriverError) as caught:
            qp.modify({**attributes, "qp_access_flags": right})
        assert caught.value.errno == errno.EOPNOTSUPP
        assert qp.query()["qp_state"] == states.RESET
        qp.modify({**attributes, "qp_access_flags": LOCAL_WRITE})


def two(text, kind, rights):
    """A target's adapter and a host's, connected."""
    world = Network()
    tca, hca = End(world.add(1, profile=Profile.of(text))), End(world.add(2))
    mine, theirs = tca.qp(kind), hca.qp(kind)
    for end, qp, peer, peer_qp in ((tca, mine, hca, theirs), (hca, theirs, tca, mine)):
        depth = min(end.device.query_device()["max_qp_rd_atom"], 4)
        how = services.Reliability(max_rd_atomic=depth, max_dest_rd_atomic=depth) if kind == RC else None
        services.connect(qp, services.Path(peer.node.gid, mtu=3), peer_qp.number, 9, 9, rights, how)
    return world, tca, mine, hca, theirs


@pytest.mark.parametrize(
    ("text", "kind", "rights", "opcode"),
    [
        ("tca+uc", UC, 0, WRITE),
        ("tca+uc", UC, 0, WRITE_IMM),
        ("tca+rc", RC, 0, WRITE),
        ("tca+rc+write", RC, REMOTE_WRITE, READ),
        ("tca+rc+read", RC, REMOTE_READ, FETCH_ADD),
        ("tca+rc+read", RC, REMOTE_READ, COMPARE_SWAP),
    ],
)
def test_work_requests_that_are_not_there_end_as_operation_errors(text, kind, rights, opcode):
    world, tca, qp, hca, _ = two(text, kind, rights)
    seen = world.record()
    post(qp, opcode, [tca.sge(0, 8)], va=hca.va, rkey=hca.key.rkey)
    assert [c.status for c in tca.poll(1)] == [LOC_QP_OP_ERR]
    assert qp.query()["qp_state"] == (states.SQE if kind == UC else states.ERR)
    assert seen == []


def test_a_peers_rdma_write_over_uc_is_dropped_as_an_operation_that_is_not_supported():
    world, tca, qp, hca, peer = two("tca+uc", UC, 0)
    post(peer, WRITE, [hca.sge(0, 8)], va=tca.va, rkey=tca.key.rkey)
    assert [c.status for c in hca.poll(1)] == [0]
    tca.poll(1)
    assert tca.device.query_counters(qp=qp.number)["drops_opcode"] == 1
    assert not any(tca.memory)
    qp.post_recv(1, [tca.sge(0, 8)])
    hca.memory[:4] = b"send"
    post(peer, SEND, [hca.sge(0, 4)])
    assert [(c.wr_id, c.byte_len) for c in tca.poll(1)] == [(1, 4)]
    world.close()


@pytest.mark.parametrize("opcode", [WRITE, READ, FETCH_ADD])
def test_a_peers_operation_over_rc_is_answered_as_an_invalid_request(opcode):
    world, tca, _qp, hca, peer = two("tca+rc", RC, 0)
    post(peer, opcode, [hca.sge(0, 8)], va=tca.va, rkey=tca.key.rkey)
    assert [c.status for c in hca.poll(1)] == [REM_INV_REQ_ERR]
    assert not any(tca.memory)
    world.close()


def test_a_target_with_everything_does_as_a_host():
    world, tca, qp, hca, peer = two("tca+rc+uc+write+read+atomic", RC, ALL_RIGHTS)
    for opcode in (WRITE, READ, FETCH_ADD, COMPARE_SWAP):
        post(qp, opcode, [tca.sge(0, 8)], va=hca.va, rkey=hca.key.rkey)
        post(peer, opcode, [hca.sge(0, 8)], va=tca.va, rkey=tca.key.rkey)
    assert [c.status for c in tca.poll(4) + hca.poll(4)] == [0] * 8
    world.close()


def test_datagrams_are_everybodys():
    world = Network()
    tca, hca = End(world.add(1, profile=Profile.of("tca"))), End(world.add(2))
    mine, theirs = tca.qp(UD), hca.qp(UD)
    for qp in (mine, theirs):
        services.start_datagrams(qp, QKEY)
    theirs.post_recv(4, [hca.sge(0, 100)])
    ah = tca.device.create_ah(tca.pd, services.Path(gid(2)).vector())
    post(mine, SEND, [tca.sge(0, 6)], ah=ah, qpn=theirs.number, qkey=QKEY)
    assert [(c.wr_id, c.byte_len) for c in hca.poll(1)] == [(4, 46)]
    world.close()
