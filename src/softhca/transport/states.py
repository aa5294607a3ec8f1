"""The queue pair's state machine as literal tables (IBTA vol. 1, 10.3.1 and 11.2.5.2).

A queue pair is made in RESET.  The consumer's *modify* moves it RESET → INIT → RTR → RTS; RTS ⇄ SQD drains
the send queue; an error of an unreliable send queue leads to SQE, from which RTS is reached again; every
other error leads to ERR.  RESET and ERR can be reached from every state.  Each transition names the
attributes that must be given and those that may be; anything else is refused with EINVAL and nothing
changes.

Attribute names are those of ``ibv_modify_qp``; ``qp_state`` itself is in no set.  Numbers are
``ibv_qp_state``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from errno import EINVAL
from typing import NamedTuple

from softhca.queues.states import ERR, INIT, NAMES, RESET, RTR, RTS, SQD, SQE

__all__ = [
    "BEHAVIOUR", "ERR", "FRAMES", "INIT", "NAMES", "RANGES", "RAW", "RC", "RD", "RD_EEC", "RESET", "RTR",
    "RTS", "SERVICES", "SQD", "SQE", "TRANSITIONS", "UC", "UD", "XRC", "XRC_TARGET", "Behaviour",
    "Transition", "broken_rule", "check", "check_values", "transition",
]  # fmt: skip

RC, UC, UD = 0, 1, 3  # the services by the top three bits of BTH's opcode
XRC = 5  # initiators
RD = 2  # queue pairs of reliable datagrams
RAW = 8  # raw datagrams have no BTH
FRAMES = 9  # whole Ethernet frames; queue pairs obey the rules of RAW
XRC_TARGET = 13  # of XRC too, but with rules of their own (annex A14)
RD_EEC = 10  # their end-to-end contexts (10.2.6; ``dest_qp_num`` is the peer's context)
SERVICES: tuple[int, ...] = (RC, UC, UD, XRC, RAW, XRC_TARGET, RD, RD_EEC)


class Behaviour(NamedTuple):
    """What a queue pair does in one state (IBTA 10.3.1).

    ``start_send``: new send requests are begun; ``transmit``: those already begun go on and are retried.
    ``receive``: request packets are executed; ``flush_send``, ``flush_receive``: what is queued completes
    flushed.  What may be posted stands in ``queues.states``.
    """

    start_send: bool = False
    transmit: bool = False
    receive: bool = False
    flush_send: bool = False
    flush_receive: bool = False


BEHAVIOUR: tuple[Behaviour, ...] = (
    Behaviour(),  # RESET
    Behaviour(),  # INIT
    Behaviour(receive=True),  # RTR
    Behaviour(start_send=True, transmit=True, receive=True),  # RTS
    Behaviour(transmit=True, receive=True),  # SQD
    Behaviour(receive=True, flush_send=True),  # SQE
    Behaviour(flush_send=True, flush_receive=True),  # ERR
)


class Transition(NamedTuple):
    """Attributes that a transition must be given and may be given."""

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


def _transition(required: str = "", optional: str = "") -> Transition:
    return Transition(frozenset(required.split()), frozenset(optional.split()))


_CONNECTED_RTR = "ah_attr path_mtu dest_qp_num rq_psn"
_CONNECTED_RUNNING = "cur_qp_state qp_access_flags alt_ah_attr path_mig_state"
# none of the standard's attributes; given on the way to RTS, or in it
_PACED = " rate_limit max_burst_sz typical_pkt_sz"
_XRC_SQD = (
    "port_num ah_attr timeout retry_cnt rnr_retry max_rd_atomic alt_ah_attr qp_access_flags pkey_index "
    "path_mig_state"
)
_XRC_TARGET_SQD = (
    "port_num ah_attr timeout max_dest_rd_atomic alt_ah_attr qp_access_flags pkey_index min_rnr_timer "
    "path_mig_state"
)
_RC_SQD = (
    "port_num ah_attr timeout retry_cnt rnr_retry max_rd_atomic max_dest_rd_atomic alt_ah_attr "
    "qp_access_flags pkey_index min_rnr_timer path_mig_state"
)

_RD_RUNNING = "cur_qp_state qkey qp_access_flags min_rnr_timer"
_EEC_SQD = "port_num ah_attr timeout retry_cnt rnr_retry max_rd_atomic max_dest_rd_atomic pkey_index"

# (from, to) → service → attributes.  RESET and ERR as targets stand apart: they take none and are always
# allowed.
TRANSITIONS: dict[tuple[int, int], dict[int, Transition]] = {
    (RESET, INIT): {
        RC: _transition("pkey_index port_num qp_access_flags"),
        UC: _transition("pkey_index port_num qp_access_flags"),
        UD: _transition("pkey_index port_num qkey"),
        RAW: _transition("port_num"),
        XRC: _transition("pkey_index port_num qp_access_flags"),
        XRC_TARGET: _transition("pkey_index port_num qp_access_flags"),
        RD: _transition("qkey qp_access_flags"),
        RD_EEC: _transition("pkey_index port_num"),
    },
    (INIT, INIT): {
        RC: _transition(optional="pkey_index port_num qp_access_flags"),
        UC: _transition(optional="pkey_index port_num qp_access_flags"),
        UD: _transition(optional="pkey_index port_num qkey"),
        RAW: _transition(optional="port_num"),
        XRC: _transition(optional="pkey_index port_num qp_access_flags"),
        XRC_TARGET: _transition(optional="pkey_index port_num qp_access_flags"),
        RD: _transition(optional="qkey qp_access_flags"),
        RD_EEC: _transition(optional="pkey_index port_num"),
    },
    (INIT, RTR): {
        RC: _transition(
            _CONNECTED_RTR + " max_dest_rd_atomic min_rnr_timer", "alt_ah_attr qp_access_flags pkey_index"
        ),
        UC: _transition(_CONNECTED_RTR, "alt_ah_attr qp_access_flags pkey_index"),
        UD: _transition(optional="pkey_index qkey"),
        RAW: _transition(),
        XRC: _transition(_CONNECTED_RTR, "alt_ah_attr qp_access_flags pkey_index"),
        XRC_TARGET: _transition(
            _CONNECTED_RTR + " max_dest_rd_atomic min_rnr_timer", "alt_ah_attr qp_access_flags pkey_index"
        ),
        RD: _transition("min_rnr_timer", "qkey qp_access_flags"),
        RD_EEC: _transition(_CONNECTED_RTR + " max_dest_rd_atomic", "pkey_index"),
    },
    (RTR, RTS): {
        RC: _transition(
            "sq_psn timeout retry_cnt rnr_retry max_rd_atomic", _CONNECTED_RUNNING + " min_rnr_timer" + _PACED
        ),
        UC: _transition("sq_psn", _CONNECTED_RUNNING + _PACED),
        UD: _transition("sq_psn", "cur_qp_state qkey" + _PACED),
        RAW: _transition(optional="cur_qp_state" + _PACED),
        XRC: _transition("sq_psn timeout retry_cnt rnr_retry max_rd_atomic", _CONNECTED_RUNNING + _PACED),
        XRC_TARGET: _transition("sq_psn timeout", _CONNECTED_RUNNING + " min_rnr_timer"),
        RD: _transition(optional=_RD_RUNNING),
        RD_EEC: _transition("sq_psn timeout retry_cnt rnr_retry max_rd_atomic", "cur_qp_state"),
    },
    (RTS, RTS): {
        RC: _transition(optional=_CONNECTED_RUNNING + " min_rnr_timer" + _PACED),
        UC: _transition(optional=_CONNECTED_RUNNING + _PACED),
        UD: _transition(optional="cur_qp_state qkey" + _PACED),
        RAW: _transition(optional="cur_qp_state" + _PACED),
        XRC: _transition(optional=_CONNECTED_RUNNING + _PACED),
        XRC_TARGET: _transition(optional=_CONNECTED_RUNNING + " min_rnr_timer"),
        RD: _transition(optional=_RD_RUNNING),
        RD_EEC: _transition(optional="cur_qp_state"),
    },
    (RTS, SQD): {
        RC: _transition(optional="en_sqd_async_notify"),
        UC: _transition(optional="en_sqd_async_notify"),
        UD: _transition(optional="en_sqd_async_notify"),
        RAW: _transition(optional="en_sqd_async_notify"),
        XRC: _transition(optional="en_sqd_async_notify"),
        XRC_TARGET: _transition(optional="en_sqd_async_notify"),
        RD: _transition(optional="en_sqd_async_notify"),
        RD_EEC: _transition(),
    },
    (SQD, SQD): {
        RC: _transition(optional=_RC_SQD),
        UC: _transition(optional="ah_attr alt_ah_attr qp_access_flags pkey_index path_mig_state"),
        UD: _transition(optional="pkey_index qkey"),
        RAW: _transition(),
        XRC: _transition(optional=_XRC_SQD),
        XRC_TARGET: _transition(optional=_XRC_TARGET_SQD),
        RD: _transition(optional="qkey qp_access_flags min_rnr_timer"),
        RD_EEC: _transition(optional=_EEC_SQD),
    },
    (SQD, RTS): {
        RC: _transition(optional=_CONNECTED_RUNNING + " min_rnr_timer"),
        UC: _transition(optional=_CONNECTED_RUNNING),
        UD: _transition(optional="cur_qp_state qkey"),
        RAW: _transition(optional="cur_qp_state"),
        XRC: _transition(optional=_CONNECTED_RUNNING),
        XRC_TARGET: _transition(optional=_CONNECTED_RUNNING + " min_rnr_timer"),
        RD: _transition(optional=_RD_RUNNING),
        RD_EEC: _transition(optional="cur_qp_state"),
    },
    (SQE, RTS): {
        UC: _transition(optional="cur_qp_state qp_access_flags"),
        UD: _transition(optional="cur_qp_state qkey"),
        RAW: _transition(optional="cur_qp_state"),
        RD: _transition(optional=_RD_RUNNING),
    },
}
_ALWAYS = Transition()

# Why a modify is refused, in the order in which it is asked; each names the attribute and the rule.
RULES: dict[str, str] = {
    "transition": "qp_state: {service} has no transition {step} (IBTA vol. 1, 10.3.1)",
    "required": "{attribute} is required for {step} of {service} (IBTA vol. 1, 11.2.5.2)",
    "not taken": "{attribute} cannot be given for {step} of {service} (IBTA vol. 1, 11.2.5.2)",
    "range": "{attribute} = {value} is not in {least} … {greatest}",
    "current": "cur_qp_state = {value}, but the queue pair is in {state}",
}
SERVICE_NAMES = {
    RC: "RC",
    UC: "UC",
    UD: "UD",
    XRC: "XRC_SEND",
    XRC_TARGET: "XRC_RECV",
    RAW: "RAW_PACKET",
    RD: "RD",
    RD_EEC: "an EE context",
}

# attribute → (least, greatest) allowed value; attributes that are structures are the adapter's to check
RANGES: dict[str, tuple[int, int]] = {
    "path_mtu": (1, 5),
    "timeout": (0, 31),
    "retry_cnt": (0, 7),
    "rnr_retry": (0, 7),
    "min_rnr_timer": (0, 31),
    "rq_psn": (0, 0xFFFFFF),
    "sq_psn": (0, 0xFFFFFF),
    "dest_qp_num": (0, 0xFFFFFF),
    "qkey": (0, 0xFFFFFFFF),
    "pkey_index": (0, 0xFFFF),
    "port_num": (1, 255),
    "max_rd_atomic": (0, 255),
    "max_dest_rd_atomic": (0, 255),
    "qp_access_flags": (0, 0x3FF),
    "path_mig_state": (0, 2),
    "en_sqd_async_notify": (0, 255),
}


def transition(service: int, current: int, target: int) -> Transition | None:
    """The rules of ``current`` → ``target`` for ``service``; None where there is no such transition."""
    if target in (RESET, ERR):
        return _ALWAYS
    return TRANSITIONS.get((current, target), {}).get(service)


def name_of(state: object) -> str:
    """A state's name, or its number where there is none."""
    return NAMES[state] if isinstance(state, int) and 0 <= state < len(NAMES) else str(state)


