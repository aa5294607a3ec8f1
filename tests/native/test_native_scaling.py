"""Work queues, tables of them and queue pairs that receive by a table, for programs in C: the case of
``verbs_client.c`` alone, by which bugs of it are judged.
"""

import pytest
from native_world import compiled_client


@pytest.fixture(scope="module")
def client(libibverbs, tmp_path_factory):
    return compiled_client(libibverbs, tmp_path_factory.mktemp("client"))


def test_receive_side_scaling(world, client):
    done = world.run(str(client), "scaling")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
