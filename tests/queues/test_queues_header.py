"""The C header: made of the table, it compiles without a warning, and encodes and decodes as Python does."""

import ctypes
import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.cli.main import main
from softhca.queues.control import encode_command, encode_reply
from softhca.queues.control_fields import COMMANDS
from softhca.queues.handshake import MESSAGES, encode_answer, encode_refusal, encode_request
from softhca.queues.header import header, numbers
from softhca.queues.layout import ABI_VERSION, COMMAND_BYTES, RECORDS
from suite_plan import random_inputs

COMPILER = shutil.which(os.environ.get("CC", "").split(" ")[0] or "gcc") or shutil.which("cc")
FLAGS = ("-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")

NUMBERS = {"u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64}
U32 = st.integers(0, (1 << 32) - 1)
KINDS = {
    **{kind: st.integers(0, (1 << 8 * ctypes.sizeof(number)) - 1) for kind, number in NUMBERS.items()},
    "gid": st.binary(min_size=16, max_size=16),
    "bytes": st.binary(max_size=20),
    "runs": st.lists(st.tuples(U32, U32), max_size=5),
    "counters": st.lists(st.tuples(st.text("abc_", max_size=9), st.integers(0, (1 << 64) - 1)), max_size=5),
}
EVERY = [("command", name.lower(), n, fields, reply) for n, (name, fields, reply) in COMMANDS.items()]
EVERY += [("message", f"message_{name.lower()}", n, fields, answer)
          for n, (name, fields, answer) in MESSAGES.items()]


def compile_c(folder, source, *options):
    (folder / "softhca.h").write_text(header())
    (folder / "source.c").write_text(source)
    files = [f"-I{folder}", str(folder / "source.c"), "-o", str(folder / "made")]
    command = [COMPILER, *FLAGS, *files, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "made"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The header's functions as a library: those to encode as ``e_…``, those to decode as ``d_…``."""
    lines = ['#include "softhca.h"']
    for kind, name, _, fields, reply in EVERY:
        tag = ["uint32_t tag"] if kind == "command" else []
        answered = "reply" if kind == "command" else "answer"
        said = [f"const struct softhca_{name} *fields"] if fields else []
        found = [f"struct softhca_{name}_{answered} *fields"] if reply else []
        arguments = ", ".join(["out", "room", *(["tag"] if tag else []), *(["fields"] if said else [])])
        lines.append(f"size_t e_{name}({', '.join(['void *out', 'size_t room', *tag, *said])})"
                     f" {{ return softhca_encode_{name}({arguments}); }}")
        arguments = ", ".join(["data", "bytes", *(["fields"] if found else [])])
        lines.append(f"int d_{name}({', '.join(['const void *data', 'size_t bytes', *found])})"
                     f" {{ return softhca_decode_{name}_{answered}({arguments}); }}")
    made = compile_c(tmp_path_factory.mktemp("header"), "\n".join(lines) + "\n", "-shared", "-fPIC")
    return ctypes.CDLL(str(made))


def structure_of(fields):
    """The structure of ``fields`` as C has it."""
    members = []
    for name, kind in fields:
        if kind in NUMBERS:
            members.append((name, NUMBERS[kind]))
        elif kind == "gid":
            members.append((name, ctypes.c_uint8 * 16))
        else:
            members += [(name, ctypes.c_void_p),
                        (f"{name}_{'bytes' if kind == 'bytes' else 'count'}", ctypes.c_uint32)]
    return type("Fields", (ctypes.Structure,), {"_fields_": members})


def filled(fields, values, keep):
    made = structure_of(fields)()
    for name, kind in fields:
        value = values[name]
        if kind in NUMBERS:
            setattr(made, name, value)
        elif kind == "gid":
            setattr(made, name, (ctypes.c_uint8 * 16)(*value))
        else:
            data = value if kind == "bytes" else b"".join(
                first.to_bytes(4, "little") + count.to_bytes(4, "little") for first, count in value)
            keep.append(ctypes.create_string_buffer(data, len(data)))
            setattr(made, name, ctypes.addressof(keep[-1]))
            setattr(made, f"{name}_{'bytes' if kind == 'bytes' else 'count'}", len(value))
    return made


def read(made, fields):
    """The values of a structure that C has filled."""
    values = {}
    for name, kind in fields:
        if kind in NUMBERS:
            values[name] = getattr(made, name)
        elif kind == "gid":
            values[name] = bytes(getattr(made, name))
        elif kind == "bytes":
            values[name] = ctypes.string_at(getattr(made, name), getattr(made, f"{name}_bytes"))
        else:
            values[name], place = [], getattr(made, name)
            for _ in range(getattr(made, f"{name}_count")):
                length = ctypes.string_at(place, 1)[0]
                word = ctypes.string_at(place + 1, length).decode()
                values[name].append((word, int.from_bytes(ctypes.string_at(place + 1 + length, 8), "little")))
                place += 9 + length
    return values


def drawn(data, fields):
    return {name: data.draw(KINDS[kind], label=name) for name, kind in fields}


@needs_compiler
@pytest.mark.parametrize(("kind", "name", "number", "fields", "reply"), EVERY, ids=[row[1] for row in EVERY])
@given(data=st.data())
@settings(max_examples=random_inputs(10), deadline=None)
def test_c_encodes_and_decodes_as_python_does(library, kind, name, number, fields, reply, data):
    keep = []
    values, out = drawn(data, fields), ctypes.create_string_buffer(4096)
    arguments = [ctypes.c_size_t(4096), *([ctypes.c_uint32(77)] if kind == "command" else []),
                 *([ctypes.byref(filled(fields, values, keep))] if fields else [])]
    encode, decode = getattr(library, f"e_{name}"), getattr(library, f"d_{name}")
    bytes_ = encode(out, *arguments)
    command = kind == "command"
    expected = encode_command(number, 77, values) if command else encode_request(number, values)
    assert out.raw[:bytes_] == expected
    arguments[0] = ctypes.c_size_t(len(expected) - 1)
    assert encode(out, *arguments) == 0  # there is not room enough
    values = drawn(data, reply)
    answer = encode_reply(77, number, 0, values) if command else encode_answer(number, values)
    made = structure_of(reply)()
    into = [ctypes.byref(made)] if reply else []
    assert decode(answer, len(answer), *into) == 0
    assert read(made, reply) == values
    for cut in {0, 5, len(answer) - 1}:
        assert decode(answer[:cut], cut, *into) == -1
    refusal = encode_reply(77, number, errno.EBUSY) if command else encode_refusal(number, errno.EBUSY, "no")
    assert decode(refusal, len(refusal), *into) == errno.EBUSY


@needs_compiler
def test_no_command_is_longer_than_the_ring_takes(library):
    room = COMMAND_BYTES + 100
    runs = (ctypes.c_uint32 * (2 * COMMAND_BYTES // 8))()
    fields = COMMANDS[9][1]
    made = structure_of(fields)()
    made.frames, made.frames_count = ctypes.addressof(runs), COMMAND_BYTES // 8
    out = ctypes.create_string_buffer(room)
    assert library.e_reg_mr(out, ctypes.c_size_t(room), ctypes.c_uint32(1), ctypes.byref(made)) == 0


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_the_header_is_c_plus_plus_too(tmp_path):
    (tmp_path / "softhca.h").write_text(header())
    (tmp_path / "source.cc").write_text('#include "softhca.h"\n')
    command = ["g++", "-std=c++17", *FLAGS[1:], f"-I{tmp_path}", "-fsyntax-only", str(tmp_path / "source.cc")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_number_has_a_name_of_its_own():
    names = [name for _, group in numbers() for name in group]
    assert len(names) == len(set(names))
    assert {"RDMA_WRITE", "WC_SUCCESS", "COMMAND_REG_MR", "EVENT_COMPLETION", "STATE_RTS", "ATTR_AH_ATTR",
            "ACCESS_REMOTE_WRITE", "MESSAGE_ATTACH", "CONTROL_PAGES", "QPT_RC"} <= set(names)
    for record in RECORDS:
        assert f"SOFTHCA_ASSERT(sizeof(struct softhca_{record.name}) == {record.size_bytes});" in header()


def test_the_page_for_clients_names_what_the_header_has():
    page = (Path(__file__).parents[2] / "docs" / "host-interface.md").read_text()
    words = {word for word in re.findall(r"\b(?:SOFTHCA|softhca)_\w+", page) if not word.endswith("_")}
    words -= {"SOFTHCA_DEVICES", "SOFTHCA_ADAPTER"}  # variables of the environment
    found = set(re.findall(r"\w+", header()))
    assert words > {"SOFTHCA_ABI_VERSION", "softhca_cqe", "softhca_encode_message_attach"}
    assert words <= found, words - found
    for name in re.findall(r"\b[A-Z]{2,}_[A-Z_]*[A-Z]\b", page.replace("SOFTHCA_", "")):
        assert not name.startswith(("CREATE_", "QUERY_", "REG_", "MODIFY_", "ALLOC_")) or (
            f"SOFTHCA_COMMAND_{name}" in found), name


def test_the_command_writes_the_header(tmp_path, capsys):
    assert main(["abi", "header"]) == 0
    assert capsys.readouterr().out == header()
    assert main(["abi", "header", "-o", str(tmp_path / "softhca.h")]) == 0
    assert (tmp_path / "softhca.h").read_text() == header()
    assert main(["abi", "version"]) == 0
    assert capsys.readouterr().out == f"{ABI_VERSION}\n"
    assert main(["abi", "header", "-o", str(tmp_path / "no" / "softhca.h")]) == 1
    assert "No such file" in capsys.readouterr().err
