"""Messages of the control socket: what crosses, what is refused, and both numbers where versions differ."""

import contextlib
import errno
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.queues.handshake import (
    ATTACH,
    DESCRIPTOR,
    MESSAGES,
    READY,
    RESOURCES,
    decode_answer,
    decode_request,
    encode_answer,
    encode_refusal,
    encode_request,
    frames_of,
)
from softhca.queues.layout import ABI_VERSION, MESSAGE_BYTES, MESSAGE_HEADER, MESSAGE_MAGIC
from suite_plan import random_inputs

HEADER = MESSAGE_HEADER.packing()
ATTACHING = {"control": [(1, 200), (300, 67)], "doorbells": [(400, 65)], "flag": 500, "probe": 1 << 40,
             "probe_bytes": bytes(range(16))}  # fmt: skip


def of_version(version, data):
    """The same message, as another version of the host interface would send it."""
    _, _, message, error, length = HEADER.unpack_from(data)
    return HEADER.pack(MESSAGE_MAGIC, version, message, error, length) + data[HEADER.size:]


def test_a_request_and_its_answer_cross():
    request = decode_request(encode_request(ATTACH, ATTACHING))
    assert (request.message, request.fields, request.refusal) == (ATTACH, ATTACHING, None)
    answer = {"host": 3, "foreign": errno.EPERM, "pid": 4711, "path": b"@x"}
    assert decode_answer(ATTACH, encode_answer(ATTACH, answer)) == answer


def test_a_refusal_raises_what_it_says():
    with pytest.raises(OSError, match="not today") as caught:
        decode_answer(ATTACH, encode_refusal(ATTACH, errno.EBUSY, "not today"))
    assert caught.value.errno == errno.EBUSY
    with pytest.raises(OSError, match="x") as caught:
        decode_answer(ATTACH, encode_refusal(ATTACH, 0, "x" * 100_000))
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("theirs", [0, ABI_VERSION - 1, ABI_VERSION + 1, 0xFFFFFFFF])
def test_an_adapter_refuses_a_host_of_another_version_and_names_both(theirs):
    request = decode_request(of_version(theirs, encode_request(ATTACH, ATTACHING)))
    assert request.fields == {}
    assert request.refusal.errno == errno.EPROTONOSUPPORT
    assert re.findall(r"version (\d+)", request.refusal.strerror) == [str(theirs), str(ABI_VERSION)]


@pytest.mark.parametrize("theirs", [0, ABI_VERSION - 1, ABI_VERSION + 1, 0xFFFFFFFF])
@pytest.mark.parametrize("data", [encode_refusal(ATTACH, errno.EPROTONOSUPPORT, "another"),
                                  encode_answer(ATTACH, {"host": 1})], ids=["refusal", "answer"])  # fmt: skip
def test_a_host_refuses_an_adapter_of_another_version_and_names_both(theirs, data):
    with pytest.raises(OSError, match="host interface") as caught:
        decode_answer(ATTACH, of_version(theirs, data))
    assert caught.value.errno == errno.EPROTONOSUPPORT
    assert re.findall(r"version (\d+)", caught.value.strerror) == [str(theirs), str(ABI_VERSION)]


def test_what_another_version_adds_to_its_requests_does_not_hide_its_number():
    data = HEADER.pack(MESSAGE_MAGIC, ABI_VERSION + 1, 77, 0, 3) + b"new"
    assert decode_request(data).refusal.errno == errno.EPROTONOSUPPORT


def test_the_head_of_a_message_is_the_same_for_ever():
    assert encode_refusal(ATTACH, errno.EIO, "no") == (
        b"SHCA" + ABI_VERSION.to_bytes(4, "little") + b"\1\0\0\0" + b"\5\0\0\0" + b"\6\0\0\0" + b"\2\0\0\0no")


