"""Completion queues as their handles see them: moved, armed, ended and given back, and what refuses leaves
nothing behind."""

import errno

import pytest
from scripted_channel import ScriptedDriver

from softhca.driver.cq import CqHandle
from softhca.driver.errors import DriverError
from softhca.driver.polling import CompletionRound
from softhca.queues import control_fields as control
from softhca.queues.completion import CompletionQueue
from softhca.queues.ring import RingLayout


class Adapter(ScriptedDriver):
    """An adapter with one completion queue, which the test fills."""

    def __init__(self):
        super().__init__()
        self.queue = None
        self.refuses = 0
        self.overflowed = []
        self.fired = []
        self.channel.answer = self.answer

    def answer(self, command):
        if self.refuses:
            raise DriverError(self.refuses, "no")
        if command.command in (control.CREATE_CQ, control.RESIZE_CQ):
            layout = RingLayout.over(
                [frame for first, count in command.fields["frames"] for frame in range(first, first + count)],
                self.channel.address_map, command.fields["entries"], command.fields["body_bytes"],
            )  # fmt: skip
            if self.queue is None:
                self.queue = CompletionQueue(3, layout, self)
            else:
                self.queue.move_to(layout)
            size = {"cqe": command.fields["entries"]}
            return size if command.command == control.RESIZE_CQ else {"cq": 3, **size}
        return {}

    def completion_event(self, queue):
        self.fired.append(queue.number)

    def overflow(self, queue):
        self.overflowed.append(queue.number)

    def post(self, wr_id, status=0, qp_num=5, solicited=False):
        self.queue.post(wr_id, status, 1, 2, qp_num, 3, 4, 6, 7, 8, 9, 10, 11, 12, solicited)


@pytest.fixture
def adapter():
    made = Adapter()
    yield made
    made.close()


@pytest.fixture
def cq(adapter):
    made = CqHandle(adapter, 4, "channel")
    adapter.events.add(made)
    return made


def code_of(call, *arguments):
    with pytest.raises(DriverError) as caught:
        call(*arguments)
    return caught.value.errno


def ids(found):
    return [each.wr_id for each in found]


@pytest.mark.parametrize("entries", [0, -1])
def test_a_queue_has_room_for_one_at_least(adapter, entries):
    assert code_of(CqHandle, adapter, entries, None) == errno.EINVAL
    assert not adapter.channel.asked
    assert CqHandle(adapter, 1, None).entries == 1


def test_a_refused_queue_leaves_no_memory(adapter):
    free = adapter.free_pages()
    adapter.refuses = errno.ENOMEM
    assert code_of(CqHandle, adapter, 4, None) == errno.ENOMEM
    assert adapter.free_pages() == free


def test_polling_takes_no_more_than_asked_and_says_that_the_program_lives(adapter, cq):
    session = adapter.session
    assert ids(cq.poll(4)) == []
    assert not session.active
    for number in range(4):
        adapter.post(number)
    assert cq.poll(0) == []
    assert cq.poll(-1) == []
    assert cq.waiting() == 4
    assert not session.active
    assert ids(cq.poll(3)) == [0, 1, 2]
    assert session.active
    assert cq.waiting() == 1


def test_failures_are_told_whatever_else_a_poll_finds(adapter, cq):
    for wr_id, status in ((1, 5), (2, 0), (3, 4), (4, 0)):
        adapter.post(wr_id, status, qp_num=70 + wr_id)
    assert ids(cq.poll(8)) == [1, 2, 3, 4]
    assert adapter.failed == [71, 73]


# resizing


def test_a_resized_queue_gives_its_former_memory_back(adapter, cq):
    free = adapter.free_pages()
    for number in range(3):
        adapter.post(number)
    assert ids(cq.poll(1)) == [0]
    cq.resize(200)
    larger = free - adapter.free_pages()
    assert (cq.entries, cq.waiting()) == (200, 2)
    assert larger > 0
    cq.resize(4)
    assert adapter.free_pages() == free
    adapter.post(9)
    assert ids(cq.poll(9)) == [1, 2, 9]


def test_a_refused_resize_leaves_the_queue_as_it_was(adapter, cq):
    free = adapter.free_pages()
    adapter.post(1)
    adapter.refuses = errno.EINVAL
    assert code_of(cq.resize, 200) == errno.EINVAL
    assert adapter.free_pages() == free
    assert cq.entries == 4
    adapter.post(2)
    assert ids(cq.poll(9)) == [1, 2]
    assert code_of(cq.resize, 0) == errno.EINVAL


def test_nothing_is_taken_from_a_ring_that_moves(adapter, cq):
    adapter.post(1)
    poller = cq._poller
    poller.leave()
    assert cq.waiting() == 0
    assert cq.poll(1) == []
    poller.move_to(None)
    assert cq.waiting() == 1
    assert ids(cq.poll(1)) == [1]


