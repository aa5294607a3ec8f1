"""The host interface as a C header, made of the tables (``layout``, ``control_fields``, ``handshake``).

It has every number as ``SOFTHCA_…``, every record as a ``struct softhca_…`` with its size and offsets
asserted, and for every command and message of the control socket a structure of its fields, a function that
encodes it and one that decodes its reply.  It needs C11 (or C++17), libc and a little-endian machine.  What
the numbers and records mean, and how a client uses them: docs/host-interface.md.
"""

from collections.abc import Iterator, Mapping

from softhca.memory import regions
from softhca.queues import control_fields, handshake, layout, qp_attributes, states
from softhca.queues.control_fields import COMMANDS, Fields
from softhca.queues.handshake import MESSAGES
from softhca.queues.layout import ABI_VERSION, WIDTHS, Record

TITLES = {
    "ABI_VERSION": "The number that both sides must have.",
    "PAGE_BYTES": "Pages; a frame number is slot << 12 | page.",
    "RDMA_WRITE": "Opcodes of send WQEs (ibv_wr_opcode).",
    "SIGNALED": "Flags of send WQEs; these are not ibv_send_flags' bits.",
    "MAX_SGES": "Limits of WQEs.",
    "WC_SUCCESS": "Status of a completion (ibv_wc_status).",
    "WC_SEND": "Opcode of a completion (ibv_wc_opcode).",
    "WC_GRH": "Flags of a completion (ibv_wc_flags).",
    "ARM_NONE": "The arm word of a completion queue.",
    "MAX_ENTRIES": "Bounds of a ring.",
    "COMMAND_ENTRIES": "The control rings, in this order: commands, replies, events.",
    "DOORBELL_SLOTS": "The doorbell FIFO of a host.",
    "MAX_AGENT_ENTRIES": "The receive ring of an agent.",
    "MAX_CM_ENTRIES": "The ring of a connection channel.",
    "ADAPTER_AWAKE": "The sleep flag.",
    "MESSAGE_MAGIC": "The control socket.",
}
"""What stands above the group of constants that begins with this one."""

_RIGHTS = ("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND", "ZERO_BASED",
           "ON_DEMAND", "FLUSH_GLOBAL", "FLUSH_PERSISTENT")  # fmt: skip

HEAD = f"""\
/* The host interface of softhca, version {ABI_VERSION}, for programs that speak to an adapter process
   themselves.  Made by `softhca abi header`; do not edit.  docs/host-interface.md says how to use it. */
#ifndef SOFTHCA_H
#define SOFTHCA_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the host interface of softhca needs a little-endian machine"
#endif
#ifdef __cplusplus
#define SOFTHCA_ASSERT(what) static_assert(what, #what)
#else
#define SOFTHCA_ASSERT(what) _Static_assert(what, #what)
#endif
"""

