"""Alternate paths of established connections: LAP, APR and the MRA of a LAP (`path_states`)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from softhca.management.cm import messages as m
from softhca.management.cm import path_states as states
from softhca.management.cm.elements import (
    PATH_ANSWER,
    PATH_REQUEST,
    Connection,
    by_alternate,
    encoded,
    number_of,
    of_peer,
    response_exponent,
    response_ns,
)
from softhca.management.cm.states import ACKNOWLEDGE, ESTABLISHED, EXTEND, REPORT, RESEND, SEND, START, STOP
from softhca.management.cm.timers import Timers
from softhca.management.mad import Address
from softhca.queues.control_fields import CM_PATH_NO_ANSWER

SERVICE_TIMEOUT = 20
"""What the MRA of a LAP asks for: 4.3 s."""


class Paths:
    """What a manager does of alternate paths.  ``transmit(data, to)`` sends a datagram; ``tell(connection,
    kind, status, message)`` an owner; ``check`` gives the APR status of a path that cannot be (0: it can).
    """

    def __init__(
        self,
        timers: Timers,
        counters: dict[str, int],
        transmit: Callable[[bytes, Address], None],
        tell: Callable[[Connection, int, int, m.Message | None], None],
        check: Callable[[m.Lap, Connection], int],
    ) -> None:
        self._timers = timers
        self._counters = counters
        self._transmit = transmit
        self._report = tell
        self._check = check

    # commands

    def load(self, connection: Connection, lap: m.Lap, transaction_id: int, now: int) -> None:
        """Propose a path to the peer; OSError EINVAL: not now, or a value does not fit."""
        self._require(connection, states.LOAD)
        lap = lap.changed(
            local_comm_id=connection.number,
            remote_comm_id=connection.remote_comm_id,
            remote_qpn_eecn=number_of(connection.remote_end),
            remote_cm_response_timeout=response_exponent(connection.response_ns),
        )
        data = encoded(lap, transaction_id)
        connection.path_transaction_id = transaction_id
        connection.path_sent = data
        connection.proposed = by_alternate(connection.peer, lap, own=True)
        connection.retries = 0
        connection.put_off = False
        self._step(connection, states.LOAD, now)

    def answer(self, connection: Connection, apr: m.Apr, now: int) -> None:
        """Answer the peer's; OSError as `load`."""
        self._require(connection, states.ANSWER)
        connection.path_answer = self._answer(connection, apr, connection.asked_transaction_id)
        if apr.ap_status == m.APR_LOADED:
            connection.other = connection.proposed
        self._step(connection, states.ANSWER, now)

    @staticmethod
    def _require(connection: Connection, command: str) -> None:
        if connection.state != ESTABLISHED or (connection.path_state, command) not in states.TABLE:
            raise OSError(
                errno.EINVAL,
                f"id = {connection.number}: it is {connection.state} and {connection.path_state}: "
                f"no {command}",
            )

    # what comes

    def receive(self, connection: Connection, message: m.Message, transaction_id: int, now: int) -> None:
        """A LAP, an APR, or the MRA of a LAP, of an established connection."""
        if connection.state != ESTABLISHED:
            self._counters["drops_state"] += 1
        elif isinstance(message, m.Lap):
            self._receive_lap(connection, message, transaction_id, now)
        elif transaction_id != connection.path_transaction_id:
            self._counters["drops_unmatched"] += 1  # of a path that is not proposed any more
        else:
            given = states.APR if isinstance(message, m.Apr) else states.MRA
            proposed = connection.path_state == states.PROPOSED
            if proposed and isinstance(message, m.Apr) and message.ap_status == m.APR_LOADED:
                connection.other = connection.proposed
            self._step(connection, given, now, message)

    def _receive_lap(self, connection: Connection, lap: m.Lap, transaction_id: int, now: int) -> None:
        if transaction_id == connection.asked_transaction_id:
            self._step(connection, states.AGAIN, now, lap)
            return
        status = m.APR_INVALID_QPN
        if lap.remote_qpn_eecn == number_of(connection.local_end):
            status = self._check(lap, connection)
        if status:
            self._transmit(self._answer(connection, m.Apr(ap_status=status), transaction_id), connection.peer)
            return
        if connection.path_state == states.QUIET:
            connection.asked_transaction_id = transaction_id
            connection.proposed = by_alternate(connection.peer, lap, own=False)
        self._step(connection, states.LAP, now, lap, transaction_id)

    # time, and the end

    def expire(self, connection: Connection, now: int) -> None:
        """No answer has come in time."""
        if connection.retries < connection.max_retries:
            connection.retries += 1
            connection.put_off = False
            self._step(connection, states.RETRY, now)
        else:
            self._step(connection, states.GIVE_UP, now)

    def end(self, connection: Connection, now: int) -> None:
        """The connection is not established any more."""
        self._step(connection, states.END, now)

    # the table

    def _step(
        self,
        connection: Connection,
        given: str,
        now: int,
        message: m.Message | None = None,
        transaction_id: int = 0,
    ) -> None:
        row = states.TABLE.get((connection.path_state, given))
        if row is None:
            self._counters["drops_state"] += 1
            return
        connection.path_state = row[0]
        for action in row[1]:
            if action == SEND:
                sent = connection.path_sent if given == states.LOAD else connection.path_answer
                self._transmit(sent, connection.peer)
            elif action == RESEND:
                self._counters["resent"] += 1
                self._transmit(connection.path_sent, connection.peer)
            elif action == states.ANSWER_AGAIN:
                self._counters["resent"] += 1
                self._transmit(connection.path_answer, connection.peer)
            elif action == states.REFUSE:
                refused = self._answer(connection, m.Apr(ap_status=m.APR_REJECTED), transaction_id)
                self._transmit(refused, connection.peer)
            elif action == ACKNOWLEDGE:
                mra = m.Mra(
                    connection.number, connection.remote_comm_id, m.OF_LAP, service_timeout=SERVICE_TIMEOUT
                )
                self._transmit(encoded(mra, connection.asked_transaction_id), connection.peer)
            elif action == START:
                self._timers.set(connection, now + connection.response_ns)
            elif action == EXTEND:
                assert isinstance(message, m.Mra)
                if connection.put_off:
                    self._counters["drops_state"] += 1
                    return
                connection.put_off = True
                self._timers.set(connection, now + response_ns(of_peer(message.service_timeout)))
            elif action == STOP:
                self._timers.stop(connection)
            elif action == REPORT:
                self._report_event(connection, given, message)

    def _report_event(self, connection: Connection, given: str, message: m.Message | None) -> None:
        if given == states.LAP:
            self._report(connection, PATH_REQUEST, 0, message)
            return
        status = message.ap_status if isinstance(message, m.Apr) else CM_PATH_NO_ANSWER
        self._report(connection, PATH_ANSWER, status, message)

    @staticmethod
    def _answer(connection: Connection, apr: m.Apr, transaction_id: int) -> bytes:
        own = apr.changed(local_comm_id=connection.number, remote_comm_id=connection.remote_comm_id)
        return encoded(own, transaction_id)
