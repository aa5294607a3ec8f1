"""Channel adapters of targets (TCA): with unreliable connections and RDMA, with less, with datagrams alone.

What holds for hosts' adapters is checked again on targets' (``like`` of `statements`); in addition, what a
target need not have is left out, and must not be there.
"""

from __future__ import annotations

import errno

from softhca.adapter.config import NATIVE, ROCE
from softhca.adapter.profile import Profile
from softhca.conformance import (  # their checks must be known before they are taken over
    datagrams,
    refusals,
    uc_order,
    uc_receiving,
    uc_sending,
    validation_order,
)
from softhca.conformance.registry import Check, ensure, expect, holds, known, register
from softhca.conformance.rig import HCA_SETTINGS, PMTU_BYTES, Pair, Setting
from softhca.conformance.statements import STATEMENTS
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.queues.control_fields import CREATE_TELLS_LOSSES, EVENT_MESSAGES_LOST
from softhca.queues.layout import WC_LOC_QP_OP_ERR
from softhca.testing.ends import SEND, UC, UD, WRITE
from softhca.transport.states import RTS, SQE
from softhca.wire import opcodes as op

FULL = bytes(range(PMTU_BYTES))
SOURCES = (datagrams, refusals, uc_order, uc_receiving, uc_sending, validation_order)


def _settings(profile: str) -> tuple[Setting, ...]:
    """Both kinds of links, with targets of ``profile`` on them."""
    options = {"profile": Profile.of(profile)}
    links = (("RoCEv2", ROCE), ("native", NATIVE))
    return tuple(Setting(f"{profile} on {name}", link, options) for name, link in links)


WITH_RDMA = _settings("tca+uc+write")
WITHOUT_RDMA = _settings("tca+uc")
DATAGRAMS_ALONE = _settings("tca")


def _like(check: Check) -> tuple[str, ...]:
    """The statements about targets that a check of hosts' adapters holds when targets pass it."""
    return tuple(
        statement.id
        for statement in STATEMENTS
        if set(statement.like) & set(check.ids)
        or (statement.applies == "HCA+TCA" and statement.id in check.ids)
    )


def take_over(checks: tuple[Check, ...]) -> None:
    """Register ``checks`` once more, to run on targets."""
    modules = {source.__name__.rpartition(".")[2] for source in SOURCES}
    for check in checks:
        ids = _like(check)
        links = {setting.framing for setting in check.settings}
        settings = tuple(setting for setting in WITH_RDMA if setting.framing in links)
        if check.name.partition(".")[0] in modules and ids:
            register(f"tca.{check.name.replace('.', '_')}", ids, check.function, settings)


def _lengths(pair: Pair) -> list[tuple[int, int]]:
    """What has been received: (number of the receive, bytes)."""
    return [(done.wr_id, done.byte_len) for done in pair.right.completions()]


@holds(
    "o9-115", "o9-116", "o9-118", "o9-126", "o9-128", "o9-129", "o9-130", "o9-132", "o9-133", "o9-134",
    "o9-135", settings=WITHOUT_RDMA,
)  # fmt: skip
def sends_follow_psn_and_opcode_sequence_without_rdma(setting: Setting) -> None:
    """On a target without RDMA: gaps and wrong successors drop the message, first and only begin anew."""
    with setting.pair(UC) as pair:
        for _ in range(3):
            pair.receive(0, 600)
        pair.give(pair.packet(op.UC_SEND_FIRST, 40, FULL))
        pair.give(pair.packet(op.UC_SEND_LAST, 42, b"gap"))
        expect("messages behind a gap", _lengths(pair), [])
        expect("drops", pair.right.drops(), {"sequence": 1})
        pair.give(pair.packet(op.UC_SEND_LAST, 41, b"late"))
        expect("drops", pair.right.drops(), {"sequence": 2})
        pair.give(pair.packet(op.UC_SEND_FIRST, 90, FULL), pair.packet(op.UC_SEND_FIRST, 91, FULL))
        pair.give(pair.packet(op.UC_SEND_LAST, 92, b"end"))
        expect("the second message begun", _lengths(pair), [(1, PMTU_BYTES + 3)])
        pair.give(pair.packet(op.UC_SEND_ONLY, 3, b"back"), pair.packet(op.UC_SEND_ONLY, 3, b"again"))
        expect("messages whatever their PSN", _lengths(pair), [(2, 4), (3, 5)])
        expect("answers", pair.answers(), [])


