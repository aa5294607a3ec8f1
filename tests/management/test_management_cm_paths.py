"""Alternate paths of the connection manager: each cell of their table, on both sides, and what is refused."""

import errno
from dataclasses import replace

import pytest
from connection_peers import GIDS, GUIDS, Network, from_other

from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm import path_states as s
from softhca.management.cm import states as connection_states
from softhca.management.cm.elements import NEVER_NS
from softhca.management.cm.manager import ConnectionManager
from softhca.queues.control_fields import CM_PATH_NO_ANSWER

LAP = m.Lap(
    alternate_local_gid=GIDS[0], alternate_remote_gid=GIDS[1], alternate_ack_timeout=14,
    alternate_hop_limit=3, private_data=b"path".ljust(168, b"\0"),
)  # fmt: skip
APR = m.Apr(private_data=b"yes".ljust(148, b"\0"))
SENT = {s.SEND: {s.LOAD: "Lap", s.ANSWER: "Apr"}}


def connected():
    network = Network()
    network.listen()
    numbers = network.numbers = network.establish()
    network.sent.clear()
    return network, numbers


def message(network, at=-1):
    return m.decode(network.sent[at][1])


def pass_deadline(network, own):
    """Time goes on until the manager of a side sends again."""
    network.now = network.managers[own]._tables.find(network.numbers[own]).deadline_ns
    network.managers[own].expire(network.now)


class Cell:
    """A connection whose side ``own`` is in the path state ``state``."""

    def __init__(self, state, own):
        self.network, self.numbers = connected()
        network = self.network
        self.own, self.manager, self.program = own, network.managers[own], network.programs[own]
        self.number = self.numbers[own]
        if state == s.PROPOSED:
            self.manager.load_path(self.program, self.number, LAP, network.now)
        if state == s.ASKED:
            self.take(self.lap(5))
        self.before = state
        network.sent.clear()
        self.program.events.clear()

    def lap(self, transaction_id):
        end = self.connection.local_end
        return replace(LAP, local_comm_id=self.numbers[1 - self.own], remote_comm_id=self.number,
                       remote_qpn_eecn=end), transaction_id  # fmt: skip

    def take(self, sent):
        self.manager.receive(m.encode(*sent), self.network.address(1 - self.own), self.network.now)

    @property
    def connection(self):
        return self.manager._tables.find(self.number)

    def give(self, given):
        ids = self.numbers[1 - self.own], self.number
        last = self.connection.path_transaction_id
        now = self.network.now
        if given == s.LAP:
            self.take(self.lap(6))
        elif given == s.AGAIN:
            if self.before != s.ASKED:
                self.connection.asked_transaction_id = 6
                self.connection.path_answer = m.encode(m.Apr(*ids[::-1]), 6)
            self.take(self.lap(self.connection.asked_transaction_id))
        elif given == s.APR:
            self.take((m.Apr(*ids, ap_status=7), max(last, 0)))
        elif given == s.MRA:
            self.take((m.Mra(*ids, message_mraed=m.OF_LAP, service_timeout=20), max(last, 0)))
        elif given == s.LOAD:
            self.manager.load_path(self.program, self.number, LAP, now)
        elif given == s.ANSWER:
            self.manager.answer_path(self.program, self.number, APR, now)
        elif given in (s.RETRY, s.GIVE_UP):
            self.connection.retries = 0 if given == s.RETRY else self.connection.max_retries
            self.manager.expire(self.connection.deadline_ns)
        else:
            farewell = m.Dreq(*ids, self.connection.local_end)
            self.take((farewell, 99))


