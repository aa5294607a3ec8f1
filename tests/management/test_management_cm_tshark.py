"""Wireshark's tshark reads the communication manager's messages: a whole exchange as what it is, without a
mark, and each field of its own dissectors with the value that was written.  Its 4.0 knows REQ, REP, RTU,
REJ, DREQ and DREP; it reads REQ's flow labels as 12 bits and its packet rates out of their first byte, so
these are not asked for.
"""

import re
import shutil
import subprocess
from dataclasses import fields

import pytest
from connection_peers import GIDS, Network

from machine_speed import limit_s
from softhca.management.cm import messages as m
from softhca.management.constants import GENERAL_QKEY
from softhca.wire.bth import Bth
from softhca.wire.capture_file import LINKTYPE_RAW
from softhca.wire.opcodes import OPCODES
from softhca.wire.packet import EXTENSIONS, assemble
from softhca.wire.pcap import PcapWriter
from softhca.wire.route import ROCE_V4, Route

UD_SEND_ONLY = 0x64
READ_BY_TSHARK = {
    # our field: its field
    m.Req: {
        "service_id": "req.serviceid",
        "local_ca_guid": "req.localcaguid",
        "local_qkey": "req.localqkey",
        "local_qpn": "req.localqpn",
        "responder_resources": "req.responderres",
        "local_eecn": "req.localeecn",
        "initiator_depth": "req.initdepth",
        "remote_eecn": "req.remoteeecn",
        "remote_cm_response_timeout": "req.remoteresptout",
        "transport_service_type": "req.transpsvctype",
        "end_to_end_flow_control": "req.e2eflowctrl",
        "starting_psn": "req.startpsn",
        "local_cm_response_timeout": "req.localresptout",
        "retry_count": "req.retrcount",
        "partition_key": "req.pkey",
        "path_mtu": "req.pppmtu",
        "rdc_exists": "req.rdcexist",
        "rnr_retry_count": "req.rnrretrcount",
        "max_cm_retries": "req.maxcmretr",
        "srq": "req.srq",
        "extended_transport_type": "req.ext_transport",
        **{
            f"{ours}_{name}": f"req.{theirs}_{its_name}"
            for ours, theirs in (("primary", "prim"), ("alternate", "alt"))
            for name, its_name in {
                "local_lid": "locallid",
                "remote_lid": "remotelid",
                "traffic_class": "tfcclass",
                "hop_limit": "hoplim",
                "sl": "sl",
                "subnet_local": "subnetlocal",
                "ack_timeout": "localacktout",
            }.items()
        },
    },
    m.Rep: {
        "remote_comm_id": "rep.remotecommid",
        "local_qkey": "rep.localqkey",
        "local_qpn": "rep.localqpn",
        "local_eecn": "rep.localeecn",
        "starting_psn": "rep.startpsn",
        "responder_resources": "rep.respres",
        "initiator_depth": "rep.initdepth",
        "target_ack_delay": "rep.tgtackdelay",
        "failover_accepted": "rep.failoveracc",
        "end_to_end_flow_control": "rep.e2eflowctrl",
        "rnr_retry_count": "rep.rnrretrcount",
        "srq": "rep.srq",
        "local_ca_guid": "rep.localcaguid",
    },
    m.Rtu: {"local_comm_id": "rtu.localcommid", "remote_comm_id": "rtu.remotecommid"},
    m.Rej: {
        "local_comm_id": "rej.localcommid",
        "remote_comm_id": "rej.remotecommid",
        "message_rejected": "rej.msgrej",
        "reject_info_length": "rej.rejinfolen",
        "reason": "rej.reason",
    },
    m.Dreq: {
        "local_comm_id": "dreq.localcommid",
        "remote_comm_id": "dreq.remotecommid",
        "remote_qpn_eecn": "req.remoteqpneecn",
    },
    m.Drep: {"local_comm_id": "drsp.localcommid", "remote_comm_id": "drsp.remotecommid"},
}


@pytest.fixture
def tshark(tmp_path):
    """Runs tshark on datagrams that side 0 or 1 sent from its queue pair 1; its lines of output."""
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed (Debian package tshark)")

    def run(sent, *options):
        path = tmp_path / "cm.pcap"
        with path.open("wb") as stream:
            writer = PcapWriter(stream, LINKTYPE_RAW)
            for index, (own, data) in enumerate(sent):
                writer.write(10**18 + index, packet(own, data, index))
        command = [program, "-r", str(path), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(60), check=True)
        return done.stdout.splitlines()

    return run


def packet(own, data, psn):
    """The RoCEv2 packet in which queue pair 1 of side ``own`` sends a datagram to the other's."""
    headers = OPCODES[UD_SEND_ONLY].headers
    (deth,) = (EXTENSIONS[name](qkey=GENERAL_QKEY, source_qp=1) for name in headers)
    route = Route(ROCE_V4, GIDS[own], GIDS[1 - own], source_port=49152, hop_limit=64)
    return assemble(route, Bth(UD_SEND_ONLY, dest_qp=1, psn=psn), (deth,), data).encode()


def exchange():
    """What both sides of a connection send that is made and ended, and one that is rejected."""
    network = Network()
    network.connect()
    network.arrive()
    network.listen()
    active, _ = network.establish()
    network.managers[0].disconnect(network.programs[0], active, b"", network.now)
    network.arrive()
    passive = network.programs[1].take().number
    network.managers[1].disconnect(network.programs[1], passive, b"", network.now)
    return network.sent


def test_tshark_reads_an_exchange_as_what_it_is_without_a_mark(tshark):
    sent = exchange()
    names = "ConnectRequest ConnectReject ConnectRequest ConnectReply ReadyToUse"
    told = [line.split("CM: ")[1].strip() for line in tshark(sent)]
    assert told == [*names.split(), "DisconnectRequest", "DisconnectReply"]
    text = "\n".join(tshark(sent, "-V"))
    assert text.count("Base Transport Header") == len(sent)
    assert not re.search(r"malformed|unknown|exception|expert info", text, re.IGNORECASE)


@pytest.mark.parametrize("kind", READ_BY_TSHARK, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("pattern", [0x55, 0xAA])
def test_tshark_reads_each_field_as_it_was_written(tshark, kind, pattern):
    widths = {field.name: field.bits for field in kind.LAYOUT if not field.as_bytes}
    filler = int.from_bytes(bytes([pattern ^ 0x3C, pattern, pattern ^ 0x0F, pattern ^ 0xC1]) * 2, "big")
    values = {
        name: (filler >> place % 23) & (1 << bits) - 1
        for place, (name, bits) in enumerate(widths.items())
        if not name.endswith(tuple("0123456789b")) and "reserved" not in name
    }
    known = READ_BY_TSHARK[kind]
    if kind is m.Req:
        values["service_id"] = pattern  # not of an IP port space, which it reads as three fields
    options = [word for name in known.values() for word in ("-e", f"infiniband.cm.{name}")]
    (row,) = tshark([(0, m.encode(kind(**values), 5))], "-T", "fields", *options)
    read = dict(zip(known, row.split("\t"), strict=True))
    assert {name: int(cell.split(",")[0], 0) for name, cell in read.items()} == {
        name: values[name] for name in known
    }


def test_no_field_of_its_dissectors_is_left_out():
    for kind, known in READ_BY_TSHARK.items():
        left = {field.name for field in fields(kind)} - set(known)
        assert not {
            name
            for name in left
            if not re.search(
                r"reserved|private_data|_gid$|_flow_label$|_packet_rate$|^ari$|^(local|remote)_comm_id$", name
            )
        }, kind
