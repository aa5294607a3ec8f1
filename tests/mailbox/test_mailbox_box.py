"""Mailboxes between two adapters, embedded and in processes of their own."""

import copy
import dataclasses
import io
import ipaddress
import random
import socket
import threading

import pytest
from mailbox_pairs import BOUND, drive, join, receive, until
from mailbox_rings import KEY

from softhca.mailbox import (
    Mailbox,
    MailboxError,
    MailboxTimeout,
    OfferError,
    Terms,
    TermsError,
    all_of,
    always,
    exchange_offers,
    field,
    reached,
)
from softhca.mailbox.blocks import DATA, OUTCOME, TAKEN
from softhca.mailbox.box import OTHERS_A_POLL
from softhca.mailbox.hashes import ALGORITHMS
from softhca.mailbox.journal import Journal
from softhca.mailbox.offer import Offer
from softhca.mailbox.requests import DONE, encode_outcome

KINDS = [
    Terms(), Terms(slots=2, slot_bytes=48), Terms(slots=8, slot_bytes=64, largest_bytes=400),
    Terms(slots=3, slot_bytes=8192), Terms(mode="read"), Terms(mode="read", slots=2, slot_bytes=5000),
    Terms(algorithm="blake2b", indicator=b"| hash |"), Terms(algorithm="blake3"),
    Terms(mode="read", algorithm="blake2b"),
]  # fmt: skip


@pytest.mark.parametrize("terms", KINDS, ids=repr)
def test_messages_arrive_whole_in_order_and_once(verbs_pair, terms):
    left, right = join(verbs_pair, terms)
    dice = random.Random(repr(terms))
    messages = [dice.randbytes(dice.randrange(terms.largest_bytes + 1)) for _ in range(80)]
    got, sent = [], 0
    for _ in range(BOUND):
        if sent < len(messages) and dice.random() < 0.5:
            cut = dice.randrange(3)
            sent += bool(left.try_send(messages[sent][:cut], messages[sent][cut:]))
        elif sent < len(messages):
            sent += left.try_send_many(messages[: sent + 3], sent)
        got += right.receive_many(dice.randrange(1, 4))
        left.context.progress()
        if len(got) == len(messages):
            break
    assert got == messages
    assert right.try_receive() is None
    assert (left.statistics.sent, right.statistics.received) == (80, 80)
    assert bool(right.statistics.reads) == (terms.mode == "read")
    assert bool(left.statistics.writes) == (terms.mode == "write")
    assert left.statistics.credits_refused == 0


def test_peers_with_ipv4_addresses_join_whatever_python_writes_them_as(verbs_pair, monkeypatch):
    # Since 3.13 the long form of a mapped address ends in a dotted quad, which no GID has.
    newer = property(lambda address: f"0000:0000:0000:0000:0000:ffff:{address.ipv4_mapped}")
    monkeypatch.setattr(ipaddress.IPv6Address, "exploded", newer)
    left, right = join(verbs_pair)
    left.send(b"hello")
    assert receive(right, left) == b"hello"


@pytest.mark.parametrize("mode", ["write", "read"])
def test_both_directions_at_once(verbs_pair, mode):
    left, right = join(verbs_pair, Terms(slots=4, mode=mode))
    for n in range(40):
        assert until(lambda box=left, n=n: box.try_send(b"ping %d" % n) or None, right)
        assert receive(right, left) == b"ping %d" % n
        assert until(lambda box=right, n=n: box.try_send(b"pong %d" % n) or None, left)
        assert receive(left, right) == b"pong %d" % n


def test_a_batch_is_one_operation(verbs_pair):
    left, right = join(verbs_pair, Terms(slots=32, slot_bytes=128))
    assert left.try_send_many([bytes([n]) * 64 for n in range(20)]) == 20
    assert left.statistics.writes == 1
    assert [receive(right, left)[0] for _ in range(20)] == list(range(20))


def test_more_ranges_than_the_send_queue_takes_wait_in_order(verbs_pair):
    left, right = join(verbs_pair, Terms(slots=400, slot_bytes=1024))
    messages = [b"%d" % n for n in range(400)]
    assert left.try_send_many(messages) == 400
    got = []
    for _ in range(BOUND):
        got += right.receive_many()
        left.poll()
        if len(got) == 400:
            break
    assert got == messages