@pytest.mark.parametrize(
    ("asked", "plain_fires"),
    [
        ((False,), True), ((True,), False), ((True, False), True), ((False, True), True),
        ((True, True), False),
    ],
)  # fmt: skip
def test_what_is_asked_while_a_ring_moves_is_asked_of_the_next_one(adapter, cq, asked, plain_fires):
    cq._poller.leave()
    for solicited in asked:
        cq.arm(solicited)
    adapter.post(1)
    assert not adapter.fired
    cq._poller.move_to(None)
    adapter.post(2)
    assert bool(adapter.fired) is plain_fires
    adapter.post(3, solicited=True)
    assert adapter.fired == [3]
    cq.poll(9)
    cq._poller.leave()
    cq._poller.move_to(None)
    adapter.post(4, solicited=True)
    assert adapter.fired == [3], "and once is enough"


def test_a_queue_that_moves_with_dropped_completions_keeps_dropping_them(adapter, cq):
    adapter.post(1, qp_num=9)
    cq.poll(1)
    adapter.post(2)
    adapter.post(3, qp_num=9)
    cq.drop(5)
    cq.resize(100)
    adapter.post(4)
    assert ids(cq.poll(9)) == [3, 4]


# the end


def test_a_destroyed_queue_gives_its_memory_back_and_refuses(adapter):
    free = adapter.free_pages()
    cq = CqHandle(adapter, 4, "channel")
    adapter.events.add(cq)
    adapter.post(1)
    adapter.refuses = errno.EBUSY
    assert code_of(cq.destroy) == errno.EBUSY
    assert ids(cq.poll(1)) == [1], "queue pairs still use it"
    adapter.refuses = 0
    adapter.post(2)
    cq.destroy()
    assert adapter.free_pages() == free
    for call, words in ((cq.poll, (1,)), (cq.arm, ()), (cq._poller.poll, (1,))):
        assert code_of(call, *words) == errno.EINVAL
    assert cq.waiting() == 0
    cq.drop(5)


def test_one_that_is_destroyed_in_the_middle_of_a_poll_is_let_go_by_that_thread_alone(adapter, cq):
    """A signal handler may do it."""
    poller, free = cq._poller, adapter.free_pages()
    poller.acquire()
    cq.destroy()
    poller.release()
    assert adapter.free_pages() == free, "the poll further up still reads it"
    assert code_of(cq.poll, 1) == errno.EINVAL


def test_one_that_is_destroyed_by_what_a_poll_drives_gives_what_it_found(adapter, cq):
    """The poll that found nothing and drove the engine hears of it."""
    plain = adapter.channel.progress
    cq._poller.progress = lambda: (plain(), cq._poller.end())
    assert code_of(cq.poll, 1) == errno.EINVAL


def test_completions_that_end_their_queue_are_given(adapter, cq):
    """The program destroys it when it is told of a failure; what this poll has taken is not lost."""
    poller = cq._poller
    poller.progress = lambda: adapter.post(1, 5)
    poller.failed = lambda number: poller.end()
    assert ids(cq.poll(1)) == [1]
    assert code_of(cq.poll, 1) == errno.EINVAL


def test_events_of_a_destroyed_queue_are_dropped_those_on_their_way_too(adapter, cq):
    events = adapter.channel.events
    events.post(control.EVENT_COMPLETION, 3)
    events.post(control.EVENT_CQ_ERR, 3)
    events.post(control.EVENT_CQ_ERR, 4)
    cq.destroy()
    assert adapter.events.next_completion("channel", 0) is None
    assert adapter.events.next_event(0) == (control.EVENT_CQ_ERR, 4)
    assert adapter.events.next_event(0) is None
    again = CqHandle(adapter, 4, "channel")
    adapter.events.add(again)
    assert adapter.events.next_completion("channel", 0) is None


def test_every_entry_of_a_queue_can_be_used(adapter, cq):
    for number in range(4):
        adapter.post(number)
    assert not adapter.overflowed
    adapter.post(5)
    assert adapter.overflowed == [3]


def test_a_round_of_polling_shows_what_was_asked_for_until_it_is_over():
    turn = CompletionRound(0b0101)
    seen = []
    assert turn.begin()
    assert turn.look(1) is None, "nothing was taken yet"
    assert turn.next(lambda entry: seen.append(entry) or True)
    assert turn.look(1) is turn.look(4) is seen[0]
    assert turn.look(2) is None
    assert not turn.next(lambda entry: False)
    assert turn.look(1) is seen[0], "the last one stays"
    turn.finish()
    assert turn.look(1) is None
    assert turn.begin()
    assert turn.look(1) is None, "nor what the round before has taken"
    turn.finish()
