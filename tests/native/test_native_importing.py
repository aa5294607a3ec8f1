"""Domains and regions that one program has made and another one uses: both in C, and C with Python."""

import os
import sys

import pytest
from native_world import compiled_client

IN_PYTHON = """
import sys
from softhca.verbs.device import DM, Context
from softhca.verbs.mr import DMMR, MR
from softhca.verbs.pd import PD
descriptor, pd, mr, address, lkey, dm = map(int, sys.argv[1:])
context = Context(cmd_fd=descriptor)
domain = PD(context, handle=pd)
region = MR(domain, handle=mr)
assert (region.length, region.lkey) == (8192, lkey)
own = MR(domain, 4096, 1)
memory = DM(context, handle=dm)
assert memory.copy_from_dm(4, 24) == b"made by another program" + bytes(1)
over = DMMR(domain, 24, 15 | 32, memory, 4)
memory.copy_to_dm(100, b"seen here too..", 12)
over.close(), memory.unimport()
own.close(), region.unimport(), domain.unimport(), context.close()
"""

FROM_PYTHON = """
import os, subprocess, sys
from softhca.verbs.device import DM, AllocDmAttr, Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
context = Context()
domain = PD(context)
region = MR(domain, 8192, 15)
handle, lkey = region.handle, region.lkey
region.rereg(4, access=7)
text = b"made by another program"
region.write(text + bytes(1), len(text) + 1)
memory = DM(context, AllocDmAttr(length=6000))
memory.copy_to_dm(4, text + bytes(1), len(text) + 1)
words = [context.cmd_fd, domain.handle, handle, region.buf, region.lkey, memory.handle]
done = subprocess.run([*sys.argv[1:], *map(str, words)], pass_fds=[context.cmd_fd], env=dict(os.environ))
assert memory.copy_from_dm(100, 12) == b"seen here to"
context.close()
sys.exit(done.returncode)
"""


@pytest.fixture(scope="module")
def client(libibverbs, tmp_path_factory):
    return str(compiled_client(libibverbs, tmp_path_factory.mktemp("importing"), "import_client"))


def path():
    return os.pathsep.join(filter(None, sys.path))


def test_a_program_in_c_uses_what_another_one_has_made(world, client):
    done = world.run(client, "export", client, "import")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_with_sanitizers(world, client, sanitized):
    done = world.run(client, "export", client, "import", **sanitized)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_program_in_python_uses_what_one_in_c_has_made(world, client):
    done = world.run(client, "export", sys.executable, "-c", IN_PYTHON, PYTHONPATH=path())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_program_in_c_uses_what_one_in_python_has_made(world, client):
    done = world.run(sys.executable, "-c", FROM_PYTHON, client, "import", PYTHONPATH=path())
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
