"""Host and adapter of different versions of the host interface: refused in both directions, with both
numbers."""

import errno
import os
import socket
import threading

import pytest
from runtime_served import serving

from softhca.driver import registry
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.queues import handshake
from softhca.queues.handshake import RESOURCES, encode_answer, encode_request
from softhca.queues.layout import ABI_VERSION
from softhca.runtime import adapter_process, devices, messages
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.process import ProcessChannel
from softhca.runtime.specification import parse_one

OTHERS = [ABI_VERSION - 1, ABI_VERSION + 1]


def named(theirs):
    return rf"version {theirs} of the host interface, .* version {ABI_VERSION}$"


@pytest.mark.parametrize("theirs", OTHERS)
def test_a_host_of_another_version_is_refused_and_the_others_are_served(
        loopback_address, monkeypatch, theirs):
    with serving(loopback_address()) as server:
        monkeypatch.setattr(handshake, "ABI_VERSION", theirs)
        request = encode_request(RESOURCES, {})
        monkeypatch.undo()
        control = adapter_process.connect_to(server.path, "other")
        messages.send_packet(control, request)
        with pytest.raises(OSError, match="the host speaks " + named(theirs)) as caught:
            adapter_process.ask(control, handshake.READY)  # whose answer it is a refusal does not say
        assert caught.value.errno == errno.EPROTONOSUPPORT
        control.close()
        driver = DeviceDriver("same", ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}"))))
        assert driver.alloc_pd() > 0
        driver.close()


@pytest.mark.parametrize("theirs", OTHERS)
def test_a_host_does_not_attach_to_an_adapter_of_another_version(monkeypatch, theirs):
    path = f"@softhca-other-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("\0" + path[1:])
        listener.listen()
        monkeypatch.setattr(handshake, "ABI_VERSION", theirs)
        answer = encode_answer(handshake.ATTACH, {"host": 1})
        monkeypatch.undo()

        def serve():
            control = listener.accept()[0]
            with control:
                _, passed = messages.receive_packet(control)
                messages.close_all(passed)
                messages.send_packet(control, answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(OSError, match="the adapter speaks " + named(theirs)) as caught:
            ProcessChannel(AdapterProcess(parse_one(f"s=unix:{path}")))
        thread.join()
    assert caught.value.errno == errno.EPROTONOSUPPORT


def test_a_device_whose_adapter_process_has_another_version_does_not_open(loopback_address, monkeypatch):
    monkeypatch.setattr(handshake, "ABI_VERSION", 4711)
    devices.add(f"other=udp:{loopback_address()}", "process")
    expected = rf"adapter speaks version {ABI_VERSION} of the host interface, this host version 4711"
    with pytest.raises(DriverError, match=expected) as caught:
        registry.open_device("other")
    assert caught.value.errno == errno.EPROTONOSUPPORT
    assert devices.find("other").process.pid == 0  # what was started has ended
    devices.remove("other")