def test_without_room_a_writer_waits(verbs_pair):
    left, right = join(verbs_pair, Terms(slots=4))
    assert left.try_send_many([b"a", b"b", b"c", b"d", b"e"]) == 4
    assert left.try_send(b"e") == 0
    assert left.statistics.full == 2
    with pytest.raises(MailboxTimeout, match="no room"):
        left.send(b"e", timeout_s=0)
    with pytest.raises(MailboxTimeout, match="0 of 2"):
        left.send_many([b"e", b"f"], timeout_s=0)
    assert receive(right, left) == b"a"
    assert until(lambda: left.try_send(b"e") or None, right) == 5
    assert [receive(right, left) for _ in range(4)] == [b"b", b"c", b"d", b"e"]


def test_waiting_for_a_message_ends(verbs_pair):
    left, _ = join(verbs_pair)
    with pytest.raises(MailboxTimeout, match="no message"):
        left.receive(timeout_s=0)


def test_what_is_no_message_is_misuse_and_changes_nothing(verbs_pair):
    left, right = join(verbs_pair)
    for wrong in ("text", 5, None):
        with pytest.raises(TypeError):
            left.try_send(wrong)
        with pytest.raises(TypeError):
            left.try_send_many([b"a", wrong])
    with pytest.raises(ValueError, match="longer"):
        left.try_send(bytes(97))
    assert left.send(b"good") == 1
    assert receive(right, left) == b"good"


def test_one_that_has_not_joined_says_so(verbs_pair):
    with Mailbox(verbs_pair.client) as box:
        for act in (lambda: box.try_send(b"a"), box.try_receive, lambda: box.try_send_many([b"a"])):
            with pytest.raises(MailboxError, match="not joined"):
                act()


def test_ends_that_do_not_fit_do_not_join(verbs_pair):
    left = Mailbox(verbs_pair.client, Terms(slots=4))
    right = Mailbox(verbs_pair.server, Terms(slots=8))
    with pytest.raises(OfferError, match="slots"):
        left.join(right.offer)
    with pytest.raises(OfferError, match="bytes"):
        left.join(b"hello")
    other = Mailbox(verbs_pair.server, Terms(slots=4))
    left.join(other.offer)
    with pytest.raises(MailboxError, match="already"):
        left.join(other.offer)


@pytest.mark.parametrize(("algorithm", "key"), [("xxh3-128", KEY), ("blake2b", b""), ("blake3", b"short")])
def test_a_key_that_does_not_fit_leaves_nothing_behind(verbs_pair, algorithm, key):
    with pytest.raises(TermsError):
        Mailbox(verbs_pair.client, Terms(algorithm=algorithm), key)


def test_ends_with_different_keys_hear_nothing(verbs_pair):
    terms = Terms(algorithm="blake2b")
    left = Mailbox(verbs_pair.client, terms, b"one key of many bytes")
    right = Mailbox(verbs_pair.server, terms, b"another key of many bytes")
    left.join(right.offer)
    right.join(left.offer)
    left.send(b"secret")

    def torn():
        assert right.try_receive() is None
        return right.statistics.torn or None

    assert until(torn, left)


def test_a_peer_that_is_gone_is_noticed(verbs_pair):
    left, right = join(verbs_pair)
    right.close()
    left.send(b"anybody?")

    def lost():
        try:
            left.poll()
        except MailboxError as error:
            return str(error)
        return None

    assert "lost" in until_by_the_clock(lost)


def until_by_the_clock(attempt):
    """The adapter gives up by the clock; a thousand rounds a millisecond are far more than it takes."""
    for _ in range(100 * BOUND):
        if found := attempt():
            return found
    raise AssertionError("never")


CALLS = {
    "try_send": lambda box: box.try_send(b"a"),
    "try_send_many": lambda box: box.try_send_many([b"a"]),
    "try_receive": lambda box: box.try_receive(),
    "take": lambda box: box.take(),
    "receive_many": lambda box: box.receive_many(),
    "poll": lambda box: box.poll(),
    "try_request": lambda box: box.try_request("a", b"", always()),
    "offer": lambda box: box.offer,
}


@pytest.mark.parametrize("mode", ["write", "read"])
def test_a_closed_mailbox_leaves_the_memory_of_its_rings_alone(verbs_pair, mode):
    """Another region may have it by then: what a READ of the peer's fetches goes by no queue of this end."""
    left, right = join(verbs_pair, Terms(mode=mode))
    left.close()
    left.close()
    for name, call in CALLS.items():
        with pytest.raises(MailboxError, match="closed"):
            call(left)
        assert name != "try_send" or not left.statistics.sent
    right.context.close()
    for call in (right.take, right.poll, lambda: right.try_send(b"a")):
        with pytest.raises(MailboxError, match="closed"):
            call()


