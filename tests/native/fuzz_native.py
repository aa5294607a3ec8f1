"""Fuzzing of the library for programs in C, and of the object beside it, with libFuzzer, AddressSanitizer and
UBSan: ``python tests/native/fuzz_native.py [--seconds N] [--runs N] [TARGET …]`` (`make fuzz-native`).

An adapter process within the program answers, completes and reports what an input says (``fuzz_adapter.c``).
The seeds are the corpora of ``tests/fuzz``.  Without clang, or where clang has no libFuzzer, the C compiler's
sanitizers watch the same programs, whose inputs ``fuzz_main.c`` makes of the seeds by dice.
"""

from __future__ import annotations

import argparse
import hashlib
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
from softhca.queues.control_fields import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_ESTABLISHED,
    CM_REJECTED,
    CM_REPLIED,
    CM_REQUEST,
    CM_SIDR_REPLY,
    CM_SIDR_REQUEST,
    CM_TIMEWAIT_OVER,
    CM_UNREACHABLE,
    COMMANDS,
)
from softhca.queues.handshake import MESSAGES
from softhca.queues.header import header

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "fuzz-native"
VERBS = tuple(each for each in sorted(build.SOURCES.glob("*.c")) if each.name != "host.c")
PRELOAD = tuple(sorted((build.SOURCES / "preload").glob("cm_*.c")))
TARGETS: Mapping[str, tuple[Path, ...]] = {
    "decoders": (),
    "rings": (),
    "verbs": VERBS,
    "objects": VERBS,
    "rdmacm": tuple(each for each in PRELOAD if each.name != "cm_devices.c"),
}
"""Each is ``fuzz_….c``, with these sources of ours; ``fuzz_adapter.c`` and ``fuzz_rdmacm.c`` include what is
missing."""
CORPORA = ("control", "handshake", "commands", "connections", "work", "rings")
CHECKS = "address,undefined"
RIGHT = {
    "phys_port_cnt": 1, "node_guid": 7, "link_layer": 2, "gid_tbl_len": 1, "active_mtu": 5, "max_mtu": 5,
    "gid": bytes(10) + b"\xff\xff\x7f\0\0\1", "max_send_wr": 4, "max_recv_wr": 4, "max_send_sge": 2,
    "max_recv_sge": 2, "max_inline_data": 64, "max_wr": 4, "max_sge": 2, "qp_num": 17, "cq": 1, "srq": 2,
    "max_qp_rd_atom": 16, "max_qp_init_rd_atom": 16, "cm": 1, "id": 1, "lkey": 0x100, "rkey": 0x100,
    "channel": 1, "length": 4096, "pd": 1, "wq_num": 18, "rwq_ind_tbl": 3,
}  # fmt: skip
"""What an honest adapter answers in fields of these names; zeros and nothing in all others."""
NATIVE = {
    **RIGHT, "link_layer": 1, "lid": 1, "sm_lid": 2, "gid": b"\xfe\x80" + bytes(13) + b"\1", "pkey": 0xFFFF,
    "pkey_tbl_len": 1, "agent": 1,
}  # fmt: skip
"""The same, of an adapter whose port is InfiniBand's."""
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
    """The numbers of commands, honest answers to all commands and messages, and every decoder, in C."""
    parts = ["#include <string.h>", '#include "softhca.h"',
             "struct honest_body { unsigned bytes; unsigned char body[512]; };",
             "enum {", *(f"    COMMAND_{named} = {number}," for number, (named, *_) in COMMANDS.items()),
             "};"]  # fmt: skip
    decoders = []
    for name, table, kind, right in (
        ("replies", COMMANDS, "reply", RIGHT), ("answers", MESSAGES, "answer", RIGHT),
        ("native_replies", COMMANDS, "reply", NATIVE),
    ):  # fmt: skip
        if right is RIGHT:
            parts.append(f"#define {'COMMANDS' if kind == 'reply' else 'MESSAGES'} {max(table) + 1}")
        parts.append(f"static const struct honest_body {name}[{max(table) + 1}] __attribute__((unused)) = {{")
        for number, (named, _, fields) in table.items():
            said = {field: right.get(field, EMPTY.get(shape, 0)) for field, shape in fields}
            body = encode_fields(fields, said)
            parts.append(f"    [{number}] = {{{len(body)}, {{{', '.join(map(str, body or [0]))}}}}},")
            call = f"{'message_' * (kind == 'answer')}{named.lower()}_{kind}"
            taken = f"    {{ struct softhca_{call} fields; softhca_decode_{call}(data, bytes, &fields); }}"
            if right is RIGHT:
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
    words = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{folder}", f"-I{build.SOURCES}",
             f"-I{HERE}", "-Dnanosleep=no_nap")  # fmt: skip
    checks = (f"-fsanitize={CHECKS}", "-fno-sanitize-recover=undefined")
    made = folder / f"fuzz_{target}"
    compiler = (*command, *words, *checks)
    own = (*_objects(target, folder, compiler), HERE / f"fuzz_{target}.c", HERE / "fuzz_adapter.c")
    subprocess.run([*compiler, *map(str, own), *sources, "-o", str(made)], check=True)
    return made


