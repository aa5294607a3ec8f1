"""Refusals that need a place of their own: an adapter that is full, of another kind, or in a certain state.

Each function makes such a place and calls wrong.  `texts` gives what all were refused with.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable
from typing import Any

from migration_scene import Scene

from softhca.adapter.config import PortConfig
from softhca.adapter.host_agents import MAX_PENDING
from softhca.adapter.profile import Profile
from softhca.adapter.steering import MOST_MASKS
from softhca.driver.errors import DriverError
from softhca.driver.paging import PageableMemory
from softhca.machine.primitives import store64
from softhca.management.dispatcher import MAX_CLIENTS
from softhca.memory import paged_layout
from softhca.memory.bits import SLOT_PAGES
from softhca.memory.regions import ON_DEMAND
from softhca.queues import control_fields as control
from softhca.queues import layout as abi
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.layout import CM_ENTRY_BYTES, MAD_BYTES, MAD_ENTRY_BYTES
from softhca.queues.states import INIT
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, RAW, RC, UC, UD, End
from softhca.testing.network import Network
from softhca.transport.migration import ARMED, MIGRATED, REARMED

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
GROUP = b"\xff\x0e" + bytes(13) + b"\1"
TO_INIT = {"qp_state": INIT, "pkey_index": 0, "port_num": 1}


COMMAND_NAMES = frozenset(name for name, _, _ in control.COMMANDS.values())


class Wrong:
    """Collects refusals.  A call that is accepted fails the test."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def call(self, call: Callable[..., Any], *arguments: Any, **fields: Any) -> None:
        """A wrong call."""
        try:
            call(*arguments, **fields)
        except DriverError as error:
            command, _, text = error.message.partition(": ")
            self.texts.append(text if command in COMMAND_NAMES else error.message)
        else:
            raise AssertionError(f"nobody refused {arguments} {fields}")

    def command(self, end: End, command: int, **fields: Any) -> None:
        """A wrong command."""
        self.call(end.device.session.call, command, **fields)


def end_of(link: str = "ipv4", **config: Any) -> End:
    """An end of its own."""
    return End(Network(link=link).add(1, **config))


def ring_of(end: End, entries: int, entry_bytes: int) -> dict[str, Any]:
    """Fields of a new ring."""
    fields: dict[str, Any] = end.device.session.reserve_ring(entries, entries * entry_bytes)[1]
    return fields


def targets(wrong: Wrong) -> None:
    """What a target's adapter has not."""
    end = end_of(profile=Profile.of("tca+uc"))
    wrong.command(end, control.CREATE_SRQ, pd=end.pd, max_wr=1, max_sge=1, srq_type=1)
    wrong.command(end, control.ALLOC_RDD)
    wrong.command(end, control.CREATE_QP, qp_type=RC)
    wrong.call(end.qp(UC).modify, {**TO_INIT, "qp_access_flags": ALL_RIGHTS})


def limits(wrong: Wrong) -> None:
    """What an adapter has no more of."""
    end = end_of(max_cq=1, max_mr=1, max_pd=1, max_mcast_grp=1, max_mcast_qp_attach=1)
    wrong.command(end, control.CREATE_CQ, **ring_of(end, 1, CQE_BYTES))
    wrong.command(end, control.ALLOC_PD)
    wrong.call(end.region, 0, 4096)
    pairs = [end.qp(UD) for _ in range(2)]
    end.device.attach_mcast(pairs[0].number, GROUP, 0)
    wrong.call(end.device.attach_mcast, pairs[1].number, GROUP, 0)
    wrong.call(end.device.attach_mcast, pairs[1].number, GROUP[:-1] + b"\2", 0)
    end = end_of(max_host_bytes=1 << 12)
    wrong.command(end, control.CREATE_CQ, **ring_of(end, 4096, CQE_BYTES))
    end = end_of(max_mw=1, max_mr=1)
    end.device.session.call(control.ALLOC_MW, pd=end.pd, type=1)
    wrong.command(end, control.ALLOC_MW, pd=end.pd, type=1)


