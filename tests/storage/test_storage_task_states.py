"""The table of a task's states: every cell, given to a task that was brought there by messages and work."""

from __future__ import annotations

import itertools

import pytest
from storage_fakes import FakeHost, command, managing, place, reading, scene, writing

from softhca.storage import descriptors, scsi, session, srp
from softhca.storage import task_states as states
from softhca.storage.session import Task

TAG = 9


def brought_to(state: str) -> tuple[list[FakeHost], Task]:
    """Two hosts, and a task of the first in a state; of what is under way for it nothing has ended."""
    _, hosts = scene(hosts=2)
    host = hosts[0]
    if state == states.DORMANT:  # it is ordered, and a write that came before it has not ended
        host.session.receive(writing(0, 1, tag=1))
        host.session.receive(reading(8, 1, tag=TAG, at=4096, task_attribute=srp.ORDERED))
        host.collect()
    elif state == states.TABLE:
        described = descriptors.encode_indirect(place(8192, 32), 1024, [])
        host.memory[8192:8224] = place(0, 512).encode() + place(4096, 512).encode()
        host.session.receive(command(scsi.read_10(0, 2), TAG, described, in_format=2))
        host.collect()
    elif state == states.RESPONDING:
        host.session.receive(reading(0, 1, tag=TAG))
        host.collect()
    else:
        host.session.receive(writing(0, 1, tag=TAG))
        host.collect()
    (task,) = [each for each in host.session.tasks if each.command.tag == TAG]
    if state == states.ABORTED:
        host.session.receive(managing(srp.ABORT_TASK, 50, TAG))
    elif state == states.CANCELLED:
        hosts[1].session.receive(managing(srp.LUN_RESET, 50))
    assert task.state == state
    return hosts, task


def give(hosts: list[FakeHost], task: Task, given: str) -> None:
    """What the input stands for."""
    if given == states.ABORT:
        hosts[0].session.receive(managing(srp.ABORT_TASK, 60, TAG))
    elif given == states.CANCEL:
        hosts[1].session.receive(managing(srp.LUN_RESET, 60))
    elif given == states.MOVED or task.state in (states.TABLE, states.FETCHING):
        before = task.state
        while task.state == before:
            assert hosts[0].step()
    else:
        hosts[0].step()  # the write before it is there


REACHED = [each for each in states.STATES if each != states.GONE]


@pytest.mark.parametrize("state", REACHED)
@pytest.mark.parametrize("given", [states.ABORT, states.CANCEL, states.MOVED, states.READY])
def test_every_state_takes_what_can_happen_in_it(state: str, given: str) -> None:
    row = states.TRANSITIONS.get((state, given))
    if row is None:
        return  # `test_what_cannot_happen_has_no_row` has these
    hosts, task = brought_to(state)
    give(hosts, task, given)
    next_state = row[0]
    assert task.state == next_state
    for host in hosts:
        host.run()
        assert not host.session.tasks
        assert not host.session.ending
        host.session.receive(command(bytes(6), 99))  # every buffer and tag is free again
        host.run()
        assert sorted(host.session._free) == list(range(host.session.limit))


def test_what_a_task_needs_decides_where_it_goes_first() -> None:
    _, (host,) = scene()
    indirect = descriptors.encode_indirect(place(8192, 32), 1024, [])
    host.memory[8192:8224] = place(0, 512).encode() + place(4096, 512).encode()
    cdb = scsi.read_10(0, 2, scsi.WRITE_10)
    found = []
    for tag, message in enumerate((
        command(cdb, 1, indirect, out_format=2), writing(0, 1, tag=2), command(bytes(6), 3),
        command(cdb, 4, b"", out_format=9),
    ), 1):  # fmt: skip
        host.session.receive(message)
        found.append(next(each.state for each in host.session.tasks if each.command.tag == tag))
    assert found == [states.TABLE, states.FETCHING, states.RESPONDING, states.RESPONDING]
    first = next(iter(host.session.tasks))
    host.step()  # the table is read
    assert first.state == states.FETCHING
    host.memory[8192:8224] = bytes(32)
    host.run()
    host.session.receive(command(cdb, 5, indirect, out_format=2))
    (task,) = host.session.tasks
    assert (task.state, host.step()) == (states.TABLE, True)
    assert task.state == states.RESPONDING  # the table cannot be: refused


def test_what_cannot_happen_has_no_row() -> None:
    possible = {
        states.DORMANT: set(states.INPUTS) - {states.MOVED},
        states.TABLE: {states.NEEDS_DATA, states.READY, states.REFUSE, states.ABORT, states.CANCEL},
        states.FETCHING: {states.READY, states.ABORT, states.CANCEL},
        states.RESPONDING: {states.ABORT, states.CANCEL, states.MOVED},
        states.ABORTED: {states.ABORT, states.CANCEL, states.MOVED},
        states.CANCELLED: {states.ABORT, states.CANCEL, states.MOVED},
        states.GONE: set(),
    }
    for state, given in itertools.product(states.STATES, states.INPUTS):
        assert ((state, given) in states.TRANSITIONS) == (given in possible[state]), (state, given)
        if given not in possible[state]:
            with pytest.raises(KeyError):
                states.step(state, given)


def test_only_what_is_performed_lets_others_go_on() -> None:
    busy = {states.DORMANT, states.TABLE, states.FETCHING}
    assert set(states.STATES) - busy == states.PERFORMED
    assert set(session.NO_ATTENTION) == {scsi.INQUIRY, scsi.REPORT_LUNS, scsi.REQUEST_SENSE}
