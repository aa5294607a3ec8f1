"""Many writers, and mailboxes in asyncio."""

import asyncio

import pytest
from mailbox_pairs import BOUND, Late, drive, join, until

from softhca.machine.primitives import bytes_at
from softhca.mailbox import AsyncMailbox, MailboxSet, Terms, always, field
from softhca.mailbox.box import Mailbox
from softhca.mailbox.errors import MailboxError, MailboxTimeout

WRITERS = 5


@pytest.fixture
def room(verbs_pair):
    """The writers' ends, and a room of the reader's."""
    pairs = [join(verbs_pair, Terms(slots=4)) for _ in range(WRITERS)]
    return [left for left, _ in pairs], MailboxSet(right for _, right in pairs)


def collect(room, writers, count):
    """``count`` messages, with the number of the mailbox that each came by."""
    got = []
    for _ in range(BOUND):
        found = room.try_receive()
        if found is not None:
            got.append((room.boxes.index(found[0]), found[1]))
        if len(got) == count:
            return got
        for writer in writers:
            writer.context.progress()
    raise Late


def test_every_writer_has_a_ring_of_its_own(room):
    writers, reader = room
    for at, writer in enumerate(writers):
        writer.try_send_many([b"%d-%d" % (at, n) for n in range(3)])
    got = collect(reader, writers, 3 * WRITERS)
    for at in range(WRITERS):
        assert [message for box, message in got if box == at] == [b"%d-%d" % (at, n) for n in range(3)]
    assert reader.try_receive() is None


def wait_for(count, writers, boxes):
    """Until ``count`` messages have come to each of ``boxes``, whose rings were empty: the last of them
    stands in its slot."""

    def come(box):
        inbox = box._inbox
        return any(bytes_at(inbox.address + (count - 1) * inbox.slot_bytes, 64))

    assert until(lambda: all(map(come, boxes)), *writers, *boxes)


def test_nobody_is_looked_at_twice_before_the_others(room):
    writers, reader = room
    for writer in writers:
        writer.try_send_many([b"1", b"2", b"3"])
    wait_for(3, writers, reader.boxes)
    order = [box for box, _ in collect(reader, writers, 3 * WRITERS)]
    assert order == list(range(WRITERS)) * 3


def test_a_writer_that_writes_nonsense_stops_nobody(room):
    """It has the right to its ring, and fills it with anything."""
    writers, reader = room
    hostile = writers[2]
    hostile._wiring.outbox.write(b"\1" + bytes(7) + b"\xff" * 504, 512)
    hostile._wiring.carry([(0, 512)])
    drive(*writers, *reader.boxes)
    for writer in writers[:2] + writers[3:]:
        writer.send(b"good")
    got = collect(reader, writers, WRITERS - 1)
    assert sorted(box for box, _ in got) == [0, 1, 3, 4]
    assert reader.boxes[2].statistics.length > 0
    hostile.send(b"better now")  # and its own ring goes on, too
    assert collect(reader, writers, 1) == [(2, b"better now")]


def test_a_mailbox_that_is_lost_is_put_aside(room):
    writers, reader = room
    broken = reader.boxes[1]
    writers[1].close()
    broken.try_send(b"hello?")
    for _ in range(100 * BOUND):
        reader.try_receive()
        if reader.lost:
            break
    assert list(reader.lost) == [broken]
    assert "lost" in str(reader.lost[broken])
    writers[4].send(b"on")
    assert [message for _, message in collect(reader, [writers[4]], 1)] == [b"on"]


def test_a_mailbox_that_is_removed_keeps_the_turns(room):
    writers, reader = room
    boxes = reader.boxes
    for writer in writers:
        writer.try_send_many([b"1", b"2"])
    wait_for(2, writers, boxes)
    assert reader.try_receive()[0] is boxes[0]
    assert reader.try_receive()[0] is boxes[1]
    reader.remove(boxes[0])
    assert reader.try_receive()[0] is boxes[2]
    reader.remove(boxes[4])
    assert [reader.try_receive()[0] for _ in range(3)] == [boxes[3], boxes[1], boxes[2]]
    with pytest.raises(ValueError, match="not in list"):
        reader.remove(boxes[0])
    assert MailboxSet().try_receive() is None


