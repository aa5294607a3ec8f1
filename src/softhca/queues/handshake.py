"""The control socket's messages: how a host attaches to an adapter in another process, and leaves it.

One message is one packet of a ``SOCK_SEQPACKET`` Unix socket: a MESSAGE_HEADER (``layout``) and its fields,
encoded as those of commands.  A request has error 0; its answer has the same message number, and error 0 and
the answer's fields, or an errno and one field ``text``.
Descriptors ride along as ancillary data.

The header, and a refusal's ``text``, are the same in every version of the host interface; all else may
differ.  So whoever gets a message of another version knows both numbers, and can say so.
"""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from softhca.memory.runs import numbers_of
from softhca.queues.codec import Values, decode_fields, encode_fields
from softhca.queues.control import ControlRings
from softhca.queues.control_fields import Fields
from softhca.queues.doorbells import plan as doorbell_pages
from softhca.queues.layout import (
    ABI_VERSION,
    DOORBELL_SLOTS,
    MESSAGE_BYTES,
    MESSAGE_HEADER,
    MESSAGE_MAGIC,
)

ATTACH = 1
DESCRIPTOR = 2
DETACH = 3
RESOURCES = 4
READY = 5
CHANNEL = 6
MEMORY = 7

MESSAGES: Mapping[int, tuple[str, Fields, Fields]] = {
    # number: (name, the request's fields, its answer's fields)
    # With the descriptor of memory; the answer brings the host's wake socket.  ``foreign``: errno of
    # reaching the host's own memory, 0: it can be reached.
    ATTACH: (
        "ATTACH",
        (("control", "runs"), ("doorbells", "runs"), ("flag", "u32"), ("probe", "u64"),
         ("probe_bytes", "gid")),
        (("host", "u32"), ("foreign", "u32"), ("pid", "u32"), ("path", "bytes")),
    ),
    # With one descriptor, which one command can name by the number.
    DESCRIPTOR: ("DESCRIPTOR", (), (("number", "u32"),)),
    # ``others``: how many hosts go on; all that this one owned has been freed.
    DETACH: ("DETACH", (), (("others", "u32"),)),
    # Of all hosts together: resources by kind, and how often the adapter process has blocked.
    RESOURCES: (
        "RESOURCES", (), (("hosts", "u32"), ("pid", "u32"), ("sleeps", "u64"), ("counts", "counters")),
    ),
    # The first word of an adapter process to the host that started it: the address of its port.
    READY: ("READY", (), (("place", "bytes"),)),
    # An event channel; the answer brings the host's end.  ``asynchronous``: it takes the host's asynchronous
    # events from now on, which are told in the event ring otherwise.
    CHANNEL: ("CHANNEL", (("asynchronous", "u8"),), (("channel", "u32"),)),
    # Device memory of a context that the host imports; the answer brings its memfd.
    MEMORY: ("MEMORY", (("dm", "u32"),), (("length", "u64"),)),
}  # fmt: skip

REFUSAL: Fields = (("text", "bytes"),)
_HEADER = MESSAGE_HEADER.packing()
_LONGEST_TEXT_BYTES = 1024


@dataclass(frozen=True)
class HostFrames:
    """The frames of a host's control rings and doorbells, in host memory that both sides map, zero-filled."""

    control: Sequence[int]
    doorbells: Sequence[int]

    CONTROL_PAGES = ControlRings.PAGES
    DOORBELL_PAGES = doorbell_pages(DOORBELL_SLOTS)


class Request(NamedTuple):
    """What a host asks for.  ``refusal``, where there is one, is all that it can be answered with."""

    message: int
    fields: Values
    refusal: OSError | None = None


def encode_request(message: int, values: Mapping[str, Any]) -> bytes:
    """The host's side: a request; OSError EINVAL for values that do not belong there, EMSGSIZE."""
    return _encode(message, 0, encode_fields(MESSAGES[message][1], values))


