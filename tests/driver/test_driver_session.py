"""Commands and their replies: whose a reply is, how long it is waited for, and what a refusal says."""

import errno
import itertools
import os
import sys

import pytest
from scripted_channel import ScriptedDriver

from softhca.driver.errors import DriverError
from softhca.driver.session import CLOSING_LIMIT_S, REPLY_LIMIT_S, prefixed
from softhca.queues import control_fields as control


@pytest.fixture
def driver():
    made = ScriptedDriver()
    made.channel.answer = lambda command: {"pd": len(made.channel.asked)}
    yield made
    made.close()


def alloc(driver):
    return driver.session.call(control.ALLOC_PD)["pd"]


def refused(call, *arguments):
    with pytest.raises(DriverError) as caught:
        call(*arguments)
    return caught.value


def test_every_command_has_a_tag_of_its_own_and_gets_its_own_reply(driver):
    assert [alloc(driver) for _ in range(40)] == list(range(1, 41))
    tags = [command.tag for command in driver.channel.asked]
    assert len(set(tags)) == 40
    assert not driver.session._awaited


def test_replies_of_commands_that_were_given_up_are_nobodys(driver):
    channel = driver.channel
    channel.replies.send(4711, control.ALLOC_PD, 0, {"pd": 666})
    assert alloc(driver) == 1
    assert alloc(driver) == 2
    assert not driver.session._awaited


def test_a_command_within_another_one_takes_both_replies(driver):
    """A signal handler, say, that runs while the outer command waits."""
    channel, inner = driver.channel, []
    channel.answer = lambda command: None  # later

    def nested():
        channel.answer = lambda command: {"pd": 200}
        first = channel.asked[0]
        channel.replies.send(first.tag, first.command, 0, {"pd": 100})
        inner.append(alloc(driver))

    channel.on_wait = [nested]
    assert alloc(driver) == 100
    assert inner == [200]
    assert not driver.session._awaited


def late(number, frame):
    """A signal handler, which is called with the frame that it has interrupted."""
    raise TimeoutError


def test_what_a_signal_handler_raises_while_a_command_waits_is_no_refusal(driver):
    driver.channel.answer = lambda command: None
    driver.channel.on_wait = [lambda: late(0, sys._getframe())]
    with pytest.raises(TimeoutError):
        alloc(driver)
    driver.channel.answer = lambda command: {"pd": 5}
    assert alloc(driver) == 5
    assert not driver.session._awaited


def test_a_refusal_says_which_command_and_why(driver):
    driver.channel.answer = lambda command: (_ for _ in ()).throw(DriverError(errno.EBUSY, "in\nuse\x1b[1m"))
    error = refused(alloc, driver)
    assert (error.errno, error.message) == (errno.EBUSY, "ALLOC_PD: in?use?[1m")
    channel = driver.channel
    channel.answer = lambda command: channel.replies.send(command.tag, command.command, errno.EPERM) and None
    error = refused(alloc, driver)
    assert (error.errno, error.message) == (errno.EPERM, f"ALLOC_PD was refused: {os.strerror(errno.EPERM)}")
    channel.answer = lambda command: {"pd": 3}
    assert alloc(driver) == 3


@pytest.mark.parametrize(("closing", "slices"), [(False, REPLY_LIMIT_S), (True, CLOSING_LIMIT_S)])
def test_an_adapter_that_does_not_answer_is_given_up_after_a_time(driver, closing, slices):
    driver.channel.answer = lambda command: None
    if closing:
        driver.session.closing()
    error = refused(alloc, driver)
    assert error.errno == errno.EIO
    assert "does not answer" in error.message
    assert driver.channel.noted == ["wait 1.0"] * int(slices) + ["wake"]
    assert not driver.session.gone
    driver.channel.answer = lambda command: {"pd": 1}
    assert refused(alloc, driver).errno == errno.EIO, "no further command is possible"
    assert len(driver.channel.asked) == 1


def test_a_reply_may_come_late(driver):
    channel = driver.channel
    channel.answer = lambda command: None
    slices = []

    def wait(ready, timeout_s):
        slices.append(timeout_s)
        if len(slices) == 6:
            channel.replies.send(channel.asked[0].tag, control.ALLOC_PD, 0, {"pd": 8})
        return ready()

    channel.wait = wait
    assert alloc(driver) == 8


def test_an_adapter_that_has_gone_is_not_waited_for(driver):
    driver.channel.answer = lambda command: setattr(driver.channel, "living", False)
    error = refused(alloc, driver)
    assert (error.errno, driver.session.gone) == (errno.EIO, True)
    assert driver.channel.noted == ["wait 1.0", "wake"]
    assert "gone" in refused(driver.session.check).message


def test_whose_adapter_has_gone_notices_without_a_command(driver):
    driver.session.check()
    driver.channel.living = False
    assert refused(driver.session.check).errno == errno.EIO
    assert driver.session.gone
    assert refused(alloc, driver).errno == errno.EIO
    assert not driver.channel.asked


def test_a_forked_child_is_refused_and_writes_nothing(driver):
    driver.session.pid += 1
    assert "fork" in refused(alloc, driver).message
    assert not driver.channel.asked
    assert not driver.session.gone


def test_rings_are_given_back_while_the_device_is_there(driver):
    free = driver.free_pages()
    frames, _, fields = driver.session.make_ring(64, 4096)
    assert (fields["entries"], fields["body_bytes"]) == (64, 4096)
    assert sum(count for _, count in fields["frames"]) == len(frames) == free - driver.free_pages()
    driver.session.free(frames)
    assert driver.free_pages() == free
    driver.session.free(())
    frames, _, _ = driver.session.make_ring(64, 4096)
    driver.session.dead = "closed"
    driver.session.free(frames)
    assert driver.free_pages() == free - len(frames), "its memory is gone, or a parent's"


def test_a_ring_that_finds_no_memory_is_refused(driver):
    assert refused(driver.session.make_ring, 1 << 20, 1 << 28).errno == errno.ENOMEM


def test_fields_get_longer_names():
    assert prefixed("send_", {"entries": 1, "frames": 2}) == {"send_entries": 1, "send_frames": 2}


def test_tags_begin_anew_where_they_would_not_fit(driver):
    driver.session._tags = itertools.count((1 << 32) - 1)
    assert [alloc(driver) for _ in range(3)] == [1, 2, 3]
    assert [command.tag for command in driver.channel.asked] == [(1 << 32) - 1, 0, 1]


def test_an_adapter_that_has_died_is_gone_and_lost(driver):
    driver.channel.living = False
    assert refused(alloc, driver).errno == errno.EIO
    assert (driver.session.gone, driver.session.lost) == (True, True)
