"""RDMA WRITEs that no adapter has sent, and what became of them."""

from softhca.machine.primitives import address_of
from softhca.wire import icrc
from softhca.wire.framing import ROCE_V4
from softhca.wire.route import Route

PORT = 0xC000


def signed(data, source, destination, port=PORT, identification=0):
    """``data`` (BTH…pad) with its ICRC for one direction."""
    route = Route(ROCE_V4, source, destination, port, identification=identification)
    buffer = bytearray(data)
    return bytes(buffer) + icrc.compute(route, address_of(buffer), len(buffer)).to_bytes(4, "little")


def write_packet(
    end, qp, psn=100, payload=b"overwritten!", opcode=0x0A, pkey=0xFFFF, qpn=None, rkey=None, version=0
):
    """An RDMA WRITE ONLY to the start of an end's memory."""
    bth = bytes([opcode, 0x40 | version]) + pkey.to_bytes(2, "big") + bytes([0])
    bth += (qp.number if qpn is None else qpn).to_bytes(3, "big") + bytes([0x80]) + psn.to_bytes(3, "big")
    reth = end.va.to_bytes(8, "big") + (end.key.rkey if rkey is None else rkey).to_bytes(4, "big")
    return bth + reth + len(payload).to_bytes(4, "big") + payload


def drops(end):
    """Counters of dropped packets that are not 0."""
    counters = end.device.query_counters()
    return {name[6:]: value for name, value in counters.items() if name.startswith("drops_") and value}


def send_identified(world, left, right, qp, psn, identification, damage=False, port=PORT):
    packet = write_packet(right, qp, psn=psn)
    data = signed(packet, left.node.gid, right.node.gid, port, identification)
    if damage:
        data = data[:30] + bytes([data[30] ^ 1]) + data[31:]
    before = right.device.query_counters()["packets_received"]
    world.inject(right.node, data, left.node.gid, source_port=port)
    return right.device.query_counters()["packets_received"] - before == 1
