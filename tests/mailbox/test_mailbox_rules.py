"""What a mailbox owes its peer at each step, and what it does not do before its turn."""

import io
from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import pytest
from mailbox_pairs import join, until
from mailbox_rings import Memory, block_of, digest_of

from softhca.machine.primitives import copy
from softhca.mailbox import MailboxError, Terms, TermsError, always, box, reached, requests, wiring
from softhca.mailbox.blocks import DATA, EMPTY, LENGTH, OUTCOME, TAKEN
from softhca.mailbox.journal import MAX_RECORD_BYTES, Journal
from softhca.mailbox.offer import Offer
from softhca.mailbox.remote_reader import RemoteReader
from softhca.mailbox.requests import DONE, Request, Requests, encode_outcome
from softhca.mailbox.wiring import DEPTH, Wiring
from softhca.verbs import enums as e


def landed(mailbox, sequence):
    """Whether the blocks up to that sequence number stand in their slots, whole, in a ring that was empty."""
    inbox, opener = mailbox._inbox, mailbox._opener
    return all(
        opener.open(inbox.address + place * inbox.slot_bytes, inbox.slot_bytes, place + 1) == TAKEN
        for place in range(sequence)
    )


def test_no_more_requests_are_open_than_outcomes_are_kept_for(verbs_pair, monkeypatch):
    monkeypatch.setattr(box, "MAX_TICKETS", 2)
    left, _ = join(verbs_pair)
    for _ in range(2):
        left.request("unknown", b"", always())
    with pytest.raises(MailboxError, match="2 requests are open"):
        left.request("unknown", b"", always())
    assert left.statistics.sent == 2


def test_the_first_outcome_of_a_request_is_its_outcome(verbs_pair):
    left, right = join(verbs_pair)
    number = left.request("unknown", b"", always())
    for text in (b"first", b"second"):
        right._put(OUTCOME, (encode_outcome(number, DONE, text),))
    assert until(lambda: landed(left, 2), left, right)
    assert left.take() is None
    assert left.statistics.outcomes_unknown == 1
    assert left.outcome(number).result == b"first"


def test_room_of_a_request_is_given_back_like_that_of_a_message(verbs_pair):
    left, right = join(verbs_pair, Terms(slots=4))
    left.request("unknown", b"", always())
    assert until(lambda: landed(right, 1), left, right)
    right.take()
    assert right.statistics.credits_sent == 1


@pytest.mark.parametrize(
    "come_back", [lambda end: end.take(), lambda end: end.receive_many(), lambda end: end.poll()]
)
def test_who_comes_back_for_the_next_message_has_processed_the_last_batch(verbs_pair, come_back):
    left, right = join(verbs_pair)
    done = []
    right.actions["note"] = done.append
    left.send(b"1")
    left.request("note", b"second", reached(1))
    assert until(lambda: landed(right, 2), left, right)
    assert right.receive_many() == [b"1"]
    assert done == []
    come_back(right)
    assert done == [b"second"]


def test_behind_too_many_outcomes_no_request_is_taken_but_credit_is_given(verbs_pair, monkeypatch):
    """The peer may wait for that credit before it takes an outcome."""
    monkeypatch.setattr(requests, "MAX_PENDING", 2)
    left, right = join(verbs_pair, Terms(slots=16))
    assert right.try_send_many([b"x"] * 16) == 16  # so outcomes have no room
    for _ in range(4):
        left.request("unknown", b"", always())
    assert until(lambda: landed(right, 4), left, right)
    assert right.take() is None
    assert right._inbox.taken_sequence == 3
    assert right.statistics.credits_sent == 1
    assert right.take() is None
    assert right._inbox.taken_sequence == 3


def test_while_a_request_waits_no_more_messages_come_than_were_asked_for(verbs_pair):
    left, right = join(verbs_pair)
    left.request("unknown", b"", reached(100))
    right.actions["unknown"] = bytes
    left.try_send_many([b"1", b"2", b"3"])
    assert until(lambda: landed(right, 4), left, right)
    assert right.receive_many(2) == [b"1", b"2"]
    assert right.receive_many(2) == [b"3"]