ELSEWHERE = bytes(10) + b"\xff\xff\x0a\0\0\x07"


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("status", [m.APR_LOADED, m.APR_REJECTED])
def test_the_other_end_of_a_path_is_believed_when_both_have_said_so(own, status):
    cell = Cell(s.PROPOSED, own)
    ids = cell.numbers[1 - own], cell.number
    answered = m.Apr(*ids, ap_status=status), cell.connection.path_transaction_id
    assert (cell.connection.proposed.gid, cell.connection.other) == (LAP.alternate_remote_gid, None)
    cell.take(answered)
    loaded = cell.connection.other
    assert (loaded is not None) == (status == m.APR_LOADED)
    lap, transaction_id = cell.lap(9)
    cell.take((replace(lap, alternate_local_gid=ELSEWHERE, alternate_local_lid=3), transaction_id))
    cell.take(answered)  # a late copy is no answer of this side to the peer's proposal
    assert cell.connection.other is loaded
    cell.manager.answer_path(cell.program, cell.number, replace(APR, ap_status=status), cell.network.now)
    gid = cell.connection.other.gid if cell.connection.other is not None else None
    assert gid == (ELSEWHERE if status == m.APR_LOADED else None)


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("state", s.STATES)
@pytest.mark.parametrize("given", s.INPUTS)
def test_a_cell_does_what_the_table_says(state, own, given):
    if given in (s.RETRY, s.GIVE_UP) and state != s.PROPOSED:
        cell = Cell(state, own)
        assert cell.connection.deadline_ns == NEVER_NS
        assert (state, given) not in s.TABLE
        return
    cell, row = Cell(state, own), s.TABLE.get((state, given))
    drops = sum(count for name, count in cell.manager.counters.items() if name.startswith("drops"))
    if row is None and given in s.COMMANDS:
        with pytest.raises(OSError, match=f"no {given}") as refused:
            cell.give(given)
        assert refused.value.errno == errno.EINVAL
    else:
        cell.give(given)
    after = sum(count for name, count in cell.manager.counters.items() if name.startswith("drops"))
    following, done = row or (state, ())
    assert cell.connection.path_state == following
    assert after - drops == (row is None and given not in s.COMMANDS)
    names = {s.SEND: "Lap" if given == s.LOAD else "Apr", s.RESEND: "Lap", s.REFUSE: "Apr",
             s.ANSWER_AGAIN: "Apr", connection_states.ACKNOWLEDGE: "Mra"}  # fmt: skip
    assert cell.network.names() == [names[each] for each in done if each in names]
    told = {s.LAP: [e.PATH_REQUEST], s.APR: [e.PATH_ANSWER], s.GIVE_UP: [e.PATH_ANSWER]}.get(given, [])
    wanted = told if s.REPORT in done else [e.DISCONNECT_REQUEST] if given == s.END else []
    assert cell.program.kinds == wanted
    waits = cell.connection.deadline_ns != NEVER_NS
    assert waits == (following == s.PROPOSED)


@pytest.mark.parametrize("own", [0, 1])
def test_a_path_is_proposed_and_loaded(own):
    network, numbers = connected()
    managers, programs = network.managers, network.programs
    managers[own].load_path(programs[own], numbers[own], LAP, network.now)
    transaction_id, lap = message(network)
    qpn = managers[own]._tables.find(numbers[own]).remote_end
    ids = {"local_comm_id": numbers[own], "remote_comm_id": numbers[1 - own]}
    assert lap == replace(LAP, **ids, remote_qpn_eecn=qpn, remote_cm_response_timeout=14)
    network.arrive()
    asked = programs[1 - own].take()
    assert (asked.kind, asked.number, asked.message) == (e.PATH_REQUEST, numbers[1 - own], lap)
    managers[1 - own].answer_path(programs[1 - own], numbers[1 - own], APR, network.now)
    answered = replace(APR, local_comm_id=numbers[1 - own], remote_comm_id=numbers[own])
    assert message(network) == (transaction_id, answered)
    network.arrive()
    told = programs[own].take()
    assert (told.kind, told.number, told.status, told.message) == (e.PATH_ANSWER, numbers[own], 0, answered)
    assert managers[own].next_deadline() == NEVER_NS
    managers[own].load_path(programs[own], numbers[own], LAP, network.now)  # and another one
    network.arrive()
    assert programs[1 - own].take().kind == e.PATH_REQUEST


@pytest.mark.parametrize("status", range(14))
def test_every_status_reaches_who_has_proposed(status):
    network, numbers = connected()
    network.managers[0].load_path(network.programs[0], numbers[0], LAP, network.now)
    network.arrive()
    apr = replace(APR, ap_status=status, additional_information_length=2,
                  additional_information=b"ab".ljust(72, b"\0"))  # fmt: skip
    network.managers[1].answer_path(network.programs[1], numbers[1], apr, network.now)
    network.arrive()
    told = network.programs[0].take()
    assert (told.kind, told.status) == (e.PATH_ANSWER, status)
    assert told.message.additional_information.startswith(b"ab")


def test_a_proposal_is_sent_again_until_it_is_answered_and_asked_once():
    network, numbers = connected()
    lost = iter([True, False, True, False, False])
    network.fate = lambda own, data: [] if next(lost) else [10]
    network.managers[0].load_path(network.programs[0], numbers[0], LAP, network.now)
    pass_deadline(network, 0)  # the first was lost: again
    network.arrive()
    assert network.programs[1].kinds == [e.PATH_REQUEST]
    network.managers[1].answer_path(network.programs[1], numbers[1], APR, network.now)  # lost
    pass_deadline(network, 0)
    network.arrive()
    assert network.names() == ["Lap", "Lap", "Apr", "Lap", "Apr"]
    assert network.programs[1].kinds == [e.PATH_REQUEST]
    assert network.programs[0].kinds == [e.PATH_ANSWER]


def test_a_slow_program_makes_its_peer_wait():
    network, numbers = connected()
    manager = network.managers[0]
    manager.load_path(network.programs[0], numbers[0], LAP, network.now)
    network.arrive()
    first = manager.next_deadline()
    pass_deadline(network, 0)
    network.arrive()
    assert network.names() == ["Lap", "Lap", "Mra"]
    assert message(network)[1].message_mraed == m.OF_LAP
    assert manager._tables.find(numbers[0]).deadline_ns > first + e.duration_ns(20)


