"""Imports between hosts of one adapter: who may, what holds a domain, and whose it is when its owner goes."""

import errno
import os

import pytest

from softhca.adapter.exported_contexts import SharedContexts
from softhca.adapter.resources import Kind
from softhca.driver.errors import DriverError
from softhca.queues import control_fields as control
from softhca.testing.network import Network


@pytest.fixture
def node():
    world = Network()
    yield world.add(1)
    world.close()


@pytest.fixture
def hosts(node):
    """An owner, two importers, and the owner's descriptor and domain."""
    owner, one, two = (node.open() for _ in range(3))
    descriptor = owner.command_descriptor()
    for each in (one, two):
        each.import_context(descriptor)
    return owner, one, two, owner.alloc_pd()


def refusal(call, *arguments):
    with pytest.raises(DriverError) as caught:
        call(*arguments)
    return caught.value.errno


def region(device, pd):
    memory = device.alloc_host_memory(4096)
    return device.reg_mr(pd, memory.address, 4096, 1)


def domains(node):
    return node.adapter.resources.count(Kind.PD)


def test_nothing_is_imported_without_the_descriptor(node):
    owner, other = node.open(), node.open()
    pd = owner.alloc_pd()
    assert refusal(other.import_pd, pd) == errno.ENOENT
    owner.command_descriptor()  # exported, and shown by nobody
    assert refusal(other.import_pd, pd) == errno.ENOENT
    assert refusal(region, other, pd) == errno.EINVAL


def test_a_descriptor_stands_for_one_host_and_not_for_itself(node, hosts):
    owner, one, _, _ = hosts
    descriptor = owner.command_descriptor()
    assert refusal(owner.import_context, descriptor) == errno.EINVAL
    other = os.memfd_create("another")
    assert refusal(one.import_context, other) == errno.EINVAL
    assert refusal(one._pass, control.EXPORT_CONTEXT, descriptor) == errno.EBUSY
    one.command_descriptor()
    assert refusal(one._pass, control.EXPORT_CONTEXT, other) == errno.EALREADY
    assert refusal(one._pass, control.IMPORT_CONTEXT, 1 << 20) == errno.EBADF
    os.close(other)


