"""In which order sleepers and clients meet: flags before the last look, and down with the last sleeper."""

from types import SimpleNamespace

import pytest

from softhca.runtime.clients import Clients


class Client:
    """An attached application, whose sleep flag is ``up``."""

    memory = object()

    def __init__(self, name, noted):
        self.name, self.noted, self.up = name, noted, False

    def raise_flag(self):
        self.noted.append(f"{self.name} up")
        was_down, self.up = not self.up, True
        return was_down

    def lower_flag(self):
        self.up = False


class Served:
    """`Clients` with two applications over an engine that notes what it is asked; ``rang``: there is work."""

    def __init__(self):
        self.noted, self.rang = [], False
        self.clients = clients = object.__new__(Clients)
        self.applications = [Client(name, self.noted) for name in "ab"]
        clients._applications = dict(enumerate(self.applications))
        clients.loop = SimpleNamespace(
            attached=True, serve_hosts=self.serve, transmit=lambda now: self.noted.append("sent"),
            sleeper=SimpleNamespace(events=0), clients_ns=0,
        )  # fmt: skip
        clients._sleepers = clients._told = clients._look_ns = clients.sleeps = clients._accept_after_ns = 0
        clients.unused = False
        clients._anybody_ended = clients._anything = lambda: False

    def serve(self, now):
        self.noted.append("served")
        return self.rang

    @property
    def up(self):
        return [client.up for client in self.applications]


@pytest.fixture
def served():
    return Served()


def test_who_rings_while_a_thread_falls_asleep_is_seen_or_wakes_it(served):
    assert served.clients.arm_wakeup(0, True)
    assert served.noted == ["a up", "b up", "served"]
    assert (served.up, served.clients.sleeps) == ([True, True], 1)


def test_who_does_not_fall_asleep_is_no_sleeper(served):
    served.rang = True
    assert not served.clients.arm_wakeup(0, True)
    assert served.up == [False, False]
    served.clients.turn(0)
    assert served.up == [False, False]


@pytest.mark.parametrize("leading", [False, True])
def test_the_last_client_leaves_the_background_thread_something_to_do(served, leading):
    served.clients.unused = True
    assert served.clients.arm_wakeup(0, leading) is leading
    assert served.up == [leading] * 2


def test_flags_are_up_while_anybody_sleeps_and_raised_again_where_one_was_taken_down(served):
    for _ in range(2):
        assert served.clients.arm_wakeup(0, True)
    served.clients.disarm_wakeup()
    assert served.up == [True, True]
    for client in served.applications:
        client.up = False  # each has woken somebody
    served.noted.clear()
    served.rang = True
    assert served.clients.turn(0)
    assert (served.up, served.noted) == ([True, True], ["a up", "b up", "served", "sent"])
    served.clients.disarm_wakeup()
    assert served.up == [False, False]
