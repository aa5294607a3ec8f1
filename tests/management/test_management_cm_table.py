"""Every cell of the connection table, by what really goes out, is told and waits: each state reached on both
roles, each input given in it.
"""

import errno

import pytest
from connection_peers import REPLY, Network

from softhca.management.cm import diagram
from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm import states as s
from softhca.management.cm.elements import NEVER_NS

ACTIVE, PASSIVE = 0, 1
REACHED = {
    # state: the sides that can be in it
    s.REQ_SENT: (ACTIVE,),
    s.REQ_RCVD: (PASSIVE,),
    s.REP_RCVD: (ACTIVE,),
    s.REP_SENT: (PASSIVE,),
    s.ESTABLISHED: (ACTIVE, PASSIVE),
    s.DREQ_SENT: (ACTIVE, PASSIVE),
    s.DREQ_RCVD: (ACTIVE, PASSIVE),
    s.TIMEWAIT: (ACTIVE, PASSIVE),
    s.CLOSED: (ACTIVE, PASSIVE),
}
SIDES = [(state, own) for state, sides in REACHED.items() for own in sides]
SENT_BY = {s.REPLY: "Rep", s.READY: "Rtu", s.REJECT: "Rej", s.DISCONNECT: "Dreq"}
KINDS = {
    s.REP: e.REPLIED,
    s.RTU: e.ESTABLISHED,
    s.ESTABLISH: e.ESTABLISHED,
    s.DREQ: e.DISCONNECT_REQUEST,
    s.DREP: e.DISCONNECTED,
    s.REJ: e.REJECTED,
    s.GIVE_UP: e.UNREACHABLE,
}


class Cell:
    """A connection of side ``own`` in ``state``, and whatever can be given to it."""

    def __init__(self, state: str, own: int) -> None:
        self.network = network = Network()
        self.own, self.manager, self.program = own, network.managers[own], network.programs[own]
        network.listen()
        self.active = network.connect()
        self.passive = 0
        for _ in self._steps(state):
            pass
        self.number = (self.active, self.passive)[own]
        network.arrive = lambda: None
        for program in network.programs:
            program.events.clear()
        network.sent.clear()
        assert network.state(own, self.number) == state
        self.deadline_ns = self.connection.deadline_ns

    def _steps(self, state):
        """Go on, both programs doing what they should, until this side is in ``state``."""
        network, other = self.network, 1 - self.own
        if state == s.REQ_SENT:
            return
        network.arrive()
        self.passive = network.programs[1].take().number
        if state == s.REQ_RCVD:
            return
        if state == s.CLOSED:  # refused
            network.managers[1].reject(network.programs[1], self.passive, 28, b"", b"", network.now)
            network.arrive()
            return
        network.reply(self.passive)
        if state == s.REP_SENT:
            return
        network.arrive()
        if state == s.REP_RCVD:
            return
        network.managers[0].ready(network.programs[0], self.active, b"", network.now)
        network.arrive()
        numbers = self.active, self.passive
        if state in (s.DREQ_SENT, s.TIMEWAIT):
            self.manager.disconnect(self.program, numbers[self.own], b"", network.now)
        if state in (s.DREQ_RCVD, s.TIMEWAIT):
            network.managers[other].disconnect(network.programs[other], numbers[other], b"", network.now)
            network.arrive()
        yield

    @property
    def connection(self):
        return self.manager._tables.find(self.number)

    def give(self, given: str) -> None:
        """The input, as it would come."""
        network, now, number = self.network, self.network.now, self.number
        if given in s.MESSAGES:
            self.manager.receive(self._message(given), network.address(1 - self.own), now)
            return
        if given in s.TIMERS:
            connection = self.connection
            if given == s.RETRY:
                connection.retries = 0
            elif given == s.GIVE_UP:
                connection.retries = connection.max_retries
            network.now = now = max(now, connection.deadline_ns)
            self.manager.expire(now)
            return
        owner = self.program
        calls = {
            s.REPLY: lambda: self.manager.reply(owner, number, REPLY, now),
            s.READY: lambda: self.manager.ready(owner, number, b"", now),
            s.ESTABLISH: lambda: self.manager.establish(owner, number, now),
            s.REJECT: lambda: self.manager.reject(owner, number, 28, b"", b"", now),
            s.DISCONNECT: lambda: self.manager.disconnect(owner, number, b"", now),
            s.DESTROY: lambda: self.manager.destroy(owner, number, now),
        }
        calls[given]()

    def _message(self, given: str) -> bytes:
        """What the peer of this side would send, with the numbers that it knows."""
        connection = self.connection
        theirs = connection.remote_comm_id or 0x7777
        if given == s.REQ:
            request = m.Req(
                local_comm_id=theirs,
                local_ca_guid=connection.remote_ca_guid,
                service_id=connection.service_id,
                local_qpn=connection.remote_end,
            )
            return m.encode(request, 9)
        if given == s.DREQ:
            return m.encode(m.Dreq(theirs, self.number, connection.local_end), 9)
        if given == s.REJ:
            return m.encode(m.Rej(theirs, self.number, reason=28), 9)
        kind = {s.MRA: m.Mra, s.REP: m.Rep, s.RTU: m.Rtu, s.DREP: m.Drep}[given]
        return m.encode(kind(theirs, self.number), 9)