def groups(wrong: Wrong) -> None:
    """A link that cannot join."""
    end = end_of()

    def full(number: int, group: bytes) -> None:
        raise OSError(105, "too many groups")

    end.node.adapter.groups.join = full
    wrong.call(end.device.attach_mcast, end.qp(UD).number, GROUP, 0)


def xrc(wrong: Wrong) -> None:
    """The domain of a file."""
    end = end_of()
    made = {"device": 1, "inode": 2}
    end.device.session.call(control.OPEN_XRCD, **made, flags=3)
    wrong.command(end, control.OPEN_XRCD, **made, flags=7)
    wrong.command(end, control.OPEN_XRCD, device=1, inode=3, flags=1)


def migration(wrong: Wrong) -> None:
    """Path migration out of its order."""
    scene = Scene()
    qp = scene.qps[0]
    alternate = {"alt_ah_attr": scene.path(0, 2).vector(), "alt_port_num": 2, "alt_timeout": 8}
    for state in (REARMED, ARMED):
        wrong.call(qp.modify, {"path_mig_state": state})
    wrong.call(qp.modify, {**alternate, "alt_pkey_index": 9})
    wrong.call(qp.modify, {**alternate, "alt_timeout": 32})
    wrong.call(qp.modify, {**alternate, "alt_port_num": 3})
    qp.modify({**alternate, "path_mig_state": REARMED})
    wrong.call(qp.modify, {"path_mig_state": MIGRATED})
    scene.rearm(1)
    assert scene.send(0) == scene.send(1) == [1]
    assert scene.states == [ARMED, ARMED]
    wrong.call(qp.modify, alternate)
    wrong.call(qp.modify, {**alternate, "path_mig_state": MIGRATED})
    narrow = PortConfig(gids=(gid(77),), active_mtu=1)
    end = End(Network().add(1, further_ports=(narrow,)))
    fresh = end.qp(RC)
    fresh.modify({**TO_INIT, "qp_access_flags": 0})
    path = {"dgid": gid(5), "is_global": 1, "hop_limit": 1}
    wrong.call(fresh.modify, {
        "qp_state": 2, "ah_attr": path, "path_mtu": 3, "dest_qp_num": 5, "rq_psn": 0,
        "max_dest_rd_atomic": 1, "min_rnr_timer": 1, "alt_ah_attr": path, "alt_port_num": 2,
    })  # fmt: skip


def native(wrong: Wrong) -> None:
    """Address vectors, raw services and management of native links."""
    end = end_of("native", host_subnet_management=False)
    vector = {"pd": end.pd, "dlid": 18, "port_num": 1}
    for changes in (
        {"sl": 15}, {"src_path_bits": 128}, {"dlid": 0}, {"dlid": 0xC001}, {"is_global": 1}, {"sl": 16},
    ):  # fmt: skip
        wrong.command(end, control.CREATE_AH, **{**vector, **changes})
    wrong.command(end, control.CREATE_WQ)
    raw, other = end.qp(RAW), end.qp(RAW)
    wrong.call(end.device.attach_raw, raw.number, 0x40000)
    end.device.attach_raw(raw.number, 0x88B5)
    wrong.call(end.device.attach_raw, other.number, 0x88B5)
    wrong.call(end.device.detach_raw, other.number, 0x88B5)
    asked = {"port_num": 1, "class_version": 1, **ring_of(end, 4, MAD_ENTRY_BYTES)}
    wrong.command(end, control.REGISTER_AGENT, mgmt_class=1, **asked)
    end = end_of("native", host_subnet_management=True)
    asked = {"port_num": 1, "class_version": 1, **ring_of(end, 4, MAD_ENTRY_BYTES)}
    agent = end.device.session.call(control.REGISTER_AGENT, mgmt_class=1, **asked)["agent"]
    mad = bytes([1, 1, 1, 1]).ljust(MAD_BYTES, b"\0")
    wrong.command(end, control.SEND_MAD, agent=agent, mad=mad, dlid=1, qpn=1)
    while True:  # nobody takes what is to be sent
        mad = mad[:8] + (int.from_bytes(mad[8:16], "big") + 1).to_bytes(8, "big") + mad[16:]
        asked = {"agent": agent, "mad": mad, "dlid": 9}
        try:
            end.device.session.call(control.SEND_MAD, **asked)
        except DriverError:
            break
    wrong.command(end, control.SEND_MAD, **asked)