@holds("o9-138", "o9-139", "o9-140", "o9-141", "o9-143", settings=WITHOUT_RDMA)
def lengths_are_checked_without_rdma(setting: Setting) -> None:
    """On a target without RDMA: first and middle are full and without pad, only 0…PMTU, last 1…PMTU, and the
    receive has room."""
    wrong = (
        (op.UC_SEND_FIRST, FULL[:-4], "length"),
        (op.UC_SEND_FIRST, FULL[:-3], "opcode"),
        (op.UC_SEND_ONLY, FULL + b"more", "length"),
        (op.UC_SEND_ONLY, FULL[:201], "receive_length"),
    )
    with setting.pair(UC) as pair:
        pair.receive(0, 200)
        drops: dict[str, int] = {}
        for psn, (code, payload, reason) in enumerate(wrong):
            pair.give(pair.packet(code, psn, payload))
            drops[reason] = drops.get(reason, 0) + 1
            expect(f"drops after {len(payload)} bytes", pair.right.drops(), drops)
        pair.give(pair.packet(op.UC_SEND_ONLY, 9, b""))
        expect("an empty message", _lengths(pair), [(1, 0)])
        pair.receive(0, 600)
        pair.give(pair.packet(op.UC_SEND_FIRST, 20, FULL), pair.packet(op.UC_SEND_LAST, 21, b""))
        expect("messages with an empty last packet", _lengths(pair), [])
        expect("the queue pair's state", pair.right.state_of(pair.right_qp), RTS)


@holds("C9-168", "C9-190", "C9-191", "o9-118", settings=WITHOUT_RDMA)
def a_target_without_rdma_drops_an_rdma_write(setting: Setting) -> None:
    """An RDMA WRITE finds an operation that is not supported, whatever else is wrong with it: it is dropped
    without a word, and ends a message under way; an own one ends as an operation error."""
    with setting.pair(UC) as pair:
        region = pair.right.region(4096, 1024)
        before = bytes(pair.right.memory)
        pair.give(pair.write(region, op.UC_RDMA_WRITE_ONLY, 8, b"no"))
        pair.give(pair.write(region, op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 9, FULL + b"more", rkey=1))
        expect("drops", pair.right.drops(), {"opcode": 2})
        pair.receive(0, 600)
        pair.give(pair.packet(op.UC_SEND_FIRST, 10, FULL))
        pair.give(pair.write(region, op.UC_RDMA_WRITE_ONLY, 11, b"no"))
        pair.give(pair.packet(op.UC_SEND_LAST, 12, b"end"))
        expect("messages", _lengths(pair), [])
        expect("memory beyond the receive", bytes(pair.right.memory[600:]), before[600:])
        expect("answers", pair.answers(), [])
        expect("the queue pair's state", pair.right.state_of(pair.right_qp), RTS)
        pair.post(WRITE, [pair.left.sge(0, 4)], va=region.va, rkey=region.rkey)
        expect("own RDMA WRITEs", [done.status for done in pair.left.completions()], [WC_LOC_QP_OP_ERR])
        expect("packets of an own RDMA WRITE", pair.sent(), [])
        expect("the send queue's state", pair.left.state_of(pair.left_qp), SQE)
        _right_is_refused(pair)