def encode_answer(message: int, values: Mapping[str, Any]) -> bytes:
    """The adapter's side: what is answered to a request; OSError as `encode_request`."""
    return _encode(message, 0, encode_fields(MESSAGES[message][2], values))


def encode_refusal(message: int, code: int, text: str) -> bytes:
    """The adapter's side: why a request is refused, an errno and a sentence."""
    values = {"text": text.encode()[:_LONGEST_TEXT_BYTES]}
    return _encode(message, code & 0xFFFFFFFF or errno.EINVAL, encode_fields(REFUSAL, values))


def _encode(message: int, code: int, body: bytes) -> bytes:
    data = _HEADER.pack(MESSAGE_MAGIC, ABI_VERSION, message, code, len(body)) + body
    if len(data) > MESSAGE_BYTES:
        raise OSError(errno.EMSGSIZE, f"a message of {len(data)} bytes")
    return data


def decode_request(data: bytes) -> Request:
    """The adapter's side: a request from a host, which may have sent anything.

    OSError EPROTO for what is no message at all.  Any other fault is the request's ``refusal``:
    EPROTONOSUPPORT for another version of the host interface, EPROTO for a request that there is not or is
    malformed.
    """
    version, message, code, body = _take_apart(data)
    if version != ABI_VERSION:
        return Request(message, {}, OSError(
            errno.EPROTONOSUPPORT,
            f"the host speaks version {version} of the host interface, this adapter version {ABI_VERSION}",
        ))  # fmt: skip
    if message not in MESSAGES or message == READY or code:
        return Request(message, {}, OSError(errno.EPROTO, f"there is no request {message}"))
    try:
        return Request(message, decode_fields(MESSAGES[message][1], body))
    except OSError as error:
        reason = f"{MESSAGES[message][0]} is malformed: {error.strerror}"
        return Request(message, {}, OSError(errno.EPROTO, reason))


def decode_answer(message: int, data: bytes) -> Values:
    """The host's side: the fields of the answer to ``message``.

    OSError: the errno and the reason of a refusal; EPROTONOSUPPORT where the adapter has another version of
    the host interface; EPROTO for anything else.
    """
    version, answered, code, body = _take_apart(data)
    if version != ABI_VERSION:
        raise OSError(
            errno.EPROTONOSUPPORT,
            f"the adapter speaks version {version} of the host interface, this host version {ABI_VERSION}",
        )
    if not code and answered != message:
        raise OSError(errno.EPROTO, f"the adapter answered request {answered} in place of {message}")
    try:
        fields = decode_fields(REFUSAL if code else MESSAGES[message][2], body)
    except OSError as error:
        raise OSError(errno.EPROTO, f"the adapter's answer is malformed: {error.strerror}") from None
    if code:
        raise OSError(code, fields["text"].decode(errors="replace"))
    return fields


def _take_apart(data: bytes) -> tuple[int, int, int, bytes]:
    """Version, message, errno and fields; OSError EPROTO for what is no message of any version."""
    if len(data) < _HEADER.size:
        raise OSError(errno.EPROTO, "what came is too short for a message")
    magic, version, message, code, length = _HEADER.unpack_from(data)
    if magic != MESSAGE_MAGIC or length != len(data) - _HEADER.size:
        raise OSError(errno.EPROTO, "what came is no message of the host interface")
    return version, message, code, data[_HEADER.size:]


def frames_of(runs: Sequence[tuple[int, int]], count: int, name: str) -> list[int]:
    """The ``count`` page frames that ``runs`` of a message name; OSError EPROTO for others, before so many
    are made."""
    try:
        frames = numbers_of(runs, count)
    except ValueError as error:
        raise OSError(errno.EPROTO, f"{name}: {error}") from None
    if 0 in frames or max(frames) >= 1 << 32:
        raise OSError(errno.EPROTO, f"{name}: there is no such page frame")
    return frames