def test_a_mailbox_whose_key_does_not_fit_leaves_nothing_open(verbs_pair, monkeypatch):
    made = []

    class Noted(Wiring):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(box, "Wiring", Noted)
    with pytest.raises(TermsError, match="needs a key"):
        box.Mailbox(verbs_pair.client, Terms(algorithm="blake2b"), b"short")
    assert [each.inbox.is_open for each in made] == [False]


@pytest.mark.parametrize("mode", ["write", "read"])
def test_a_peer_may_do_what_its_mode_needs_and_no_more(verbs_pair, mode):
    reading = e.IBV_ACCESS_REMOTE_READ if mode == "read" else 0
    for end in join(verbs_pair, Terms(mode=mode)):
        wired = end._wiring
        attributes, _ = wired.qp.query(e.IBV_QP_ACCESS_FLAGS)
        assert attributes.qp_access_flags & e.IBV_ACCESS_REMOTE_READ == reading
        regions = (wired.inbox, wired.outbox, wired.cell)
        may_be_read = [mr for mr in regions if mr._access & e.IBV_ACCESS_REMOTE_READ]
        assert may_be_read == ([wired.outbox] if reading else [])


def test_messages_have_the_service_level_that_was_asked_for(verbs_pair):
    boxes = join(verbs_pair, service_level=3)
    assert [end._wiring.qp.query(e.IBV_QP_AV)[0].ah_attr.sl for end in boxes] == [3, 3]


def test_the_path_mtu_is_the_smaller_one_of_both_ends(verbs_pair):
    left, right = (box.Mailbox(context) for context in (verbs_pair.client, verbs_pair.server))
    small = replace(Offer.decode(right.offer), mtu_code=e.IBV_MTU_512)
    left.join(small.encode())
    assert left._wiring.qp.query(e.IBV_QP_PATH_MTU)[0].path_mtu == e.IBV_MTU_512
    assert right._wiring.offer().mtu_code > e.IBV_MTU_512


def test_what_is_in_hand_is_not_processed(verbs_pair):
    """A request that stands behind it waits for it, though both were taken by one call."""
    left, right = join(verbs_pair)
    done = []
    right.actions["note"] = done.append
    left.request("note", b"waits", reached(100))
    left.send(b"2")
    left.send(b"3")
    left.request("note", b"second", reached(2))
    assert until(lambda: landed(right, 4), left, right)
    assert right.receive_many() == [b"2", b"3"]
    assert done == []
    right.poll()
    assert done == [b"second"]


def test_credit_that_finds_no_room_is_owed_still(verbs_pair, monkeypatch):
    left, right = join(verbs_pair, Terms(slots=4))
    left.send(b"1")
    assert until(lambda: landed(right, 1), left, right)
    monkeypatch.setattr(Wiring, "has_room", False)
    assert right.take() == b"1"
    assert right._inbox.owed() == 1
    monkeypatch.undo()
    for _ in range(box.IDLE_POLLS):
        right.take()
    assert until(lambda: left.poll() or left.confirmed == 1, right)


def test_an_action_that_receives_performs_others_once():
    """It comes in the middle of a round over all requests, and ends a later one of them."""
    performed = []

    def receives(argument):
        performed.append(argument)
        desk.processed(9, None, 0)

    desk = Requests(Journal(io.BytesIO()), {"receives": receives}, 100)
    for number in (1, 2):
        desk.accept(number, Request("receives", bytes([number]), reached(9)).encode(), number, 0)
    desk.processed(9, b"", 0)
    assert performed == [b"\1", b"\2"]


def test_a_length_that_no_record_has_is_not_read():
    asked = []

    class File(io.BytesIO):
        def read(self, size=-1):
            asked.append(size)
            return super().read(size)

    file = File(b"\x01" + bytes(8) + (MAX_RECORD_BYTES + 1).to_bytes(4, "little") + bytes(100))
    assert Journal(file).last_number == 0
    assert max(asked) < 100


def test_records_behind_a_torn_one_are_never_found_again():
    """Writes reach a disk in any order: what was cut off does not come back behind the next record."""
    file = io.BytesIO()
    journal, ends = Journal(file), []
    for number in (1, 2, 3):
        journal.accept(number, b"message %d" % number, number)
        ends.append(len(file.getvalue()))
    torn = bytearray(file.getvalue())
    torn[ends[1] - 1] ^= 1
    file = io.BytesIO(bytes(torn))
    journal = Journal(file)
    assert journal.last_number == 1
    journal.accept(2, b"another 2", 2)
    again = Journal(io.BytesIO(file.getvalue()))
    assert sorted(again.entries) == [1, 2]
    assert again.entries[2].message == b"another 2"


