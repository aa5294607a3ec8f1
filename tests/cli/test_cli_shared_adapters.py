"""The adapter processes that ``softhca run`` starts: found by their addresses, and not started twice."""

import os
from pathlib import Path

from softhca.cli.shared_adapters import served
from softhca.driver import registry
from softhca.runtime import devices, listening_name
from softhca.runtime.specification import parse_one


def leading_children() -> set[int]:
    """Those of this process that lead a process group, as adapter processes do."""
    tasks = Path("/proc/self/task").iterdir()
    children = {int(each) for task in tasks for each in (task / "children").read_text().split()}
    return {each for each in children if os.getpgid(each) == each}


def test_an_adapter_process_of_a_run_is_found_by_the_address_too(loopback_address, tmp_path):
    device = f"one=udp:{loopback_address()}"
    name = listening_name.name_of(parse_one(device))
    environment = dict(os.environ, SOFTHCA_DEVICES=f"{device},two=unix:@other", SOFTHCA_ADAPTER="process")
    before = leading_children()  # of earlier tests of this process
    with served([environment], "mark", tmp_path):
        assert environment["SOFTHCA_DEVICES"] == f"one=unix:{name},two=unix:@other"
        devices.add(device, "process")
        registry.open_device("one").close()
        assert (devices.find("one").process.joined, devices.find("one").process.pid) == (True, 0)
        devices.remove("one")
        assert listening_name.is_taken(name), "it stays as long as the run"
        (pid,) = leading_children() - before
        assert os.getsid(pid) == os.getsid(0), "it shares the session's part of the processors"
    assert not listening_name.is_taken(name)


def test_a_device_that_has_an_adapter_process_keeps_it(loopback_address, tmp_path):
    device = f"one=udp:{loopback_address()}"
    environment = {"SOFTHCA_DEVICES": device}
    name = listening_name.name_of(parse_one(device))
    with listening_name.take(name), served([environment], "mark", tmp_path):
        assert environment == {"SOFTHCA_DEVICES": device}
