"""The table of processor times measures what it says, of both ends."""

import processor_time
import pytest

from softhca import sockets
from softhca.runtime import devices
from softhca.sockets import defaults
from softhca.sockets import devices as kept


@pytest.fixture
def ends(loopback_address):
    names = ("near", "far")
    devices.add(",".join(f"{name}=udp:{loopback_address()}?same_host=0" for name in names))
    made = [processor_time.End(name) for name in names]
    made[0].connect(made[1])
    made[1].connect(made[0])
    yield made
    for end in made:
        end.context.close()
    for name in names:
        devices.remove(name)


@pytest.mark.parametrize("verb", ["send", "write", "read"])
def test_an_operation_takes_time_and_moves_its_bytes(ends, verb, monkeypatch):
    monkeypatch.setattr(processor_time, "WARM", 1)
    monkeypatch.setattr(processor_time, "MEASUREMENTS", 2)
    near, far = ends
    near.region.write(b"near", 4, 9000)
    far.region.write(b"far!", 4, 9000)
    assert processor_time.operation_us(near, far, verb, 9004, 2, 1) > 0
    assert {end.region.read(4, 9000) for end in ends} == {b"far!" if verb == "read" else b"near"}


def test_an_operation_that_fails_is_no_figure(ends):
    with pytest.raises(RuntimeError, match="write of 2097152 bytes ended with status"):
        processor_time.operation_us(*ends, "write", 2 << 20, 1, 1)


def test_datagrams_are_measured_where_they_go_by_rdma(monkeypatch):
    monkeypatch.setattr(processor_time, "WARM", 1)
    monkeypatch.setattr(processor_time, "MEASUREMENTS", 2)
    try:
        assert processor_time.datagram_us(64, 1) > 0
        monkeypatch.setattr(defaults, "settings", sockets.Settings(datagrams=False))
        with pytest.raises(RuntimeError, match="by the kernel"):
            processor_time.datagram_us(64, 1)
    finally:
        kept.let_go()


def test_ratios_are_those_within_the_rounds():
    rounds = {"before": [{"SEND": 10.0}, {"SEND": 40.0}, {"SEND": 20.0}],
              "now": [{"SEND": 5.0}, {"SEND": 60.0}, {"SEND": 20.0}]}  # fmt: skip
    assert processor_time.table(rounds) == [
        "| operation | before, µs | now, µs | now / before |",
        "| --- | --- | --- | --- |",
        "| SEND | 20.0 | 20.0 | 1.00 (0.50 … 1.50) |",
    ]
