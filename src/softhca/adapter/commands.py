"""What each control command does.  A handler checks everything first, then changes; a refusal is an OSError
whose errno and text, the attribute and the rule that it breaks, become the reply, and nothing has changed.

Handlers take (adapter, host, the command's fields, now) and give the reply's fields.  ``HANDLERS`` is the
table; the queue pair's commands stand in ``queue_pair_commands.py``, those on memory windows and fast
regions in ``key_commands.py``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from softhca.adapter import (
    attributes,
    context_sharing,
    device_memory,
    ee_commands,
    host_agents,
    key_commands,
    on_demand_commands,
    paged_commands,
    queue_pair_commands,
    steering_commands,
    work_queue_commands,
    xrc_domains,
)
from softhca.adapter.hosts import COMMANDS_A_TURN, ChannelHook
from softhca.adapter.late_events import LateEvents
from softhca.adapter.paths import check_vector, route_of
from softhca.adapter.resources import Kind, Resource
from softhca.adapter.rings import cost_of, layout_of
from softhca.machine.signals import raised_by_handler
from softhca.memory.bits import SLOT_PAGES
from softhca.memory.null import is_null
from softhca.queues import control_fields as control
from softhca.queues.completion import CompletionQueue
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.shared_receive import SharedReceiveQueue
from softhca.queues.wqe import receive_bytes
from softhca.transport.environment import AddressHandle
from softhca.transport.states import XRC
from softhca.wire.route import is_multicast

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter
    from softhca.adapter.hosts import Host

Fields = dict[str, Any]
Handler = Callable[["Adapter", "Host", Fields, int], Mapping[str, Any]]

NO_DOORBELL = 0xFFFFFFFF


def serve_commands(adapter: Adapter, host: Host, now: int) -> bool:
    """Take and answer those of a host's commands that are due, a bounded number; whether there were any."""
    for turn in range(min(host.due, COMMANDS_A_TURN)):
        command = None
        if host.commands.count() and host.replies.room():
            command = host.commands.take()
        if command is None:
            return turn > 0
        if command.errno:
            host.replies.send(command.tag, command.command, command.errno, reason=command.reason)
        else:
            code, reply, reason = execute(adapter, host, command.command, command.fields, now)
            host.replies.send(command.tag, command.command, code, reply, reason)
        host.mark()
    return True