def expected_messages(state: str, own: int, given: str, done: tuple[str, ...]) -> list[str]:
    resent = {s.REQ_SENT: "Req", s.REP_SENT: "Rep", s.DREQ_SENT: "Dreq", s.ESTABLISHED: "Rtu"}
    names = {
        s.SEND: SENT_BY.get(given) or ("Dreq" if state == s.ESTABLISHED else "Rej"),
        s.RESEND: resent.get(state, ""),
        s.ACKNOWLEDGE: "Mra",
        s.SEND_DREP: "Drep",
        s.REJECT_TIMEOUT: "Rej",
        s.REJECT_STALE: "Rej",
    }
    return [names[action] for action in done if action in names]


@pytest.mark.parametrize(("state", "own"), SIDES)
@pytest.mark.parametrize("given", [*s.MESSAGES, *s.COMMANDS])
def test_a_message_or_command_does_what_the_table_says(state, own, given):
    cell = Cell(state, own)
    row = s.TABLE.get((state, given))
    if given == s.REP and own == PASSIVE:
        row = None  # who replies gets no reply
    dropped = sum(count for name, count in cell.manager.counters.items() if name.startswith("drops"))
    if row is None and given in s.COMMANDS:
        with pytest.raises(OSError, match=f"no {given}") as refused:
            cell.give(given)
        assert refused.value.errno == errno.EINVAL
    else:
        cell.give(given)
    found = cell.connection
    if row is None:
        assert found.state == state
        assert found.deadline_ns == cell.deadline_ns
        anew = (state, own, given) == (s.CLOSED, PASSIVE, s.REQ)  # as for any request
        assert cell.program.kinds == ([e.REQUEST] if anew else [])
        if (
            given in s.MESSAGES
            and not anew
            and (state, given) not in ((s.REQ_SENT, s.REQ), (s.CLOSED, s.REQ))
        ):
            after = sum(count for name, count in cell.manager.counters.items() if name.startswith("drops"))
            assert after == dropped + 1
        return
    following, done = row
    assert (found.state if found is not None else s.CLOSED) == following
    assert cell.network.names() == expected_messages(state, own, given, done)
    told = [s.DREP if state == s.DREQ_SENT else given] if s.REPORT in done else []
    kinds = [KINDS[each] for each in told]
    if given == s.REJ and state == s.ESTABLISHED:
        kinds = [e.DISCONNECTED]
    assert cell.program.kinds == kinds
    waits = found is not None and found.deadline_ns != NEVER_NS
    assert waits == (following in s.WAITING)


@pytest.mark.parametrize(("state", "own"), [each for each in SIDES if each[0] in s.WAITING])
@pytest.mark.parametrize("given", s.TIMERS)
def test_time_does_what_the_table_says(state, own, given):
    row = s.TABLE.get((state, given))
    if row is None:
        assert (given == s.OVER) == (state != s.TIMEWAIT)
        return
    cell = Cell(state, own)
    cell.give(given)
    following, done = row
    assert cell.connection.state == following
    assert cell.network.names() == expected_messages(state, own, given, done)
    told = {s.DREQ_SENT: e.DISCONNECTED, s.TIMEWAIT: e.TIMEWAIT_OVER}.get(state, e.UNREACHABLE)
    assert cell.program.kinds == ([told] if s.REPORT in done else [])
    assert (cell.connection.deadline_ns != NEVER_NS) == (following in s.WAITING)


@pytest.mark.parametrize(("state", "own"), [each for each in SIDES if each[0] not in s.WAITING])
def test_time_alone_does_nothing_in_states_that_do_not_wait(state, own):
    cell = Cell(state, own)
    assert cell.deadline_ns == NEVER_NS
    cell.manager.expire(NEVER_NS - 1)
    assert (cell.connection.state, cell.network.names(), cell.program.events) == (state, [], [])


def test_every_cell_of_the_table_belongs_to_a_state_that_was_reached():
    assert {state for state, _ in s.TABLE} == set(REACHED) == set(s.STATES)


def test_a_reply_without_an_id_that_comes_again_with_another_adapter_leaves_nothing():
    network = Network()
    active = network.connect()
    manager = network.managers[0]
    for guid in range(5):
        reply = m.Rep(0, active, local_ca_guid=guid, local_qpn=guid)
        manager.receive(m.encode(reply, 1), network.address(1), network.now)
    manager.destroy(network.programs[0], active, network.now)
    assert not manager.has(active)
    assert not manager._by_remote
    assert not manager._by_end


def test_the_page_shows_every_cell():
    rows = diagram.table().splitlines()[2:]
    assert len(rows) == len(s.TABLE)
    assert all(f"| {state} | {given} |" in row for row, (state, given) in zip(rows, CELLS, strict=True))


CELLS = [(state, given) for state in s.STATES for given in s.INPUTS if (state, given) in s.TABLE]
