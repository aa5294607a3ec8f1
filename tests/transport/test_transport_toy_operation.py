"""An operation that only this test knows is one row: nothing else is touched, and a message goes by it."""

import subprocess
import sys

PROGRAM = """
from softhca.queues import operations

TOY, COMPLETION = 10, 7
operations.OPERATIONS[TOY] = operations.OPERATIONS[3]._replace(
    opcode=TOY, name="TOY", completion=COMPLETION  # as SEND_WITH_IMM
)

import socket
from softhca.testing import Network, completions, connected
from softhca.verbs import enums as e
from softhca.verbs.wr import SGE, RecvWR, SendWR

with Network("loss=10%", seed=3) as network:
    client, server = connected(network)
    client.mr.write(b"toy " * 1000, 4000)
    server.qp.post_recv(RecvWR(9, 1, [SGE(server.mr.buf, 4096, server.mr.lkey)]))
    client.qp.post_send(
        SendWR(8, TOY, 1, socket.htonl(0x01020304), [SGE(client.mr.buf, 4000, client.mr.lkey)],
               e.IBV_SEND_SIGNALED)
    )
    (received,) = completions(network, server.recv_cq)
    (sent,) = completions(network, client.send_cq)
    assert (sent.wr_id, sent.status, sent.opcode) == (8, e.IBV_WC_SUCCESS, COMPLETION), sent
    assert (received.wr_id, received.opcode, received.byte_len) == (9, e.IBV_WC_RECV, 4000), received
    assert socket.ntohl(received.imm_data) == 0x01020304
    assert server.mr.read(4000, 0) == b"toy " * 1000
    print("it worked")
"""


def test_a_row_is_all_that_it_takes():
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert ended.stdout.strip() == "it worked", ended.stderr
