"""A port's GID table: each filled entry leads somewhere, for every service; the others do not."""

import errno

import pytest
from traffic import connected, poll

from softhca.testing.verbs import QKEY, attributes, make_end, vector_to
from softhca.verbs import enums as e
from softhca.verbs.addr import AH
from softhca.verbs.pyverbs_error import PyverbsRDMAError

GRH = 40
ENTRIES = 4
RC, UC, UD = e.IBV_QPT_RC, e.IBV_QPT_UC, e.IBV_QPT_UD


def refusal(call, *arguments) -> int:
    with pytest.raises(PyverbsRDMAError) as caught:
        call(*arguments)
    return caught.value.error_code


def vector(peer, index: int):
    there = vector_to(peer)
    there.sgid_index = index
    return there


def test_the_table_has_the_ports_address_in_its_first_entries(verbs_pair) -> None:
    context = verbs_pair.client
    own = context.query_gid(1, 0)
    entries = context.query_gid_table(64)
    assert [(entry.gid_index, entry.port_num, entry.gid_type) for entry in entries] == [
        (index, 1, e.IBV_GID_TYPE_ROCE_V2) for index in range(ENTRIES)
    ]
    for index in range(ENTRIES):
        entry = context.query_gid_ex(1, index)
        assert entry.gid_str() == str(own) == str(context.query_gid(1, index))
        assert entry.gid_index == index
        assert context.query_gid_type(1, index) == e.IBV_GID_TYPE_SYSFS_ROCE_V2
    assert refusal(context.query_gid_ex, 1, ENTRIES) == errno.ENODATA
    assert not any(context.query_gid(1, ENTRIES).raw)


@pytest.mark.parametrize("kind", [RC, UC], ids=["RC", "UC"])
@pytest.mark.parametrize("index", range(ENTRIES))
def test_a_connection_begins_at_each_entry(verbs_pair, kind, index) -> None:
    client, server = make_end(verbs_pair.client, kind), make_end(verbs_pair.server, kind)
    for own, peer, psn, expected in ((client, server, 1, 2), (server, client, 2, 1)):
        own.qp.to_rts(attributes(own, peer, psn, expected, ah_attr=vector(peer, index)))
    assert client.qp.query(e.IBV_QP_AV)[0].ah_attr.sgid_index == index
    client.mr.write(b"by an entry", 11)
    client.send(e.IBV_WR_RDMA_WRITE, 11, to=(server.mr.rkey, server.mr.buf))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    server.receive(4)
    client.send(e.IBV_WR_SEND, 4)
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert server.mr.read(11, 0) == b"by an entry"


@pytest.mark.parametrize("index", range(ENTRIES))
def test_a_datagram_leaves_by_each_entry_and_is_answered_by_the_first(verbs_pair, index) -> None:
    client, server = connected(verbs_pair, UD)
    handle = AH(client.pd, attr=vector(server, index))
    server.receive(GRH + 4)
    request = client.request(e.IBV_WR_SEND, 4)
    request.set_wr_ud(handle, server.qp.qp_num, QKEY)
    client.qp.post_send(request)
    received = poll(server.recv_cq, 1, client, server)[0]
    assert received.status == e.IBV_WC_SUCCESS
    header = server.mr.read(GRH, 0)
    assert header[32:36] == client.context.query_gid(1, index).raw[12:]
    with AH(server.pd, wc=received, grh=server.mr.buf, port_num=1) as back:
        assert back is not None


@pytest.mark.parametrize("index", [ENTRIES, 15, 16, 255])
def test_no_path_begins_at_an_entry_that_is_empty(verbs_pair, index) -> None:
    client, server = connected(verbs_pair, UD)
    there = vector(server, index)
    assert refusal(lambda: AH(client.pd, attr=there)) == errno.EINVAL
    own, peer = make_end(verbs_pair.client, RC), make_end(verbs_pair.server, RC)
    assert refusal(own.qp.to_rts, attributes(own, peer, 1, 2, ah_attr=there)) == errno.EINVAL
