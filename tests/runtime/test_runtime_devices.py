"""What the environment says becomes devices; what is open when a program ends is closed in order."""

import errno
import os
import subprocess
import sys

import pytest
from runtime_programs import HERE

from machine_speed import limit_s
from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.runtime import devices

MODES = ["embedded", "process"]


def run(how, **environment):
    """Status, output and error output of the program that leaves everything open, warnings made errors."""
    path = os.pathsep.join(filter(None, sys.path))
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SOFTHCA_")}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(HERE / "exit_program.py"), how], capture_output=True,
        text=True, timeout=limit_s(120), check=False, env={**inherited, "PYTHONPATH": path, **environment})
    return done.returncode, done.stdout.split(), done.stderr


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("how", "status"), [("end", 0), ("status", 3)])
def test_a_program_that_closes_nothing_ends_clean(loopback_address, mode, how, status):
    addresses = [loopback_address(), loopback_address()]
    text = ",".join(f"d{number}=udp:{address}" for number, address in enumerate(addresses))
    expected = ["".join(f"{int(byte):02x}" for byte in address.split(".")) for address in addresses]
    assert run(how, SOFTHCA_DEVICES=text, SOFTHCA_ADAPTER=mode) == (status, expected, "")


@pytest.mark.parametrize("mode", MODES)
def test_a_program_that_fails_ends_with_its_own_error_alone(loopback_address, mode):
    status, _, text = run("exception", SOFTHCA_DEVICES=f"d=udp:{loopback_address()}", SOFTHCA_ADAPTER=mode)
    assert status == 1
    assert text.splitlines()[-1] == "RuntimeError: left"
    assert text.count("Traceback") == 1


def test_without_settings_there_is_one_device_on_a_loopback_address():
    status, (address,), text = run("end")
    assert (status, text) == (0, "")
    assert address.startswith("7f0000")
    assert int(address, 16) >= 0x7F000002


@pytest.mark.parametrize(("setting", "word"), [
    ({"SOFTHCA_DEVICES": "a=tcp:1.2.3.4"}, "'tcp'"),
    ({"SOFTHCA_ADAPTER": "elsewhere"}, "'elsewhere'"),
    ({"SOFTHCA_DEVICES": "a=udp:nosuch0"}, "'nosuch0'"),
    ({"SOFTHCA_DEVICES": "a=udp:192.0.2.77"}, "192.0.2.77"),
])
def test_a_setting_that_cannot_be_is_named(setting, word):
    status, _, text = run("end", **setting)
    assert status == 1
    assert word in text.splitlines()[-1]


def test_a_wrong_list_changes_nothing():
    before = registry.names()
    with pytest.raises(DriverError) as caught:
        devices.add("good=udp:*,bad=tcp:x")
    assert caught.value.errno == errno.EINVAL
    assert registry.names() == before


def test_a_chosen_address_is_kept():
    devices.add("kept=udp:*")
    first = registry.open_device("kept")
    gid = first.query_gid(1, 0)
    first.close()
    second = registry.open_device("kept")
    assert second.query_gid(1, 0) == gid
    second.close()
    devices.remove("kept")
    assert "kept" not in registry.names()


@pytest.mark.parametrize("mode", MODES)
def test_the_port_has_the_mtu_that_was_asked_for(loopback_address, mode):
    devices.add(f"small=udp:{loopback_address()}?mtu=512", mode)
    driver = registry.open_device("small")
    assert driver.query_port(1)["active_mtu"] == 2
    driver.close()
    devices.remove("small")


@pytest.mark.parametrize("mode", ["embedded", "process"])
def test_a_device_that_is_removed_while_it_is_open_is_closed_and_its_address_free(loopback_address, mode):
    address = loopback_address()
    devices.add(f"first=udp:{address}", mode)
    driver = registry.open_device("first")
    devices.remove("first")
    with pytest.raises(DriverError, match="the adapter is gone"):
        driver.alloc_pd()
    devices.add(f"second=udp:{address}", mode)
    registry.open_device("second").close()
    devices.remove("second")


def test_contexts_of_one_device_share_its_engine(loopback_address):
    devices.add(f"shared=udp:{loopback_address()}")
    one, other = registry.open_device("shared"), registry.open_device("shared")
    one.alloc_pd()
    other.alloc_pd()
    device = devices.find("shared")
    assert device.resources()["PD"] == 2
    one.close()
    assert device.resources()["PD"] == 1
    other.close()
    assert device.resources() == {}
    devices.remove("shared")


def test_an_embedded_adapter_that_fails_is_told_as_fatal_and_can_be_opened_again(loopback_address, caplog):
    devices.add(f"frail=udp:{loopback_address()}")
    driver = registry.open_device("frail")
    engine = devices.find("frail").engine
    with engine.loop.lock:
        engine.loop.fail(RuntimeError("an engine never raises"))
    assert "an engine never raises" in caplog.text
    for call in (driver.alloc_pd, driver.progress, driver.query_device):
        with pytest.raises(DriverError, match="adapter is gone") as caught:
            call()
        assert caught.value.errno == errno.EIO
    assert driver.next_event(0) == (8, 0)
    again = registry.open_device("frail")
    assert again.alloc_pd() > 0
    driver.close()
    assert again.alloc_pd() > 0
    again.close()
    devices.remove("frail")


@pytest.mark.parametrize("look", ["resources", "meeting_place", "is_used_elsewhere"])
def test_a_look_at_a_device_that_another_thread_closes(look, monkeypatch, loopback_address):
    """The engine goes right behind the first look at it."""
    devices.add(f"fleeting=udp:{loopback_address()}", "embedded")
    driver = registry.open_device("fleeting")
    device = devices.find("fleeting")
    engine = device.engine

    class Fleeting(devices.Device):
        looks = 0

        @property
        def engine(self):
            Fleeting.looks += 1
            return engine if Fleeting.looks == 1 else None

    with monkeypatch.context() as patch:
        patch.delattr(device, "engine")
        patch.setattr(device, "__class__", Fleeting)
        found = getattr(device, look)
        assert found() != {} if callable(found) else found is not None
    device.engine = engine
    driver.close()
    devices.remove("fleeting")
