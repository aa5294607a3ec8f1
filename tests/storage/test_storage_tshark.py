"""Wireshark's tshark reads what a host and an I/O unit say to each other without a mark: device management,
the login in the communication manager's messages, RDMA.  It has no dissector for SRP itself.
"""

import re
import shutil
import subprocess

import pytest
from storage_scene import GUID, Scene

from machine_speed import limit_s
from softhca.storage import srp
from softhca.testing import SENT, Network
from softhca.wire.capture_file import LINKTYPE_RAW
from softhca.wire.packet import captured
from softhca.wire.pcap import PcapWriter


@pytest.fixture
def tshark(tmp_path):
    """Runs tshark on what was sent; its lines of output."""
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed (Debian package tshark)")

    def run(sent, *options):
        path = tmp_path / "storage.pcap"
        with path.open("wb") as stream:
            writer = PcapWriter(stream, LINKTYPE_RAW)
            for each in sent:
                writer.write(10**18 + each.time_ns, captured(each.route, each.data))
        command = [program, "-r", str(path), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(60), check=True)
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize("port", [0, 3260])
def test_tshark_reads_a_whole_session_without_a_mark(tshark, port):
    with Network() as network:
        sent = network.record(SENT)
        scene = Scene(network, port=port)
        with scene.device(guid=GUID) as device:
            device.write(0, b"x" * 512)
            assert device.read(0, 1) == b"x" * 512
        network.run()
    lines = tshark(sent)
    assert len(lines) == len(sent)
    told = [match[1] for line in lines if (match := re.search(r"CM: (\w+)", line))]
    assert told == ["ConnectRequest", "ConnectReply", "ReadyToUse", "DisconnectRequest", "DisconnectReply"]
    text = "\n".join(tshark(sent, "-V"))
    assert text.count("Base Transport Header") == len(sent)
    assert not re.search(r"malformed|exception|expert info", text, re.IGNORECASE)
    for name in ("RDMA READ request", "RDMA WRITE Only", "SEND Only"):
        assert re.search(name, text, re.IGNORECASE)
    private = "ip_cm.private" if port else "private"
    options = [word for name in ("serviceid", private) for word in ("-e", f"infiniband.cm.req.{name}")]
    (row,) = [line for line in tshark(sent, "-T", "fields", *options) if line.strip()]
    service, data = row.split("\t")
    assert int(service, 0) == (0x0106_0000 | port if port else GUID)
    layout = srp.ShortLoginRequest if port else srp.LoginRequest
    login = layout.decode(bytes.fromhex(data.replace(":", "")))
    assert (login.type, login.target_port) == (srp.LOGIN_REQ, scene.unit.config.target_port)