async def both(left, right, count):
    """Sends and receives at the same time, through rings that are far too short."""
    left, right = AsyncMailbox(left), AsyncMailbox(right)
    messages = [b"%d" % n for n in range(count)]

    async def sending():
        for message in messages[: count // 2]:
            await left.send(message[:1], message[1:])
        await left.send_many(messages[count // 2 :])

    async def receiving():
        got = []
        async for message in right:
            got.append(message)
            if len(got) == count:
                return got
        raise AssertionError

    async with asyncio.timeout(60):
        got, _ = await asyncio.gather(receiving(), sending())
    return got, messages


def test_tasks_send_and_receive(verbs_pair):
    left, right = join(verbs_pair, Terms(slots=3))
    got, messages = asyncio.run(both(left, right, 60))
    assert got == messages


def test_a_cancelled_receive_loses_nothing(verbs_pair):
    left, right = join(verbs_pair)

    async def main():
        box = AsyncMailbox(right)
        waiting = asyncio.ensure_future(box.receive())
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await AsyncMailbox(left).send(b"for the next one")
        async with asyncio.timeout(60):
            return await box.receive()

    assert asyncio.run(main()) == b"for the next one"


def test_a_request_from_a_task(verbs_pair):
    left, right = join(verbs_pair)
    right.actions["upper"] = bytes.upper

    async def main():
        here = AsyncMailbox(left)

        async def listen(box: Mailbox):
            async for message in AsyncMailbox(box):
                assert message == b"\7"

        async with asyncio.timeout(60):
            listeners = [asyncio.ensure_future(listen(box)) for box in (left, right)]
            first = await here.request("upper", b"now", always())
            second = await here.request("upper", b"then", field(0, "u8", "==", 7))
            outcomes = [await here.outcome(first)]
            await here.send(b"\7")
            outcomes.append(await here.outcome(second))
            for listener in listeners:
                listener.cancel()
        return [outcome.result for outcome in outcomes]

    assert asyncio.run(main()) == [b"NOW", b"THEN"]


class Full:
    """A mailbox that has room for one more thing whenever it has been polled."""

    def __init__(self):
        self.polls = 0
        self.room = 0
        self.sent = []

    def poll(self):
        self.polls += 1
        self.room = 1

    def try_send(self, *parts):
        return self._put(b"".join(parts))

    def try_send_many(self, messages, start=0):
        return 1 if self._put(messages[start]) else 0

    def try_request(self, action, argument, condition, deadline_s):
        return self._put((action, argument))

    def _put(self, thing):
        if not self.room:
            return 0
        self.room = 0
        self.sent.append(thing)
        return len(self.sent)


def test_a_task_that_waits_for_room_drives_the_mailbox_itself():
    """Nobody else may: the room comes with what a poll takes."""
    box = Full()

    async def main():
        async with asyncio.timeout(60):
            here = AsyncMailbox(box)
            numbers = [await here.send(b"1"), await here.request("note", b"2", always())]
            await here.send_many([b"3", b"4"])
            return numbers

    assert asyncio.run(main()) == [1, 2]
    assert box.sent == [b"1", ("note", b"2"), b"3", b"4"]
    assert box.polls == 4


def test_what_a_loop_waits_for_comes_also_in_pauses(verbs_pair, monkeypatch):
    """No turn without a pause: each attempt follows a sleep that the test counts, and none is longer."""
    left, right = join(verbs_pair)
    pauses = []
    real = asyncio.sleep

    async def counted(pause_s):
        pauses.append(pause_s)
        if len(pauses) == 230:
            until(lambda: left.try_send(b"late") or None)
        await real(0)

    monkeypatch.setattr("softhca.mailbox.aio.asyncio.sleep", counted)
    assert asyncio.run(AsyncMailbox(right).receive()) == b"late"
    assert pauses[:200] == [0] * 200
    assert pauses[200] > 0
    assert max(pauses) == 1e-3


class Half(Mailbox):
    """Takes one message at a time, ``room`` in all; ``starts``: where each attempt began."""

    def __init__(self, room):
        self.room, self.starts = room, []

    def try_send_many(self, messages, start=0):
        self.starts.append(start)
        self.room -= 1
        return 1 if self.room >= 0 else 0

    def _wait(self, attempt, timeout_s, what):
        count = attempt()
        if not count:
            raise MailboxTimeout(what)
        return count

    def __del__(self):
        pass


def test_each_attempt_begins_behind_what_has_gone_and_a_time_out_says_how_much():
    box = Half(3)
    box.send_many([b"1", b"2", b"3"])
    assert box.starts == [0, 1, 2]
    box = Half(2)
    with pytest.raises(MailboxTimeout, match="no room: 2 of 4 messages went"):
        box.send_many([b"1", b"2", b"3", b"4"])
    assert box.starts == [0, 1, 2]


def test_a_ring_that_takes_a_part_was_full_once(verbs_pair):
    left, _ = join(verbs_pair, Terms(slots=4))
    assert left.try_send_many([b"x"] * 5, 1) == 4
    assert (left.statistics.sent, left.statistics.full) == (4, 0)
    assert left.try_send_many([b"x"] * 2) == 0
    assert (left.statistics.sent, left.statistics.full) == (4, 1)


class Box:
    """A mailbox as a set sees it: what it has (an error: it is lost), and when it is looked at."""

    def __init__(self, name, context, looks, *has):
        self.name, self.context, self.looks, self.has = name, context, looks, list(has)

    def take(self):
        assert len(self.looks) < 100
        self.looks.append(self.name)
        found = self.has.pop(0) if self.has else None
        if isinstance(found, MailboxError):
            raise found
        return found


class Driven:
    def __init__(self):
        self.count = 0

    def progress(self):
        self.count += 1


def set_of(*has):
    """A set of boxes a, b … on two contexts in turn."""
    contexts, looks = [Driven(), Driven()], []
    boxes = [Box("abcd"[at], contexts[at % 2], looks, *each) for at, each in enumerate(has)]
    return MailboxSet(boxes), boxes, looks, contexts


def test_each_has_its_turn_and_each_context_is_driven_once():
    several, (a, _, c), looks, contexts = set_of([b"1", b"2"], [], [b"3"])
    assert several.try_receive() == (a, b"1")
    assert several.try_receive() == (c, b"3")
    assert several.try_receive() == (a, b"2")
    assert several.try_receive() is None
    assert "".join(looks) == "abcabca"
    assert [each.count for each in contexts] == [4, 4]


def test_a_lost_one_is_named_and_not_looked_at_again():
    gone = MailboxError("gone")
    several, (a, b, c), looks, _ = set_of([b"1"], [gone, b"never"], [b"2"])
    assert [several.try_receive() for _ in range(3)] == [(a, b"1"), (c, b"2"), None]
    assert several.lost == {b: gone}
    assert several.boxes == (a, c)
    assert "".join(looks) == "abcac"


@pytest.mark.parametrize(("removed", "then"), [(0, "bcd"), (1, "cda"), (2, "bda"), (3, "bca")])
def test_who_is_next_stays_next_when_another_one_is_removed(removed, then):
    several, boxes, looks, _ = set_of([b"1"], [], [], [])
    several.try_receive()
    several.remove(boxes[removed])
    looks.clear()
    assert several.try_receive() is None
    assert "".join(looks) == then
    with pytest.raises(ValueError, match="list"):
        several.remove(boxes[removed])
