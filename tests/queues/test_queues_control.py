"""Commands, replies and events: one codec, bounded, that survives any bytes."""

import errno
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.machine import primitives
from softhca.memory.host import HostMemory
from softhca.queues import control_fields as fields
from softhca.queues.codec import codec_of, decode_fields, encode_fields
from softhca.queues.control import (
    COMMAND_BYTES,
    COMMAND_ENTRIES,
    EVENT_ENTRIES,
    REPLY_BYTES,
    ControlRings,
    Event,
    decode_command,
    decode_event,
    decode_reply,
    encode_command,
    encode_event,
    encode_reply,
)
from suite_plan import random_inputs

NUMBER = {kind: st.integers(0, (1 << bits) - 1) for kind, bits in
          {"u8": 8, "u16": 16, "u32": 32, "u64": 64}.items()}
KINDS = {
    **NUMBER,
    "gid": st.binary(min_size=16, max_size=16),
    "bytes": st.binary(max_size=20),
    "runs": st.lists(st.tuples(NUMBER["u32"], NUMBER["u32"]), max_size=5),
    "counters": st.lists(st.tuples(st.text("abc_", max_size=9), NUMBER["u64"]), max_size=5),
}
EMPTY = {"gid": bytes(16), "bytes": b"", "runs": [], "counters": []}


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


@pytest.fixture
def rings():
    host = HostMemory(64 << 20)
    frames = host.allocate(ControlRings.PAGES)
    yield ControlRings(frames, host.address_map), ControlRings(frames, host.address_map)
    host.close()


def values_of(listed, data):
    return {name: data.draw(KINDS[kind]) for name, kind in listed}


@pytest.mark.parametrize("command", fields.COMMANDS)
@given(st.data())
@settings(max_examples=8, deadline=None)
def test_every_command_and_reply_comes_back_as_it_went(command, data):
    _, asked, answered = fields.COMMANDS[command]
    values = values_of(asked, data)
    tag = data.draw(NUMBER["u32"])
    taken = decode_command(encode_command(command, tag, values))
    assert (taken.command, taken.tag, taken.fields, taken.errno) == (command, tag, values, 0)
    values = values_of(answered, data)
    reply = decode_reply(encode_reply(tag, command, 0, values))
    assert (reply.tag, reply.command, reply.errno, reply.fields) == (tag, command, 0, values)


def test_numbers_and_names_of_commands_are_unique_and_field_names_too():
    assert sorted(fields.COMMANDS) == list(range(1, 77))
    assert len({name for name, _, _ in fields.COMMANDS.values()}) == 76
    for number, (name, asked, answered) in fields.COMMANDS.items():
        assert getattr(fields, name) == number
        for listed in (asked, answered):
            assert len({field for field, _ in listed}) == len(listed)
            assert {kind for _, kind in listed} <= set(KINDS)


def test_queue_pair_attributes_are_those_of_ibv_qp_attr():
    names = {name for name, _ in fields.QP_ATTRIBUTES}
    assert names >= {
        "qp_state", "cur_qp_state", "path_mtu", "path_mig_state", "qkey", "rq_psn", "sq_psn",
        "dest_qp_num", "qp_access_flags", "max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge",
        "max_inline_data", "ah_dgid", "ah_sgid_index", "ah_flow_label", "ah_hop_limit",
        "ah_traffic_class", "ah_dlid", "ah_sl", "ah_src_path_bits", "ah_static_rate", "ah_is_global",
        "ah_port_num", "alt_ah_dgid", "pkey_index", "alt_pkey_index", "en_sqd_async_notify",
        "sq_draining", "max_rd_atomic", "max_dest_rd_atomic", "min_rnr_timer", "port_num", "timeout",
        "retry_cnt", "rnr_retry", "alt_port_num", "alt_timeout", "rate_limit",
    }