def agents(wrong: Wrong) -> None:
    """More agents, and more requests of one, than a port has."""
    end = end_of()
    asked = {"port_num": 1, "class_version": 1}
    made = [
        end.device.session.call(
            control.REGISTER_AGENT, mgmt_class=32, **asked, **ring_of(end, 1, MAD_ENTRY_BYTES)
        )
        for _ in range(MAX_CLIENTS - 1)
    ]
    wrong.command(end, control.REGISTER_AGENT, mgmt_class=32, **asked, **ring_of(end, 1, MAD_ENTRY_BYTES))
    agent = made[0]["agent"]
    for number in range(MAX_PENDING + 1):
        mad = (bytes([1, 32, 1, 1]) + bytes(4) + number.to_bytes(8, "big")).ljust(MAD_BYTES, b"\0")
        asked = {
            "agent": agent, "mad": mad, "is_global": 1, "dgid": gid(9), "qpn": 1, "timeout_ms": 1 << 20,
        }  # fmt: skip
        if number < MAX_PENDING:
            end.device.session.call(control.SEND_MAD, **asked)
            while end.network.step():
                pass
    wrong.command(end, control.SEND_MAD, **asked)


def contexts(wrong: Wrong) -> None:
    """Objects of another host."""
    end = end_of()
    other = End(end.node)
    descriptor = end.device.command_descriptor()
    other.device.import_context(descriptor)
    other.device.import_pd(end.pd)
    wrong.call(other.device.import_pd, end.pd)
    wrong.command(other, control.DEALLOC_PD, pd=end.pd)
    wrong.call(other.device._pass, control.EXPORT_CONTEXT, descriptor)
    wrong.command(other, control.UNIMPORT_PD, pd=other.device.alloc_pd())
    other.region(0, 4096, pd=end.pd)
    wrong.command(other, control.UNIMPORT_PD, pd=end.pd)


def arenas(wrong: Wrong) -> None:
    """Memory that cannot be attached, or reached."""
    end = end_of()
    host = end.node.adapter.hosts[1]
    slot, arena = next(iter(host.arenas.items()))
    pages = arena.element[1]
    base = host.address_map.address(slot * 4096)
    fields = {"slot": slot, "pages": pages, "address": base, "memory": control.MEMORY_FOREIGN}
    wrong.command(end, control.ATTACH_ARENA, **fields)  # it is there already
    held = host.arenas.pop(slot)
    wrong.command(end, control.ATTACH_ARENA, **{**fields, "pages": pages + 1})
    host.arenas[slot] = held
    descriptor = os.memfd_create("small", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 4096)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    passed = {"address": descriptor, "memory": control.MEMORY_PASSED}
    wrong.command(end, control.ATTACH_ARENA, slot=99, pages=2, **passed)
    wrong.command(end, control.ATTACH_ARENA, slot=1 << 20, pages=1, **passed)
    os.close(descriptor)
    host.foreign = False
    wrong.command(end, control.ATTACH_ARENA, **fields)
    wrong.command(end, control.REG_MR, pd=end.pd, access=ON_DEMAND | 1, length=4096)