def test_refused_exports_leave_no_descriptor_open(hosts):
    owner, one, _, _ = hosts
    descriptor, before = owner.command_descriptor(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        refusal(one._pass, control.EXPORT_CONTEXT, descriptor)
        refusal(owner.import_context, descriptor)
    assert len(os.listdir("/proc/self/fd")) == before


def test_who_goes_has_shown_nothing_and_shares_nothing_any_more():
    contexts, files = SharedContexts(), [os.memfd_create(name) for name in ("one", "two")]
    known = {(os.fstat(each).st_dev, os.fstat(each).st_ino) for each in files}
    for host, each in enumerate(files, 1):
        contexts.export(host, os.dup(each))
        contexts.show(3, each)
    assert (contexts.may_import(3, 1), contexts.may_import(3, 2)) == (True, True)
    assert not contexts.may_import(1, 3)
    contexts.forget(1)
    assert (contexts.may_import(3, 1), contexts.may_import(3, 2)) == (False, True)
    contexts.forget(3)
    assert not contexts.may_import(3, 2)
    with pytest.raises(OSError, match="no other host's context") as refused:
        contexts.show(3, files[0])
    assert refused.value.errno == errno.EINVAL
    assert len(held(known)) == 3  # and one that stands for the second host
    contexts.abandon()
    contexts.abandon()
    assert held(known) == sorted(files)
    for each in files:
        os.close(each)


def held(known):
    """The descriptors of this process on files with these devices and inodes."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:
            continue
        if (status.st_dev, status.st_ino) in known:
            found.append(int(name))
    return sorted(found)


def test_a_domain_is_imported_once_and_let_go_once(hosts):
    owner, one, two, pd = hosts
    one.import_pd(pd)
    assert refusal(one.import_pd, pd) == errno.EALREADY
    assert refusal(owner.import_pd, pd) == errno.ENOENT  # it is its own already
    assert refusal(region, two, pd) == errno.EINVAL
    key = region(one, pd)
    assert refusal(one.unimport_pd, pd) == errno.EBUSY
    one.dereg_mr(key.handle)
    one.unimport_pd(pd)
    assert refusal(region, one, pd) == errno.EINVAL


def test_who_owns_a_domain_cannot_let_it_go_as_an_import(hosts):
    owner, _, _, pd = hosts
    owner.unimport_pd(pd)  # quietly, and changes nothing
    assert region(owner, pd)
    assert refusal(owner.session.call, control.UNIMPORT_PD) == errno.EINVAL


def test_an_importer_does_not_free_what_others_have(node, hosts):
    owner, one, _, pd = hosts
    one.import_pd(pd)
    assert refusal(one.dealloc_pd, pd) == errno.EINVAL
    key = region(owner, pd)
    imported, length = one.import_mr(pd, key.handle)
    assert (imported.lkey, length) == (key.lkey, 4096)
    assert refusal(one.dereg_mr, imported.handle) == errno.EINVAL
    assert refusal(one.session.call, control.DEREG_MR) == errno.EINVAL


def test_a_freed_domain_s_number_is_nobody_s_import(node, hosts):
    owner, one, _, pd = hosts
    one.import_pd(pd)
    owner.dealloc_pd(pd)
    while owner.alloc_pd() != pd:  # until the number is another domain's
        if domains(node) == node.adapter.config.max_pd:
            break
    assert refusal(region, one, pd) == errno.EINVAL


def test_an_idle_domain_goes_with_its_owner(node, hosts):
    owner, one, two, pd = hosts
    one.import_pd(pd)
    two.import_pd(pd)
    owner.close()
    assert domains(node) == 0
    one.unimport_pd(pd)
    assert refusal(two.import_pd, pd) == errno.ENOENT


def test_a_domain_goes_from_heir_to_heir_and_then_ends(node, hosts):
    owner, one, two, pd = hosts
    for each in (one, two):
        each.import_pd(pd)
    first, second = region(one, pd), region(two, pd)
    own = region(owner, pd)
    owner.close()
    assert domains(node) == 1
    assert refusal(two.import_mr, pd, own.handle) == errno.ENOENT
    assert refusal(one.dealloc_pd, pd) == errno.EBUSY
    one.dereg_mr(first.handle)
    one.unimport_pd(pd)  # the other one has something in it
    assert domains(node) == 1
    assert refusal(region, one, pd) == errno.EINVAL
    two.dereg_mr(second.handle)
    two.dealloc_pd(pd)
    assert domains(node) == 0


def test_hosts_that_go_at_once_leave_nothing(node, hosts):
    owner, one, two, pd = hosts
    for each in (one, two):
        each.import_pd(pd)
        region(each, pd)
    for each in (owner, one, two):
        each.close()
    resources = node.adapter.resources
    assert not {kind: resources.count(kind) for kind in Kind if resources.count(kind)}
    assert not resources._importers
    assert not resources._inherited
    assert not any(resources.contexts._imports.values())


def test_who_comes_later_is_not_who_had_shown_the_descriptor(node, hosts):
    owner, one, _, pd = hosts
    descriptor = os.dup(owner.command_descriptor())
    one.close()
    late = node.open()
    assert refusal(late.import_pd, pd) == errno.ENOENT
    late.import_context(descriptor)
    late.import_pd(pd)
    owner.close()
    assert refusal(late.import_context, descriptor) == errno.EINVAL  # nobody's any more
    os.close(descriptor)


def test_the_first_key_finds_a_region_whose_key_has_changed(hosts):
    owner, one, _, pd = hosts
    one.import_pd(pd)
    key = region(owner, pd)
    memory = owner.alloc_host_memory(8192)
    again = owner.rereg_mr(key.handle, control.REREG_TRANSLATION, pd, memory.address, 8192, 0)
    assert again.lkey != key.lkey
    imported, length = one.import_mr(pd, key.handle)
    assert (imported.handle, imported.lkey, length) == (key.handle, again.lkey, 8192)
    assert refusal(one.import_mr, pd, again.lkey) == errno.ENOENT
    other = owner.alloc_pd()
    one.import_pd(other)
    elsewhere = region(owner, other)
    assert refusal(one.import_mr, pd, elsewhere.handle) == errno.ENOENT


def test_who_imports_a_domain_has_nothing_else_of_its_number(node, hosts):
    owner, one, _, pd = hosts
    one.import_pd(pd)
    resources = node.adapter.resources
    (importer,) = resources._importers[pd]
    while resources.get(Kind.CQ, pd) is None:
        owner.create_cq(4)
    assert resources.find(Kind.PD, pd, importer).number == pd
    with pytest.raises(OSError, match="there is no such CQ"):
        resources.find(Kind.CQ, pd, importer)


def test_the_heir_of_a_domain_is_who_has_something_in_it(node, hosts):
    owner, one, two, pd = hosts
    for each in (one, two):
        each.import_pd(pd)
    key = region(two, pd)
    owner.close()
    assert refusal(one.dealloc_pd, pd) == errno.EINVAL  # it is still an import
    one.close()
    assert not node.adapter.resources._importers
    two.dereg_mr(key.handle)
    two.dealloc_pd(pd)
    assert domains(node) == 0