def test_event_numbers_are_ibv_event_types():
    assert (fields.EVENT_CQ_ERR, fields.EVENT_QP_FATAL, fields.EVENT_COMM_EST, fields.EVENT_DEVICE_FATAL,
            fields.EVENT_PORT_ACTIVE, fields.EVENT_PORT_ERR, fields.EVENT_SRQ_ERR,
            fields.EVENT_SRQ_LIMIT_REACHED,
            fields.EVENT_QP_LAST_WQE_REACHED, fields.EVENT_GID_CHANGE) == (0, 1, 4, 8, 9, 10, 14, 15, 16, 18)


@pytest.mark.parametrize("command", fields.COMMANDS)
def test_fields_that_are_not_named_are_zero_or_empty(command):
    taken = decode_command(encode_command(command, 0, {}))
    assert taken.fields == {name: EMPTY.get(kind, 0) for name, kind in fields.COMMANDS[command][1]}


def test_the_bytes_of_a_command_a_reply_and_an_event():
    message = encode_command(fields.DETACH_ARENA, 0x01020304, {"slot": 5, "pages": 6})
    assert message == struct.pack("<HHIIIII", 6, 0, 0x01020304, 8, 0, 5, 6)
    assert encode_reply(7, fields.ALLOC_PD, 0, {"pd": 9}) == struct.pack("<IHHIII", 7, 7, 0, 4, 0, 9)
    assert encode_reply(7, fields.ALLOC_PD, errno.ENOMEM) == struct.pack("<IHHII", 7, 7, 12, 0, 0)
    assert encode_event(Event(256, 3, 4)) == struct.pack("<IIQ", 256, 3, 4)
    body = encode_fields((("frames", "runs"), ("b", "bytes")), {"frames": [(1, 2)], "b": b"xy"})
    assert body == struct.pack("<IIII", 1, 1, 2, 2) + b"xy"


@pytest.mark.parametrize(("command", "values"), [
    (fields.DETACH_ARENA, {"slot": 1 << 32}), (fields.DETACH_ARENA, {"slot": -1}),
    (fields.DETACH_ARENA, {"slot": "one"}), (fields.DETACH_ARENA, {"page": 1}),
    (fields.DETACH_ARENA, {"slot": 1, "page": None}), (fields.DETACH_ARENA, {"page": 1, "slot": None}),
    (fields.ATTACH_MCAST, {"gid": bytes(15)}), (fields.ATTACH_MCAST, {"gid": bytes(17)}),
    (fields.REG_MR, {"frames": [(1, 2, 3)]}), (fields.REG_MR, {"frames": [1]}),
    (fields.REG_MR, {"frames": [(1, 1 << 32)]}),
])
def test_values_that_do_not_belong_are_refused(command, values):
    with fails(errno.EINVAL):
        encode_command(command, 0, values)


def test_a_codec_is_made_once_and_takes_what_has_a_gids_bytes():
    listed = fields.COMMANDS[fields.ATTACH_MCAST][1]
    assert codec_of(listed) is codec_of(listed)
    for gid in (bytes(range(16)), bytearray(range(16)), memoryview(bytes(range(16))), list(range(16))):
        assert decode_fields(listed, encode_fields(listed, {"gid": gid}))["gid"] == bytes(range(16))
    assert decode_fields(listed, encode_fields(listed, {"gid": None, "lid": False}))["gid"] == bytes(16)


def test_an_unknown_command_is_refused_on_both_sides():
    with fails(errno.EOPNOTSUPP):
        encode_command(999, 0, {})
    taken = decode_command(struct.pack("<HHIII", 999, 0, 5, 0, 0))
    assert (taken.errno, taken.tag, taken.fields) == (errno.EOPNOTSUPP, 5, {})


def test_every_truncation_and_extension_of_a_command_is_malformed_but_can_be_answered():
    message = encode_command(fields.REG_MR, 77, {"pd": 1, "frames": [(1, 2), (3, 4)]})
    for n in range(len(message)):
        taken = decode_command(message[:n])
        assert taken.errno == errno.EINVAL
        assert taken.tag == (77 if n >= 16 else 0)
    assert decode_command(message + b"\0").errno == errno.EINVAL
    for wrong in range(16, len(message)):
        # The same truncation, with a header that agrees.
        cut = message[:8] + struct.pack("<I", wrong - 16) + message[12:wrong]
        assert decode_command(cut).errno == errno.EINVAL
    longer = message[:8] + struct.pack("<I", len(message) - 15) + message[12:] + b"\0"
    assert decode_command(longer).errno == errno.EINVAL
    assert decode_command(message[:2] + b"\1\0" + message[4:]).errno == errno.EINVAL
    assert decode_command(message[:12] + b"\1" + message[13:]).errno == errno.EINVAL


