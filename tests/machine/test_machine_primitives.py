"""Addresses, atomics, CRC-32 and the calls of a burst: each body by the rules, both against each other."""

from __future__ import annotations

import ast
import ctypes
import errno
import importlib.util
import mmap
import os
import random
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import zlib
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import softhca.machine
from softhca.machine import primitives

MASK64 = 2**64 - 1
WORDS = ("load64", "store64", "load32", "store32", "atomic_add64", "atomic_cas64")
def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
FAMILIES = [(socket.AF_INET, "127.9.0.1"), pytest.param(socket.AF_INET6, "::1", marks=needs_ipv6)]


def interpreted_body() -> ModuleType:
    path = Path(next(iter(softhca.machine.__path__))) / "primitives.py"
    loader = SourceFileLoader("interpreted_primitives", str(path))
    specification = importlib.util.spec_from_loader(loader.name, loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    return module


INTERPRETED = interpreted_body()
BODIES = [INTERPRETED] if primitives.BODY == "interpreted" else [INTERPRETED, primitives]
differential = pytest.mark.skipif(primitives.BODY != "compiled", reason="compiled body not built")
every_body = pytest.mark.parametrize("body", BODIES, ids=lambda body: body.BODY)


def aligned(body: Any, count: int = 1) -> tuple[bytearray, int]:
    buffer = bytearray(8 * count + 8)
    return buffer, (body.address_of(buffer) + 7) // 8 * 8


def socket_address(family: int, host: str, port: int) -> bytes:
    packed = socket.inet_pton(family, host)
    head = struct.pack("=H", family) + port.to_bytes(2, "big")
    return head + packed + bytes(8) if family == socket.AF_INET else head + bytes(4) + packed + bytes(4)


class Wire:
    """A sender and a receiver of one family with the options that a link sets."""

    def __init__(self, family: int, host: str, merge: bool = True) -> None:
        self.receiver = socket.socket(family, socket.SOCK_DGRAM)
        self.receiver.bind((host, 0))
        self.receiver.setsockopt(17, 104, int(merge))
        if family == socket.AF_INET:
            self.receiver.setsockopt(socket.IPPROTO_IP, 13, 1)
        else:
            self.receiver.setsockopt(socket.IPPROTO_IPV6, 66, 1)
        self.sender = socket.socket(family, socket.SOCK_DGRAM)
        self.sender.bind((host, 0))
        self.sender_port = self.sender.getsockname()[1]
        self.target = socket_address(family, host, self.receiver.getsockname()[1])

    def send(
        self, body: Any, data: bytearray, segment: int, traffic_class: int = 0, hop_limit: int = 0,
        held: bool = False,
    ) -> int:
        result: int = body.send_burst(
            self.sender.fileno(), body.address_of(data), len(data), segment,
            body.address_of(self.target, False), len(self.target), traffic_class, hop_limit, held)
        return result

    def receive(self, body: Any, meta: Any, capacity: int = 65536) -> tuple[int, bytes]:
        assert select.select([self.receiver], [], [], 5.0)[0]
        room = bytearray(capacity + 8)
        n = body.receive_burst(self.receiver.fileno(), body.address_of(room), capacity, meta)
        assert not any(room[capacity:]), "bytes written behind the capacity"
        return n, bytes(room[: max(n, 0)])

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.receiver.close()
        self.sender.close()


def signatures(name: str) -> dict[str, tuple[str, str]]:
    """Parameters and result of a body's public functions, as its source says them."""
    tree = ast.parse((Path(__file__).parents[2] / "src" / "softhca" / "machine" / name).read_text())
    return {
        node.name: (ast.unparse(node.args), ast.unparse(node.returns or ast.Constant(None)))
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


def inline_signatures() -> dict[str, tuple[str, str]]:
    """`signatures` of the functions that the .pxd has in C itself; all their parameters are numbers."""
    text = (Path(__file__).parents[2] / "src" / "softhca" / "machine" / "primitives.pxd").read_text()
    return {
        name: (
            ", ".join(f"{each.split()[-1]}: int" for each in parameters.split(",")),
            "None" if result == "void" else "int",
        )
        for result, name, parameters in re.findall(
            r'^    cpdef ([\w ]+) (\w+) "softhca_\w+"\(\s*([^)]*)\)', text, re.MULTILINE
        )
    }


def test_both_bodies_have_the_same_functions_by_the_same_types() -> None:
    interpreted = signatures("primitives.py")
    assert len(interpreted) > 20
    assert signatures("compiled_primitives.py") | inline_signatures() == interpreted


def test_the_pxd_has_the_words_themselves() -> None:
    assert set(inline_signatures()) == set(WORDS)


def test_the_body_says_which_one_it_is() -> None:
    assert INTERPRETED.BODY == "interpreted"
    assert primitives.BODY in ("interpreted", "compiled")


@every_body
def test_address_of_is_the_first_byte_of_the_buffer(body: Any) -> None:
    buffer = bytearray(b"abcdef")
    address = body.address_of(buffer)
    assert ctypes.string_at(address, 6) == b"abcdef"
    assert body.address_of(memoryview(buffer)[2:]) == address + 2
    assert ctypes.string_at(body.address_of(b"read-only", False), 9) == b"read-only"


@every_body
def test_address_of_leaves_no_export_behind(body: Any) -> None:
    buffer = bytearray(16)
    body.address_of(buffer)
    body.length_of(buffer)
    buffer.extend(b"more")  # BufferError while an export lives
    assert body.length_of(buffer) == 20


@every_body
def test_address_of_refuses_a_read_only_buffer_unless_told(body: Any) -> None:
    with pytest.raises(BufferError):
        body.address_of(b"constant")
    with pytest.raises(TypeError):
        body.address_of(5)
    with pytest.raises(TypeError):
        body.length_of("text")
    with pytest.raises(BufferError):
        body.address_of(memoryview(bytearray(8))[::2])


@every_body
def test_length_of_counts_bytes_not_elements(body: Any) -> None:
    assert body.length_of((ctypes.c_uint64 * 3)()) == 24
    assert body.length_of(b"") == 0


@every_body
def test_copy_and_fill_touch_exactly_their_range(body: Any) -> None:
    source, target = bytearray(range(64)), bytearray(64)
    body.copy(body.address_of(target) + 8, body.address_of(source) + 4, 16)
    assert target == bytes(8) + bytes(range(4, 20)) + bytes(40)
    body.fill(body.address_of(target) + 10, 0xAB, 3)
    assert target == bytes(8) + bytes((4, 5)) + b"\xab" * 3 + bytes(range(9, 20)) + bytes(40)


@every_body
def test_bytes_at_is_a_copy_of_exactly_its_range(body: Any) -> None:
    memory = bytearray(range(100))
    address = body.address_of(memory)
    taken = body.bytes_at(address + 3, 50)
    memory[:] = bytes(100)
    assert taken == bytes(range(3, 53))
    assert body.bytes_at(address, 0) == b""


@every_body
def test_copy_bears_overlap(body: Any) -> None:
    for shift in (3, -3):
        buffer = bytearray(random.Random(1).randbytes(5000))
        expected = bytearray(buffer)
        expected[100 + shift : 4100 + shift] = buffer[100:4100]
        body.copy(body.address_of(buffer) + 100 + shift, body.address_of(buffer) + 100, 4000)
        assert buffer == expected


@differential
def test_words_are_no_calls_into_another_library() -> None:
    exported = vars(primitives)["__pyx_capi__"]  # what other compiled modules take by pointer
    assert "copy" in exported
    assert not set(WORDS) & set(exported)


@every_body
def test_loads_and_stores_have_native_order_and_their_width(body: Any) -> None:
    buffer, a = aligned(body, 2)
    body.store64(a, 0x0102030405060708)
    assert ctypes.string_at(a, 16) == struct.pack("=QQ", 0x0102030405060708, 0)
    body.store32(a + 4, 0xFFFFFFFE)
    assert ctypes.string_at(a, 4) == struct.pack("=Q", 0x0102030405060708)[:4]
    assert ctypes.string_at(a + 4, 12) == struct.pack("=IQ", 0xFFFFFFFE, 0)
    assert body.load32(a + 4) == 0xFFFFFFFE
    body.store64(a, MASK64)
    assert body.load64(a) == MASK64
    assert body.load64(a + 8) == 0
    assert len(buffer) == 24


@every_body
def test_atomic_add_gives_the_old_value_and_wraps(body: Any) -> None:
    _buffer, a = aligned(body, 2)
    body.store64(a, MASK64 - 1)
    assert body.atomic_add64(a, 5) == MASK64 - 1
    assert body.load64(a) == 3
    assert body.load64(a + 8) == 0


@every_body
def test_compare_and_swap_writes_only_on_equality(body: Any) -> None:
    _buffer, a = aligned(body)
    body.store64(a, 7)
    assert body.atomic_cas64(a, 8, 99) == 7
    assert body.load64(a) == 7
    assert body.atomic_cas64(a, 7, MASK64) == 7
    assert body.load64(a) == MASK64


@every_body
def test_additions_of_many_threads_are_all_counted(body: Any) -> None:
    _buffer, a = aligned(body)

    def add() -> None:
        for _ in range(2000):
            body.atomic_add64(a, 1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert body.load64(a) == 8000


def test_without_libatomic_a_lock_keeps_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(INTERPRETED, "_fetch_add", None)
    monkeypatch.setattr(INTERPRETED, "_compare_exchange", None)
    test_atomic_add_gives_the_old_value_and_wraps(INTERPRETED)
    test_compare_and_swap_writes_only_on_equality(INTERPRETED)


def test_off_x86_a_fence_stands_on_both_sides_of_an_atomic(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that exchanges nothing, too: whoever finds a mark set relies on its earlier stores being seen."""
    memory, seen = bytearray(16), []
    a = INTERPRETED.address_of(memory)
    a += -a % 8
    monkeypatch.setattr(INTERPRETED, "_fence", lambda order: seen.append((order, INTERPRETED.load64(a))))
    if not INTERPRETED.ATOMIC_BETWEEN_PROCESSES:
        pytest.skip("there is no libatomic")
    assert INTERPRETED.atomic_add64(a, 3) == 0
    assert INTERPRETED.atomic_cas64(a, 3, 4) == 3
    assert INTERPRETED.atomic_cas64(a, 3, 5) == 4
    assert seen == [(5, 0), (5, 3), (5, 3), (5, 4), (5, 4), (5, 4)]
    seen.clear()
    nothing = bytes(8)
    INTERPRETED.copy(a, INTERPRETED.address_of(nothing, False), 8)
    assert (seen, INTERPRETED.load64(a)) == ([(3, 4)], 0)


@every_body
@given(data=st.binary(max_size=300), cut=st.integers(0, 300), start=st.integers(0, 2**32 - 1))
def test_crc32_is_zlibs_and_continues(body: Any, data: bytes, cut: int, start: int) -> None:
    a, cut = body.address_of(data, False), min(cut, len(data))
    assert body.crc32(start, a, len(data)) == zlib.crc32(data, start)
    assert body.crc32(body.crc32(start, a, cut), a + cut, len(data) - cut) == zlib.crc32(data, start)


def test_crc32_without_the_raw_symbol_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(INTERPRETED, "_crc", None)
    data = random.Random(2).randbytes(4099)
    assert INTERPRETED.crc32(9, INTERPRETED.address_of(data, False), 4099) == zlib.crc32(data, 9)


@every_body
def test_process_memory_is_read_and_written_or_the_errno_told(body: Any) -> None:
    source, target = bytearray(random.Random(3).randbytes(10000)), bytearray(10000)
    own = os.getpid()
    assert body.read_process(own, body.address_of(target), body.address_of(source), 10000) == 10000
    assert target == source
    target = bytearray(10000)
    assert body.write_process(own, body.address_of(target), body.address_of(source) + 1, 9999) == 9999
    assert target == source[1:] + b"\0"
    assert body.read_process(own, body.address_of(target), 8, 16) == -errno.EFAULT
    assert body.write_process(own, 8, body.address_of(target), 16) == -errno.EFAULT


@every_body
@pytest.mark.parametrize(("family", "host"), FAMILIES)
def test_a_segmented_burst_arrives_merged_with_stride_and_sender(body: Any, family: int, host: str) -> None:
    data = bytearray(random.Random(4).randbytes(61_680))
    meta = body.ReceiveMeta()
    with Wire(family, host) as wire:
        assert wire.send(body, data, 4112, 0xB9) == 61_680
        assert wire.receive(body, meta) == (61_680, data)
        assert (meta.segment, meta.traffic_class, meta.family) == (4112, 0xB9, family)
        assert meta.port == wire.sender_port
    assert not meta.truncated
    packed = socket.inet_pton(family, host)
    expected = bytes(10) + b"\xff\xff" + packed if family == socket.AF_INET else packed
    assert meta.source == expected
    assert meta.source_high.to_bytes(8, "big") + meta.source_low.to_bytes(8, "big") == expected


@every_body
@pytest.mark.parametrize(("family", "host"), FAMILIES)
def test_a_receiver_that_does_not_merge_gets_single_segments(body: Any, family: int, host: str) -> None:
    data = bytearray(random.Random(5).randbytes(2500))
    meta = body.ReceiveMeta()
    with Wire(family, host, merge=False) as wire:
        assert wire.send(body, data, 1000) == 2500
        for part in (data[:1000], data[1000:2000], data[2000:]):
            assert wire.receive(body, meta) == (len(part), part)
            assert meta.segment == len(part)


@every_body
@pytest.mark.parametrize("segment", [0, 600, 5000, 65_536 + 300])
def test_a_segment_of_zero_or_the_whole_is_one_plain_datagram(body: Any, segment: int) -> None:
    data = bytearray(b"x" * 600)
    meta = body.ReceiveMeta()
    meta.traffic_class, meta.truncated = 99, True
    with Wire(socket.AF_INET, "127.9.0.1") as wire:
        assert wire.send(body, data, segment) == 600
        assert wire.receive(body, meta) == (600, data)
    assert (meta.segment, meta.traffic_class, meta.truncated) == (600, 0, False)


@every_body
def test_a_datagram_beyond_the_capacity_is_cut_and_told(body: Any) -> None:
    data = bytearray(range(200))
    meta = body.ReceiveMeta()
    with Wire(socket.AF_INET, "127.9.0.1") as wire:
        wire.send(body, data, 0)
        assert wire.receive(body, meta, capacity=50) == (50, data[:50])
    assert meta.truncated


@every_body
def test_nothing_there_is_eagain_and_errors_come_negative(body: Any) -> None:
    meta = body.ReceiveMeta()
    room = bytearray(100)
    with Wire(socket.AF_INET, "127.9.0.1") as wire:
        result = body.receive_burst(wire.receiver.fileno(), body.address_of(room), 100, meta)
        assert result == -errno.EAGAIN
        assert wire.send(body, bytearray(70_000), 0) == -errno.EMSGSIZE
        assert wire.send(body, bytearray(130), 1) == -errno.EINVAL  # more segments than the kernel takes
    assert body.receive_burst(-1, body.address_of(room), 100, meta) == -errno.EBADF
    assert body.send_burst(-1, body.address_of(room), 100, 0, 0, 0, 0, 0, False) == -errno.EBADF


@every_body
def test_held_packets_stay_until_they_are_dropped(body: Any) -> None:
    meta = body.ReceiveMeta()
    with Wire(socket.AF_INET, "127.9.0.1") as wire:
        held = wire.sender.fileno()
        assert body.drop_held(held, 4) == -errno.EAGAIN
        assert wire.send(body, bytearray(100), 0) == 100
        assert body.drop_held(held, 4) == -errno.EAGAIN
        for number in range(3):
            assert wire.send(body, bytearray([number]) * 200, 100, 8, 9, held=True) == 200
        assert wire.receive(body, meta) == (100, bytes(100))
        for number in range(3):
            assert wire.receive(body, meta) == (200, bytes([number]) * 200)
            assert (meta.segment, meta.traffic_class) == (100, 8)
        assert [body.drop_held(held, 2) for _ in range(3)] == [2, 1, -errno.EAGAIN]
    assert body.drop_held(-1, 1) == -errno.EBADF


@every_body
def test_a_socket_without_names_gives_no_source(body: Any) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    meta = body.ReceiveMeta()
    meta.port = meta.source_high = meta.source_low = meta.family = meta.traffic_class = meta.segment = 7
    data, room = bytearray(b"hello"), bytearray(16)
    with left, right:
        assert body.send_burst(left.fileno(), body.address_of(data), 5, 0, 0, 0, 0xFF, 9, False) == 5
        assert body.receive_burst(right.fileno(), body.address_of(room), 16, meta) == 5
    assert (meta.port, meta.family, meta.source) == (0, 0, bytes(16))
    assert (meta.segment, meta.traffic_class) == (5, 0)


@every_body
def test_a_full_socket_gives_eagain_instead_of_blocking(body: Any) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    data = bytearray(1000)
    with left, right:
        results = [body.send_burst(left.fileno(), body.address_of(data), 1000, 0, 0, 0, 0, 0, False)
                   for _ in range(2000)]
    assert results[0] == 1000
    assert results[-1] == -errno.EAGAIN
    assert set(results) == {1000, -errno.EAGAIN}


def page_state(address: int) -> str:
    """The rights of what is mapped at an address, as the system tells them."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(end, 16) for end in line.split()[0].split("-"))
        if low <= address < high:
            return line.split()[1]
    return ""


@every_body
def test_a_page_of_a_file_is_put_over_a_reserved_range_and_taken_away_again(body: Any) -> None:
    file = os.memfd_create("test")
    os.ftruncate(file, 4 * mmap.PAGESIZE)
    for page in range(4):
        os.pwrite(file, bytes([page + 1]) * mmap.PAGESIZE, page * mmap.PAGESIZE)
    reserved = mmap.mmap(-1, 3 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    a = body.address_of(reserved)
    assert body.map_pages(a + mmap.PAGESIZE, mmap.PAGESIZE, file, 3 * mmap.PAGESIZE) == 0
    assert reserved[mmap.PAGESIZE - 1 : mmap.PAGESIZE + 1] == b"\0\4", "the page, and nothing in front of it"
    assert reserved[2 * mmap.PAGESIZE - 1 : 2 * mmap.PAGESIZE + 1] == b"\4\0", "… nor behind it"
    reserved[mmap.PAGESIZE] = 9
    assert os.pread(file, 1, 3 * mmap.PAGESIZE) == b"\x09", "it is shared, and may be written"
    assert page_state(a + mmap.PAGESIZE) == "rw-s"
    assert body.hide_pages(a + mmap.PAGESIZE, mmap.PAGESIZE) == 0
    assert [page_state(a + page * mmap.PAGESIZE) for page in range(3)] == ["rw-p", "---p", "rw-p"]
    os.close(file)
    reserved.close()


@every_body
def test_what_cannot_be_mapped_gives_its_errno_and_changes_nothing(body: Any) -> None:
    reserved = mmap.mmap(-1, 2 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    reserved[0] = 7
    a = body.address_of(reserved)
    assert body.map_pages(a, mmap.PAGESIZE, -1, 0) == -errno.EBADF
    assert body.map_pages(a, 0, 0, 0) == -errno.EINVAL
    assert body.hide_pages(a, 0) == -errno.EINVAL
    assert body.hide_pages(a + 1, mmap.PAGESIZE) == -errno.EINVAL
    assert reserved[0] == 7
    reserved.close()


@every_body
@pytest.mark.parametrize("writing", [False, True])
def test_pages_are_brought_and_what_is_not_mapped_gives_its_errno(body: Any, writing: bool) -> None:
    if body.populate_pages(0, 0, writing):
        pytest.skip("this kernel has no MADV_POPULATE_READ (Linux 5.14)")
    ground = mmap.mmap(-1, 3 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    a = body.address_of(ground)
    assert body.populate_pages(a + mmap.PAGESIZE, mmap.PAGESIZE, writing) == 0
    with open("/proc/self/pagemap", "rb") as table:
        table.seek(a // mmap.PAGESIZE * 8)
        words = struct.unpack("=3Q", table.read(24))
    assert [word >> 63 for word in words] == [0, 1, 0]
    assert body.populate_pages(a + 1, mmap.PAGESIZE, writing) == -errno.EINVAL
    assert body.populate_pages(1 << 47, mmap.PAGESIZE, writing) == -errno.ENOMEM
    assert body.hide_pages(a, mmap.PAGESIZE) == 0
    assert body.populate_pages(a, mmap.PAGESIZE, writing) < 0


@every_body
def test_who_waits_at_a_word_is_woken_and_the_interpreter_goes_on_meanwhile(body: Any) -> None:
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    a = body.address_of(shared)
    assert body.wait_word(a, 1, 10**12) == -errno.EAGAIN, "it has another value already"
    assert body.wait_word(a, 0, 1) == -errno.ETIMEDOUT
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(body.wait_word(a, 0, 100 * 10**9)))
    thread.start()
    while thread.is_alive():  # also if it has not come to its sleep yet
        body.store32(a, 5)
        body.wake_word(a)
    thread.join()
    assert results in ([0], [-errno.EAGAIN])
    shared.close()


WAKES = """
import mmap, sys
from softhca.machine import primitives
shared = mmap.mmap(int(sys.argv[1]), 4096)
a = primitives.address_of(shared)
while primitives.load32(a + 8) == 0:
    primitives.wake_word(a)
"""


@every_body
def test_another_process_wakes_who_waits_in_shared_memory(body: Any) -> None:
    file = os.memfd_create("test")
    os.ftruncate(file, mmap.PAGESIZE)
    shared = mmap.mmap(file, mmap.PAGESIZE)
    a = body.address_of(shared)
    child = subprocess.Popen([sys.executable, "-c", WAKES, str(file)], pass_fds=[file])
    assert body.wait_word(a, 0, 100 * 10**9) == 0
    body.store32(a + 8, 1)
    assert child.wait() == 0
    os.close(file)
    shared.close()


@differential
@given(st.data())
def test_both_bodies_leave_the_same_memory(data: st.DataObject) -> None:
    start = data.draw(st.binary(min_size=64, max_size=64))
    steps = data.draw(st.lists(st.tuples(
        st.sampled_from(["copy", "fill", "store64", "store32", "add", "cas", "cas-hit", "crc"]),
        st.integers(0, 7), st.integers(0, 7), st.integers(0, MASK64)), max_size=20))
    outcomes = []
    for body in (primitives, INTERPRETED):
        _buffer, a = aligned(body, 8)
        ctypes.memmove(a, start, 64)
        seen: list[int] = []
        for kind, i, j, value in steps:
            if kind == "copy":
                body.copy(a + 8 * i, a + 8 * j, min(64 - 8 * i, 64 - 8 * j))
            elif kind == "fill":
                body.fill(a + 8 * i, value & 0xFF, 8)
            elif kind == "store64":
                body.store64(a + 8 * i, value)
            elif kind == "store32":
                body.store32(a + 8 * i + 4, value & 0xFFFFFFFF)
            elif kind == "add":
                seen.append(body.atomic_add64(a + 8 * i, value))
            elif kind == "crc":
                seen.append(body.crc32(value & 0xFFFFFFFF, a + 8 * i, 64 - 8 * i))
            else:
                expected = body.load64(a + 8 * i) if kind == "cas-hit" else j
                seen.append(body.atomic_cas64(a + 8 * i, expected, value))
            seen.append(body.load32(a + 8 * j))
        outcomes.append((seen, ctypes.string_at(a, 64)))
    assert outcomes[0] == outcomes[1]


@differential
@pytest.mark.parametrize(("family", "host"), FAMILIES)
def test_both_bodies_see_the_same_bursts(family: int, host: str) -> None:
    draw = random.Random(6)
    names = ("segment", "traffic_class", "port", "family", "truncated", "source_high", "source_low", "source")
    with Wire(family, host) as wire:
        for _ in range(40):
            data = bytearray(draw.randbytes(draw.randrange(1, 9000)))
            segment, traffic_class = draw.randrange(max(1, len(data) // 40), 9001), draw.randrange(256)
            outcomes = []
            for sender, receiver in ((primitives, INTERPRETED), (INTERPRETED, primitives)):
                meta = receiver.ReceiveMeta()
                sent = wire.send(sender, data, segment, traffic_class)
                received = wire.receive(receiver, meta)
                outcomes.append((sent, received, [getattr(meta, name) for name in names]))
            assert outcomes[0] == outcomes[1]
            assert outcomes[0][1] == (len(data), data)


@every_body
def test_pages_that_are_mapped_privately_are_the_file_s_until_they_are_written_to(body: Any) -> None:
    file = os.memfd_create("test")
    os.ftruncate(file, 2 * mmap.PAGESIZE)
    with mmap.mmap(file, 2 * mmap.PAGESIZE) as mine, mmap.mmap(file, 2 * mmap.PAGESIZE) as theirs:
        a = body.address_of(mine)
        body.store64(a, 1)
        assert body.map_private(a, 2 * mmap.PAGESIZE, file, 0) == 0
        theirs[8:9] = theirs[mmap.PAGESIZE : mmap.PAGESIZE + 1] = b"x"
        assert mine[8:9] == mine[mmap.PAGESIZE : mmap.PAGESIZE + 1] == b"x"
        assert body.atomic_add64(a, 0) == 1
        theirs[0:1] = theirs[mmap.PAGESIZE : mmap.PAGESIZE + 1] = b"y"
        assert (mine[0:1], mine[8:9], mine[mmap.PAGESIZE : mmap.PAGESIZE + 1]) == (b"\1", b"x", b"y")
        assert body.map_private(a, 0, file, 0) == -errno.EINVAL
    os.close(file)


@every_body
def test_a_barrier_on_all_processors_is_there_or_said_not_to_be(body: Any) -> None:
    assert body.join_barriers() in (0, -errno.ENOSYS, -errno.EINVAL, -errno.EPERM)
    assert body.barrier_everywhere() == body.join_barriers()


@every_body
def test_another_process_is_written_to_where_a_description_says_when_the_call_begins(body: Any) -> None:
    source, there = bytearray(b"abcdefgh"), bytearray(8)
    description = bytearray(struct.pack("=QQ", body.address_of(there), 5))
    target, data = body.address_of(description), body.address_of(source)
    assert body.write_process_at(os.getpid(), target, data, 8) == 5
    assert there == b"abcde\0\0\0"
    description[8:] = bytes(8)
    source[:] = b"ABCDEFGH"
    assert body.write_process_at(os.getpid(), target, data, 8) == 0
    assert there == b"abcde\0\0\0"
    description[:] = struct.pack("=QQ", 8, 8)
    assert body.write_process_at(os.getpid(), target, data, 8) == -errno.EFAULT


@every_body
def test_a_file_is_mapped_its_memory_given_back_and_its_end_unmapped(body: Any) -> None:
    file = os.memfd_create("test")
    os.ftruncate(file, 3 * mmap.PAGESIZE)
    os.pwrite(file, b"\7" * 3 * mmap.PAGESIZE, 0)
    a = body.map_file(file, 3 * mmap.PAGESIZE)
    os.close(file)
    assert page_state(a) == "rw-s"
    assert body.bytes_at(a + mmap.PAGESIZE, 2) == b"\7\7"
    assert body.remove_pages(a, mmap.PAGESIZE) == 0
    assert body.bytes_at(a + mmap.PAGESIZE - 1, 2) == b"\0\7"
    assert body.unmap_pages(a + mmap.PAGESIZE, 2 * mmap.PAGESIZE) == 0
    assert body.bytes_at(a, 1) == b"\0"
    assert body.unmap_pages(a, mmap.PAGESIZE) == 0
    assert body.map_file(-1, mmap.PAGESIZE) == -errno.EBADF
    assert body.unmap_pages(a, 0) == -errno.EINVAL
    assert body.remove_pages(a + 1, mmap.PAGESIZE) == -errno.EINVAL