CODEC = """
/* Fields in a row, without padding. */
struct softhca_writer {
    unsigned char *at;
    size_t room;
    int full;
};

static inline void softhca_put(struct softhca_writer *writer, const void *data, size_t bytes)
{
    if (writer->full || bytes > writer->room) {
        writer->full = 1;
    } else if (bytes) {
        memcpy(writer->at, data, bytes);
        writer->at += bytes;
        writer->room -= bytes;
    }
}

struct softhca_reader {
    const unsigned char *at;
    size_t left;
    int bad;
};

/* The next bytes where they stand, NULL (and `bad`) where fewer are left. */
static inline const unsigned char *softhca_take(struct softhca_reader *reader, uint64_t bytes)
{
    const unsigned char *found = reader->at;
    if (reader->bad || bytes > reader->left) {
        reader->bad = 1;
        return NULL;
    }
    reader->at += bytes;
    reader->left -= (size_t)bytes;
    return found;
}

static inline void softhca_get(struct softhca_reader *reader, void *out, size_t bytes)
{
    const unsigned char *found = softhca_take(reader, bytes);
    if (found)
        memcpy(out, found, bytes);
}

/* Whole commands, and messages of the control socket: `fields` in a row behind a header. */
static inline size_t softhca_end_command(unsigned char *out, struct softhca_writer *writer, uint16_t command,
                                         uint32_t tag)
{
    struct softhca_command_header header;
    size_t bytes = (size_t)(writer->at - out);
    if (writer->full || bytes > SOFTHCA_COMMAND_BYTES)
        return 0;
    memset(&header, 0, sizeof header);
    header.command = command;
    header.tag = tag;
    header.bytes = (uint32_t)(bytes - sizeof header);
    memcpy(out, &header, sizeof header);
    return bytes;
}

static inline size_t softhca_end_message(unsigned char *out, struct softhca_writer *writer, uint32_t message)
{
    struct softhca_message_header header;
    size_t bytes = (size_t)(writer->at - out);
    if (writer->full || bytes > SOFTHCA_MESSAGE_BYTES)
        return 0;
    memset(&header, 0, sizeof header);
    header.magic = SOFTHCA_MESSAGE_MAGIC;
    header.version = SOFTHCA_ABI_VERSION;
    header.message = message;
    header.bytes = (uint32_t)(bytes - sizeof header);
    memcpy(out, &header, sizeof header);
    return bytes;
}

static inline struct softhca_writer softhca_begin(void *out, size_t room, size_t header_bytes)
{
    struct softhca_writer writer = {(unsigned char *)out, room, 0};
    if (room < header_bytes) {
        writer.full = 1;
    } else {
        memset(out, 0, header_bytes);
        writer.at += header_bytes;
        writer.room -= header_bytes;
    }
    return writer;
}

/* 0: `reader` stands at the fields of a reply to `command`; an errno: it was refused, and the
   reader stands at the reason; -1: malformed. */
static inline int softhca_begin_reply(struct softhca_reader *reader, uint16_t command)
{
    struct softhca_reply_header header;
    memset(&header, 0, sizeof header);
    softhca_get(reader, &header, sizeof header);
    if (reader->bad || header.bytes != reader->left || header.command != command)
        return -1;
    return header.error;
}

/* Why a reply refuses: its text, cut to `room` and ended by a zero; empty where it gives none. */
static inline const char *softhca_reason(const void *data, size_t bytes, char *out, size_t room)
{
    struct softhca_reader reader = {(const unsigned char *)data, bytes, 0};
    struct softhca_reply_header header;
    size_t length = 0;
    memset(&header, 0, sizeof header);
    softhca_get(&reader, &header, sizeof header);
    if (!reader.bad && header.error && header.bytes == reader.left && room) {
        length = reader.left < room ? reader.left : room - 1;
        memcpy(out, reader.at, length);
    }
    if (room)
        out[length] = 0;
    return out;
}

/* As softhca_begin_reply, for an answer on the control socket; EPROTONOSUPPORT for an adapter of another
   version, whose number stands in the header.  What follows the header of a refusal is its text, behind its
   length. */
static inline int softhca_begin_answer(struct softhca_reader *reader, uint32_t message)
{
    struct softhca_message_header header;
    memset(&header, 0, sizeof header);
    softhca_get(reader, &header, sizeof header);
    if (reader->bad || header.magic != SOFTHCA_MESSAGE_MAGIC || header.bytes != reader->left)
        return -1;
    if (header.version != SOFTHCA_ABI_VERSION)
        return EPROTONOSUPPORT;
    if (header.error)
        return (int)header.error;
    return header.message == message ? 0 : -1;
}
"""


def header() -> str:
    """The text of the header."""
    parts = [HEAD, *_numbers(), *map(_structure, layout.RECORDS), _RUN, CODEC]
    for number, (name, fields, reply) in COMMANDS.items():
        parts += _message(name.lower(), number, fields, reply, command=True)
    for number, (name, fields, answer) in MESSAGES.items():
        parts += _message(name.lower(), number, fields, answer, command=False)
    return "\n".join([*parts, "#endif", ""])


def numbers() -> Iterator[tuple[str, dict[str, int]]]:
    """Every group of numbers: what it is, and its numbers by name without ``SOFTHCA_``."""
    title, group = "", dict[str, int]()
    for name, value in layout.constants().items():
        if name in TITLES:
            if group:
                yield title, group
            title, group = TITLES[name], {}
        group[name] = value
    yield title, group
    yield "Commands.", {f"COMMAND_{name}": number for number, (name, _, _) in COMMANDS.items()}
    commands = {name for name, _, _ in COMMANDS.values()}
    yield "Events (ibv_event_type and softhca's own), and values of commands' fields.", {
        name: value for name, value in vars(control_fields).items()
        if name.isupper() and type(value) is int and name not in commands
    }
    yield "States of a queue pair (ibv_qp_state).", {
        f"STATE_{name}": number for number, name in enumerate(states.NAMES)
    }
    yield "attr_mask of MODIFY_QP (ibv_qp_attr_mask).", {
        f"ATTR_{name.upper()}": bit for name, bit in qp_attributes.MASK.items()
    }
    yield "Rights of a region (ibv_access_flags).", {
        f"ACCESS_{name}": getattr(regions, name) for name in _RIGHTS
    }
    yield "Messages of the control socket.", {f"MESSAGE_{name}": n for n, (name, _, _) in MESSAGES.items()}
    pages = {"CONTROL_PAGES": handshake.HostFrames.CONTROL_PAGES,
             "DOORBELL_PAGES": handshake.HostFrames.DOORBELL_PAGES}  # fmt: skip
    yield "Pages of the three control rings, and of the doorbell FIFO.", pages


def _numbers() -> Iterator[str]:
    for title, group in numbers():
        lines = [f"/* {title} */"]
        lines += [f"#define SOFTHCA_{name} {_literal(value)}" for name, value in group.items()]
        yield "\n".join([*lines, ""])


def _literal(value: int) -> str:
    return f"{value}U" if value < 1 << 32 else f"{value}ULL"