def broken_transition(service: int, current: int, target: int, attributes: Iterable[str]) -> str:
    """Why the transition with just these ``attributes`` (``qp_state`` left out) is refused: a text of
    ``RULES``, of the first attribute by name; "" where it is allowed."""
    rules = transition(service, current, target)
    said = {
        "service": SERVICE_NAMES.get(service, str(service)),
        "step": f"{name_of(current)} to {name_of(target)}",
    }
    if rules is None:
        return RULES["transition"].format(**said)
    given = frozenset(attributes)
    for rule, names in (
        ("required", rules.required - given),
        ("not taken", given - rules.required - rules.optional),
    ):
        if names:
            return RULES[rule].format(attribute=min(names), **said)
    return ""


def broken_value(attributes: Mapping[str, object]) -> str:
    """Why a number among ``attributes`` is refused, as `broken_transition`; "" where each lies in its field's
    range."""
    for name, value in attributes.items():
        least, greatest = RANGES.get(name, (0, 0))
        if name in RANGES and (not isinstance(value, int) or not least <= value <= greatest):
            return RULES["range"].format(attribute=name, value=value, least=least, greatest=greatest)
    return ""


def broken_rule(service: int, current: int, attributes: Mapping[str, object]) -> str:
    """Why a queue pair of ``service`` in the state ``current`` refuses to be modified, as
    `broken_transition`; "" where it does not."""
    target = attributes.get("qp_state", current)
    given = {name: value for name, value in attributes.items() if name != "qp_state"}
    if not isinstance(target, int):
        return broken_transition(service, current, -1, given)
    broken = broken_transition(service, current, target, given) or broken_value(given)
    claimed = given.get("cur_qp_state", current)
    if not broken and claimed != current:
        broken = RULES["current"].format(value=name_of(claimed), state=name_of(current))
    return broken


def check(service: int, current: int, target: int, attributes: Iterable[str]) -> int:
    """0 when the transition with just these ``attributes`` (``qp_state`` left out) is allowed, else
    EINVAL."""
    return EINVAL if broken_transition(service, current, target, attributes) else 0


def check_values(attributes: Mapping[str, object]) -> int:
    """0 when every number among ``attributes`` lies in its field's range, else EINVAL."""
    return EINVAL if broken_value(attributes) else 0
