"""Management datagrams of programs, wherever the adapter is: embedded, in a process, with shared memory."""

import errno

import pytest
from traffic import wait_until

from softhca.verbs import mad
from softhca.verbs.mad import Mad, MadAddress, MadAgent, MadHeader
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

VENDOR = 0x32
GET, SEND = 1, 3


def request(tid: int = 7, method: int = GET, data: bytes = b"asked") -> Mad:
    header = MadHeader(management_class=VENDOR, method=method, transaction_id=tid, attribute_id=9)
    return Mad.make(header, data)


def address_of(context) -> MadAddress:
    return MadAddress(gid=bytes(context.query_gid(1, 0).raw))


def receive(pair, agent: MadAgent) -> mad.MadArrival:
    """What comes for an agent next, while both programs look."""
    found = []

    def look() -> bool:
        arrival = agent.receive(0)
        if arrival is not None:
            found.append(arrival)
            return True
        for context in (pair.client, pair.server):
            context.driver.progress()
        return False

    wait_until(look)
    return found[0]


def test_programs_of_two_devices_ask_and_answer(verbs_pair) -> None:
    with (
        MadAgent(verbs_pair.client, 1, VENDOR) as asker,
        MadAgent(verbs_pair.server, 1, VENDOR, 1, {GET}) as told,
    ):
        asker.send(request(0x0123456700000007), address_of(verbs_pair.server), timeout_ms=20_000)
        arrival = receive(verbs_pair, told)
        asked = Mad.decode(arrival.mad)
        assert asked.data[:5] == b"asked"
        told.send(asked.response(0, b"answered"), arrival.source)
        answer = receive(verbs_pair, asker)
        assert (answer.status, Mad.decode(answer.mad).data[:8]) == (0, b"answered")
        assert Mad.decode(answer.mad).header.transaction_id == 0x0123456700000007


def test_a_blocking_question_is_answered_by_the_port_itself(verbs_pair) -> None:
    with MadAgent(verbs_pair.client, 1, 0x04) as asker:  # performance management
        header = MadHeader(management_class=0x04, method=GET, transaction_id=3, attribute_id=1)
        answer = asker.ask(Mad.make(header), address_of(verbs_pair.client), timeout_ms=20_000, retries=0)
        assert (answer.header.method, answer.header.status) == (0x81, 0)


def test_an_answer_that_another_thread_receives_is_who_asks_one_s(verbs_pair, monkeypatch) -> None:
    """Else who had asked waited for ever; its time-out had been answered."""
    with MadAgent(verbs_pair.client, 1, 0x04) as asker:
        header = MadHeader(management_class=0x04, method=GET, transaction_id=3, attribute_id=1)
        send, found = asker._handle.send, []

        def meanwhile(*arguments) -> None:
            send(*arguments)
            found.append(asker.receive(0.05))  # as another thread that was first

        monkeypatch.setattr(asker._handle, "send", meanwhile)
        answer = asker.ask(Mad.make(header), address_of(verbs_pair.client), timeout_ms=20_000, retries=0)
        assert (answer.header.method, found) == (0x81, [None])
        asker._handle._asked[bytes(7) + b"\3"] = []  # of another thread
        with pytest.raises(PyverbsRDMAError) as twice:
            asker.ask(Mad.make(header), address_of(verbs_pair.client), timeout_ms=20_000, retries=0)
        assert twice.value.error_code == errno.EINVAL


def test_a_time_out_ends_a_blocking_question(verbs_pair) -> None:
    with MadAgent(verbs_pair.client, 1, VENDOR) as asker, MadAgent(verbs_pair.server, 1, VENDOR, 1, {GET}):
        with pytest.raises(PyverbsRDMAError) as late:
            asker.ask(request(), address_of(verbs_pair.server), timeout_ms=1, retries=1)
        assert late.value.error_code == errno.ETIMEDOUT


def test_what_nobody_answers_or_nobody_waits_for_cannot_be_asked(verbs_pair) -> None:
    to = address_of(verbs_pair.server)
    with MadAgent(verbs_pair.client, 1, VENDOR) as asker:
        for asked, timeout_ms in ((request(), 0), (request(method=SEND), 1000)):
            with pytest.raises(PyverbsUserError):
                asker.ask(asked, to, timeout_ms=timeout_ms)


def test_a_request_of_the_same_transaction_id_is_no_answer(verbs_pair) -> None:
    """Who asks may be asked as well, and the other side counts its transactions by itself."""
    to = address_of(verbs_pair.client)
    with MadAgent(verbs_pair.client, 1, VENDOR, 1, {GET}) as asker:
        asker.send(request(), to)  # to itself, who does not answer
        arrived = Mad.decode(receive(verbs_pair, asker).mad).header.transaction_id
        asker.send(request(arrived), to)
        with pytest.raises(PyverbsRDMAError) as late:
            asker.ask(request(arrived), to, timeout_ms=1, retries=0)
        assert late.value.error_code == errno.ETIMEDOUT


def test_two_programs_share_queue_pair_1_with_one_transaction_id(verbs_pair) -> None:
    to = address_of(verbs_pair.server)
    with (
        MadAgent(verbs_pair.client, 1, VENDOR) as first,
        MadAgent(verbs_pair.client, 1, VENDOR) as second,
        MadAgent(verbs_pair.server, 1, VENDOR, 1, {GET}) as told,
    ):
        first.send(request(data=b"one"), to, timeout_ms=20_000)
        second.send(request(data=b"two"), to, timeout_ms=20_000)
        arrivals = [receive(verbs_pair, told) for _ in range(2)]
        for arrival in reversed(arrivals):
            asked = Mad.decode(arrival.mad)
            told.send(asked.response(0, asked.data[:3].upper()), arrival.source)
        for agent, expected in ((first, b"ONE"), (second, b"TWO")):
            answer = Mad.decode(receive(verbs_pair, agent).mad)
            assert (answer.data[:3], answer.header.transaction_id) == (expected, 7)


def test_methods_are_taken_until_their_agent_is_closed(verbs_pair) -> None:
    agent = MadAgent(verbs_pair.client, 1, VENDOR, 1, {GET})
    with pytest.raises(PyverbsRDMAError) as taken:
        MadAgent(verbs_pair.client, 1, VENDOR, 1, {GET, SEND})
    assert taken.value.error_code == errno.EBUSY
    agent.close()
    with pytest.raises(PyverbsUserError):
        agent.receive(0)
    MadAgent(verbs_pair.client, 1, VENDOR, 1, {GET}).close()


def test_queue_pair_0_is_not_for_programs(verbs_pair) -> None:
    with pytest.raises(PyverbsRDMAError) as refused:
        MadAgent(verbs_pair.client, 1, 0x01)
    assert refused.value.error_code == errno.EOPNOTSUPP