def execute(
    adapter: Adapter, host: Host, command: int, fields: Fields, now: int
) -> tuple[int, Mapping[str, Any], str]:
    """``(errno, reply fields, reason)`` of one decoded command; never raises for what a host may have
    written, only what a signal handler of this process raises: then the command is half done.

    A value that some check below lets through and that then does not fit where it should go is a refusal
    too: handlers make what can fail before they change anything.
    """
    try:
        return 0, HANDLERS[command](adapter, host, fields, now), ""
    except (OSError, MemoryError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        if raised_by_handler(error):
            raise
        return _refusal(error)


def _refusal(error: Exception) -> tuple[int, Mapping[str, Any], str]:
    """As `execute`, of a command that ended by ``error``."""
    if isinstance(error, OSError):
        return error.errno or errno.EIO, {}, error.strerror or "the adapter failed"
    if isinstance(error, MemoryError):
        return errno.ENOMEM, {}, "the adapter has no memory left"
    return errno.EINVAL, {}, f"a value does not fit: {error}"


# what the adapter is


def _query_device(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    reachable = on_demand_commands.reachable(host)
    return {**adapter.device_attributes, **attributes.odp_attributes(adapter.config.profile, reachable)}


def _query_port(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    port = adapter.port_of(fields["port_num"])
    return attributes.port_attributes(port, port.bad_pkeys(), adapter.counters.drops_qkey & 0xFFFFFFFF)


def _query_gid(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    port = adapter.port_of(fields["port_num"])
    if fields["index"] >= adapter.config.gid_table_length:
        raise OSError(errno.EINVAL, f"index = {fields['index']}: the GID table ends before")
    gids = port.gid_table
    index = fields["index"]
    return {
        "gid": gids[index] if index < len(gids) else bytes(16),
        "gid_type": attributes.GID_TYPE_IB if port.native else attributes.GID_TYPE_ROCE_V2,
    }


def _query_pkey(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    port = adapter.port_of(fields["port_num"])
    if fields["index"] >= adapter.config.pkey_table_length:
        raise OSError(errno.EINVAL, f"index = {fields['index']}: the P_Key table ends before")
    return {"pkey": port.pkey(fields["index"])}


def _query_counters(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    if fields["scope"] == control.COUNTERS_QP:
        kind = Kind.QP if adapter.resources.get(Kind.WQ, fields["element"]) is None else Kind.WQ
        resource = adapter.resources.find(kind, fields["element"], host.number, "element")
        figures = resource.element.counters.as_dict()
        if resource.element.executor is not None:
            figures.update(resource.element.executor.figures())
        return {"counters": list(figures.items())}
    if fields["scope"] == control.COUNTERS_EE:
        resource = adapter.resources.find(Kind.EEC, fields["element"], host.number, "element")
        return {"counters": list(resource.element.counters.as_dict().items())}
    if fields["scope"] != control.COUNTERS_PORT:
        raise OSError(errno.EINVAL, "scope: counters are a port's, a queue pair's or an EE context's")
    port = adapter.port_of(fields["element"] or 1, "element")
    return {"counters": list(adapter.port_counters(port.number).items())}


# memory


def _attach_arena(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    slot, pages, address = fields["slot"], fields["pages"], fields["address"]
    if fields["memory"] == control.MEMORY_PASSED:
        return _attach_passed(adapter, host, slot, pages, host.take_descriptor(address))
    if fields["memory"] not in (control.MEMORY_SHARED, control.MEMORY_FOREIGN):
        raise OSError(errno.EINVAL, f"memory = {fields['memory']}: there is no such kind")
    if fields["memory"] == control.MEMORY_SHARED:
        if not host.address_map.address(slot * SLOT_PAGES):
            raise OSError(errno.EINVAL, f"slot = {slot}: it is no shared memory of this host")
        return {}
    if not host.foreign:
        raise OSError(errno.EPERM, "memory: nothing but the shared memory of this host can be reached")
    number, slots = _free_slots(adapter, host, slot, pages)
    # an embedded host shares its own map with the adapter: there the buffer is in place already, put
    # there by this process itself; an address that a host merely names is never one of this process
    present = host.pid == 0 and pages > 0 and host.address_map.address(slot * SLOT_PAGES) == address != 0
    if present:
        last = slot * SLOT_PAGES + pages - 1
        if host.address_map.address(last) != address + (pages - 1) * 4096:
            raise OSError(errno.EINVAL, f"pages = {pages}: slot {slot} does not hold so many")
    elif host.pid <= 0:
        raise OSError(errno.EPERM, f"slot = {slot}: it is not in the map of this process")
    else:
        host.address_map.attach(slot, pages, address, host.pid)
    _enter_arena(adapter, host, number, slots, (slot, pages, not present))
    return {}


def _attach_passed(adapter: Adapter, host: Host, slot: int, pages: int, descriptor: int) -> Fields:
    """An arena over a memfd that this host has passed."""
    try:
        number, slots = _free_slots(adapter, host, slot, pages)
    except BaseException:
        os.close(descriptor)
        raise
    mapping = device_memory.attach_passed(host, slot, pages, descriptor)
    _enter_arena(adapter, host, number, slots, (slot, pages, True, mapping))
    return {}


def _free_slots(adapter: Adapter, host: Host, slot: int, pages: int) -> tuple[int, range]:
    """A number for a new arena, and the slots that it takes; EBUSY."""
    number = adapter.resources.reserve(Kind.ARENA)
    slots = range(slot, slot + -(-pages // SLOT_PAGES))
    if any(other in host.arenas for other in slots):
        raise OSError(errno.EBUSY, f"slot = {slot}: it is attached already")
    return number, slots


def _enter_arena(adapter: Adapter, host: Host, number: int, slots: range, element: Any) -> None:
    resource = adapter.resources.add(Kind.ARENA, number, host.number, element)
    host.arenas.update(dict.fromkeys(slots, resource))


def _detach_arena(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = host.arenas.get(fields["slot"])
    if resource is None or resource.element[:2] != (fields["slot"], fields["pages"]):
        wanted = f"slot = {fields['slot']}, pages = {fields['pages']}"
        raise OSError(errno.EINVAL, f"{wanted}: no attached pages begin there, or another number")
    adapter.resources.remove(resource)
    _release_arena(host, resource)
    return {}


def _release_arena(host: Host, resource: Resource) -> None:
    slot, pages, attached_here = resource.element[:3]
    for used in range(slot, slot + -(-pages // SLOT_PAGES)):
        del host.arenas[used]
    if attached_here:
        host.address_map.detach(slot, pages)


def _alloc_pd(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    pd = adapter.resources.reserve(Kind.PD)
    adapter.resources.add(Kind.PD, pd, host.number, None)
    return {"pd": pd}


def _dealloc_pd(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    pd = adapter.resources.find_own(Kind.PD, fields["pd"], host.number)
    key_commands.end_null_regions(adapter, pd)
    adapter.resources.remove(pd)
    return {}


def _arenas_of(host: Host, frames: Sequence[tuple[int, int]]) -> tuple[Resource, ...]:
    """The attached buffers that runs of frames lie in, each once; memory of the memfd needs none."""
    found: dict[int, Resource] = {}
    for first, count in frames:
        for slot in range(first // SLOT_PAGES, (first + max(count, 1) - 1) // SLOT_PAGES + 1):
            if slot in host.arenas:
                found[host.arenas[slot].number] = host.arenas[slot]
    return tuple(found.values())


def _reg_mr(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    if on_demand_commands.wanted(fields):
        return on_demand_commands.register(adapter, host, fields)
    pd = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    if fields["length"] > adapter.config.max_mr_size_bytes:
        raise OSError(errno.EINVAL, f"length: a region has at most {adapter.config.max_mr_size_bytes} bytes")
    key_commands.check_room(adapter)
    region = adapter.regions.register(
        host.address_map,
        pd.number,
        fields["va"],
        fields["length"],
        fields["access"],
        fields["frames"],
        fields["page_offset"],
        bool(fields["zero_based"]),
    )
    adapter.resources.add(Kind.MR, region.key, host.number, region, (pd, *_arenas_of(host, fields["frames"])))
    return {"lkey": region.key, "rkey": region.key}


def _rereg_mr(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = adapter.resources.find(Kind.MR, fields["lkey"], host.number)
    flags, region = fields["flags"], resource.element
    if not flags or flags & ~(control.REREG_TRANSLATION | control.REREG_PD | control.REREG_ACCESS):
        raise OSError(errno.EINVAL, f"flags = {flags:#x}: they name nothing that can be changed")
    if is_null(region):
        raise OSError(errno.EINVAL, "lkey: a null region cannot be changed")
    pd = resource.uses[0]
    arenas = resource.uses[1:]
    if flags & control.REREG_PD:
        pd = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    if on_demand_commands.is_on_demand(region):
        on_demand_commands.reregister(adapter, region, pd.number, fields)
        adapter.resources.move(resource, (pd,))
        adapter.resources.renumber(resource, region.key)
        return {"lkey": region.key, "rkey": region.key}
    translation = None
    if flags & control.REREG_TRANSLATION:
        if fields["length"] > adapter.config.max_mr_size_bytes:
            limit = adapter.config.max_mr_size_bytes
            raise OSError(errno.EINVAL, f"length: a region has at most {limit} bytes")
        translation = (
            host.address_map,
            fields["va"],
            fields["length"],
            fields["frames"],
            fields["page_offset"],
            bool(fields["zero_based"]),
        )
    adapter.regions.reregister(
        region,
        pd=pd.number,
        access=fields["access"] if flags & control.REREG_ACCESS else None,
        translation=translation,
    )
    # the frames are known to be real now, so that their number is bounded
    if translation is not None:
        arenas = _arenas_of(host, fields["frames"])
    adapter.resources.move(resource, (pd, *arenas))
    adapter.resources.renumber(resource, region.key)
    return {"lkey": region.key, "rkey": region.key}


def _dereg_mr(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = adapter.resources.find(Kind.MR, fields["lkey"], host.number)
    adapter.regions.deregister(resource.element)
    adapter.resources.remove(resource)
    host.forget(control.MR_EVENTS, fields["lkey"])
    return {}


# completion queues


def _create_cq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    if fields["flags"] or fields["comp_vector"]:
        raise OSError(errno.EINVAL, "comp_vector, flags: there is one vector, and no creation flag")
    hook: Any = host
    if fields["channel"]:
        hook = ChannelHook(host, host.event_channel(fields["channel"]))
    number = adapter.resources.reserve(Kind.CQ)
    layout = _completion_layout(adapter, host, fields)
    cost_bytes = cost_of(layout, produces=True)
    adapter.resources.afford(host.number, cost_bytes, adapter.config.max_host_bytes)
    cq = CompletionQueue(number, layout, hook)
    if fields["channel"]:
        hook.late = LateEvents(adapter, cq)
    adapter.resources.add(Kind.CQ, number, host.number, cq, cost_bytes=cost_bytes)
    return {"cq": number, "cqe": layout.entries}


def _completion_layout(adapter: Adapter, host: Host, fields: Fields) -> Any:
    return layout_of(
        host.address_map,
        fields,
        least_entries=fields["entries"],
        most_entries=adapter.config.max_cqe,
        least_entry_bytes=CQE_BYTES,
        most_entry_bytes=CQE_BYTES,
    )


def _resize_cq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = adapter.resources.find(Kind.CQ, fields["cq"], host.number)
    layout = _completion_layout(adapter, host, fields)
    cost_bytes = cost_of(layout, produces=True)
    adapter.resources.afford(host.number, cost_bytes - resource.cost_bytes, adapter.config.max_host_bytes)
    resource.element.move_to(layout)
    adapter.resources.charge(resource, cost_bytes)
    return {"cqe": layout.entries}


def _destroy_cq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = adapter.resources.find(Kind.CQ, fields["cq"], host.number)
    adapter.resources.remove(resource)
    host.forget(control.CQ_EVENTS, fields["cq"])
    if isinstance(resource.element.notify_hook, ChannelHook):
        resource.element.notify_hook.forget(fields["cq"])
    return {}


# shared receive queues


def _create_srq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    config = adapter.config
    pd = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    if not 0 < fields["max_wr"] <= config.max_srq_wr or not 0 < fields["max_sge"] <= config.max_srq_sge:
        raise OSError(
            errno.EINVAL,
            f"max_wr, max_sge: expected 1…{config.max_srq_wr} and 1…{config.max_srq_sge}",
        )
    if fields["srq_limit"] > fields["max_wr"]:
        raise OSError(errno.EINVAL, f"srq_limit = {fields['srq_limit']}: the queue has fewer entries")
    uses, cq = _xrc_uses(adapter, host, fields)
    number = adapter.resources.reserve(Kind.SRQ)
    layout = layout_of(
        host.address_map,
        fields,
        least_entries=fields["max_wr"],
        most_entries=config.max_srq_wr,
        least_entry_bytes=receive_bytes(1),
        most_entry_bytes=receive_bytes(fields["max_sge"]),
    )
    adapter.resources.afford(host.number, cost_of(layout), adapter.config.max_host_bytes)
    srq = SharedReceiveQueue(number, pd.number, layout, fields["max_sge"], host, cq)
    added = adapter.resources.add(Kind.SRQ, number, host.number, srq, (pd, *uses), cost_of(layout))
    domain = xrc_domains.domain_of(added)
    if domain is not None:
        domain.add(srq)
    srq.set_limit(fields["srq_limit"])
    return {"srq": number, "doorbell": NO_DOORBELL, "max_wr": layout.entries, "max_sge": fields["max_sge"]}


def _xrc_uses(
    adapter: Adapter, host: Host, fields: Fields
) -> tuple[tuple[Resource, ...], CompletionQueue | None]:
    """What a queue of an XRC domain stands on besides a protection domain, and its completion queue."""
    if fields["srq_type"] == control.SRQT_BASIC:
        if fields["cq"] or fields["xrcd"]:
            raise OSError(errno.EINVAL, "cq, xrcd: only queues with srq_type XRC have them")
        return (), None
    if fields["srq_type"] != control.SRQT_XRC:
        raise OSError(errno.EOPNOTSUPP, f"srq_type = {fields['srq_type']} is not supported")
    if XRC not in adapter.config.profile.services:
        raise OSError(errno.EOPNOTSUPP, f"srq_type: this {adapter.config.profile} has no XRC")
    cq = adapter.resources.find(Kind.CQ, fields["cq"], host.number)
    return (cq, adapter.resources.find(Kind.XRCD, fields["xrcd"], host.number)), cq.element


def _modify_srq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    srq = adapter.resources.find(Kind.SRQ, fields["srq"], host.number).element
    if fields["attr_mask"] & ~control.SRQ_LIMIT:
        raise OSError(errno.EINVAL, "attr_mask: only srq_limit can be changed")
    if fields["srq_limit"] > srq.consumer.layout.entries:
        raise OSError(errno.EINVAL, f"srq_limit = {fields['srq_limit']}: the queue has fewer entries")
    if fields["attr_mask"] & control.SRQ_LIMIT:
        srq.set_limit(fields["srq_limit"])
    return {}


def _query_srq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    srq = adapter.resources.find(Kind.SRQ, fields["srq"], host.number).element
    return {"max_wr": srq.consumer.layout.entries, "max_sge": srq.max_sge, "srq_limit": srq.limit}


def _destroy_srq(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = adapter.resources.find(Kind.SRQ, fields["srq"], host.number)
    adapter.resources.check_idle(resource)
    _release_srq(resource)
    adapter.resources.remove(resource)
    host.forget(control.SRQ_EVENTS, fields["srq"])
    return {}


def _release_srq(resource: Resource) -> None:
    """A shared receive queue is about to be freed: no target finds it any more."""
    domain = xrc_domains.domain_of(resource)
    if domain is not None:
        domain.remove(resource.element)


# address handles, multicast and raw services


def _create_ah(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    pd = adapter.resources.find(Kind.PD, fields["pd"], host.number)
    port = adapter.port_of(fields["port_num"] or 1)
    check_vector(fields, port)
    number = adapter.resources.reserve(Kind.AH)
    route = route_of(fields, port, number)
    handle = AddressHandle(number, pd.number, route, adapter.window_for(route), fields["sl"], fields)
    adapter.resources.add(Kind.AH, number, host.number, handle, (pd,))
    adapter.handles[number] = handle
    return {"ah": number}


def _destroy_ah(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    adapter.resources.remove(adapter.resources.find(Kind.AH, fields["ah"], host.number))
    del adapter.handles[fields["ah"]]
    return {}


def _attach_mcast(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = adapter.resources.find(Kind.QP, fields["qp_num"], host.number)
    if not is_multicast(fields["gid"]):
        raise OSError(errno.EINVAL, "gid: it is no multicast GID")
    adapter.groups.attach(fields["gid"], resource.element)
    return {}


def _detach_mcast(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = adapter.resources.find(Kind.QP, fields["qp_num"], host.number)
    adapter.groups.detach(fields["gid"], resource.element)
    return {}


def _attach_raw(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = adapter.resources.find(Kind.QP, fields["qp_num"], host.number)
    adapter.raw_services.attach(fields["service"], resource.element)
    return {}


def _detach_raw(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
    resource = adapter.resources.find(Kind.QP, fields["qp_num"], host.number)
    adapter.raw_services.detach(fields["service"], resource.element)
    return {}


def release(adapter: Adapter, host: Host, resource: Resource) -> None:
    """Free a resource whose host is gone; what stands on it has been freed before."""
    if resource.kind is Kind.QP:
        queue_pair_commands.destroy(adapter, host, resource)
        return
    if resource.kind is Kind.WQ:
        work_queue_commands.destroy(adapter, host, resource)
        return
    if resource.kind is Kind.EEC:
        ee_commands.destroy(adapter, resource)
        return
    if resource.kind is Kind.FLOW:
        steering_commands.destroy(adapter, resource)
        return
    if resource.kind is Kind.DM:
        device_memory.release(adapter, resource)
        return
    if adapter.resources.hand_over(resource):
        return
    if resource.kind in (Kind.MR, Kind.FAST_MR):  # another host of the domain may have bound windows to it
        adapter.memory_windows.forget_region(resource.element)
    if resource.kind in (Kind.MW, Kind.FAST_MR):
        adapter.memory_windows.deallocate(resource.element)
    elif resource.kind is Kind.MR:
        adapter.regions.deregister(resource.element)
    elif resource.kind is Kind.AGENT:
        host_agents.release_agent(adapter, host, resource)
    elif resource.kind is Kind.CM:
        from softhca.adapter import connection_commands

        connection_commands.release_channel(adapter, host, resource)
    elif resource.kind is Kind.AH:
        del adapter.handles[resource.number]
    elif resource.kind is Kind.SRQ:
        _release_srq(resource)
    elif resource.kind is Kind.CQ and isinstance(resource.element.notify_hook, ChannelHook):
        resource.element.notify_hook.close()
    adapter.resources.remove(resource)
    if resource.kind is Kind.ARENA:
        _release_arena(host, resource)
    elif resource.kind is Kind.XRCD:
        xrc_domains.release_domain(adapter, resource)


def _of_connections(name: str) -> Handler:
    """The handler of this name in `connection_commands`, which is imported when a host needs it."""

    handler: Handler | None = None

    def handle(adapter: Adapter, host: Host, fields: Fields, now: int) -> Mapping[str, Any]:
        nonlocal handler
        if handler is None:
            from softhca.adapter import connection_commands

            handler = getattr(connection_commands, name)
            assert handler is not None
        return handler(adapter, host, fields, now)

    return handle


HANDLERS: Mapping[int, Handler] = {
    control.QUERY_DEVICE: _query_device,
    control.QUERY_PORT: _query_port,
    control.QUERY_GID: _query_gid,
    control.QUERY_PKEY: _query_pkey,
    control.QUERY_COUNTERS: _query_counters,
    control.ATTACH_ARENA: _attach_arena,
    control.DETACH_ARENA: _detach_arena,
    control.ALLOC_PD: _alloc_pd,
    control.DEALLOC_PD: _dealloc_pd,
    control.REG_MR: _reg_mr,
    control.REREG_MR: _rereg_mr,
    control.DEREG_MR: _dereg_mr,
    control.EXPORT_CONTEXT: context_sharing.export_context,
    control.IMPORT_CONTEXT: context_sharing.import_context,
    control.IMPORT_PD: context_sharing.import_pd,
    control.UNIMPORT_PD: context_sharing.unimport_pd,
    control.IMPORT_MR: context_sharing.import_mr,
    control.ALLOC_DM: device_memory.alloc_dm,
    control.FREE_DM: device_memory.free_dm,
    control.REG_PAGED: paged_commands.reg_paged,
    control.SET_DATA_ACCESS: paged_commands.set_data_access,
    control.CREATE_CQ: _create_cq,
    control.RESIZE_CQ: _resize_cq,
    control.DESTROY_CQ: _destroy_cq,
    control.OPEN_XRCD: xrc_domains.open_xrcd,
    control.CLOSE_XRCD: xrc_domains.close_xrcd,
    control.CREATE_SRQ: _create_srq,
    control.MODIFY_SRQ: _modify_srq,
    control.QUERY_SRQ: _query_srq,
    control.DESTROY_SRQ: _destroy_srq,
    control.CREATE_AH: _create_ah,
    control.DESTROY_AH: _destroy_ah,
    control.ATTACH_MCAST: _attach_mcast,
    control.DETACH_MCAST: _detach_mcast,
    control.REGISTER_AGENT: host_agents.register_agent,
    control.UNREGISTER_AGENT: host_agents.unregister_agent,
    control.SEND_MAD: host_agents.send_mad,
    control.OPEN_CM: _of_connections("open_cm"),
    control.CLOSE_CM: _of_connections("close_cm"),
    control.CM_LISTEN: _of_connections("cm_listen"),
    control.CM_CONNECT: _of_connections("cm_connect"),
    control.CM_REPLY: _of_connections("cm_reply"),
    control.CM_READY: _of_connections("cm_ready"),
    control.CM_REJECT: _of_connections("cm_reject"),
    control.CM_DISCONNECT: _of_connections("cm_disconnect"),
    control.CM_ESTABLISH: _of_connections("cm_establish"),
    control.CM_RESOLVE: _of_connections("cm_resolve"),
    control.CM_ANSWER: _of_connections("cm_answer"),
    control.CM_DESTROY: _of_connections("cm_destroy"),
    control.CM_LOAD_PATH: _of_connections("cm_load_path"),
    control.CM_ANSWER_PATH: _of_connections("cm_answer_path"),
    control.ATTACH_RAW: _attach_raw,
    control.CREATE_FLOW: steering_commands.create_flow,
    control.DESTROY_FLOW: steering_commands.destroy_flow,
    control.CREATE_WQ: work_queue_commands.create_wq,
    control.MODIFY_WQ: work_queue_commands.modify_wq,
    control.DESTROY_WQ: work_queue_commands.destroy_wq,
    control.CREATE_RWQ_IND_TABLE: work_queue_commands.create_rwq_ind_table,
    control.DESTROY_RWQ_IND_TABLE: work_queue_commands.destroy_rwq_ind_table,
    control.CREATE_RSS_QP: work_queue_commands.create_rss_qp,
    control.DETACH_RAW: _detach_raw,
    control.ALLOC_MW: key_commands.alloc_mw,
    control.DEALLOC_MW: key_commands.dealloc_mw,
    control.ALLOC_FAST_MR: key_commands.alloc_fast_mr,
    control.ALLOC_NULL_MR: key_commands.alloc_null_mr,
    control.DEREG_FAST_MR: key_commands.dereg_fast_mr,
    control.ALLOC_RDD: ee_commands.alloc_rdd,
    control.DEALLOC_RDD: ee_commands.dealloc_rdd,
    control.CREATE_EE: ee_commands.create_ee,
    control.MODIFY_EE: ee_commands.modify_ee,
    control.QUERY_EE: ee_commands.query_ee,
    control.DESTROY_EE: ee_commands.destroy_ee,
    control.CREATE_QP: queue_pair_commands.create_qp,
    control.MODIFY_QP: queue_pair_commands.modify_qp,
    control.QUERY_QP: queue_pair_commands.query_qp,
    control.DESTROY_QP: queue_pair_commands.destroy_qp,
}