def _structure(record: Record) -> str:
    """A record as a structure; what lies between its fields has names too."""
    name = f"struct softhca_{record.name}"
    lines = [f"/* {record.about[0].upper()}{record.about[1:]}. */", name + " {"]
    checks = [f"SOFTHCA_ASSERT(sizeof({name}) == {record.size_bytes});"]
    end = 0
    for field, kind, offset in record.fields:
        if offset > end:
            lines.append(f"    uint8_t zero_{end}[{offset - end}];")
        lines.append(f"    {_TYPES[kind]} {field};")
        checks.append(f"SOFTHCA_ASSERT(offsetof({name}, {field}) == {offset});")
        end = offset + WIDTHS[kind]
    if end < record.size_bytes:
        lines.append(f"    uint8_t zero_{end}[{record.size_bytes - end}];")
    return "\n".join([*lines, "};", *checks, ""])


_TYPES = {"u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t"}
_RUN = """\
/* Consecutive page frames. */
struct softhca_run {
    uint32_t first;
    uint32_t count;
};
SOFTHCA_ASSERT(sizeof(struct softhca_run) == 8);
"""
# How a field of each kind is declared in its structure, encoded and decoded.  A field of varying length
# stands behind its count; decoded, it points into what was received.
_DECLARED: Mapping[str, tuple[str, ...]] = {
    **{kind: (f"{name} %s;",) for kind, name in _TYPES.items()},
    "gid": ("uint8_t %s[16];",),
    "bytes": ("const void *%s;", "uint32_t %s_bytes;"),
    "runs": ("const struct softhca_run *%s;", "uint32_t %s_count;"),
    "counters": ("const void *%s; /* {uint8_t length, name, uint64_t value}, so often */",
                 "uint32_t %s_count;"),
}
_ENCODED: Mapping[str, tuple[str, ...]] = {
    **{kind: ("softhca_put(&writer, &fields->%s, sizeof fields->%s);",) for kind in (*_TYPES, "gid")},
    "bytes": ("softhca_put(&writer, &fields->%s_bytes, 4);",
              "softhca_put(&writer, fields->%s, fields->%s_bytes);"),
    "runs": ("softhca_put(&writer, &fields->%s_count, 4);",
             "softhca_put(&writer, fields->%s, (size_t)fields->%s_count * sizeof *fields->%s);"),
}  # fmt: skip
_DECODED: Mapping[str, tuple[str, ...]] = {
    **{kind: ("softhca_get(&reader, &fields->%s, sizeof fields->%s);",) for kind in (*_TYPES, "gid")},
    "bytes": ("softhca_get(&reader, &fields->%s_bytes, 4);",
              "fields->%s = softhca_take(&reader, fields->%s_bytes);"),
    "counters": (
        "softhca_get(&reader, &fields->%s_count, 4);",
        "fields->%s = reader.at;",
        "for (uint32_t i = 0; i < fields->%s_count && !reader.bad; i++) {",
        "    const unsigned char *length = softhca_take(&reader, 1);",
        "    if (length)",
        "        softhca_take(&reader, (uint64_t)*length + 8);",
        "}",
    ),
}  # fmt: skip


def _message(name: str, number: int, fields: Fields, reply: Fields, command: bool) -> list[str]:
    """The structures and functions of a command, or of a message of the control socket."""
    kind, answered = ("command", "reply") if command else ("message", "answer")
    said = f"softhca_{name}" if command else f"softhca_message_{name}"
    parts = [f"/* {kind} {number}: {name} */"]
    if fields:
        parts.append(_fields_of(said, fields))
    if reply:
        parts.append(_fields_of(f"{said}_{answered}", reply))
    taken = ["void *out", "size_t room", *(["uint32_t tag"] if command else []),
             *([f"const struct {said} *fields"] if fields else [])]  # fmt: skip
    ending = f"{number}, tag" if command else f"{number}"
    parts.append("\n".join([
        f"static inline size_t softhca_encode_{said[8:]}({', '.join(taken)})",
        "{",
        f"    struct softhca_writer writer = softhca_begin(out, room, sizeof(struct softhca_{kind}_header));",
        *_each("    ", _ENCODED, fields),
        f"    return softhca_end_{kind}((unsigned char *)out, &writer, {ending});",
        "}",
        "",
    ]))  # fmt: skip
    taken = ["const void *data", "size_t bytes", *([f"struct {said}_{answered} *fields"] if reply else [])]
    parts.append("\n".join([
        f"static inline int softhca_decode_{said[8:]}_{answered}({', '.join(taken)})",
        "{",
        "    struct softhca_reader reader = {(const unsigned char *)data, bytes, 0};",
        f"    int error = softhca_begin_{answered}(&reader, {number});",
        "    if (error)",
        "        return error;",
        *(["    memset(fields, 0, sizeof *fields);"] if reply else []),
        *_each("    ", _DECODED, reply),
        "    return reader.bad || reader.left ? -1 : 0;",
        "}",
        "",
    ]))  # fmt: skip
    return parts


def _fields_of(name: str, fields: Fields) -> str:
    return "\n".join([f"struct {name} {{", *_each("    ", _DECLARED, fields), "};", ""])


def _each(indent: str, lines: Mapping[str, tuple[str, ...]], fields: Fields) -> list[str]:
    """The lines of every field, ``%s`` being its name."""
    return [indent + line.replace("%s", name) for name, kind in fields for line in lines[kind]]
