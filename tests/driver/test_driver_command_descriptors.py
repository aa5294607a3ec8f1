"""What a command descriptor says, and what anybody may pass instead of one."""

import errno
import fcntl
import os

import pytest

from softhca.driver import command_descriptors
from softhca.driver.command_descriptors import MeetingPlace


@pytest.fixture
def memfd():
    made = []

    def make(text, seals=command_descriptors._SEALS):
        descriptor = os.memfd_create("any", os.MFD_ALLOW_SEALING)
        os.write(descriptor, text)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        made.append(descriptor)
        return descriptor

    yield make
    for descriptor in made:
        os.close(descriptor)


def refusal(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def test_what_is_made_is_read_and_cannot_be_changed():
    descriptor = command_descriptors.make(MeetingPlace("softhca0", "@softhca-0-127.0.0.2"))
    assert command_descriptors.read(descriptor) == ("softhca0", "@softhca-0-127.0.0.2")
    assert refusal(os.pwrite, descriptor, b"x", 0) == errno.EPERM
    assert refusal(os.ftruncate, descriptor, 0) == errno.EPERM
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


@pytest.mark.parametrize("place", [("a\nb", ""), ("a", "@x\n"), ("a", "x" * 2000)])
def test_names_that_cannot_be_told_are_refused(place):
    assert refusal(command_descriptors.make, MeetingPlace(*place)) == errno.EINVAL


def test_an_adapter_that_nobody_else_reaches_is_told_so():
    descriptor = command_descriptors.make(MeetingPlace("softhca0", ""))
    with pytest.raises(OSError, match="serves its own process alone") as caught:
        command_descriptors.read(descriptor)
    assert caught.value.errno == errno.EOPNOTSUPP
    os.close(descriptor)


@pytest.mark.parametrize("text", [
    b"", b"softhca device 1", b"softhca device 1\n\n@x\n", b"softhca device 2\na\n@x\n", b"\xff" * 40,
    b"softhca device 1\na\n@x\nmore\n", b"softhca device 1\na\n" + b"x" * 2000 + b"\n",
])  # fmt: skip
def test_other_text_stands_for_no_device(memfd, text):
    assert refusal(command_descriptors.read, memfd(text)) == errno.EOPNOTSUPP


def test_what_can_still_be_changed_stands_for_no_device(memfd):
    open_one = memfd(b"softhca device 1\na\n@x\n", fcntl.F_SEAL_SHRINK)
    assert refusal(command_descriptors.read, open_one) == errno.EOPNOTSUPP


def test_files_of_other_kinds_stand_for_no_device(tmp_path):
    reading, writing = os.pipe()
    for descriptor in (reading, os.open(tmp_path, os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)):
        assert refusal(command_descriptors.read, descriptor) == errno.EOPNOTSUPP
        os.close(descriptor)
    os.close(writing)
    assert refusal(command_descriptors.read, reading) == errno.EBADF
    assert refusal(command_descriptors.read, -1) == errno.EBADF


@pytest.mark.parametrize("more", [-1, 0, 1, 200])
def test_as_much_is_read_as_may_be_written(memfd, more):
    path = "@" * (command_descriptors.MOST_BYTES + more - len("softhca device 1\na\n\n"))
    descriptor = memfd(f"softhca device 1\na\n{path}\n".encode())
    if more > 0:
        assert refusal(command_descriptors.read, descriptor) == errno.EOPNOTSUPP
        assert refusal(command_descriptors.make, MeetingPlace("a", path)) == errno.EINVAL
    else:
        assert command_descriptors.read(descriptor) == ("a", path)
        os.close(command_descriptors.make(MeetingPlace("a", path)))


def test_the_first_descriptor_of_a_process_is_one():
    # pytest has something there, which stands for no device
    assert refusal(command_descriptors.read, 0) == errno.EOPNOTSUPP
    assert refusal(command_descriptors.read, -1) == errno.EBADF
