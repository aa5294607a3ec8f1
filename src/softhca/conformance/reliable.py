"""Rules of reliable connections that the transport cites by number (IBTA vol. 1, 9.7)."""

from __future__ import annotations

from softhca.conformance.registry import expect, holds
from softhca.conformance.rig import ALL_RIGHTS, LEFT_PSN, RC, SEND, UNTOUCHED, Pair, Setting
from softhca.transport.states import ERR
from softhca.wire import opcodes as op
from softhca.wire.aeth import Aeth

ACK, NAK_SEQUENCE, NAK_INVALID = 0x00, 0x60, 0x61
MOST_BYTES = 1 << 31
FULL = bytes(256)


def _syndromes(pair: Pair) -> list[int]:
    """What was answered: ACKs without their credits, NAKs whole."""
    found = []
    for sent in pair.answers():
        assert sent.packet is not None
        syndrome = Aeth.decode(sent.packet.transport.extensions[0].encode()).syndrome
        found.append(syndrome if syndrome & 0x60 else ACK)
    return found


@holds("C9-9")
def no_operation_moves_more_than_two_gib(setting: Setting) -> None:
    """RDMA WRITE and READ requests that say 2^31 + 1 bytes and more are refused as invalid before their key
    is looked at; nothing is written and nothing is sent."""
    for opcode, payload in ((op.RC_RDMA_WRITE_FIRST, FULL), (op.RC_RDMA_READ_REQUEST, b"")):
        for length in (MOST_BYTES + 1, 0xFFFFFFFF):
            with setting.pair(RC) as pair:
                va, key = pair.right.va, pair.right.key.rkey
                packet = pair.packet(opcode, LEFT_PSN, payload, va=va, rkey=key ^ 0x100, length=length)
                pair.give(packet)
                expect(f"answers to {length} bytes", _syndromes(pair), [NAK_INVALID])
                expect("state", pair.right.state_of(pair.right_qp), ERR)
                expect("bytes written", len(pair.right.memory) - pair.right.memory.count(UNTOUCHED), 0)


@holds("C9-60")
def psns_are_older_or_newer_by_half_of_their_circle(setting: Setting) -> None:
    """The 2^23 PSNs before the expected one are duplicates, which are acknowledged and not executed; the
    others are gaps, which get one NAK."""
    for expected in (0, 5, 0x7FFFFF, 0x800000, 0xFFFFFF):
        for step, answer in ((-1, ACK), (-(1 << 23), ACK), (1, NAK_SEQUENCE), ((1 << 23) - 1, NAK_SEQUENCE)):
            with setting.pair(RC, left_psn=expected) as pair:
                pair.receive(0, 100)
                psn = (expected + step) & 0xFFFFFF
                pair.give(pair.packet(op.RC_SEND_ONLY, psn, b"x", ack_request=1))
                expect(f"answers to PSN {psn:#x} for {expected:#x}", _syndromes(pair), [answer])
                expect("completions", pair.right.completions(), [])
                pair.give(pair.packet(op.RC_SEND_ONLY, expected, b"it", ack_request=1))
                expect("completions", [done.byte_len for done in pair.right.completions()], [2])


@holds("C9-60")
def a_mute_peer_leaves_few_psns_open(setting: Setting) -> None:
    """Nothing is answered: what was sent and not acknowledged stays far below 2^23 PSNs, retries too."""
    with setting.pair(RC, access=ALL_RIGHTS) as pair:
        pair.rig.tamper = lambda sent: None
        for _ in range(32):
            pair.post(SEND, [pair.left.sge(0, 8192)] * 2)
        pair.rig.elapse(1_000_000_000)
        ahead = {(sent.bth.psn - LEFT_PSN) & 0xFFFFFF for sent in pair.sent()}
        expect("packets beyond what was posted", max(ahead) < 32 * 64, True)
        expect("the first is sent again", len(pair.sent()) > len(ahead), True)
