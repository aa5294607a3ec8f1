"""Calls of pyverbs that need no device, right and wrong, and what comes of each: the same program runs on the
compiled pyverbs of rdma-core 44 and on softhca's classes under that name.

Each call is a line of statements, whose last is the expression that is told.  As a program it prints one JSON
object, call → outcome; with ``apart`` other processes make the calls, since compiled classes may end wrong
ones with a crash, with ``softhca`` the classes are softhca's.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

APART = sys.argv[1:] == ["apart"]

VALUES = (
    "0",
    "1",
    "255",
    "256",
    "65535",
    "65536",
    "2**32-1",
    "2**32",
    "2**63",
    "2**64-1",
    "2**64",
    "-1",
    "1.9",
    "-0.5",
    "True",
    "None",
    "'1'",
    "b'1'",
    "float('nan')",
    "float('inf')",
    "1j",
    "Fraction(7, 2)",
    "Decimal('3.9')",
)
"""What is assigned to every number of every object."""

OBJECTS = {
    "QPCap()": "max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data",
    "QPInitAttr()": "qp_type sq_sig_all max_send_wr max_recv_sge",
    "QPInitAttrEx()": "comp_mask create_flags max_tso_header source_qpn",
    "QPAttr()": "qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num "
    "qp_access_flags pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic "
    "max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout "
    "rate_limit",
    "AHAttr()": "port_num sl src_path_bits dlid static_rate is_global",
    "AHAttr(is_global=1, gr=GlobalRoute(dgid=GID()))": "flow_label sgid_index hop_limit traffic_class",
    "GRH(dgid=GID(), sgid=GID())": "version_tclass_flow paylen next_hdr hop_limit",
    "GlobalRoute(dgid=GID())": "flow_label sgid_index hop_limit traffic_class",
    "SrqAttr()": "max_wr max_sge srq_limit",
    "SrqInitAttrEx()": "comp_mask srq_type",
    "CqInitAttrEx()": "cqe comp_vector wc_flags comp_mask flags",
    "PollCqAttr()": "comp_mask",
}

MAKERS = {
    "QPCap(max_send_wr={})": "max_send_wr",
    "QPAttr(qp_state={})": "qp_state",
    "QPAttr(port_num={})": "port_num",
    "QPInitAttr(qp_type={})": "qp_type",
    "QPInitAttr(sq_sig_all={})": "sq_sig_all",
    "QPInitAttrEx(comp_mask={})": "comp_mask",
    "QPInitAttrEx(max_tso_header={})": "max_tso_header",
    "AHAttr(dlid={})": "dlid",
    "AHAttr(port_num={})": "port_num",
    "GlobalRoute(dgid=GID(), flow_label={})": "flow_label",
    "SGE({}, 0, 0)": "addr",
    "SGE(0, {}, 0)": "length",
    "SGE(0, 0, {})": "lkey",
    "SendWR({}, num_sge=1, sg=[SGE(1, 2, 3)])": "wr_id",
    "SendWR(opcode={}, num_sge=1, sg=[SGE(1, 2, 3)])": "opcode",
    "SendWR(imm_data={}, num_sge=1, sg=[SGE(1, 2, 3)])": "imm_data",
    "SendWR(send_flags={}, num_sge=1, sg=[SGE(1, 2, 3)])": "send_flags",
    "RecvWR({}, num_sge=1, sg=[SGE(1, 2, 3)])": "wr_id",
    "SrqAttr({})": "max_wr",
    "SrqInitAttrEx(max_wr={})": "max_wr",
    "CqInitAttrEx(cqe={})": "cqe",
    "WC({})": "wr_id",
    "WC(status={})": "status",
    "GIDEntry({})": "gid_subnet_prefix",
}

DEFAULTS = {
    "QPCap()": OBJECTS["QPCap()"],
    "QPInitAttr()": OBJECTS["QPInitAttr()"] + " send_cq recv_cq srq max_recv_wr max_send_sge max_inline_data",
    "QPInitAttrEx()": OBJECTS["QPInitAttrEx()"]
    + " qp_type sq_sig_all pd srq send_cq max_send_wr max_recv_wr",
    "QPAttr()": OBJECTS["QPAttr()"] + " cap.max_send_wr cap.max_recv_wr ah_attr.port_num ah_attr.is_global",
    "AHAttr()": OBJECTS["AHAttr()"] + " dgid flow_label sgid_index hop_limit traffic_class",
    "GRH(dgid=GID(), sgid=GID())": OBJECTS["GRH(dgid=GID(), sgid=GID())"] + " dgid sgid",
    "GlobalRoute(dgid=GID())": OBJECTS["GlobalRoute(dgid=GID())"] + " dgid",
    "GID()": "gid",
    "SrqAttr()": OBJECTS["SrqAttr()"],
    "SrqInitAttr()": "max_wr max_sge srq_limit",
    "SrqInitAttrEx()": "max_wr max_sge srq_limit comp_mask srq_type pd",
    "CqInitAttrEx()": OBJECTS["CqInitAttrEx()"] + " comp_channel parent_domain",
    "PollCqAttr()": "comp_mask",
    "WC()": "wr_id status opcode vendor_err byte_len qp_num src_qp imm_data wc_flags pkey_index slid sl",
    "GIDEntry()": "gid_subnet_prefix gid_interface_id gid_index port_num gid_type ndev_ifindex",
    "SendWR(num_sge=1, sg=[SGE(1, 2, 3)])": "wr_id num_sge imm_data opcode send_flags next_wr",
    "RecvWR(num_sge=1, sg=[SGE(1, 2, 3)])": "wr_id num_sge next_wr",
    "DeviceAttr()": "max_qp fw_version atomic_caps phys_port_cnt",
    "PortAttr()": "state max_mtu lid",
}

READ_ONLY = (
    "DeviceAttr().max_qp",
    "PortAttr().state",
    "GIDEntry().gid_index",
    "AsyncEvent().event_type",
    "SrqInitAttr().max_wr",
    "SrqInitAttrEx().max_wr",
    "ODPCaps().general_caps",
    "DeviceAttrEx().odp_caps",
)

_FACTS = Path(__file__).parents[1] / "data" / "pyverbs" / "names.json"
CLASSES = json.loads(_FACTS.read_text())["44"]["classes"]
"""Module → class → members."""

MADE = {maker.split("(")[0]: maker for maker in OBJECTS if " " not in maker and "=" not in maker}
"""How an object of a class is made without a device; the others are made without their constructor."""

SEND = "w = SendWR(num_sge=1, sg=[SGE(1, 2, 3)]); "

OTHERS = (
    # arguments of the wrong type, number or name
    "PD()",
    "PD(None)",
    "PD(3)",
    "CQ(None, 3)",
    "CQ(3)",
    "CQ(3, 1)",
    "CQEX(3, None)",
    "CompChannel(3)",
    "CompChannel(None)",
    "QP(None, QPInitAttr())",
    "QP(3, QPInitAttr())",
    "SRQ(3, SrqInitAttr())",
    "SRQ(None, None)",
    "AH(3, attr=AHAttr())",
    "MW(3, 1)",
    "MW(None, 1)",
    "MR(None, 1, 1)",
    "MR()",
    "MWBindInfo(None, 1, 2, 3)",
    "MWBindInfo(3, 1, 2, 3)",
    "MWBind(3, 4)",
    "MWBind(None, 4)",
    "QPCap('x')",
    "QPCap(foo=3)",
    "QPCap(1, 2, 3, 4, 5, 6)",
    "QPInitAttr(cap=3)",
    "QPInitAttr(scq=3)",
    "QPInitAttr(srq=3)",
    "QPInitAttrEx(pd=3)",
    "SrqInitAttr(3)",
    "CqInitAttrEx(channel=3)",
    "GlobalRoute(dgid=3)",
    "AHAttr(gr=3)",
    "AHAttr(is_global=1)",
    "AHAttr(is_global=1, gr=3)",
    "SGE()",
    "SGE(1, 2)",
    "PollCqAttr(1)",
    "a = QPAttr(); a.cap = 3",
    "a = QPAttr(); a.ah_attr = 3",
    "a = QPAttr(); a.alt_ah_attr = 'x'",
    "a = QPInitAttr(); a.cap = 3",
    "a = QPInitAttr(); a.srq = 3",
    "a = QPInitAttrEx(); a.pd = 3",
    "a = SrqInitAttrEx(); a.pd = 3",
    "a = CqInitAttrEx(); a.comp_channel = 3",
    # copies of what stands inside
    "a = QPAttr(); a.ah_attr.sl = 3; a.ah_attr.sl",
    "a = QPAttr(); a.cap.max_send_wr = 3; a.cap.max_send_wr",
    "a = QPInitAttr(); a.cap.max_send_wr = 3; a.max_send_wr",
    "a = QPAttr(); c = QPCap(); a.cap = c; c.max_send_wr = 77; a.cap.max_send_wr",
    "c = QPCap(3); a = QPInitAttr(cap=c); c.max_send_wr = 77; a.max_send_wr",
    "a = QPAttr(); v = AHAttr(sl=4); a.ah_attr = v; v.sl = 5; a.ah_attr.sl",
    # GIDs and address vectors
    "GID('a')",
    "GID('')",
    "GID('0:1')",
    "GID('fe80::1')",
    "GID(3)",
    "GID('fe80:0:0:0:0:0:0:1')",
    "GID('fe80:0000:0000:0000:0000:0000:0000:000g')",
    "GID('fe80:0000:0000:0000:0000:0000:0000:0001').gid",
    "str(GID('fe80:0000:0000:0000:0000:0000:0000:0001'))",
    "g = GID(); g.gid = 3",
    "g = GID(); g.gid = 'x'",
    "a = AHAttr(); a.dgid = '3'; a.dgid",
    "a = AHAttr(); a.flow_label = 3; a.flow_label",
    "a = AHAttr(); a.sgid_index = 3; a.is_global = 1; a.sgid_index",
    "r = GlobalRoute(dgid=GID(), sgid_index=2); a = AHAttr(is_global=1, gr=r); (a.sgid_index, a.hop_limit)",
    # work requests
    "SendWR()",
    "RecvWR(num_sge=1)",
    "SendWR(num_sge=0, sg=[SGE(1, 2, 3)])",
    "SendWR(num_sge=2, sg=[SGE(1, 2, 3)])",
    "SendWR(num_sge=-1, sg=[SGE(1, 2, 3)])",
    "RecvWR(num_sge=2, sg=[SGE(1, 2, 3)])",
    "RecvWR(num_sge=-1, sg=[SGE(1, 2, 3)])",
    "SendWR(num_sge=1, sg=[SGE(1, 2, 3)], next_wr=3)",
    "RecvWR(num_sge=1, sg=[SGE(1, 2, 3)], next_wr=3)",
    "SendWR(opcode=e.IBV_WR_LOCAL_INV).num_sge",
    "SendWR(opcode=e.IBV_WR_BIND_MW).num_sge",
    SEND + "w.set_wr_ud(3, 1, 1)",
    SEND + "w.set_wr_rdma(-1, 1)",
    SEND + "w.set_wr_rdma(1, -1)",
    SEND + "w.set_wr_rdma(1.5, 2.5)",
    SEND + "w.set_wr_rdma(2**32, 1)",
    SEND + "w.set_wr_rdma('x', 1)",
    SEND + "w.set_wr_atomic(1, 2, 3, -4)",
    SEND + "w.set_wr_atomic(1, 2, -3, 4)",
    SEND + "w.set_wr_atomic(1, 2, 3.5)",
    SEND + "w.set_bind_wr(3, 4)",
    SEND + "w.next_wr = 3",
    SEND + "w.rkey = 3",
    SEND + "w.foo = 3",
    # text and numbers
    "inc_rkey(0xFF), inc_rkey(0x1FF)",
    "gid_str(1, 2)",
    "guid_format(1)",
    "guid_to_hex(1)",
    "[u.qp_type_to_str(n) for n in (2, 3, 4, 8, 9, 10, 99)]",
    "[u.qp_state_to_str(n) for n in range(8)]",
    "[u.mtu_to_str(n) for n in (0, 1, 3, 5, 99)]",
    "[u.access_flags_to_str(n) for n in (0, 1, 7, 127)]",
    "[u.mig_state_to_str(n) for n in (0, 1, 2, 9)]",
    "[u.rereg_error_to_str(n) for n in (-1, -2, -3, -4, 9)]",
    "u.gid_str_to_array('x')",
    "mwtype2str(1), mwtype2str(2), mwtype2str(9)",
    "send_flags_to_str(31)",
    "PyverbsRDMAError('x').error_code",
    "PyverbsRDMAError('x', 22).error_code",
    "str(PyverbsRDMAError('x', 22))",
    "str(PyverbsUserError('x'))",
    "issubclass(PyverbsUserError, PyverbsError)",
    *(
        f"translate_{name}({value})"
        for name in ("node_type", "transport_type", "mtu", "link_layer", "gid_type", "event_type")
        for value in ("1", "3", "99", "-1", "1.0", "'x'")
    ),
    *(
        f"{name}_to_str({value})"
        for name in ("port_state", "phys_state", "width", "speed")
        for value in ("1", "2", "99", "-1", "1.0", "'x'")
    ),
    *(
        f"translate_{name}({value})"
        for name in ("port_cap_flags", "port_cap_flags2", "device_caps")
        for value in ("3", "99", "1.0", "'x'")
    ),
)


def calls() -> Iterator[str]:
    """All calls, each once."""
    for maker, names in OBJECTS.items():
        for name in names.split():
            for value in VALUES:
                yield f"a = {maker}; a.{name} = {value}; a.{name}"
    for maker, name in MAKERS.items():
        for value in VALUES:
            made = maker.format(value)
            yield f"{made}.{name}"
    for maker, names in DEFAULTS.items():
        for name in names.split():
            yield f"{maker}.{name}"
        yield f"a = {maker}; a.no_such = 1"
        yield f"{maker}.no_such"
    for each in READ_ONLY:
        made, name = each.rsplit(".", 1)
        yield f"a = {made}; a.{name} = 1"
    yield from OTHERS
    for kinds in CLASSES.values():
        for kind, members in kinds.items():
            if kind and not kind.endswith("Error"):
                yield f"room({kind})"
                yield f"settable({kind}, {' '.join(members)!r})"


def room(kind: type) -> str:
    """Where attributes that a class has not can be set: on its objects, on those of a class derived from it;
    and whether its objects can be referred to weakly.
    """
    class Derived(kind):  # type: ignore[misc,valid-type]
        pass

    found = [each.__name__ for each in (kind, Derived) if made_of(kind, each, "no_such_attribute")]
    return " ".join(found) + (" weak" if kind.__weakrefoffset__ else "")


def settable(kind: type, members: str) -> str:
    """Those of the members that can be set, as far as the class itself says: in children, as objects whose
    constructor has not run may crash, being set, which is no refusal.
    """
    names = members.split()
    can_be = partial(made_of, kind, kind)
    can = in_children(can_be, names) if APART else list(map(can_be, names))
    return " ".join(name for name, one in zip(names, can, strict=True) if one or one is None)


def made_of(kind: type, made: type, name: str) -> bool:
    """Whether attribute ``name`` of an object can be set; a value that it refuses says so too."""
    found = eval(MADE[kind.__name__], NAMES) if kind is made and kind.__name__ in MADE else made.__new__(made)
    try:
        setattr(found, name, None)
    except AttributeError:
        return False
    except Exception:
        return True
    return True


def in_children(tell: Callable[[str], Any], words: Sequence[str]) -> list[Any]:
    """What ``tell`` says of each word, in a child; behind each word that has ended the child comes another
    one.  None for that word.
    """
    found: list[Any] = []
    while len(found) < len(words):
        readable, writable = os.pipe()
        child = os.fork()
        if not child:
            with os.fdopen(writable, "w") as stream:
                for word in words[len(found) :]:
                    stream.write(json.dumps(tell(word)) + "\n")
                    stream.flush()
            os._exit(0)
        os.close(writable)
        with os.fdopen(readable) as stream:
            found += map(json.loads, stream)
        os.waitpid(child, 0)
        if len(found) < len(words):
            found.append(None)
    return found


NAMES: dict[str, object] = {}


def namespace() -> dict[str, object]:
    """What a program has that imports everything."""
    from decimal import Decimal
    from fractions import Fraction

    names = NAMES
    names.update(Decimal=Decimal, Fraction=Fraction, room=room, settable=settable)
    for module in ("addr", "cq", "device", "mr", "pd", "qp", "srq", "wr", "base", "utils", "pyverbs_error"):
        exec(f"from pyverbs.{module} import *", names)
    for module, kinds in CLASSES.items():
        if wanted := ", ".join(filter(None, kinds)):
            exec(f"from pyverbs.{module} import {wanted}", names)
    exec("import pyverbs.enums as e, pyverbs.utils as u", names)
    exec("from pyverbs.utils import gid_str\nfrom pyverbs.base import inc_rkey", names)
    return names


def outcome(call: str, names: dict[str, object]) -> str:
    """What comes of a call: the value, or the exception's class, with its errno where it has one."""
    *before, last = call.split("; ")
    try:
        for each in before:
            exec(each, names)
        try:
            code = compile(last, "call", "eval")
        except SyntaxError:
            exec(last, names)
            return "done"
        found = eval(code, names)
    except Exception as error:
        number = getattr(error, "error_code", None)
        return f"!{type(error).__name__}" + ("" if number is None else f" {number}")
    if isinstance(found, int):
        return str(int(found))
    return repr(found) if isinstance(found, str | bytes | tuple | list | None) else type(found).__name__


def outcomes(words: Sequence[str], names: dict[str, object]) -> dict[str, str]:
    """`outcome` of each call; ``crash`` where that ends a process which has made no other.

    Copies of the namespace keep calls apart that one process makes."""

    def tell(call: str) -> str:
        return outcome(call, dict(names))

    if not APART:
        return {call: tell(call) for call in words}
    found = dict(zip(words, in_children(tell, words), strict=True))
    crashed = [call for call, told in found.items() if told is None]
    return found | {call: in_children(tell, [call])[0] or "crash" for call in crashed}


if __name__ == "__main__":
    if sys.argv[1:] == ["softhca"]:
        from softhca import pyverbs_alias

        pyverbs_alias.install()
    json.dump(outcomes(list(calls()), namespace()), sys.stdout, indent=0, ensure_ascii=False)