def test_messages_that_are_all_empty_are_empty():
    terms = Terms(fixed_bytes=0)
    opener = terms.opener(digest_of(terms))
    for message, verdict in ((b"x", LENGTH), (b"", TAKEN)):
        memory = Memory(128)
        block = block_of(terms, 5, DATA, message)
        memory.view[: len(block)] = block
        assert opener.open(memory.address, 128, 5) == verdict


class Posts:
    """A queue pair that takes work requests and completes none."""

    def __init__(self):
        self.offsets = []

    def post_send(self, request):
        while request is not None:
            self.offsets.append(request.sges[0][0])
            request = request.next_wr


def wired(outstanding, waiting=()):
    """A `Wiring` whose outbox begins at 0, with so much under way."""
    found = object.__new__(Wiring)
    found.peer = SimpleNamespace(ring_va=0, ring_rkey=1)
    found.qp, found.cq = Posts(), SimpleNamespace(poll=lambda limit: (0, []))
    found._waiting = deque(waiting)
    found._outstanding, found._unsignaled, found.writes = outstanding, 0, 0
    found._outbox_va, found._outbox_lkey = 0, 1
    found._request = wiring.SendWR(opcode=wiring._WRITE, num_sge=1, sg=[wiring.SGE(0, 0, 1)])
    return found


def test_no_block_overtakes_one_that_waits_for_room():
    one = wired(DEPTH - 3, [(64, 8)])
    assert not one.has_room
    one.carry([(128, 8)])
    assert one.qp.offsets == [64, 128]
    assert one.has_room


@pytest.mark.parametrize("room", [0, 1, 2])
def test_a_send_queue_is_never_given_more_than_it_holds(room):
    one = wired(DEPTH - room)
    one.carry([(64, 8), (128, 8), (192, 8)])
    assert one.qp.offsets == [64, 128][:room]
    assert (one.has_room, one._outstanding) == (False, DEPTH)


class Fetches:
    """A fetcher whose READs land when the test says so."""

    def __init__(self):
        self.offsets = []
        self.reading = False

    def read(self, offset):
        self.offsets.append(offset)
        self.reading = True


def test_a_slot_is_fetched_once_the_read_before_it_has_ended():
    """A message is taken as soon as it is whole, though the READ that brings it is under way."""
    terms = Terms(slots=4, mode="read")
    digest, memory, fetcher = digest_of(terms), Memory(terms.slot_bytes), Fetches()
    reader = RemoteReader(4, terms.slot_bytes, terms.opener(digest), memory.address,
                          terms.credit_sealer(digest), fetcher)  # fmt: skip
    assert [reader.poll(), reader.poll()] == [EMPTY, EMPTY]
    assert fetcher.offsets == [0], "it is under way"
    block = Memory(terms.slot_bytes)
    block.view[: terms.block_bytes(1)] = block_of(terms, 1, DATA, b"1")
    copy(memory.address, block.address, terms.slot_bytes)
    assert reader.poll() == TAKEN
    assert reader.poll() == EMPTY
    assert fetcher.offsets == [0], "the landing memory is still written to"
    fetcher.reading = False
    assert reader.poll() == EMPTY
    assert fetcher.offsets == [0, terms.slot_bytes]
    assert (reader.reads, reader.next_sequence) == (2, 2)
    fetcher.reading = False
    assert TAKEN not in (reader.poll(), reader.poll())
    assert fetcher.offsets[2:] == [terms.slot_bytes], "it has brought nothing, and is repeated"