@pytest.mark.parametrize("data", [
    b"", b"SHCA", b'{"request": "attach"}' + bytes(20), HEADER.pack(MESSAGE_MAGIC, ABI_VERSION, ATTACH, 0, 1),
    HEADER.pack(MESSAGE_MAGIC ^ 1, ABI_VERSION, RESOURCES, 0, 0),
    HEADER.pack(MESSAGE_MAGIC, ABI_VERSION, RESOURCES, 0, 0) + b"x",
])  # fmt: skip
def test_what_is_no_message_is_refused_by_both(data):
    for decode in (decode_request, lambda data: decode_answer(ATTACH, data)):
        with pytest.raises(OSError, match="message") as caught:
            decode(data)
        assert caught.value.errno == errno.EPROTO


@pytest.mark.parametrize("message", [0, READY, max(MESSAGES) + 1, 0xFFFFFFFF])
def test_a_request_that_there_is_not_is_refused(message):
    request = decode_request(HEADER.pack(MESSAGE_MAGIC, ABI_VERSION, message, 0, 0))
    assert request.refusal.errno == errno.EPROTO


def test_an_answer_to_something_else_is_refused():
    with pytest.raises(OSError, match="in place of") as caught:
        decode_answer(ATTACH, HEADER.pack(MESSAGE_MAGIC, ABI_VERSION, DESCRIPTOR, 0, 20) + bytes(20))
    assert caught.value.errno == errno.EPROTO


def test_a_message_that_is_too_long_is_not_made():
    with pytest.raises(OSError, match="a message of") as caught:
        encode_answer(READY, {"place": bytes(MESSAGE_BYTES)})
    assert caught.value.errno == errno.EMSGSIZE


def test_a_message_has_up_to_the_most_bytes():
    room = MESSAGE_BYTES - len(encode_answer(ATTACH, {}))
    assert len(encode_answer(ATTACH, {"path": bytes(room)})) == MESSAGE_BYTES
    with pytest.raises(OSError, match="a message of") as caught:
        encode_answer(ATTACH, {"path": bytes(room + 1)})
    assert caught.value.errno == errno.EMSGSIZE


def test_a_refusal_counts_whatever_it_answers():
    with pytest.raises(OSError, match="not now") as caught:
        decode_answer(ATTACH, encode_refusal(DESCRIPTOR, errno.EBUSY, "not now"))
    assert caught.value.errno == errno.EBUSY


BODIES = st.one_of(st.binary(max_size=200), st.sampled_from([
    encode_request(ATTACH, ATTACHING), encode_answer(RESOURCES, {"counts": [("QP", 3)]}),
    encode_refusal(ATTACH, 5, "why"),
]).flatmap(lambda data: st.binary(min_size=0, max_size=4).map(lambda noise: data[:30] + noise + data[34:])))


@given(BODIES, st.sampled_from(sorted(MESSAGES)))
@settings(max_examples=random_inputs(200), deadline=None)
def test_any_bytes_are_a_message_or_refused(data, message):
    refused = fields = request = None
    try:
        request = decode_request(data)
    except OSError as error:
        refused = error.errno
    assert refused == errno.EPROTO or request.refusal is None or not request.fields
    with contextlib.suppress(OSError):
        fields = decode_answer(message, data)
    assert fields is None or [name for name, _ in MESSAGES[message][2]] == list(fields)


def test_frames_are_counted_before_they_are_made():
    assert frames_of([(5, 2), (1, 1)], 3, "control") == [5, 6, 1]
    for runs in ([], [(1, 4)], [(1, 2)], [(1, 0), (1, 3)], [(0, 3)], [((1 << 32) - 1, 3)],
                 [((1 << 32) - 2, 3)], [(1, 0xFFFFFFFF)] * 1000):  # fmt: skip
        with pytest.raises(OSError, match="control") as caught:
            frames_of(runs, 3, "control")
        assert caught.value.errno == errno.EPROTO


def test_a_request_that_says_that_it_failed_is_none():
    for code, refused in ((0, None), (5, errno.EPROTO)):
        request = decode_request(HEADER.pack(MESSAGE_MAGIC, ABI_VERSION, RESOURCES, code, 0))
        assert getattr(request.refusal, "errno", None) == refused