def test_nobody_answers():
    network, numbers = connected()
    network.cut.add(1)
    network.managers[0].load_path(network.programs[0], numbers[0], LAP, network.now)
    while network.step():
        pass
    told = network.programs[0].take()
    assert (told.kind, told.status) == (e.PATH_ANSWER, CM_PATH_NO_ANSWER)
    assert network.names() == ["Lap"] * 16
    assert network.state(0, numbers[0]) == connection_states.ESTABLISHED
    network.managers[0].load_path(network.programs[0], numbers[0], LAP, network.now)
    while network.step():
        pass
    assert network.names() == ["Lap"] * 32  # with all retries again


def test_who_has_proposed_refuses_each_copy_of_the_peers_proposal_and_keeps_to_its_own():
    cell = Cell(s.PROPOSED, 0)
    lap, transaction_id = cell.lap(6)
    foreign = replace(lap, alternate_local_gid=ELSEWHERE)
    for _ in range(2):
        cell.take((foreign, transaction_id))
        sent = message(cell.network)
        assert (sent[0], sent[1].ap_status) == (transaction_id, m.APR_REJECTED)
    assert cell.connection.proposed.gid == LAP.alternate_remote_gid
    assert cell.program.events == []


def test_both_propose_at_once_and_both_are_refused():
    network, numbers = connected()
    for own in (0, 1):
        network.managers[own].load_path(network.programs[own], numbers[own], LAP, network.now)
    network.arrive()
    assert [program.take().status for program in network.programs] == [m.APR_REJECTED] * 2
    assert [program.kinds for program in network.programs] == [[], []]


def test_a_connection_that_ends_meanwhile():
    network, numbers = connected()
    for own in (0, 1):
        network.managers[own].load_path(network.programs[own], numbers[own], LAP, network.now)
    network.sent.clear()
    network._arrivals.clear()
    network.managers[0].disconnect(network.programs[0], numbers[0], b"", network.now)
    network.arrive()
    assert network.programs[1].kinds == [e.DISCONNECT_REQUEST]
    assert network.managers[1].next_deadline() == NEVER_NS
    network.managers[1].disconnect(network.programs[1], numbers[1], b"", network.now)
    network.arrive()
    network.pass_time(1 << 33)
    assert [program.kinds[-1] for program in network.programs] == [e.TIMEWAIT_OVER] * 2
    with pytest.raises(OSError, match="no load"):
        network.managers[0].load_path(network.programs[0], numbers[0], LAP, network.now)


def test_what_is_not_of_the_connection():
    network, numbers = connected()
    manager, lap = network.managers[1], replace(LAP, local_comm_id=numbers[0], remote_comm_id=numbers[1])
    wrong_end = replace(lap, remote_qpn_eecn=77)
    manager.receive(m.encode(wrong_end, 3), network.address(0), network.now)
    assert message(network) == (3, m.Apr(numbers[1], numbers[0], ap_status=m.APR_INVALID_QPN))
    manager.receive(m.encode(replace(lap, remote_comm_id=1), 4), network.address(0), network.now)
    assert message(network) == (4, m.Apr(1, numbers[0], ap_status=m.APR_INVALID_COMM_ID))
    manager.receive(m.encode(lap, 5), from_other(network.address(0)), network.now)
    assert message(network)[1].ap_status == m.APR_INVALID_COMM_ID
    sent = len(network.sent)
    manager.receive(m.encode(m.Apr(numbers[0], numbers[1]), 5), network.address(0), network.now)
    assert len(network.sent) == sent
    assert not network.programs[1].events
    assert manager.counters["drops_unmatched"] == 3


def test_a_path_that_the_adapter_does_not_have_is_refused_without_asking():
    network, numbers = connected()
    seen = []

    def check(lap, connection):
        seen.append((lap.alternate_remote_gid, connection.number))
        return m.APR_INVALID_GID

    network.managers[1]._paths._check = check
    network.managers[0].load_path(network.programs[0], numbers[0], LAP, network.now)
    network.arrive()
    assert seen == [(GIDS[1], numbers[1])]
    assert network.programs[0].take().status == m.APR_INVALID_GID
    assert not network.programs[1].events


def test_a_manager_that_is_told_no_check_takes_any_path():
    manager = ConnectionManager(lambda data, to: True, GUIDS[0], 1)
    assert manager._paths._check(LAP, None) == m.APR_LOADED


def test_a_value_that_does_not_fit_changes_nothing():
    network, numbers = connected()
    with pytest.raises(OSError, match="alternate_sl") as refused:
        network.managers[0].load_path(network.programs[0], numbers[0], replace(LAP, alternate_sl=16), 0)
    assert refused.value.errno == errno.EINVAL
    assert (network.sent, network.managers[0].next_deadline()) == ([], NEVER_NS)
    network.managers[0].load_path(network.programs[0], numbers[0], LAP, network.now)