def test_a_count_of_runs_beyond_the_message_makes_no_list():
    body = encode_fields(fields.REGION[:-1], {}) + struct.pack("<I", 0xFFFFFFFF)
    with fails(errno.EINVAL):
        decode_fields(fields.REGION, body)
    with fails(errno.EINVAL):
        decode_fields((("counters", "counters"),), struct.pack("<I", 0xFFFFFFFF) + b"\1a")
    with fails(errno.EINVAL):
        decode_fields((("counters", "counters"),), struct.pack("<I", 1) + b"\1\xff" + bytes(8))


@given(st.binary(max_size=300), st.sampled_from(list(fields.COMMANDS)))
@settings(max_examples=random_inputs(200), deadline=None)
def test_no_bytes_whatever_raise_in_the_adapter(data, command):
    assert decode_command(data).errno in (0, errno.EINVAL, errno.EOPNOTSUPP)
    framed = struct.pack("<HHIII", command, 0, 1, len(data), 0) + data
    assert decode_command(framed).errno in (0, errno.EINVAL)


@pytest.mark.parametrize("data", [
    b"", bytes(15), struct.pack("<IHHII", 1, 7, 0, 4, 0), struct.pack("<IHHII", 1, 999, 0, 0, 0),
    struct.pack("<IHHII", 1, 7, 12, fields.REASON_BYTES + 1, 0) + b"x" * (fields.REASON_BYTES + 1),
    struct.pack("<IHHII", 1, 7, 0, 0, 0),
])
def test_a_malformed_reply_is_an_error_for_the_host(data):
    with fails(errno.EINVAL):
        decode_reply(data)