@pytest.mark.parametrize("mode", ["write", "read"])
def test_each_piece_of_memory_has_its_size_and_the_rights_that_its_mode_needs(verbs_pair, mode):
    terms = Terms(slots=4, mode=mode)
    local, written, read = e.IBV_ACCESS_LOCAL_WRITE, e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_READ
    inbox, outbox = (terms.ring_bytes, local | written), (terms.ring_bytes, local)
    if mode == "read":
        inbox, outbox = (terms.slot_bytes, local), (terms.ring_bytes, local | read)
    cell = -(-terms.credit_bytes // 8) * 8, local | written
    for end in join(verbs_pair, terms):
        wired = end._wiring
        found = [(mr.length, mr._access) for mr in (wired.inbox, wired.outbox, wired.cell)]
        assert found == [inbox, outbox, cell]
        attributes, _ = wired.qp.query(e.IBV_QP_ACCESS_FLAGS)
        assert attributes.qp_access_flags == local | written | (read if mode == "read" else 0)


def test_the_path_mtu_is_no_greater_than_the_own_one(verbs_pair):
    left, right = (box.Mailbox(context) for context in (verbs_pair.client, verbs_pair.server))
    left._wiring._mtu_code = e.IBV_MTU_256
    left.join(right.offer)
    assert left._wiring.qp.query(e.IBV_QP_PATH_MTU)[0].path_mtu == e.IBV_MTU_256


def test_a_connection_goes_by_the_port_and_the_address_that_were_asked_for(verbs_pair):
    boxes = join(verbs_pair, gid_index=1)
    for end in boxes:
        attributes, _ = end._wiring.qp.query(e.IBV_QP_AV | e.IBV_QP_PORT)
        vector = attributes.ah_attr
        assert (attributes.port_num, vector.port_num, vector.sgid_index, vector.hop_limit) == (1, 1, 1, 64)


def test_what_cannot_be_made_whole_leaves_no_domain(verbs_pair, monkeypatch):
    made = []

    class Noted(wiring.PD):
        __slots__ = ()

        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    def fails(*arguments):
        raise ValueError("no room")

    monkeypatch.setattr(wiring, "PD", Noted)
    monkeypatch.setattr(wiring, "CQ", fails)
    with pytest.raises(ValueError, match="no room"):
        Wiring(verbs_pair.client, Terms())
    assert [each.is_open for each in made] == [False]


class Completes(Posts):
    """A queue pair that completes what it signals when it is polled."""

    def __init__(self):
        super().__init__()
        self.done = []

    def post_send(self, request):
        while request is not None:
            self.offsets.append(request.sges[0][0])
            if request.send_flags & wiring._SIGNALED:
                self.done.append(SimpleNamespace(status=e.IBV_WC_SUCCESS, wr_id=request.wr_id))
            request = request.next_wr

    def poll(self, limit):
        done, self.done = self.done[:limit], self.done[limit:]
        return len(done), done


def test_operations_are_counted_until_the_one_that_retires_them_completes():
    one = wired(0)
    one.qp = one.cq = Completes()
    for count in range(1, 3 * wiring.SIGNAL_EVERY + 1):
        one.carry([(64, 8)])
        assert (one.writes, one._outstanding) == (count, count)
        assert len(one.qp.done) == count // wiring.SIGNAL_EVERY
    one.carry([(64, 8)])
    one.take_completions()
    assert one._outstanding == 1
    one.terms = SimpleNamespace(slot_bytes=256)
    one.inbox = SimpleNamespace(buf=0x4000, lkey=9)
    for _ in range(2):
        one.read(512)
        assert one.reading
        one.carry([(64, 8)])
    one.take_completions()
    assert (one._outstanding, one.reading) == (1, False)


def test_room_is_made_where_there_is_none_before_blocks_wait():
    one = wired(0)
    one.qp = one.cq = Completes()
    for at in range(DEPTH):
        one.carry([(at, 8)])
    assert not one.has_room
    one.carry([(DEPTH, 8)])
    assert one.qp.offsets == list(range(DEPTH + 1))
    assert one.has_room


def test_a_read_and_a_credit_go_where_the_peer_said():
    sent = []
    one = wired(0)
    one.qp = SimpleNamespace(post_send=sent.append)
    one.peer = SimpleNamespace(ring_va=0x10000, ring_rkey=11, cell_va=0x20000, cell_rkey=12)
    one.terms, one.inbox = SimpleNamespace(slot_bytes=256), SimpleNamespace(buf=0x4000, lkey=9)
    one.read(512)
    memory = Memory(16)
    one.write_credit(memory.address, 16)
    read, credit = sent
    assert (read.rdma_rkey, read.rdma_remote_addr, read.sg_list) == (11, 0x10200, ((0x4000, 256, 9),))
    assert read.send_flags == e.IBV_SEND_SIGNALED
    assert (credit.rdma_rkey, credit.rdma_remote_addr, credit.send_flags) == (12, 0x20000, e.IBV_SEND_INLINE)
    one.peer = None
    credits = (memory.address, 16)
    for act in (lambda: one.read(0), lambda: one.write_credit(*credits), lambda: one.carry([(0, 8)])):
        with pytest.raises(MailboxError, match="not joined"):
            act()


def test_two_ends_begin_with_numbers_that_nobody_guesses(verbs_pair):
    made = [Wiring(verbs_pair.client, Terms()) for _ in range(4)]
    assert len({each.nonce for each in made}) == 4
    assert max(each.psn for each in made) > 1 << 12
    for each in made:
        each.close()


def test_a_read_ends_with_its_own_completion_and_a_lost_connection_with_any():
    done = []
    one = wired(20)
    one.cq = SimpleNamespace(poll=lambda limit: (len(done), done))
    one.reading = True
    for wr_id, outstanding, reading in ((16, 4, True), (wiring.READ_ID | 3, 1, False)):
        done[:] = [SimpleNamespace(status=e.IBV_WC_SUCCESS, wr_id=wr_id)]
        one.take_completions()
        assert (one._outstanding, one.reading) == (outstanding, reading)
    done[:] = [SimpleNamespace(status=e.IBV_WC_RETRY_EXC_ERR, wr_id=1)]
    with pytest.raises(MailboxError, match="the connection is lost"):
        one.take_completions()


def test_a_message_is_found_behind_as_many_others_as_a_poll_takes(verbs_pair):
    left, right = join(verbs_pair)
    for number in range(3):
        left._put(OUTCOME, (encode_outcome(100 + number, DONE, b""),))
    left.send(b"x")
    assert until(lambda: landed(right, 4), left, right)
    assert right.receive_many(1) == [b"x"]
    assert right.statistics.outcomes_unknown == 3


def test_credit_is_given_for_a_quarter_of_the_ring_or_when_nothing_comes_for_a_while(verbs_pair):
    left, right = join(verbs_pair, Terms(slots=16))

    def receive(count):
        for _ in range(count):
            left.send(b"x")
        sequence = left.statistics.sent
        place = (sequence - 1) % 16
        inbox, opener = right._inbox, right._opener
        at = inbox.address + place * inbox.slot_bytes
        assert until(lambda: opener.open(at, inbox.slot_bytes, sequence) == TAKEN, left, right)
        found = []
        while len(found) < count:
            found += right.receive_many()
        return right.statistics.credits_sent

    def quiet(polls):
        for _ in range(polls):
            assert right.receive_many() == []
        return right.statistics.credits_sent

    assert receive(4) == 1
    for _ in range(2):  # a message begins the while anew
        assert receive(1) == 1
        assert quiet(box.IDLE_POLLS - 3) == 1
    assert quiet(3) == 2


def test_completions_that_wait_make_room_for_credit():
    given = []
    one = object.__new__(box.Mailbox)
    one._wiring = SimpleNamespace(
        has_room=False, take_completions=lambda: setattr(one._wiring, "has_room", True),
        write_credit=lambda *place: given.append(place),
    )  # fmt: skip
    one._credits, one._inbox = SimpleNamespace(address=7), SimpleNamespace(seal_credit=lambda: 24)
    one._statistics = SimpleNamespace(credits_sent=0)
    one._give_credit()
    assert given == [(7, 24)]


def test_who_waits_gives_up_when_its_time_has_passed(monkeypatch):
    now = [0]

    def clock():
        now[0] += 300_000_000
        return now[0]

    monkeypatch.setattr(box, "time", SimpleNamespace(monotonic_ns=clock))
    one = object.__new__(box.Mailbox)
    one._progress, one._wiring = lambda: None, SimpleNamespace(take_completions=lambda: None)
    with pytest.raises(box.MailboxTimeout, match="no room for 1 s"):
        one._wait(lambda: 0, 1.0, "no room")
    assert now[0] == 1_500_000_000, "from 0.3 s on, looked at each 0.3 s"