def _objects(target: str, folder: Path, compiler: Sequence[str]) -> list[Path]:
    """Ours, compiled, for all targets of these: in a folder whose name is of all that they are made of."""
    sources = TARGETS[target]
    places = (folder, *{source.parent for source in sources}, build.SOURCES, HERE)
    files = sorted({file for place in places for file in place.glob("*.[ch]")})
    text = "\0".join([*compiler, *map(str, sources), *(file.read_text() for file in files)])
    place = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    place.mkdir(exist_ok=True)
    made = [place / f"{source.stem}.o" for source in sources]
    for source, file in zip(sources, made, strict=True):
        if not file.exists():
            part = file.with_suffix(".part")
            subprocess.run([*compiler, "-c", str(source), "-o", str(part)], check=True)
            part.rename(file)
    return made


NOTHING: Mapping[int, int] = {}


def _command(
    number: int, length: int, identifier: int, *further: int, said: Mapping[int, int] = NOTHING
) -> bytes:
    """A step of ``rdmacm``: a command whose fields are zeros, but for bytes by their place in ``said``."""
    fields = bytearray(length)
    for place, value in said.items():
        fields[place] = value
    return bytes([0, number, 1]) + fields + bytes([identifier, *further, 0])


def _create(space: int) -> bytes:
    return _command(0, 24, 0, space, said={0: 1})  # its uid


def _entry(kind: int) -> bytes:
    """A step of ``rdmacm``: an entry of the port's channel, of the one listener and the one connection."""
    fields = {"own_gid_interface": int.from_bytes(RIGHT["gid"][8:], "big")}
    header = layout.CM_HEADER.packing().pack(*(fields.get(name, 0) for name in layout.CM_HEADER.names))
    return b"\5\0" + header + bytes(layout.CM_PRIVATE_BYTES) + bytes([kind, 1, 1, 1, 0])


def connections() -> Iterator[bytes]:
    """Inputs of ``rdmacm``: connections as they should be.  Behind the third step of each is said that the
    adapter stays honest.
    """
    taken = b"\7"
    create, listen = _create(0), _command(7, 8, 0)
    bind = _command(2, 40, 0, 1, 0)
    resolve, route = _command(3, 64, 0, 1, 4), _command(4, 8, 0)
    connect = _command(6, 288, 0, said={271: 1})

    def attributes(handle: int) -> bytes:
        return b"".join(_command(11, 16, handle, said={12: state}) for state in (1, 2, 3))

    # a request for a connection, with a number below its listener's, that nobody takes
    yield (b"\1" + _create(0) + create + _command(2, 40, 1, 1, 0) + b"\1" + _command(7, 8, 1)
           + _command(1, 16, 0) + _entry(CM_REQUEST))  # fmt: skip
    passive = b"\1" + create + bind + listen + b"\1" + _entry(CM_REQUEST) + taken
    yield passive + _command(9, 264, 1)  # REJECT
    accepted = passive + attributes(1) + _command(8, 296, 1, said={0: 2, 279: 1}) + _entry(CM_ESTABLISHED)
    yield accepted + taken + _entry(CM_DISCONNECT_REQUEST) + _command(10, 4, 1) + _entry(CM_TIMEWAIT_OVER)
    active = b"\1" + create + resolve + route + b"\1" + connect
    replied = active + _entry(CM_REPLIED) + attributes(0) + _command(8, 296, 0)
    yield replied + _command(10, 4, 0) + _entry(CM_DISCONNECTED) + _entry(CM_TIMEWAIT_OVER)
    yield active + _entry(CM_REJECTED) + taken
    yield active + _entry(CM_UNREACHABLE) + taken
    yield b"\1" + _create(1) + resolve + route + b"\1" + connect + _entry(CM_SIDR_REPLY) + attributes(0)
    resolved = b"\1" + _create(1) + bind + listen + b"\1" + _entry(CM_SIDR_REQUEST) + taken
    yield resolved + _command(8, 296, 1, said={279: 1})
    # on native links: the port's own address, the way to a peer and a group, and an address of somebody
    service, path, group = (b"\x15\1" + bytes([1 + 16 * kind, 0, 0]) for kind in (1, 0, 2))
    resolve = _command(3, 64, 0, 1, 64) + service[2:]
    native = b"\x09" + create + resolve + route + b"\1" + path
    yield native + connect + _entry(CM_REPLIED) + attributes(0)
    yield b"\x09" + _create(1) + resolve + route + b"\1" + path + _command(16, 48, 0, 1, 8) + group + taken
    yield b"\x09" + create + _command(3, 64, 0, 1, 4) + service[2:] + service + b"\1" + route + path + connect