@pytest.mark.parametrize(("reason", "told"), [
    ("", ""), ("dest_qp_num is required", "dest_qp_num is required"), ("1 … 5", "1 … 5"),
    ("…" * 100, "…" * (fields.REASON_BYTES // 3)), ("é" * 200, "é" * 127),
    ("x" * 300, "x" * fields.REASON_BYTES),
])
def test_a_refusal_carries_its_reason_cut_to_what_fits(reason, told):
    reply = decode_reply(encode_reply(9, fields.MODIFY_QP, errno.EINVAL, {"unused": 1}, reason))
    assert (reply.tag, reply.errno, reply.fields, reply.reason) == (9, errno.EINVAL, {}, told)


def test_a_refusal_of_a_command_that_there_is_not_names_it():
    reply = decode_reply(encode_reply(9, 0x1234, errno.EOPNOTSUPP, reason="what?"))
    assert (reply.tag, reply.command, reply.errno, reply.reason) == (9, 0x1234, errno.EOPNOTSUPP, "what?")


@pytest.mark.parametrize("change", [-1, 1])
def test_a_command_or_a_reply_has_the_length_that_its_header_says(change):
    command = bytearray(encode_command(fields.QUERY_PORT, 1, {"port_num": 1}))
    assert decode_command(bytes(command)).fields == {"port_num": 1}
    command[8] += change
    assert decode_command(bytes(command)).errno == errno.EINVAL
    reply = bytearray(encode_reply(1, fields.ALLOC_PD, 0, {"pd": 5}))
    assert decode_reply(bytes(reply)).fields == {"pd": 5}
    reply[8] += change
    with fails(errno.EINVAL):
        decode_reply(bytes(reply))


def test_a_command_and_a_reply_have_up_to_the_most_bytes():
    header, private = 16, len(encode_command(fields.CM_READY, 1, {})) - 16
    room = COMMAND_BYTES - header - private
    assert len(encode_command(fields.CM_READY, 1, {"private_data": bytes(room)})) == COMMAND_BYTES
    with fails(errno.E2BIG):
        encode_command(fields.CM_READY, 1, {"private_data": bytes(room + 1)})
    counters = [("n" * 91, 1)] * 81  # 100 bytes each, and 4 for how many they are
    left = REPLY_BYTES - header - 4 - 8100 - 9
    assert len(encode_reply(1, fields.QUERY_COUNTERS, 0, {"counters": [*counters, ("n" * left, 1)]})) == (
        REPLY_BYTES
    )
    with fails(errno.E2BIG):
        encode_reply(1, fields.QUERY_COUNTERS, 0, {"counters": [*counters, ("n" * (left + 1), 1)]})


def test_a_malformed_command_says_why():
    assert decode_command(b"").reason
    assert "99" in decode_command(struct.pack("<HHIII", 99, 0, 1, 0, 0)).reason
    assert "port_num" in decode_command(struct.pack("<HHIII", fields.QUERY_PORT, 0, 1, 0, 0)).reason


@pytest.mark.parametrize("n", [0, 15, 17])
def test_an_event_has_16_bytes(n):
    with fails(errno.EINVAL):
        decode_event(bytes(n))


def test_commands_and_replies_cross_the_rings(rings):
    host, adapter = rings
    assert adapter.commands.take() is None
    host.commands.send(fields.REG_MR, 1, {"frames": [(5, 1)]})
    host.commands.send(fields.ALLOC_PD, 2, {})
    assert adapter.commands.count() == 2
    first, second = adapter.commands.take(), adapter.commands.take()
    assert (first.command, first.fields["frames"], second.tag) == (fields.REG_MR, [(5, 1)], 2)
    assert adapter.replies.send(2, fields.ALLOC_PD, 0, {"pd": 3})
    assert adapter.replies.send(1, fields.REG_MR, errno.EINVAL)
    assert (host.replies.take().fields, host.replies.take().errno) == ({"pd": 3}, errno.EINVAL)
    assert host.replies.take() is None


def test_a_command_too_long_for_a_slot_is_refused_before_it_is_sent(rings):
    host, adapter = rings
    fits = (COMMAND_BYTES - len(encode_command(fields.REG_MR, 0, {}))) // 8
    host.commands.send(fields.REG_MR, 1, {"frames": [(7, 1)] * fits})
    with fails(errno.E2BIG):
        host.commands.send(fields.REG_MR, 2, {"frames": [(7, 1)] * (fits + 1)})
    assert len(adapter.commands.take().fields["frames"]) == fits
    assert adapter.commands.take() is None


def test_a_reply_too_long_becomes_e2big(rings):
    host, adapter = rings
    counters = [("n" * 50, i) for i in range(REPLY_BYTES // 50)]
    assert adapter.replies.send(4, fields.QUERY_COUNTERS, 0, {"counters": counters})
    reply = host.replies.take()
    assert (reply.tag, reply.errno, reply.fields) == (4, errno.E2BIG, {})
    with fails(errno.EINVAL):
        adapter.replies.send(4, fields.ALLOC_PD, 0, {"no": 1})


def test_a_full_command_ring_says_so_and_goes_on(rings):
    host, adapter = rings
    for tag in range(COMMAND_ENTRIES):
        host.commands.send(fields.ALLOC_PD, tag, {})
    with fails(errno.EAGAIN):
        host.commands.send(fields.ALLOC_PD, 99, {})
    assert adapter.commands.take().tag == 0
    host.commands.send(fields.ALLOC_PD, 99, {})


def test_the_longest_replies_always_fit_while_there_is_room(rings):
    host, adapter = rings
    counters = [("n" * 91, 1)] * 81
    sent = 0
    while adapter.replies.room():
        assert adapter.replies.send(sent, fields.QUERY_COUNTERS, 0, {"counters": counters})
        sent += 1
    assert sent == COMMAND_ENTRIES
    assert not adapter.replies.send(0, fields.ALLOC_PD)
    assert host.replies.take().errno == 0
    assert adapter.replies.room()


def test_a_malformed_command_breaks_nothing_and_a_broken_ring_says_so(rings):
    host, adapter = rings
    message = bytearray(b"rubbish")
    assert host.commands._push(bytes(message))
    assert adapter.commands.take().errno == errno.EINVAL
    assert not adapter.commands.broken
    primitives.store64(adapter.commands.consumer.layout.control, 1 << 50)
    assert adapter.commands.take() is None
    assert adapter.commands.broken
    assert adapter.commands.count() == 0


def test_events_come_in_order(rings):
    host, adapter = rings
    adapter.events.post(fields.EVENT_COMPLETION, 4)
    adapter.events.post(fields.EVENT_QP_FATAL, 5, 6)
    assert [host.events.take(), host.events.take(), host.events.take()] == [
        Event(fields.EVENT_COMPLETION, 4, 0), Event(fields.EVENT_QP_FATAL, 5, 6), None]


def test_a_full_event_ring_loses_nothing_but_tells_together(rings):
    host, adapter = rings
    for i in range(EVENT_ENTRIES):
        adapter.events.post(fields.EVENT_COMPLETION, i)
    assert adapter.events.waiting() == 0
    for _ in range(3):
        adapter.events.post(fields.EVENT_COMPLETION, 7)
        adapter.events.post(fields.EVENT_QP_FATAL, 7, 1)
        adapter.events.post(fields.EVENT_CQ_ERR, 8)
    assert adapter.events.waiting() == 3
    assert not adapter.events.flush()
    assert [host.events.take().element for _ in range(EVENT_ENTRIES)] == list(range(EVENT_ENTRIES))
    adapter.events.post(fields.EVENT_PORT_ERR, 1)
    assert adapter.events.flush()
    assert [host.events.take() for _ in range(5)] == [
        Event(fields.EVENT_COMPLETION, 7, 0), Event(fields.EVENT_QP_FATAL, 7, 1),
        Event(fields.EVENT_CQ_ERR, 8, 0), Event(fields.EVENT_PORT_ERR, 1, 0), None]


def test_a_destroyed_element_tells_nothing_any_more(rings):
    host, adapter = rings
    for i in range(EVENT_ENTRIES):
        adapter.events.post(fields.EVENT_COMPLETION, i)
    adapter.events.post(fields.EVENT_COMPLETION, 3)
    adapter.events.forget(fields.EVENT_COMPLETION, 3)
    adapter.events.forget(fields.EVENT_COMPLETION, 99)
    assert adapter.events.waiting() == 0
    assert host.events.count() == EVENT_ENTRIES


def test_events_for_a_host_that_broke_the_ring_are_dropped(rings):
    host, adapter = rings
    primitives.store64(host.events.consumer.layout.control + 64, 1 << 40)
    for i in range(EVENT_ENTRIES + 5):
        adapter.events.post(fields.EVENT_COMPLETION, i)
    assert adapter.events.broken
    assert adapter.events.waiting() == 0


def test_another_number_of_frames_is_refused():
    host = HostMemory(64 << 20)
    with fails(errno.EINVAL):
        ControlRings(host.allocate(ControlRings.PAGES - 1), host.address_map)
    with fails(errno.EINVAL):
        ControlRings(host.allocate(ControlRings.PAGES + 1), host.address_map)
    host.close()


def test_the_number_that_does_not_fit_is_named_among_its_neighbours():
    five = (("first", "u8"), ("second", "u16"), ("third", "u32"), ("place", "gid"), ("last", "u64"))
    whole = encode_fields(five, {"first": 1, "second": 2, "third": 3, "place": bytes(range(16)), "last": 4})
    assert whole == b"\x01\x02\x00\x03\x00\x00\x00" + bytes(range(16)) + b"\x04" + bytes(7)
    for name, value in (("first", 256), ("second", -1), ("third", "three"), ("last", 1 << 64)):
        with pytest.raises(OSError, match=f"field {name}:"):
            encode_fields(five, {name: value})
    for length, name in ((0, "first"), (2, "second"), (6, "third"), (22, "place"), (30, "last")):
        with pytest.raises(OSError, match=f"field {name}:"):
            decode_fields(five, whole[:length])
    assert decode_fields(five, whole)["last"] == 4
