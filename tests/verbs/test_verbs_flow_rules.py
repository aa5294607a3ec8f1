"""What specifications of header fields mean over a frame's key, and rules that a program makes of them."""

import ctypes
import errno

import pytest

from softhca.testing.network import Network
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ
from softhca.verbs.flow import Flow, FlowAttr
from softhca.verbs.flow_rules import value_and_mask
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.spec import EthSpec, Ipv4ExtSpec, Ipv6Spec, TcpUdpSpec
from softhca.wire import ethernet as key

MACS = bytes.fromhex("020000000002" "020000000001")


def fits(specs, frame):
    value, mask = value_and_mask(specs)
    found = key.frame_key(bytearray(frame), 0, len(frame))
    return all((a ^ b) & m == 0 for a, b, m in zip(found, value, mask, strict=True))


def udp4(target=b"\x0a\0\0\2", ports=b"\x0b\xb8\x07\xd0", proto=17):
    front = bytes.fromhex("45000034beef40004000") + b"\0\0" + b"\x0a\0\0\1" + target
    return MACS + b"\x08\x00" + front[:9] + bytes([proto]) + front[10:] + ports


def test_each_kind_of_specification_asks_for_its_header_and_fields():
    specs = [
        EthSpec(dst_mac="02:00:00:00:00:02", ether_type=0x0800),
        Ipv4ExtSpec(dst_ip="10.0.0.2", src_ip="10.0.0.1"),
        TcpUdpSpec(e.IBV_FLOW_SPEC_UDP, dst_port=2000, src_port=3000),
    ]
    assert fits(specs, udp4())
    assert not fits(specs, udp4(target=b"\x0a\0\0\3"))
    assert not fits(specs, udp4(ports=b"\x0b\xb8\x07\xd1"))
    assert not fits(specs, udp4(proto=6))
    assert fits([TcpUdpSpec(e.IBV_FLOW_SPEC_TCP)], udp4(proto=6))
    assert not fits([TcpUdpSpec(e.IBV_FLOW_SPEC_TCP)], udp4())
    assert not fits([Ipv6Spec()], udp4())
    six = MACS + b"\x86\xdd" + bytes.fromhex("6ab12345000c0640") + bytes(15) + b"\1" + bytes(15) + b"\2"
    assert fits([Ipv6Spec(dst_ip="::2", flow_label=0x12345, traffic_class=0xAB, next_hdr=6)], six)
    assert not fits([Ipv6Spec(flow_label=0x12346)], six)


def test_a_mask_says_which_bits_count():
    assert fits([Ipv4ExtSpec(dst_ip="10.0.0.9", dst_ip_mask="255.255.255.240")], udp4())
    assert not fits([Ipv4ExtSpec(dst_ip="10.0.0.17", dst_ip_mask="255.255.255.240")], udp4())


@pytest.mark.parametrize(
    ("specs", "code"),
    [
        ([EthSpec(is_inner=1)], errno.EOPNOTSUPP),
        ([TcpUdpSpec(e.IBV_FLOW_SPEC_VXLAN_TUNNEL)], errno.EOPNOTSUPP),
        ([object()], errno.EOPNOTSUPP),
        ([Ipv4ExtSpec(), Ipv6Spec()], errno.EINVAL),
        ([EthSpec(ether_type=1 << 16)], errno.EINVAL),
        ([EthSpec(dst_mac="02:00")], errno.EINVAL),
    ],
)
def test_what_cannot_be_a_rule_is_refused(specs, code):
    with pytest.raises(PyverbsRDMAError) as refused:
        value_and_mask(specs)
    assert refused.value.error_code == code


def test_rules_are_closed_with_their_queue_pair():
    with Network() as world:
        node = world.add(1)
        context = node.context()
        cq = CQ(context, 8)
        kind = QPInitAttr(e.IBV_QPT_RAW_PACKET, scq=cq, rcq=cq, cap=QPCap())
        qp = QP(PD(context), kind, QPAttr(port_num=1))
        assert context.query_device().max_raw_ethy_qp > 0
        attributes = FlowAttr(num_of_specs=1)
        attributes.specs.append(EthSpec(dst_mac="02:00:00:00:00:02"))
        flow = Flow(qp, attributes)
        promiscuous = Flow(qp, FlowAttr(flow_type=e.IBV_FLOW_ATTR_ALL_DEFAULT))
        steering = node.adapter.port.segment.steering
        assert len(steering) == 2
        promiscuous.close()
        assert len(steering) == 1
        qp.close()
        assert len(steering) == 0
        flow.close()


def test_flags_and_fields_of_types_without_any_are_refused():
    with Network() as world:
        context = world.add(1).context()
        cq = CQ(context, 8)
        kind = QPInitAttr(e.IBV_QPT_RAW_PACKET, scq=cq, rcq=cq, cap=QPCap())
        qp = QP(PD(context), kind, QPAttr(port_num=1))
        sniffer = FlowAttr(num_of_specs=1, flow_type=e.IBV_FLOW_ATTR_SNIFFER)
        sniffer.specs.append(EthSpec())
        for attributes, code in ((FlowAttr(flags=2), errno.EOPNOTSUPP), (sniffer, errno.EINVAL),
                                 (FlowAttr(port=2), errno.EINVAL)):  # fmt: skip
            with pytest.raises(PyverbsRDMAError) as refused:
                Flow(qp, attributes)
            assert refused.value.error_code == code


class Ipv6Filter(ctypes.Structure):
    """As ``ibv_flow_ipv6_filter`` stands in ``infiniband/verbs.h``."""

    _fields_ = (
        ("src_ip", ctypes.c_uint8 * 16), ("dst_ip", ctypes.c_uint8 * 16), ("flow_label", ctypes.c_uint32),
        ("next_hdr", ctypes.c_uint8), ("traffic_class", ctypes.c_uint8), ("hop_limit", ctypes.c_uint8),
    )  # fmt: skip


class Ipv6Structure(ctypes.Structure):
    """As ``ibv_flow_spec_ipv6``."""

    _fields_ = (
        ("type", ctypes.c_int), ("size", ctypes.c_uint16), ("val", Ipv6Filter), ("mask", Ipv6Filter),
    )  # fmt: skip


def test_a_specification_has_the_size_of_its_structure_in_c():
    assert Ipv6Spec().size == ctypes.sizeof(Ipv6Structure)
    assert (EthSpec().size, Ipv4ExtSpec().size, TcpUdpSpec(e.IBV_FLOW_SPEC_UDP).size) == (40, 32, 16)
    assert "88" in str(Ipv6Spec())


def test_bits_that_a_mask_leaves_out_are_asked_for_by_nobody():
    udp = e.IBV_FLOW_SPEC_UDP
    high = TcpUdpSpec(udp, dst_port=0x12FF, dst_port_mask=0xFF00)
    low = TcpUdpSpec(udp, dst_port=0xFF34, dst_port_mask=0x00FF)
    at = slice(key.DST_PORT, key.DST_PORT + 2)
    for specs, value, mask in (([high], b"\x12\0", b"\xff\0"), ([high, low], b"\x12\x34", b"\xff\xff")):
        rule = value_and_mask(specs)
        assert (rule[0][at], rule[1][at]) == (value, mask)