@pytest.mark.parametrize("receive", ["try_receive", "receive_many"])
def test_an_action_may_close_its_mailbox(verbs_pair, receive):
    left, right = join(verbs_pair)
    right.actions["end"] = lambda _: right.close()
    left.request("end", b"", always())
    left.poll()

    def until_it_ends():
        for _ in range(BOUND):
            getattr(right, receive)()
            left.context.progress()

    with pytest.raises(MailboxError, match="closed"):
        until_it_ends()


def test_a_mailbox_that_is_closed_before_it_has_joined_does_not_join(verbs_pair):
    left, right = Mailbox(verbs_pair.client), Mailbox(verbs_pair.server)
    left.close()
    with pytest.raises(MailboxError, match="closed"):
        left.join(right.offer)


def test_ends_meet_over_a_connection(verbs_pair):
    near, far = socket.socketpair()
    left, right = Mailbox(verbs_pair.client), Mailbox(verbs_pair.server)
    with near, far:
        other = threading.Thread(target=exchange_offers, args=(right, far))
        other.start()
        exchange_offers(left, near)
        other.join()
    left.send(b"hello")
    assert receive(right, left) == b"hello"


@pytest.mark.parametrize("said", [b"", b"HMBX", bytes(300)])
def test_a_connection_that_brings_no_offer_ends_the_meeting(verbs_pair, said):
    near, far = socket.socketpair()
    with near, far, Mailbox(verbs_pair.client) as box:
        far.sendall(said)
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(OfferError):
            exchange_offers(box, near)


def test_a_request_is_performed_and_its_outcome_comes_back(verbs_pair):
    left, right = join(verbs_pair)
    done = []
    right.actions["sum"] = lambda argument: done.append(argument) or bytes([sum(argument)])
    number = left.request("sum", b"\1\2", all_of(field(0, "u8", "==", 9), reached(4)))
    for text in (b"\0", b"\x09", b"\5"):
        left.send(text)
    for _ in range(3):
        receive(right, left)
    assert left.outcome(number) is None
    assert done == []  # the third message is in hand
    drive(right, left)
    assert done == [b"\1\2"]
    outcome = until(lambda: left.try_receive() or left.outcome(number), right)
    assert (outcome.number, outcome.status, outcome.result) == (number, "done", b"\3")
    with pytest.raises(KeyError):
        left.outcome(number)


def test_a_message_in_whose_action_the_loop_ends_counts_for_other_requests(verbs_pair):
    left, right = join(verbs_pair)
    done = []

    def end(_):
        raise KeyboardInterrupt

    right.actions.update(end=end, note=done.append)
    for action in ("end", "note"):
        left.request(action, b"x", field(0, "u8", "==", 9))
    left.send(b"\x09")
    assert receive(right, left) == b"\x09"
    with pytest.raises(KeyboardInterrupt):
        right.poll()
    drive(right, left)
    assert done == [b"x"]


def test_a_deadline_is_the_receivers_clock(verbs_pair):
    now = [0]
    left, right = join(verbs_pair, clock=lambda: now[0])
    right.actions["late"] = lambda _: pytest.fail("performed")
    number = left.request("late", b"", reached(100), deadline_s=2.5)

    def heard():
        assert right.try_receive() is None
        return bool(right._entries)

    assert until(heard, left)  # from now on the time counts
    now[0] = 2_499_999_999
    drive(left, right)
    assert left.try_receive() is None
    assert left.outcome(number) is None
    now[0] += 1

    def outcome():
        right.poll()
        left.poll()
        assert right.try_receive() is None
        assert left.try_receive() is None
        return left.outcome(number)

    assert until(outcome).status == "expired"


def test_a_request_in_several_slots_behind_a_skip_keeps_its_number(verbs_pair):
    left, right = join(verbs_pair, Terms(slots=6, slot_bytes=64, largest_bytes=200))
    right.actions["length"] = lambda argument: b"%d" % len(argument)
    for _ in range(4):
        left.send(b"a")
        receive(right, left)
    number = until(
        lambda: (drive(left, right, rounds=1), left.request("length", bytes(150), reached(0), timeout_s=1))[1]
    )
    assert number == 7
    assert until(lambda: left.try_receive() or right.try_receive() or left.outcome(number)).result == b"150"


