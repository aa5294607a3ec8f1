"""What tests of same-host paths ask of connected ends."""

from machine_speed import limit_s
from softhca.machine import primitives
from softhca.runtime import devices
from softhca.runtime.clock import NS_PER_S, now_ns

BOUND_S = limit_s(20)


def until(what, drivers):
    """Drive the devices until ``what()`` is true."""
    end_ns = now_ns() + BOUND_S * NS_PER_S
    while not what():
        for driver in drivers:
            driver.progress()
        assert now_ns() < end_ns, "it does not come"


def queue_pair_of(end):
    """The adapter's half of an end's queue pair."""
    return devices.find(end.driver.name).engine.adapter.queue_pairs[end.qp.number]


def has_path(end):
    executor = queue_pair_of(end).executor
    return executor is not None and executor.path.alive and bool(executor.path.arenas)


def packets_of(end):
    return queue_pair_of(end).counters.packets_sent


def post(end, operation, to, length=64, wr_id=1, offset=0, rkey=None, flags=2):
    place, key = to.address + offset, rkey or to.key.rkey
    end.qp.post_send(int(operation), flags, 0, wr_id, place, key, 10, 77, 0, 0, 0, end.element(length), None)
    end.qp.ring()


def put(end, data, offset=0):
    held = bytearray(data)
    primitives.copy(end.address + offset, primitives.address_of(held), len(held))


def got(end, length, offset=0):
    return primitives.bytes_at(end.address + offset, length)