def _right_is_refused(pair: Pair) -> None:
    """A right that nothing can use cannot be given."""
    try:
        pair.right_qp.modify({"qp_access_flags": 2})
    except DriverError as refusal:
        expect("the refusal", refusal.errno, errno.EOPNOTSUPP)
        return
    ensure(False, "a target without RDMA gives the right to write")


@holds("C9-171", "C9-200", "C9-201", "C9-205", "C9-206", "C9-207", settings=DATAGRAMS_ALONE)
def datagrams_are_validated_in_order_where_there_is_nothing_else(setting: Setting) -> None:
    """On a target with datagrams alone: Q_Key, receive, payload, room, and what is too long is never sent;
    there are no connections."""
    with setting.pair(UD) as pair:
        long = FULL + b"more"
        pair.give(pair.packet(op.UD_SEND_ONLY, 1, long, qkey=1))
        expect("the first thing wrong", pair.right.drops(), {"qkey": 1})
        pair.give(pair.packet(op.UD_SEND_ONLY, 1, long))
        expect("the next one", pair.right.drops(), {"qkey": 1, "no_receive": 1})
        pair.receive(0, 44)
        pair.give(pair.packet(op.UD_SEND_ONLY, 1, long))
        expect("the next one", pair.right.drops(), {"qkey": 1, "no_receive": 1, "length": 1})
        pair.give(pair.packet(op.UD_SEND_ONLY, 1, b"hello"))
        expect("the last one", pair.right.drops()["receive_length"], 1)
        pair.post(SEND, b"four")
        pair.post(SEND, [pair.left.sge(0, PMTU_BYTES + 1)])
        expect("messages", _lengths(pair), [(1, 44)])
        expect("packets sent", len(pair.sent()), 1)
        before = pair.right.drops()
        pair.give(pair.packet(op.UC_SEND_ONLY, 1, b"uc"), pair.packet(op.RC_SEND_ONLY, 1, b"rc"))
        expect("packets of connections", pair.right.drops(), {**before, "service": 2})
        expect("answers", pair.answers(), [])
        for kind in (2, 3):
            try:
                pair.right.qp(kind)
            except DriverError as refusal:
                expect("the refusal", refusal.errno, errno.EOPNOTSUPP)
            else:
                ensure(False, f"a target with datagrams alone makes queue pairs of type {kind}")


@holds("o9-131", settings=HCA_SETTINGS + WITHOUT_RDMA)
def who_asks_is_told_of_messages_lost(setting: Setting) -> None:
    """A queue pair that was made so tells once that packets are missing, until one is the expected one; what
    comes is taken as ever."""
    with setting.rig() as rig:
        pair = Pair(rig, UC)
        station = pair.right
        told = station.device.create_qp(
            station.pd, UC, station.cq, station.cq, None, 8, 8, 1, 1, 0, True, CREATE_TELLS_LOSSES
        )
        services.connect(told, rig.path(pair.left), pair.left_qp.number, 30, 0)
        quiet, pair.right_qp = pair.right_qp, told
        for _ in range(4):
            pair.receive(0, 600)
        events = []
        for psn in (30, 32, 33, 35):
            pair.give(pair.packet(op.UC_SEND_ONLY, psn, b"x"))
            events.append(station.events().count((EVENT_MESSAGES_LOST, told.number)))
        expect("how often a loss is told", events, [0, 1, 0, 1])
        pair.give(pair.packet(op.UC_SEND_MIDDLE, 50, FULL), pair.packet(op.UC_SEND_LAST, 51, b"x"))
        expect("a message without its first packet", station.events(), [(EVENT_MESSAGES_LOST, told.number)])
        expect("messages", _lengths(pair), [(1, 1), (2, 1), (3, 1), (4, 1)])
        expect("the queue pair's state", station.state_of(told), RTS)
        pair.right_qp = quiet
        pair.give(pair.packet(op.UC_SEND_ONLY, 0, b"x"))
        lost = (EVENT_MESSAGES_LOST, quiet.number)
        ensure(lost not in station.events(), "a loss is told that nobody asked for")


take_over(known())