REFUSED_REGION = b"\1\1\0\4\0\0\0\0\0\0\6\0\1"
"""An input of ``objects``: a region whose pages the adapter does not take."""


def written() -> list[bytes]:
    """Inputs that were written by hand."""
    return [*connections(), REFUSED_REGION]


def seeds() -> Iterator[bytes]:
    """What is written, the corpora as they are and behind what makes an adapter honest, and random bytes."""
    yield from written()
    for name in CORPORA:
        for data in stored(name):
            yield data
            yield b"\1\1" + data
    dice = random.Random(1)
    for _ in range(800):
        yield bytes([dice.randrange(16), dice.randrange(4)]) + dice.randbytes(dice.randrange(600))


def spread(folder: Path) -> list[Path]:
    """The seeds as files."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number, data in enumerate(seeds()):
        found.append(folder / f"{number:05}")
        found[-1].write_bytes(data)
    return found


def made_by_dice(
    program: Path, kept: Path, files: Sequence[Path], runs: int, seconds: int, seed: int
) -> list[str]:
    """The command that runs a program of ``fuzz_main.c``; the input that ends it stands in ``kept``."""
    return [str(program), str(runs), str(seconds), str(seed), str(kept), *map(str, files)]


def has_libfuzzer(folder: Path) -> bool:
    """Whether clang links a program with libFuzzer and the sanitizers, which are a package of their own."""
    if shutil.which("clang") is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "empty.c"
    source.write_text("int LLVMFuzzerTestOneInput(void) { return 0; }\n")
    command = ["clang", f"-fsanitize=fuzzer,{CHECKS}", str(source), "-o", str(folder / "empty")]
    return subprocess.run(command, capture_output=True).returncode == 0


def _by_libfuzzer(target: str, options: argparse.Namespace, seconds: int) -> list[str]:
    program = compiled(target, BUILD, ("clang", "-O1", "-g", "-fsanitize=fuzzer"))
    found = BUILD / target
    found.mkdir(exist_ok=True)
    return [str(program), str(found), str(BUILD / "seeds"), "-max_len=4096", "-timeout=20",
            f"-max_total_time={seconds}", f"-runs={options.runs}", f"-artifact_prefix={BUILD}/{target}-",
            "-print_final_stats=1"]  # fmt: skip


def _by_dice(target: str, options: argparse.Namespace, seconds: int) -> list[str]:
    command = [*(build.compiler() or []), "-O1", "-g"]
    program = compiled(target, BUILD, command, [str(HERE / "fuzz_main.c")])
    runs = options.runs if options.runs >= 0 else 1 << 40
    files = sorted((BUILD / "seeds").iterdir())
    return made_by_dice(program, BUILD / f"{target}-last", files, runs, seconds, options.seed)


def main(arguments: list[str] | None = None) -> int:
    """Fuzz; the exit status, 3 where there is no compiler."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together")
    parser.add_argument("--runs", type=int, default=-1, help="inputs of each target at most")
    parser.add_argument("--seed", type=int, default=1, help="of the dice, where there is no libFuzzer")
    options = parser.parse_args(arguments)
    targets = options.targets or list(TARGETS)
    if unknown := set(targets) - set(TARGETS):
        parser.error(f"no target: {', '.join(sorted(unknown))}")
    fuzzer = _by_libfuzzer if has_libfuzzer(BUILD) else _by_dice
    if fuzzer is _by_dice and build.compiler() is None:
        print("fuzz-native needs clang and libFuzzer (Debian's clang, libclang-rt-14-dev), or a C compiler",
              file=sys.stderr)  # fmt: skip
        return 3
    if fuzzer is _by_dice:
        print("no clang with libFuzzer (Debian's clang, libclang-rt-14-dev): inputs are made by dice")
    spread(BUILD / "seeds")
    failed = 0
    for target in targets:
        command = fuzzer(target, options, options.seconds // len(targets))
        done = subprocess.run(command, stdin=subprocess.DEVNULL)
        failed |= done.returncode
        print(f"{target}: {'failed' if done.returncode else 'nothing found'}", flush=True)
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
