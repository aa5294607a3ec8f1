"""fork(): locks first, the parent goes on, the child's inheritance is dead."""

import os
import threading

import pytest

from softhca.runtime import fork


class Thing:
    def __init__(self, notes, name, fork_rank):
        self.fork_rank = fork_rank
        self.lock = threading.RLock()
        self.notes = notes
        self.name = name

    def before_fork(self):
        self.lock.acquire()
        self.notes.append(("before", self.name))

    def after_fork_in_parent(self):
        self.notes.append(("parent", self.name))
        self.lock.release()

    def after_fork_in_child(self):
        self.notes.append(("child", self.name))


def in_child(work):
    """What ``work()`` gives in a forked child, as text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, str(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        text = answers.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text


@pytest.fixture
def things():
    notes = []
    made = [Thing(notes, "b", 1), Thing(notes, "a", 0)]
    for thing in made:
        fork.watch(thing)
    yield made
    for thing in made:
        fork.unwatch(thing)


def test_any_thread_of_the_child_may_watch_things_and_fork_again(things):
    """What the thread that forked held is free in the child, for others than itself too."""

    def work():
        done, mine = [], Thing([], "c", 2)

        def other():
            fork.watch(mine)
            done.append(in_child(lambda: "grandchild"))

        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(10)
        return done

    assert in_child(work) == "['grandchild']"


def test_every_lock_is_taken_before_and_given_back_in_the_parent(things):
    in_child(lambda: "")
    order = [kind for kind, _ in things[0].notes]
    assert order == ["before", "before", "parent", "parent"]
    assert [name for kind, name in things[0].notes if kind == "before"] == ["a", "b"]
    taken = []

    def take():
        taken.extend(thing.lock.acquire(blocking=False) for thing in things)

    other = threading.Thread(target=take)
    other.start()
    other.join()
    assert taken == [True, True]


def test_the_child_is_told_of_each_thing_once(things):
    assert in_child(lambda: [kind for kind, _ in things[0].notes]) == "['before', 'before', 'child', 'child']"


def test_a_child_that_forks_again_tells_nobody_twice(things):
    assert in_child(lambda: in_child(lambda: len(things[0].notes))) == "4"


def test_a_fork_waits_for_a_round_that_is_under_way(things):
    inside, leave = threading.Event(), threading.Event()
    seen = []

    def one_round():
        with things[0].lock:
            inside.set()
            leave.wait(20)
            seen.append(len(things[0].notes))

    other = threading.Thread(target=one_round)
    other.start()
    inside.wait(20)
    threading.Timer(0.02, leave.set).start()
    in_child(lambda: "")
    other.join()
    assert ("before", "b") not in things[0].notes[: seen[0]]


def test_what_is_begun_while_a_fork_waits_for_it_is_told_too(things):
    """As an adapter is, of a device that another thread was opening."""
    begun = Thing(things[0].notes, "begun", 1)
    take = things[1].before_fork

    def take_late():
        fork.watch(begun)
        take()

    things[1].before_fork = take_late
    assert "('child', 'begun')" in in_child(lambda: things[0].notes)
    assert ("parent", "begun") in things[0].notes
    fork.unwatch(begun)


def test_threads_that_fork_at_the_same_time_each_take_all_locks(things):
    """One whose fork begins while another one has the locks waits for them, and gives them back again."""
    second, begun = [], threading.Event()
    take = things[0].before_fork

    def fork_too():
        begun.set()
        second.append(in_child(lambda: [kind for kind, _ in things[0].notes]))

    other = threading.Thread(target=fork_too)

    def take_and_start():
        take()
        if not begun.is_set():
            other.start()
            begun.wait(20)

    things[0].before_fork = take_and_start
    in_child(lambda: "")
    other.join()
    assert second == [str(["before"] * 2 + ["parent"] * 2 + ["before"] * 2 + ["child"] * 2)]


def test_a_fork_that_began_before_this_module_has_nothing_to_give_back(things):
    fork._in_parent()
    assert in_child(lambda: "alive") == "alive"


def test_what_is_unwatched_is_left_alone(things):
    fork.unwatch(things[0])
    in_child(lambda: "")
    assert {name for _, name in things[0].notes} == {"a"}


def test_a_fork_may_meet_threads_that_begin_and_end_things(monkeypatch):
    class Slow(set):
        """A set of which another thread adds an element when it is read for the first time."""

        read = False

        def __iter__(self):
            for thing in super().__iter__():
                first, self.read = not self.read, True
                if first:
                    adder = threading.Thread(target=fork.watch, args=(Thing([], "new", 2),))
                    adder.start()
                    adder.join(0.2)
                yield thing

    watched = Slow([Thing([], "a", 0), Thing([], "b", 1)])
    monkeypatch.setattr(fork, "_watched", watched)
    fork._before()
    assert [thing.name for thing in fork._held[:2]] == ["a", "b"]
    fork._in_parent()
    pause = threading.Event()
    for _ in range(2000):
        if len(watched) == 3:
            break
        pause.wait(0.005)
    assert len(watched) == 3