def paged(wrong: Wrong) -> None:
    """Pageable memory that is none, or not to be had."""
    end = end_of()
    for content in (b"", struct.pack("=QQQ", 1, 2, 3), struct.pack("=QQQ", paged_layout.MAGIC, 0, 3),
                    struct.pack("=QQQ", paged_layout.MAGIC, 4096, 99)):  # fmt: skip
        descriptor = os.memfd_create("paged", os.MFD_ALLOW_SEALING)
        os.write(descriptor, content)
        os.ftruncate(descriptor, 4096 if content else 0)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        wrong.command(end, control.REG_PAGED, pd=end.pd, access=1, descriptor=descriptor)
        os.close(descriptor)
    memory = PageableMemory(4096, 1)
    asked = {"pd": end.pd, "access": 1, "descriptor": memory.fd}
    wrong.command(end, control.REG_PAGED, **{**asked, "access": 1 << 4})
    wrong.command(end, control.REG_PAGED, **asked, va=(1 << 64) - 1)
    key = end.device.session.call(control.REG_PAGED, **asked)["lkey"]
    wrong.command(end, control.REREG_MR, lkey=key, flags=control.REREG_ACCESS, access=1)
    for _ in range(paged_layout.ATTACHMENTS - 1):
        end.device.session.call(control.REG_PAGED, **asked)
    wrong.command(end, control.REG_PAGED, **asked)
    descriptor = os.dup(memory.fd)
    end.device.session.call(control.DEREG_MR, lkey=key)
    memory.close()
    wrong.command(end, control.REG_PAGED, **{**asked, "descriptor": descriptor})
    os.close(descriptor)


def regions(wrong: Wrong) -> None:
    """Regions that cannot be, or are in use."""
    end = end_of(max_mr_size_bytes=1 << 40)
    made = {"pd": end.pd, "access": 15, "length": 4096, "va": 0}
    wrong.command(end, control.REG_MR, **made, frames=[(0xFFFFFFFF, 2)])
    capacity = end.node.adapter.regions.tpt.capacity
    many = capacity + 1
    wrong.command(end, control.REG_MR, **{**made, "length": many * 4096}, frames=[(0, many)])
    (frame,) = end.device.session.memory.allocate(1)
    end.node.adapter.regions.tpt.allocate(end.node.adapter.regions.tpt.free_entries)
    wrong.command(end, control.REG_MR, **made, frames=[(frame, 1)])


def windows(wrong: Wrong) -> None:
    """Regions that windows are bound to."""
    end = end_of()
    region = end.node.adapter.regions.live_key(end.key.lkey)
    region.bound_windows += 1
    wrong.command(end, control.DEREG_MR, lkey=end.key.lkey)
    region.bound_windows -= 1
    mr = end.device.session.call(control.ALLOC_FAST_MR, pd=end.pd, max_pages=1)["mr"]
    fast = end.node.adapter.memory_windows.members[mr]
    fast.bound_windows += 1
    wrong.command(end, control.DEREG_FAST_MR, mr=mr)
    fast.bound_windows -= 1


def completions(wrong: Wrong) -> None:
    """A queue that cannot be made shorter."""
    end = end_of()
    qp = end.qp(RC)
    qp.modify({**TO_INIT, "qp_access_flags": 0})
    for _ in range(3):
        qp.post_recv(1, [])
    qp.modify({"qp_state": 6})
    end.network.run()
    cq = end.cq.number
    wrong.command(end, control.RESIZE_CQ, cq=cq, **ring_of(end, 1, CQE_BYTES))
    wrong.command(end, control.RESIZE_CQ, cq=cq, entries=0)
    frame = end.cq._frames[0]
    store64(end.node.adapter.hosts[1].address_map.address(frame) + abi.RING_HEAD_AT, 1 << 40)
    wrong.command(end, control.RESIZE_CQ, cq=cq, **ring_of(end, 4, CQE_BYTES))


