"""A verbs program for two copies: ``softhca run -n 2 -- python3 examples/demo_steps.py operations``.

Copy 0 does each operation towards copy 1 and measures it; copy 1 checks what arrived.  The copies find each
other by ``SOFTHCA_RANK`` and ``SOFTHCA_PEERS`` and agree over one TCP connection, as any verbs program does.

``operations``: every kind of operation on three services.  ``bulk``: 64 MiB by RDMA WRITE.  With ``--results
FILE`` copy 0 leaves there as JSON what it saw.
"""

import argparse
import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path

from demo_side import GRH_BYTES, IMMEDIATE, Partner, Side
from pyverbs import enums as e

MESSAGE_BYTES = 4000
TARGET, SOURCE, WORD = 8192, 16384, 32768  # where in the partner's memory
MEMORY_BYTES = 65536
REPEATS = 200
BULK_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20


def digest(data):
    return hashlib.sha256(data).hexdigest()


def pattern(length, seed=0):
    return random.Random(seed).randbytes(length)


def time_of(operation):
    """The median time of ``operation`` in microseconds."""
    samples = []
    for _ in range(REPEATS):
        start_ns = time.perf_counter_ns()
        operation()
        samples.append(time.perf_counter_ns() - start_ns)
    return sorted(samples)[len(samples) // 2] / 1000


def deliver(side, name, opcode, length):
    """Send ``length`` bytes so that the partner gets a completion; it tells what it got."""
    side.memory[:length] = pattern(length)
    side.partner.hear()  # its receive is posted
    start_ns = time.perf_counter_ns()
    side.post(name, opcode, length)
    side.completion()
    elapsed_us = (time.perf_counter_ns() - start_ns) / 1000
    got = side.partner.hear()
    right = got["digest"] == digest(side.memory[:length]) and got["bytes"] == length
    wants_immediate = opcode in (e.IBV_WR_RDMA_WRITE_WITH_IMM, e.IBV_WR_SEND_WITH_IMM)
    return right and got["immediate"] == (IMMEDIATE if wants_immediate else None), elapsed_us


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

    elapsed_us = time_of(once)
    got = side.partner.swap("written")
    return got == digest(side.memory[:MESSAGE_BYTES]), elapsed_us


def see_written(side):
    side.partner.hear()
    side.partner.say(digest(side.memory[TARGET : TARGET + MESSAGE_BYTES]))


def read(side):
    """RDMA READ of what the partner has prepared."""
    expected = side.partner.hear()

    def once():
        side.post("rc", e.IBV_WR_RDMA_READ, MESSAGE_BYTES, offset=TARGET, target=SOURCE)
        side.completion()

    elapsed_us = time_of(once)
    side.partner.say("read")
    return digest(side.memory[TARGET : TARGET + MESSAGE_BYTES]) == expected, elapsed_us


def prepare(side):
    side.memory[SOURCE : SOURCE + MESSAGE_BYTES] = pattern(MESSAGE_BYTES, seed=1)
    side.partner.say(digest(side.memory[SOURCE : SOURCE + MESSAGE_BYTES]))
    side.partner.hear()


def word(memory, offset):
    return int.from_bytes(memory[offset : offset + 8], sys.byteorder)


def compare_and_swap(side):
    """7 becomes 8 if it is 7; a second time it is not, and stays."""
    side.partner.hear()
    originals = []
    for _ in range(2):
        side.post("rc", e.IBV_WR_ATOMIC_CMP_AND_SWP, 8, target=WORD, atomic=(7, 8))
        side.completion()
        originals.append(word(side.memory, 0))
    elapsed_us = time_of(
        lambda: (side.post("rc", e.IBV_WR_ATOMIC_CMP_AND_SWP, 8, target=WORD), side.completion())
    )
    held = side.partner.swap("done")
    return originals == [7, 8] and held == 8, elapsed_us


def fetch_and_add(side):
    """Add 5, REPEATS times."""
    side.partner.hear()
    elapsed_us = time_of(
        lambda: (
            side.post("rc", e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, target=WORD, atomic=(5, 0)),
            side.completion(),
        )
    )
    last = word(side.memory, 0)
    held = side.partner.swap("done")
    return last == 7 + 5 * (REPEATS - 1) and held == 7 + 5 * REPEATS, elapsed_us


def hold_word(side):
    side.memory[WORD : WORD + 8] = (7).to_bytes(8, sys.byteorder)
    side.partner.say("ready")
    side.partner.hear()
    side.partner.say(word(side.memory, WORD))


def bulk(side):
    """64 MiB by RDMA WRITE in chunks of 1 MiB, then the partner's digest of them."""
    side.memory[:] = pattern(CHUNK_BYTES) * (BULK_BYTES // CHUNK_BYTES)
    side.memory[::4096] = bytes(index & 0xFF for index in range(BULK_BYTES // 4096))
    start_ns = time.perf_counter_ns()
    for index in range(BULK_BYTES // CHUNK_BYTES):
        offset = index * CHUNK_BYTES
        side.post("rc", e.IBV_WR_RDMA_WRITE, CHUNK_BYTES, offset=offset, target=offset)
    for _ in range(BULK_BYTES // CHUNK_BYTES):
        side.completion()
    elapsed_us = (time.perf_counter_ns() - start_ns) / 1000
    return side.partner.swap("written") == digest(side.memory), elapsed_us


def serve_bulk(side):
    while not side.partner.has_spoken():
        for _ in range(64):
            side.context.progress()
    side.partner.hear()
    side.partner.say(digest(side.memory))


def exchange(name, opcode, length):
    """A step in which a message is received."""
    return (
        lambda side: deliver(side, name, opcode, length),
        lambda side: accept(side, name, opcode, length),
        length,
    )


PHASES = {
    "operations": {
        "RC send": exchange("rc", e.IBV_WR_SEND, MESSAGE_BYTES),
        "RC send with immediate": exchange("rc", e.IBV_WR_SEND_WITH_IMM, MESSAGE_BYTES),
        "RC RDMA write": (write, see_written, MESSAGE_BYTES),
        "RC RDMA write with immediate": exchange("rc", e.IBV_WR_RDMA_WRITE_WITH_IMM, MESSAGE_BYTES),
        "RC RDMA read": (read, prepare, MESSAGE_BYTES),
        "RC compare and swap": (compare_and_swap, hold_word, 8),
        "RC fetch and add": (fetch_and_add, hold_word, 8),
        "UC send": exchange("uc", e.IBV_WR_SEND, MESSAGE_BYTES),
        "UC RDMA write with immediate": exchange("uc", e.IBV_WR_RDMA_WRITE_WITH_IMM, MESSAGE_BYTES),
        "UD send": exchange("ud", e.IBV_WR_SEND, 1000),
    },
    "bulk": {"RC RDMA write, 64 × 1 MiB": (bulk, serve_bulk, BULK_BYTES)},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phase", choices=PHASES)
    parser.add_argument("--results", type=Path)
    args = parser.parse_args()
    rank, peers = int(os.environ["SOFTHCA_RANK"]), os.environ["SOFTHCA_PEERS"].split(",")
    partner = Partner(rank, peers)
    side = Side(partner, BULK_BYTES if args.phase == "bulk" else MEMORY_BYTES)
    results = []
    for name, (act, respond, length) in PHASES[args.phase].items():
        partner.swap(name)
        if rank:
            respond(side)
        else:
            right, elapsed_us = act(side)
            results.append({"operation": name, "bytes": length, "right": right, "elapsed_us": elapsed_us})
    partner.swap("end")
    side.context.close()
    if rank == 0 and args.results:
        args.results.write_text(json.dumps(results))
    return 0 if all(result["right"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
