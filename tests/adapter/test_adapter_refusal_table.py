"""Whatever a host's command is refused for, the reply names the attribute, and every rule has a case here."""

import dataclasses
import re

import pytest
from refusal_cases import CASES, Wrong
from refusal_sites import MODULES, Site, sites
from refusal_walk import PARTS, Walk
from refused_attributes import COMMANDS, MODIFY

from softhca.adapter.config import AdapterConfig
from softhca.driver.errors import DriverError
from softhca.management.mad import MadHeader
from softhca.queues import control_fields as control
from softhca.queues import qp_attributes
from softhca.testing.ends import End
from softhca.testing.network import Network

# Sites that no command of a host reaches, and why.
HOST = "the host's own half refuses, before there is a command"
SIZES = "an adapter's sizes are checked when it is configured"
GUARDS = {
    ("adapter/engine.py", "attach_host"): "a host attaches by a handshake, not by a command",
    ("adapter/device_memory.py", "imported"): "memory is asked for by a message, not by a command",
    ("adapter/keyed.py", "add"): "queue pairs have numbers of their own; a toy service in a test has not",
    ("adapter/paths.py", "check_vector"): "the fields of commands have 8 bits",
    ("adapter/queue_pair_commands.py", "check_attributes"): "an adapter's ports have one framing",
    ("memory/arenas.py", "attach"): "the address is the kernel's, or the mapping's",
    ("memory/protection.py", "__init__"): SIZES,
    ("memory/protection.py", "free"): "the table of resources has said it before",
    ("memory/protection.py", "unreference"): "only what refers to a domain lets go of it",
    ("memory/regions.py", "__init__"): SIZES,
    ("memory/regions.py", "take_slot"): "the limits of regions and of windows have said it before",
    ("memory/regions.py", "must_be_free"): "the table of resources has said it before",
    ("memory/tpt.py", "_check_run"): "the region's own checks have said it before",
    ("memory/tpt.py", "__init__"): SIZES,
    ("memory/tpt.py", "allocate"): "a region has pages",
    ("memory/tpt.py", "set_run"): "the region's own checks have said it before",
    ("queues/completion.py", "__init__"): "the ring's own checks have said it before",
    ("queues/completion.py", "move_to"): "the ring's own checks have said it before",
    ("queues/completion.py", "take"): HOST,
    ("queues/qp_attributes.py", "pack"): HOST,
    ("queues/ring.py", "plan"): "the command's own checks have said it before",
    ("queues/ring.py", "__init__"): "the command's own checks have said it before",
    ("queues/ring.py", "over"): "the command's own checks have said it before",
    ("management/dispatcher.py", "register"): "the class decides which queue pair is asked",
    ("driver/channels.py", "take_memory"): HOST,
}  # fmt: skip


def known_names() -> set[str]:
    """What a program knows by name: fields of commands and replies, of queue pairs and paths, an adapter's
    limits, and a management datagram's header."""
    names = {field.name for kind in (AdapterConfig, MadHeader) for field in dataclasses.fields(kind)}
    for _, asked, told in control.COMMANDS.values():
        names |= {name for name, _ in (*asked, *told)}
    return names | set(qp_attributes.MASK) | set(qp_attributes.VECTOR_FIELDS)


NAMED = re.compile(r"((?:\w+(?: = [^ :,]+)?, )*\w+)(?: = [^:,]+)?(?:: |, but | is | cannot ).+", re.DOTALL)


def attributes_of(text: str) -> list[str]:
    """The attributes that a refusal names, in front of the rule."""
    found = NAMED.fullmatch(text)
    return [] if found is None else [part.split(" ")[0] for part in found[1].split(", ")]


@pytest.fixture(scope="module")
def walked():
    """All refusals of one walk through all commands."""
    with Network() as network:
        walk = Walk(End(network.add(1, max_qp_rd_atom=16)))
        for part in PARTS:
            part(walk)
        return walk


@pytest.fixture(scope="module")
def cases():
    wrong = Wrong()
    for case in CASES:
        before = len(wrong.texts)
        case(wrong)
        assert len(wrong.texts) > before, case
    return wrong.texts


@pytest.fixture(scope="module")
def tables():
    """Texts of the tables of wrong calls."""
    texts = []
    with Network() as network:
        end = End(network.add(1, max_qp_rd_atom=16))
        for kind, before, attributes, _ in MODIFY:
            qp = end.qp(kind)
            for each in before:
                qp.modify(each)
            with pytest.raises(DriverError) as error:
                qp.modify(attributes)
            texts.append(error.value.message.partition(": ")[2])
        for command, fields, _, _ in COMMANDS:
            named = {"pd": end.pd} if fields.get("pd") == 1 else {}
            with pytest.raises(DriverError) as error:
                end.device.session.call(command, **{**fields, **named})
            texts.append(error.value.message.partition(": ")[2])
    return texts


def test_every_command_is_walked_or_called_wrong(walked):
    refused = {refusal.command for refusal in walked.found}
    without_fields = {name for name, asked, _ in control.COMMANDS.values() if not asked}
    assert {name for name, _, _ in control.COMMANDS.values()} == refused | without_fields


def test_every_refusal_names_attributes_that_a_program_knows(walked, cases, tables):
    texts = {refusal.text for refusal in walked.found} | set(cases) | set(tables)
    assert len(texts) > 400
    known = known_names()
    named = {text: attributes_of(text) for text in texts}
    assert {text for text, names in named.items() if not names or not known.issuperset(names)} == set()


def is_reached(site: Site, texts: set[str]) -> bool:
    return any(re.fullmatch(site.pattern, text, re.DOTALL) for text in texts)


def test_every_rule_is_reached(walked, cases, tables):
    texts = {refusal.text for refusal in walked.found} | set(cases) | set(tables)
    found = sites()
    assert len(found) > 180
    missed = {(site.module, site.function) for site in found if not is_reached(site, texts)}
    assert missed == set(GUARDS)
    assert {site.module.split("/")[0] for site in found} >= {module.split("/")[0] for module in MODULES}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("port_num = 9: the adapter has ports 1…1", ["port_num"]),
        ("dgid, dlid: the path leads nowhere", ["dgid", "dlid"]),
        ("slot = 9, pages = 1: no attached pages begin there, or another number", ["slot", "pages"]),
        ("qp_state: RC has no transition RESET to RTR", ["qp_state"]),
        ("timeout cannot be given for INIT to INIT of RC", ["timeout"]),
        ("cur_qp_state = RESET, but the queue pair is in RTR", ["cur_qp_state"]),
        ("there is no port 9", ["there"]),
        ("Invalid argument", []),
    ],
)
def test_what_counts_as_a_name(text, names):
    assert attributes_of(text) == names