def test_what_is_handed_over_in_one_batch_is_processed_when_its_reader_comes_back(verbs_pair):
    """Messages, a request for the second of them, and one more message, all taken by one call."""
    left, right = join(verbs_pair, Terms(slots=64))
    done = []
    right.actions["note"] = done.append
    left.try_send_many([b"1", b"2"])
    left.request("note", b"second", reached(2))
    left.request("note", b"fifth", reached(5))
    assert left.send(b"5") == 5
    probe = right.terms.opener(right.terms.digest(right._wiring.nonce))
    last = right._inbox.address + 4 * right.terms.slot_bytes
    until(lambda: probe.open(last, right.terms.slot_bytes, 5) == TAKEN, left, right)
    got = right.receive_many()
    assert got == [b"1", b"2", b"5"]
    assert done == []
    right.poll()
    assert done == [b"second", b"fifth"]


@pytest.mark.parametrize("take", [lambda box: box.take() and [], lambda box: box.receive_many(1)])
def test_a_peer_that_sends_outcomes_alone_is_looked_at_for_so_long_only(verbs_pair, take):
    left, right = join(verbs_pair, Terms(slots=512))
    for _ in range(200):
        left._put(OUTCOME, (encode_outcome(7, DONE, b""),))
    left.send(b"behind them")
    probe = right.terms.opener(right.terms.digest(right._wiring.nonce))
    last = right._inbox.address + 200 * right.terms.slot_bytes
    until(lambda: left.poll() or probe.open(last, right.terms.slot_bytes, 201) == TAKEN, right)
    assert not take(right)
    assert 0 < right.statistics.outcomes_unknown <= OTHERS_A_POLL + 1
    assert receive(right, left) == b"behind them"
    assert right.statistics.outcomes_unknown == 200


def test_what_was_taken_is_not_taken_again_while_there_is_no_room_to_give_credit(verbs_pair, monkeypatch):
    left, right = join(verbs_pair, Terms(slots=4))
    number = left.request("unknown", b"", always())
    assert until(lambda: right.receive_many() or right._inbox.taken_sequence >= number, left)
    right.poll()
    assert right._put(DATA, (b"news",))  # behind the outcome
    probe = left.terms.opener(left.terms.digest(left._wiring.nonce))
    second = left._inbox.address + left.terms.slot_bytes
    until(lambda: probe.open(second, left.terms.slot_bytes, 2) == TAKEN, left, right)
    monkeypatch.setattr(type(left._wiring), "has_room", False)
    assert left.receive_many() == []
    assert left.outcome(number).status == "refused"
    assert left.receive_many() == []
    assert left.statistics.outcomes_unknown == 0
    monkeypatch.undo()
    assert until(lambda: left.receive_many() or None, right) == [b"news"]


def test_a_sender_knows_what_has_come_and_how_often_there_was_no_room(verbs_pair):
    left, right = join(verbs_pair, Terms(slots=8))
    assert left.confirmed == 0
    left.send_many([b"1", b"2"])
    assert left.try_send_many([b"%d" % n for n in range(3, 9)]) == 6
    assert left.statistics.full == 0
    assert [receive(right, left) for _ in range(8)] == [b"%d" % n for n in range(1, 9)]
    assert until(lambda: left.poll() or left.confirmed == 8, right)


@pytest.mark.parametrize("gid", [bytes(16), b"\xff" * 16], ids=["none", "multicast"])
def test_a_peer_that_cannot_be_reached_is_no_peer(verbs_pair, gid):
    left, right = (Mailbox(context) for context in (verbs_pair.client, verbs_pair.server))
    offer = dataclasses.replace(Offer.decode(right.offer), gid=gid).encode()
    with pytest.raises(OfferError, match="the peer's address"):
        left.join(offer)
    left.join(right.offer)
    right.join(left.offer)
    left.send(b"to the right one")
    assert receive(right, left) == b"to the right one"


def test_a_journal_of_another_ring_is_refused(verbs_pair):
    """New requests have the numbers of old ones, and would be taken for them."""
    journal = Journal(io.BytesIO())
    journal.accept(1, b"request", 0)
    with pytest.raises(MailboxError, match="another ring"):
        Mailbox(verbs_pair.client, journal=journal)


def test_every_algorithm_is_tried_here():
    assert {terms.algorithm for terms in KINDS} == set(ALGORITHMS)


def test_a_mailbox_has_one_owner_and_takes_what_it_is_made_for(verbs_pair):
    left, _ = join(verbs_pair)
    with pytest.raises(TypeError, match="copy 'Mailbox'"):
        copy.copy(left)
    for call in (
        lambda: Mailbox(3),
        lambda: left.request(3, b"", always()),
        lambda: left.request("a", b"", 3),
    ):
        with pytest.raises(TypeError, match="incorrect type"):
            call()
