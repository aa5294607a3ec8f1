"""The package imports the module of a name when somebody asks for that name, whatever it is."""

import subprocess
import sys

import pytest

import softhca.mailbox


@pytest.mark.parametrize("name", softhca.mailbox.__all__)
def test_every_public_name_is_there_and_told(name):
    found = getattr(softhca.mailbox, name)
    assert found.__name__ == name or name == "always"
    assert name in dir(softhca.mailbox)


def test_a_name_that_there_is_not_is_refused():
    with pytest.raises(AttributeError, match=r"module 'softhca.mailbox' has no attribute 'Postbox'"):
        softhca.mailbox.Postbox  # noqa: B018


def test_a_module_is_there_by_its_name():
    program = "import softhca.mailbox as m; m.errors.MailboxError; m.box.Mailbox"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("statement", "spared"),
    [
        ("import softhca.mailbox.hashes", {"softhca.mailbox.box", "softhca.verbs.device", "asyncio"}),
        ("from softhca.mailbox import Mailbox", {"softhca.mailbox.aio", "softhca.mailbox.mailbox_set"}),
    ],
)
def test_what_nobody_asks_for_is_not_imported(statement, spared):
    program = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert spared & set(done.stdout.split()) == set()
