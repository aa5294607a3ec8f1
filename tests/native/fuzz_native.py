"""Fuzzing of the library for programs in C, and of the object beside it, with libFuzzer, AddressSanitizer and
UBSan: ``python tests/native/fuzz_native.py [--seconds N] [--runs N]`` (`make fuzz-native`; needs clang).

An adapter process within the program answers, completes and reports what an input says (``fuzz_adapter.c``).
The seeds are the corpora of ``tests/fuzz``.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from softhca.native import build
from softhca.queues import layout
from softhca.queues.codec import encode_fields
from softhca.queues.control_fields import CM_REQUEST, COMMANDS
from softhca.queues.handshake import MESSAGES
from softhca.queues.header import header

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "fuzz-native"
TARGETS = ("verbs", "rdmacm")
CORPORA = ("control", "handshake", "commands", "connections", "work", "rings")
CHECKS = "address,undefined"
RIGHT = {
    "phys_port_cnt": 1, "node_guid": 7, "link_layer": 2, "gid_tbl_len": 1, "active_mtu": 5, "max_mtu": 5,
    "gid": bytes(10) + b"\xff\xff\x7f\0\0\1", "max_send_wr": 4, "max_recv_wr": 4, "max_send_sge": 2,
    "max_recv_sge": 2, "max_inline_data": 64, "max_wr": 4, "max_sge": 2, "qp_num": 17, "cq": 1, "srq": 2,
    "max_qp_rd_atom": 16, "max_qp_init_rd_atom": 16, "cm": 1, "id": 1, "lkey": 0x100, "rkey": 0x100,
    "channel": 1, "length": 4096, "pd": 1,
}  # fmt: skip
"""What an honest adapter answers in fields of these names; zeros and nothing in all others."""
EMPTY: Mapping[str, Any] = {"gid": bytes(16), "bytes": b"", "runs": (), "counters": ()}


def stored(target: str) -> list[bytes]:
    """The corpus of a target of ``tests/fuzz``."""
    path = HERE.parent / "fuzz" / "fuzz_corpus.py"
    specification = importlib.util.spec_from_file_location("fuzz_corpus", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    found: list[bytes] = module.stored(target)
    return found


def tables() -> str:
    """Honest answers to all commands and messages, and every decoder, in C."""
    parts = ["#include <string.h>", '#include "softhca.h"',
             "struct wanted { unsigned bytes; unsigned char body[512]; };"]  # fmt: skip
    decoders = []
    for name, table, kind in (("replies", COMMANDS, "reply"), ("answers", MESSAGES, "answer")):
        parts.append(f"#define {'COMMANDS' if kind == 'reply' else 'MESSAGES'} {max(table) + 1}")
        parts.append(f"static const struct wanted {name}[{max(table) + 1}] __attribute__((unused)) = {{")
        for number, (named, _, fields) in table.items():
            said = {field: RIGHT.get(field, EMPTY.get(shape, 0)) for field, shape in fields}
            body = encode_fields(fields, said)
            parts.append(f"    [{number}] = {{{len(body)}, {{{', '.join(map(str, body or [0]))}}}}},")
            call = f"{'message_' * (kind == 'answer')}{named.lower()}_{kind}"
            taken = f"    {{ struct softhca_{call} fields; softhca_decode_{call}(data, bytes, &fields); }}"
            decoders.append(taken if fields else f"    softhca_decode_{call}(data, bytes);")
        parts.append("};")
    parts += ["__attribute__((unused)) static void decode_all(const void *data, size_t bytes) {",
              "    char reason[32];", "    softhca_reason(data, bytes, reason, sizeof reason);", *decoders,
              "}", ""]  # fmt: skip
    return "\n".join(parts)


def compiled(target: str, folder: Path, command: Sequence[str], sources: Sequence[str] = ()) -> Path:
    """The program of one of ``TARGETS``, by the compiler's ``command``; with sanitizers."""
    folder.mkdir(parents=True, exist_ok=True)
    made_of = {"softhca.h": header, "cm_states.h": build.states_header, "fuzz_tables.h": tables}
    for name, text in made_of.items():
        (folder / name).write_text(text())
    own = build.SOURCES if target == "verbs" else build.SOURCES / "preload"
    others = {"host.c", "paths.c", "buffers.c"}
    library = [str(each) for each in sorted(own.glob("*.c")) if each.name not in others]
    words = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{folder}", f"-I{build.SOURCES}",
             f"-I{HERE}")  # fmt: skip
    checks = (f"-fsanitize={CHECKS}", "-fno-sanitize-recover=undefined")
    made = folder / f"fuzz_{target}"
    subprocess.run([*command, *words, *checks, *library, *sources, str(HERE / f"fuzz_{target}.c"),
                    str(HERE / "fuzz_adapter.c"), "-o", str(made)], check=True)  # fmt: skip
    return made


def untaken_request() -> bytes:
    """An input of ``rdmacm``: a request for a connection, with a number below its listener's, that nobody
    takes before its file is closed.
    """

    def command(number: int, length: int, identifier: int, *further: int) -> bytes:
        return bytes([0, number, 1]) + bytes(length) + bytes([identifier, *further, 0])

    header = layout.CM_HEADER.size_bytes + layout.CM_PRIVATE_BYTES
    return (b"\1" + command(0, 24, 0, 0) + command(0, 24, 0, 0)  # CREATE_ID
            + command(2, 40, 1, 1, 0) + b"\1" + command(7, 8, 1)  # BIND_IP; the adapter stays honest; LISTEN
            + command(1, 16, 0) + b"\5" + bytes(header) + bytes([CM_REQUEST, 1, 1, 1]))  # fmt: skip


def seeds() -> Iterator[bytes]:
    """Inputs of the corpora, and some at random that begin as both targets' do."""
    yield untaken_request()
    for name in CORPORA:
        for data in stored(name):
            yield b"\1\1" + data
            yield b"\3" + data
    dice = random.Random(1)
    for _ in range(400):
        yield bytes([dice.randrange(8), dice.randrange(4)]) + dice.randbytes(dice.randrange(600))


def spread(folder: Path) -> list[Path]:
    """The seeds as files."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number, data in enumerate(seeds()):
        found.append(folder / f"{number:05}")
        found[-1].write_bytes(data)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Fuzz; the exit status, 3 where there is no clang."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for both targets together")
    parser.add_argument("--runs", type=int, default=-1, help="inputs of each target at most")
    options = parser.parse_args(arguments)
    if shutil.which("clang") is None:
        print("fuzz-native needs clang and libFuzzer (Debian's clang, libclang-rt-14-dev)", file=sys.stderr)
        return 3
    spread(BUILD / "seeds")
    failed = 0
    for target in TARGETS:
        program = compiled(target, BUILD, ("clang", "-O1", "-g", "-fsanitize=fuzzer"))
        found = BUILD / target
        found.mkdir(exist_ok=True)
        done = subprocess.run([str(program), str(found), str(BUILD / "seeds"), "-max_len=4096", "-timeout=20",
                               f"-max_total_time={options.seconds // len(TARGETS)}", f"-runs={options.runs}",
                               f"-artifact_prefix={BUILD}/{target}-", "-print_final_stats=1"],
                              stdin=subprocess.DEVNULL)  # fmt: skip
        failed |= done.returncode
        print(f"{target}: {'failed' if done.returncode else 'nothing found'}")
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