def rings(wrong: Wrong) -> None:
    """Rings where no shared memory is."""
    end = end_of()
    ring = ring_of(end, 1, CQE_BYTES)
    pages = sum(count for _, count in ring["frames"])
    wrong.command(end, control.CREATE_CQ, **{**ring, "frames": [(1 << 24, pages)]})
    (slot,) = end.node.adapter.hosts[1].arenas
    mapped = end.node.adapter.hosts[1].arenas[slot].element[1]
    address_map = end.node.adapter.hosts[1].address_map
    address = address_map.address(slot * SLOT_PAGES)
    address_map.detach(slot, mapped)
    address_map.attach(slot, mapped, address, 1)  # it is another process's
    wrong.command(end, control.CREATE_CQ, **{**ring, "frames": [(slot * SLOT_PAGES, pages)]})


def doorbells(wrong: Wrong) -> None:
    """More queue pairs than doorbells."""
    end = end_of()
    host = end.node.adapter.hosts[1]
    host.queue_pairs.extend([None] * (1 << 20))
    wrong.call(end.qp, RC)


def connections(wrong: Wrong) -> None:
    """Connections in no state for that."""
    end = end_of()
    session = end.device.session
    cm = session.call(control.OPEN_CM, port_num=1, **ring_of(end, 16, CM_ENTRY_BYTES))["cm"]
    path = {"cm": cm, "service_id": 7, "dgid": gid(5), "cm_response_timeout": 20, "hop_limit": 1}
    pair = {"qp_num": 5, "qp_type": RC, "starting_psn": 1, "path_mtu": 3}
    number = session.call(control.CM_CONNECT, **path, **pair)["id"]
    wrong.command(end, control.CM_REPLY, cm=cm, id=number, qp_type=control.QPT_RD, qp_num=3)
    wrong.command(end, control.CM_CONNECT, **path, qp_type=control.QPT_RD)
    wrong.command(end, control.CM_CONNECT, **path, **pair, sgid_index=4)
    own = end.device.query_gid(1, 0)
    end.node.adapter.set_gids(1, [own, gid(6), gid(7)])
    end.node.adapter.set_gids(1, [own, gid(7)])
    wrong.command(end, control.CM_CONNECT, **path, **pair, sgid_index=4)
    wrong.command(end, control.CREATE_AH, pd=end.pd, port_num=1, dgid=gid(5), is_global=1, sgid_index=4)
    other_version = {**path, "dgid": bytes.fromhex("20010db8") + bytes(11) + b"\1"}
    wrong.command(end, control.CM_CONNECT, **other_version, **pair, sgid_index=1)
    asked = session.call(control.CM_RESOLVE, **path)["id"]
    wrong.command(end, control.CM_ANSWER, cm=cm, id=asked)
    other = End(end.node)
    end.node.adapter.hosts[2].pid = 9
    wrong.command(end, control.CM_CONNECT, **{**path, **pair, "qp_num": other.qp().number})
    tables = end.node.adapter.port.management[1].connections.manager._tables
    tables.connections += 1 << 20
    wrong.command(end, control.CM_CONNECT, **path, **pair)
    tables.connections -= 1 << 20
    services = tables._services
    tables._services = dict.fromkeys(range(1 << 16))
    wrong.command(end, control.CM_LISTEN, cm=cm, backlog=1, service_id=1 << 40)
    tables._services = services


def steering(wrong: Wrong) -> None:
    """An adapter whose link carries no frames, and more masks than a port has room for."""
    end = end_of(ethernet_frames=False)
    pair = {"pd": end.pd, "send_cq": end.cq.number, "recv_cq": end.cq.number}
    wrong.command(end, control.CREATE_QP, qp_type=control.QPT_RAW_PACKET, **pair)
    end = end_of()
    pair = end.qp(RAW)
    for priority in range(MOST_MASKS):
        end.device.create_flow(pair.number, 1, control.FLOW_NORMAL, priority)
    wrong.call(end.device.create_flow, pair.number, 1, control.FLOW_NORMAL, MOST_MASKS)


CASES = (
    targets, limits, groups, xrc, migration, native, contexts, arenas, paged, regions, windows, completions,
    rings, agents, doorbells, connections, steering,
)  # fmt: skip
