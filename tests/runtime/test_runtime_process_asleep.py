"""How an adapter process falls asleep: nothing that is rung meanwhile is lost."""

import os
import select
import signal
import threading

from runtime_served import readable, serving, until

from machine_speed import limit_s
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.process import ProcessChannel
from softhca.runtime.specification import parse_one


def test_a_doorbell_behind_the_last_look_of_one_that_falls_asleep_wakes_it(loopback_address, monkeypatch):
    """Between the look at the doorbells and the block: who rings then must know that a kick is wanted."""
    with serving(loopback_address()) as server:
        channel = ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))
        until(lambda: len(server._wake_sockets) == 1)
        ((descriptor, application),) = server._wake_sockets.items()
        sleep, turn, attend = server._sleep, server._turn, server._serve_descriptors
        inside, kicked, waited = [], [], []

        def watched_sleep():
            inside.append(True)
            sleep()
            inside.clear()

        def watched_turn(now):
            worked = turn(now)
            if inside and not worked and not kicked:
                application.wake_socket.drain()  # an earlier one
                channel.kick()
                kicked.append(readable(descriptor))
                waited.append("rung")
            return worked

        def watched_attend(timeout_s):
            if waited == ["rung"]:
                waited.append("blocked")
                attend(0)  # a kick ends the wait at once, and what was lost would never
                waited.append(readable(descriptor))
                return
            attend(timeout_s)

        monkeypatch.setattr(server, "_serve_descriptors", watched_attend)
        monkeypatch.setattr(server, "_turn", watched_turn)
        monkeypatch.setattr(server, "_sleep", watched_sleep)
        channel.resources()  # the sleep that is under way ends
        until(lambda: len(waited) == 3)
        assert kicked == [True]
        assert waited == ["rung", "blocked", False]
        channel.close()


def test_nobody_leads_while_he_asks_whether_he_is_ready(loopback_address):
    """What he asks may wait for a thread that waits for a reply, as that of a command: others can lead."""
    with serving(loopback_address()) as server:
        channel = ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))
        led, enough = [], threading.Event()

        def ready():
            led.append(channel._leader_lock.locked())
            return enough.is_set()

        waiting = threading.Thread(target=channel.wait, args=(ready, None), daemon=True)
        waiting.start()
        until(channel._leader_lock.locked)
        asked = len(led)
        channel.wake_waiters()
        until(lambda: len(led) > asked)
        until(channel._leader_lock.locked)
        enough.set()
        channel.wake_waiters()
        waiting.join(limit_s(60))
        assert not waiting.is_alive()
        assert not any(led)
        channel.close()


def test_a_leader_sees_what_changed_before_it_led(loopback_address):
    """Another one has taken the news from the descriptors meanwhile: nothing would wake it."""
    with serving(loopback_address()) as server:
        channel = ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))
        assert channel._leader_lock.acquire()
        channel._wait_leading(channel._changes - 1, None)  # does not block, and counts as a change
        assert not channel._leader_lock.locked()
        known = channel._changes
        assert channel._leader_lock.acquire()
        channel._wait_leading(known, 0.0)
        assert channel._changes == known + 1
        channel.close()


def test_a_forked_child_waits_for_no_thread_of_its_parent(loopback_address):
    """One that was about to wake, or to be woken, has a lock of the channel for ever there."""
    with serving(loopback_address()) as server:
        channel = ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))
        held, done = threading.Event(), threading.Event()

        def hold():
            with channel._wake_event._lock, channel._changes_lock, channel._leader_lock._lock:
                held.set()
                done.wait()

        holder = threading.Thread(target=hold, daemon=True)
        holder.start()
        assert held.wait(limit_s(10))
        started, starting = os.pipe()
        child = os.fork()  # which calls what the channel does in a child: it may hang in there
        if child == 0:
            status = 1
            try:
                channel.wake_waiters()
                status = 0 if channel._wake_event.fileno() < 0 else 2
            finally:
                os._exit(status)
        os.close(starting)
        ended, _, _ = select.select([started], [], [], limit_s(10))  # its end closes the child's copy
        os.close(started)
        if not ended:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        done.set()
        holder.join()
        channel.close()
        assert status == 0, "killed, for it hung" if status < 0 else "its wake event is open"
