"""A verbs program for two copies: ``softhca run -n 2 -- python3 examples/demo_steps.py operations``.

Copy 0 does each operation towards copy 1; copy 1 checks what arrived.  The copies find each other by
``SOFTHCA_RANK`` and ``SOFTHCA_PEERS`` and agree over one TCP connection, as any verbs program does.

``operations``: every kind of operation on three services, and the data checked.  ``speeds``: the same kinds
timed (`demo_speeds`).  With ``--results FILE`` copy 0 leaves there as JSON what it saw.
"""

import argparse
import hashlib
import json
import os
import random
import sys
from pathlib import Path

import demo_speeds
from demo_side import GRH_BYTES, IMMEDIATE, Partner, Side
from pyverbs import enums as e

MESSAGE_BYTES = 4000
TARGET, SOURCE, WORD = 8192, 16384, 32768  # where in the partner's memory
MEMORY_BYTES = 65536
REPEATS = 200


def digest(data):
    return hashlib.sha256(data).hexdigest()


def pattern(length, seed=0):
    return random.Random(seed).randbytes(length)


def repeat(operation):
    """Do it many times, each to its completion."""
    for _ in range(REPEATS):
        operation()


def deliver(side, name, opcode, length):
    """Send ``length`` bytes so that the partner gets a completion; it tells what it got."""
    side.memory[:length] = pattern(length)
    side.partner.hear()  # its receive is posted
    side.post(name, opcode, length)
    side.completion()
    got = side.partner.hear()
    right = got["digest"] == digest(side.memory[:length]) and got["bytes"] == length
    wants_immediate = opcode in (e.IBV_WR_RDMA_WRITE_WITH_IMM, e.IBV_WR_SEND_WITH_IMM)
    return right and got["immediate"] == (IMMEDIATE if wants_immediate else None)


def accept(side, name, opcode, length):
    """The partner's half of ``deliver``."""
    grh_bytes = GRH_BYTES if name == "ud" else 0
    side.memory[: length + grh_bytes] = bytes(length + grh_bytes)
    side.post_receive(name, length + grh_bytes)
    side.partner.say("posted")
    completion = side.completion()
    immediate = completion.imm_data if completion.wc_flags & e.IBV_WC_WITH_IMM else None
    got = side.memory[grh_bytes : grh_bytes + length]
    bytes_got = completion.byte_len - grh_bytes
    side.partner.say({"digest": digest(got), "bytes": bytes_got, "immediate": immediate})


def write(side):
    """RDMA WRITE: the partner, who sees no completion, is asked for a digest."""
    side.memory[:MESSAGE_BYTES] = pattern(MESSAGE_BYTES)

    def once():
        side.post("rc", e.IBV_WR_RDMA_WRITE, MESSAGE_BYTES, target=TARGET)
        side.completion()

    repeat(once)
    return side.partner.swap("written") == digest(side.memory[:MESSAGE_BYTES])


def see_written(side):
    side.partner.hear()
    side.partner.say(digest(side.memory[TARGET : TARGET + MESSAGE_BYTES]))


def read(side):
    """RDMA READ of what the partner has prepared."""
    expected = side.partner.hear()

    def once():
        side.post("rc", e.IBV_WR_RDMA_READ, MESSAGE_BYTES, offset=TARGET, target=SOURCE)
        side.completion()

    repeat(once)
    side.partner.say("read")
    return digest(side.memory[TARGET : TARGET + MESSAGE_BYTES]) == expected


def prepare(side):
    side.memory[SOURCE : SOURCE + MESSAGE_BYTES] = pattern(MESSAGE_BYTES, seed=1)
    side.partner.say(digest(side.memory[SOURCE : SOURCE + MESSAGE_BYTES]))
    side.partner.hear()


def word(memory, offset):
    return int.from_bytes(memory[offset : offset + 8], sys.byteorder)


def compare_and_swap(side):
    """7 becomes 8 if it is 7; from then on it is not, and stays."""
    side.partner.hear()
    originals = []
    for _ in range(REPEATS):
        side.post("rc", e.IBV_WR_ATOMIC_CMP_AND_SWP, 8, target=WORD, atomic=(7, 8))
        side.completion()
        originals.append(word(side.memory, 0))
    held = side.partner.swap("done")
    return originals == [7] + [8] * (REPEATS - 1) and held == 8


def fetch_and_add(side):
    """Add 5, REPEATS times."""
    side.partner.hear()
    originals = []
    for _ in range(REPEATS):
        side.post("rc", e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, target=WORD, atomic=(5, 0))
        side.completion()
        originals.append(word(side.memory, 0))
    held = side.partner.swap("done")
    return originals == [7 + 5 * index for index in range(REPEATS)] and held == 7 + 5 * REPEATS


def hold_word(side):
    side.memory[WORD : WORD + 8] = (7).to_bytes(8, sys.byteorder)
    side.partner.say("ready")
    side.partner.hear()
    side.partner.say(word(side.memory, WORD))


def exchange(name, opcode, length):
    """A step in which a message is received."""
    return (
        lambda side: deliver(side, name, opcode, length),
        lambda side: accept(side, name, opcode, length),
        length,
        1,
    )


OPERATIONS = {
    "RC send": exchange("rc", e.IBV_WR_SEND, MESSAGE_BYTES),
    "RC send with immediate": exchange("rc", e.IBV_WR_SEND_WITH_IMM, MESSAGE_BYTES),
    "RC RDMA write": (write, see_written, MESSAGE_BYTES, REPEATS),
    "RC RDMA write with immediate": exchange("rc", e.IBV_WR_RDMA_WRITE_WITH_IMM, MESSAGE_BYTES),
    "RC RDMA read": (read, prepare, MESSAGE_BYTES, REPEATS),
    "RC compare and swap": (compare_and_swap, hold_word, 8, REPEATS),
    "RC fetch and add": (fetch_and_add, hold_word, 8, REPEATS),
    "UC send": exchange("uc", e.IBV_WR_SEND, MESSAGE_BYTES),
    "UC RDMA write with immediate": exchange("uc", e.IBV_WR_RDMA_WRITE_WITH_IMM, MESSAGE_BYTES),
    "UD send": exchange("ud", e.IBV_WR_SEND, 1000),
}


def do_operations(side, rank):
    """Every operation once or more; what copy 0 found right."""
    results = []
    for name, (act, respond, length, times) in OPERATIONS.items():
        side.partner.swap(name)
        if rank:
            respond(side)
        else:
            results.append({"operation": name, "bytes": length, "times": times, "right": act(side)})
    return results


PHASES = {
    "operations": (do_operations, MEMORY_BYTES),
    "speeds": (demo_speeds.measure, demo_speeds.MEMORY_BYTES),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phase", choices=PHASES)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--quick", action="store_true", help="measure for a tenth as long")
    args = parser.parse_args()
    if args.quick:
        demo_speeds.SAMPLE_S /= 10
        demo_speeds.BULK_S /= 10
    rank, peers = int(os.environ["SOFTHCA_RANK"]), os.environ["SOFTHCA_PEERS"].split(",")
    do, memory_bytes = PHASES[args.phase]
    partner = Partner(rank, peers)
    side = Side(partner, memory_bytes)
    results = do(side, rank)
    partner.swap("end")
    adapters = [{key: end[key] for key in ("name", "gid", "mtu_bytes")} for end in (side.mine, side.other)]
    side.memory.release()
    side.context.close()
    if rank == 0 and args.results:
        args.results.write_text(json.dumps({"adapters": adapters, "results": results}))
    return 0 if all(result.get("right", True) for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
