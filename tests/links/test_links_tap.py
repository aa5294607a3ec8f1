"""Captures that cannot be written: they end, disturb no link, and leave no descriptor behind."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from softhca.links import tap
from softhca.links.tap import CaptureFile, tapped
from softhca.links.variables import CAPTURE
from softhca.wire.burst import Arrival
from softhca.wire.framing import ROCE_V4
from softhca.wire.route import gid_of

FULL = Path("/dev/full")
"""Everything that is written there finds no room."""


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


def a_link():
    return SimpleNamespace(framing=ROCE_V4, address="127.0.0.1", close=lambda: None)


def test_a_capture_that_cannot_begin_leaves_no_descriptor():
    before = open_descriptors()
    with pytest.raises(OSError, match="No space") as full:
        CaptureFile(FULL)
    assert full.value.errno == errno.ENOSPC
    assert open_descriptors() == before


@pytest.fixture
def ended(tmp_path, caplog):
    """A capture that has ended for want of room, and its file."""
    place = tmp_path / "packets.pcapng"
    capture = CaptureFile(place)
    with FULL.open("wb") as full:
        os.dup2(full.fileno(), capture._fd, inheritable=False)
    capture.add(capture.add_interface("one"), [bytes(20)], 0)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    return capture, place


def test_a_capture_that_has_ended_stops_no_further_link(ended, caplog):
    capture, place = ended
    before = place.read_bytes()
    assert capture.add_interface("two") == 1
    capture.add(1, [bytes(20)], 0)
    capture.close()
    assert place.read_bytes() == before
    assert not caplog.records, "that was said when it ended"


def test_of_two_files_none_stays_open_where_one_cannot_be_made(tmp_path, monkeypatch):
    made, closed = [], []

    class Scarce(CaptureFile):
        def __init__(self, path):
            if made:
                raise OSError(errno.EMFILE, "no more descriptors")
            made.append(path)
            super().__init__(path)

        def close(self):
            closed.append(self.path)
            super().close()

    monkeypatch.setattr(tap, "CaptureFile", Scarce)
    with pytest.raises(OSError, match="no more descriptors"):
        tapped(a_link(), {CAPTURE: str(tmp_path)})
    assert closed == made


def test_a_forked_child_writes_a_file_of_its_own(tmp_path, monkeypatch):
    place = tmp_path / "packets.pcapng"
    environment = {CAPTURE: str(place)}
    captures = [tapped(a_link(), environment)._sent for _ in range(2)]
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    captures += [tapped(a_link(), environment)._sent for _ in range(2)]
    del tap._files[place]
    own = tmp_path / "packets.pcapng.4711"
    assert [each.path for each in captures] == [place, place, own, own]
    assert own.stat().st_size
    for each in captures:
        each.close()


def test_what_a_file_had_before_is_gone(tmp_path):
    place = tmp_path / "packets.pcapng"
    place.write_bytes(bytes(1000))
    CaptureFile(place).close()
    assert place.stat().st_size < 100


def test_a_source_is_in_the_file_before_it_has_sent_anything(tmp_path):
    capture = CaptureFile(tmp_path / "packets.pcapng")
    before = capture.path.stat().st_size
    capture.add_interface("one")
    assert capture.path.stat().st_size > before
    capture.close()


def test_a_capture_that_has_ended_keeps_nothing_of_further_links(ended):
    capture, _ = ended
    for _ in range(3):
        capture.add_interface("more")
    assert not capture._pending


def test_what_comes_is_captured_with_the_address_that_it_came_to(tmp_path, monkeypatch):
    """A sender's datagrams to a group and to this link may leave from one UDP port."""
    place = tmp_path / "packets.pcapng"
    monkeypatch.setenv(CAPTURE, str(place))
    source, own, group = (bytes(each) for each in ((10, 0, 0, 1), (10, 0, 0, 2), (239, 1, 2, 3)))
    coming = [group, own, group]

    def receive(arrival):
        arrival.framing, arrival.source, arrival.source_port = ROCE_V4, gid_of(source), 50000
        arrival.destination = gid_of(coming.pop(0))
        arrival.length = arrival.stride = 20
        return True

    link = tapped(SimpleNamespace(**vars(a_link()), receive=receive))
    while coming:
        link.receive(Arrival())
    written = place.read_bytes()
    assert [written.count(source + each) for each in (group, own)] == [2, 1]
