"""Bugs of what programs in C preload (rdma_cm, early memory), and of a served fabric's answers."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

FILES = "native/preload/cm_file.c"
IDENTIFIERS = "native/preload/cm_identifiers.c"
ADDRESSES = "native/preload/cm_addresses.c"
LISTEN = "native/preload/cm_listen.c"
BUFFERS = "native/preload/buffers.c"
PROVIDED = "native/provided.c"
COMMANDS = "native/preload/cm_commands.c"
QUEUES = "native/qp.c"
DEVICE = "native/device.c"
CONTROL = "runtime/fabric_control.py"
CLIENT = "native/test_native_client.py"
PRELOAD = "native/test_native_preload.py"
COMMANDED = "runtime/test_runtime_fabric_control.py"

NATIVE: tuple[tuple[Mutant, str], ...] = (
    (m("native-request-from-the-first-address", "native/preload/cm_connect.c", "        .sgid_index = (uint8_t)id->place->index,\n        .ack_timeout = id->path.ack_timeout, .cm_response_timeout = CM_RESPONSE_TIMEOUT,\n        .max_cm_retries = MAX_CM_RETRIES, .qp_num", "        .ack_timeout = id->path.ack_timeout, .cm_response_timeout = CM_RESPONSE_TIMEOUT,\n        .max_cm_retries = MAX_CM_RETRIES, .qp_num",
       "a program in C that is bound to the second address asks from the first"), "native/test_native_several_addresses.py"),
    (m("native-file-forgotten-without-a-look", FILES, "if (!file || file_of(descriptor) || !atomic", "if (!file || !atomic",
       "a file that another thread opens under a number is forgotten with the former one"), PRELOAD),
    (m("native-file-forgotten-under-its-own-lock", FILES, "if (!file && !has_lock) {", "if (!file) {",
       "a thread waits for the lock that it has"), PRELOAD),
    (m("native-file-closes-strangers", FILES, "if (!inode_of(descriptor, &found) && found == inode)", "(void)inode, (void)found;",
       "after close_range the numbers of a file that goes are others'"), PRELOAD),
    (m("native-file-byte-for-each-event", FILES, "    if (!file->token) {\n        file->token = 1;", "    {\n        file->token = 1;",
       "a descriptor stays readable behind its last event"), PRELOAD),
    (m("native-file-no-second-byte", FILES, "    if (file->first) {\n        file->token = 1;\n        send(file->other, \"\", 1, MSG_DONTWAIT | MSG_NOSIGNAL);\n    } else {", "    if (!file->first) {",
       "who has taken one of two events sleeps"), PRELOAD),
    (m("native-file-last-event-stays-last", FILES, "    if (file->last == &event->next)\n        file->last = each;\n", "",
       "an event behind one that was dropped is written into freed memory"), PRELOAD),
    (m("native-file-moved-events-wake", FILES, "    from->last = each;\n    settle(from);\n", "    from->last = each;\n",
       "a descriptor whose events went elsewhere stays readable"), PRELOAD),
    (m("native-file-byte-taken-from-an-event", FILES, "if (!file->first && file->token && recv", "if (file->token && recv",
       "an event that waits beside one that is dropped wakes nobody"), PRELOAD),
    (m("native-file-child-of-the-former-file", FILES, "            if (event->child)\n                event->child->file = to;\n", "",
       "a connection whose request has moved belongs to the former file"), PRELOAD),
    (m("native-file-group-s-events-uncounted", FILES, "    if (event->group)\n        event->group->events_reported++;\n", "",
       "who leaves a group is told too few events, and does not wait for their acknowledgement"), PRELOAD),
    (m("native-file-length-by-one", FILES, "header.in > bytes - sizeof header", "header.in > bytes - sizeof header + 1",
       "a command reads one byte behind what was written"), PRELOAD),
    (m("native-file-ends-under-who-waits", FILES, "|| file->ended || atomic_load(&file->users))", "|| file->ended)",
       "who waits for events before a close reads a closed descriptor"), PRELOAD),
    (m("native-file-ends-twice", FILES, "file->descriptor >= 0 || file->ended || atomic_load", "file->descriptor >= 0 || atomic_load",
       "a file that two finish is in the list of unused ones twice"), PRELOAD),
    (m("native-listeners-share-a-port-number", IDENTIFIERS, "if (one->reuse && other->reuse && !listens && !other->listens)", "if (one->reuse && other->reuse && !listens)",
       "who reuses addresses binds to one that somebody listens at"), PRELOAD),
    (m("native-refused-bind-keeps-its-address", IDENTIFIERS, "        memset(&id->source, 0, sizeof id->source);\n        id->place = NULL;\n", "",
       "an identifier that was refused says that it has the address"), PRELOAD),
    (m("native-localhost-is-nobody", IDENTIFIERS, "    if (error && !(error == EADDRNOTAVAIL && ip_is_localhost(address)))\n", "    if (error)\n",
       "who binds to localhost is refused where the device has another address"), PRELOAD),
    (m("native-localhost-shares-its-port-number", IDENTIFIERS, "return !one->place || !other->place || !memcmp", "return !memcmp",
       "who listens at all addresses as localhost has a port number that others bind to"), PRELOAD),
    (m("native-untaken-request-is-known", IDENTIFIERS, "!table[handle] || table[handle]->request)", "!table[handle])",
       "a program guesses the number of a connection that it has not been told of"), PRELOAD),
    (m("native-last-identifier-is-not-found", IDENTIFIERS, "return *handle < capacity ? table[(*handle)++] : NULL;", "return *handle + 1 < capacity ? table[(*handle)++] : NULL;",
       "the last of a full table keeps its file's memory and its port number"), PRELOAD),
    (m("native-addresses-meet-across-spaces", IDENTIFIERS, "other->bound && one->space == other->space && other", "other->bound && other",
       "TCP and UDP numbers exclude each other"), PRELOAD),
    (m("native-port-in-host-order", ADDRESSES, ".sin6_port = htons(ip->port)", ".sin6_port = ip->port",
       "an IPv6 address is told with its port's bytes swapped"), PRELOAD),
    (m("native-address-by-one-byte", ADDRESSES, "bytes >= sizeof *six", "bytes + 1 >= sizeof *six",
       "an address that is a byte short is taken"), PRELOAD),
    (m("native-listener-shared-with-its-equal", LISTEN, "            if (!apart(id, other))", "            if (apart(id, other))",
       "requests go to the first of two that nothing tells apart"), PRELOAD),
    (m("native-listener-shared-across-spaces", LISTEN, "|| other->space != id->space", "",
       "a datagram service listens with the number of a connection's"), PRELOAD),
    (m("native-shared-listener-ends-early", LISTEN, "        if (!other)\n            cm_end", "        if (count)\n            cm_end",
       "who stops listening ends the listener of who shares it"), PRELOAD),
    (m("native-failed-listen-keeps-its-port", LISTEN, "    if (error)\n        id->listens = 0;\n    else", "    if (!error)",
       "an address whose listen failed counts as one that is listened at"), PRELOAD),
    (m("native-early-realloc-reads-on", BUFFERS, "        held = early_room(block);\n    else if", "        held = EARLY_BYTES - (size_t)((unsigned char *)block - early);\n    else if",
       "early memory that grows brings what stands behind it"), PRELOAD),
    (m("native-early-memory-not-aligned", BUFFERS, "next_memalign(alignment, bytes) : early_block(bytes, alignment);", "next_memalign(alignment, bytes) : NULL;",
       "aligned memory cannot be had while the next allocator is looked up"), PRELOAD),
    (m("native-early-calloc-overflows", BUFFERS, "overflows ? SIZE_MAX : bytes", "count * each",
       "an early calloc of too much is a short block"), PRELOAD),
    (m("fabric-control-reads-on", CONTROL, "reads=not waiting", "reads=True",
       "requests of who takes no answers are carried out without a bound"), COMMANDED),
    (m("fabric-control-answer-stays", CONTROL, "writes=bool(waiting)", "writes=False",
       "an answer that had no room is never sent"), COMMANDED),
    (m("fabric-control-remembers-who-went", CONTROL, "        self._waiting.pop(made, None)\n        made.close()", "        made.close()",
       "who goes while an answer waits leaves it behind"), COMMANDED),
    (m("orphans-cannot-end", "native/memory.c", "    error = refused_end(HOST(ah->context), error);\n", "",
       "what a program has of an adapter that has gone cannot be freed"), CLIENT),
    (m("member-of-a-lost-group-for-ever", QUEUES, "return said(refused_end(HOST(base->context), error));", "return said(error);",
       "a group of an adapter that has gone cannot be left"), CLIENT),
    (m("no-descriptor-is-nonsense", "native/host.c", "        return EMFILE;\n", "        return EPROTO;\n",
       "who has no descriptor left is told that the adapter speaks nonsense"), CLIENT),
    (m("fatal-event-for-ever", "native/events.c", "error == EIO && !atomic_exchange(&context->fatal_reported, 1)", "error == EIO",
       "an adapter that has gone is reported without an end"), CLIENT),
    (m("region-s-domain-is-its-former-name-s", "native/advice.c", "mr->domain != pd->handle", "mr->mr.pd->handle != pd->handle",
       "advice on a region looks into a parent domain that has been freed"), CLIENT),
    (m("rule-asks-for-two-things", "native/flow.c", "            return EINVAL;\n        rule->value", "            continue;\n        rule->value",
       "of specifications that contradict each other the first counts"), CLIENT),
    (m("rule-reads-behind-its-specification", "native/flow.c", "        if (size < (unsigned)kind->value_at + 2u * kind->value_bytes)\n", "        if (!size)\n",
       "a specification that is too short is read to its usual end"), CLIENT),
    (m("limits-comp-mask-is-ignored-in-c", QUEUES, "    if (attr->comp_mask) /*", "    if (0) /*",
       "ibv_modify_qp_rate_limit takes what it does not know"), CLIENT),
    (m("limits-have-no-bursts-in-c", QUEUES, ".max_burst_sz = attr->max_burst_sz,", "",
       "a burst that a C program asks for is the device's own"), CLIENT),
    (m("device-paces-nothing-in-c", DEVICE, "    attr->packet_pacing_caps.qp_rate_limit_max = reply.qp_rate_limit_max;\n", "",
       "programs in C are told that there is no packet pacing"), CLIENT),
    (m("native-buffer-of-another-domain", PROVIDED, "return buf->pd == pd && ", "return pd && ",
       "memory is registered by who was not given it"), CLIENT),
    (m("native-region-behind-its-buffer", PROVIDED, "length <= buf->length - first", "length <= buf->length",
       "a region reaches behind the buffer that it is of"), CLIENT),
    (m("native-hints-for-what-is-paged", PROVIDED, "    if (given & REG_DMAH && attr->access & SOFTHCA_ACCESS_ON_DEMAND)\n        return failed(EOPNOTSUPP);", "    if (0)\n        return failed(EOPNOTSUPP);",
       "hints are taken for memory that comes and goes"), CLIENT),
    (m("native-any-event-is-written", COMMANDS, "    if (said->event != UCMA_USER && said->event != UCMA_INTERNAL)\n        return EINVAL;\n", "",
       "a program tells itself that a connection is there"), CLIENT),
)  # fmt: skip
