"""Bugs of rooms that few mutants were in, planted one by one and found by no test at first, with the tests
that judge them now."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

RMPP = "management/rmpp.py"
CM = "management/cm/manager.py"
BOX = "mailbox/box.py"
ROUTE = "wire/route.py"
TARGET = "storage/target_channel.py"
WIRING = "mailbox/wiring.py"
ON_STORAGE = "storage/test_storage_rules.py"
INITIATOR = "storage/initiator.py"
ON_INITIATOR = "storage/test_storage_initiator.py"
HOST_CHANNEL = "storage/initiator_channel.py"
DEVICE = "storage/block_device.py"
KEYS = "memory/keys.py"
SWAP = "memory/paged_swap.py"
PAGED_MEMORY = "memory/paged_memory.py"
ON_KEYS = "memory/test_memory_keys.py"
ON_PAGED = "memory/test_memory_paged.py"
FLOW_RULES = "verbs/flow_rules.py"
ON_FLOWS = "verbs/test_verbs_flow_rules.py"
ON_RMPP = "management/test_management_rmpp.py"
ON_MANAGEMENT = "management/test_management_rules.py"
ON_BOXES = "mailbox/test_mailbox_rules.py"
ON_ROUTES = "wire/test_wire_route.py"

ROOMS: tuple[tuple[Mutant, str], ...] = (
    (m("rmpp-old-acknowledgement-counts", RMPP, "        if acknowledged > self._acknowledged:\n            self._tries = 0\n", "        self._tries = 0\n",
       "a receiver that acknowledges the same for ever is sent to for ever"), ON_RMPP),
    (m("rmpp-most-is-too-much", RMPP, "if len(self.data) > self._most:", "if len(self.data) >= self._most:",
       "an answer as long as allowed is refused"), ON_RMPP),
    (m("rmpp-what-is-done-is-due", RMPP, "            self.done = True\n            self.deadline_ns = NEVER_NS\n            return []\n        return self._send(max", "            self.done = True\n            return []\n        return self._send(max",
       "a transfer that has ended is looked after for ever"), ON_RMPP),
    (m("rmpp-acknowledges-with-a-status", RMPP, "segment_number=segment, payload_length=window,\n        )  # fmt: skip\n        asker = replace(header, method=header.method ^ RESPONSE, status=0)", "segment_number=segment, payload_length=window,\n        )  # fmt: skip\n        asker = replace(header, method=header.method ^ RESPONSE)",
       "an acknowledgement bears the status of the answer"), ON_RMPP),
    (m("rmpp-any-version", RMPP, "said.rmpp_type != DATA or said.rmpp_version != VERSION or", "said.rmpp_type != DATA or",
       "segments of another version are taken"), ON_RMPP),
    (m("cm-rejected-failover-is-loaded", CM, "if reply.failover_accepted == m.FAILOVER_ACCEPTED:", "if reply.failover_accepted != m.FAILOVER_UNSUPPORTED:",
       "a peer is believed at a path that was rejected"), ON_MANAGEMENT),
    (m("cm-drep-of-another-transaction", CM, "                return\n            connection.transaction_id = transaction_id\n", "                return\n",
       "a disconnect is answered within the transaction of the request"), ON_MANAGEMENT),
    (m("cm-rejection-too-long", CM, "if len(ari) > len(m.Rej().ari):", "if len(ari) > len(m.Rej().ari) + 1:",
       "a rejection that is refused has ended the request"), ON_MANAGEMENT),
    (m("cm-refusal-names-no-service", "management/cm/resolutions.py", "m.SidrRep(request.request_id, m.SIDR_UNSUPPORTED, service_id=request.service_id)", "m.SidrRep(request.request_id, m.SIDR_UNSUPPORTED)",
       "who asks for a service that nobody has is not told which"), ON_MANAGEMENT),
    (m("cm-path-bits-of-before", "management/cm/elements.py", "        own_lid=own_lid,\n        path_bits=0,\n", "        own_lid=own_lid,\n",
       "messages along an alternate path leave from a LID of the former one"), ON_MANAGEMENT),
    (m("cm-alternate-by-gid-alone", "management/cm/elements.py", "if not any(gids[there]) and not lids[there]:", "if not any(gids[there]):",
       "on native links an alternate path is none"), ON_MANAGEMENT),
    (m("cm-time-out-of-eight-bits", "management/cm/elements.py", "UNIT_NS << min(exponent, MAX_EXPONENT)", "UNIT_NS << exponent",
       "a resolution of a time-out of eight bits waits for years"), ON_MANAGEMENT),
    (m("dispatcher-cancels-all", "management/dispatcher.py", "        self._outstanding.pop(key, None)\n\n    def outstanding", "        self._outstanding.clear()\n\n    def outstanding",
       "who gives up one request gets no response to others"), ON_MANAGEMENT),
    (m("route-by-lid-at-an-adapter", "management/directed_route.py", "    return BY_LID if is_switch else LOST\n", "    return BY_LID\n",
       "a channel adapter passes packets on"), ON_MANAGEMENT),
    (m("mailbox-last-in-hand", BOX, "            return self._in_hand[0][0] - 1", "            return self._in_hand[-1][0] - 1",
       "an action is performed before a message that it waits for is processed"), ON_BOXES),
    (m("mailbox-of-a-bad-key-stays", BOX, "        except BaseException:\n            wiring.close()\n            raise\n        opener", "        except BaseException:\n            raise\n        opener",
       "each mailbox that cannot be takes a queue pair for good"), ON_BOXES),
    (m("mailbox-notes-what-is-known", "mailbox/conditions.py", "            if number in held or node.kind in _JOINTS:", "            if node.kind in _JOINTS:",
       "a journal grows with each message"), "mailbox/test_mailbox_conditions.py"),
    (m("route-class-e-is-a-group", ROUTE, "gid[12] & 0xF0 == 0xE0", "gid[12] >= 0xE0",
       "240.0.0.1 and the broadcast address are groups"), ON_ROUTES),
    (m("route-seed-of-another-identification", ROUTE, "self._former_bytes == transport_bytes and self._former_identification == self.identification", "self._former_bytes == transport_bytes",
       "an ICRC is made for the identification of a packet of before"), ON_ROUTES),
    (m("storage-tells-what-others-wrote", "storage/session.py", "for piece, offset in descriptors.pieces(task.buffer.ranges, moved):", "for piece, offset in descriptors.pieces(task.buffer.ranges, task.buffer.length):",
       "a host gets bytes of another one's command behind its own"), "storage/test_storage_session.py"),
    (m("storage-unit-keeps-its-domain", "storage/io_unit.py", "        self.cq.destroy()\n        self.device.dealloc_pd(self.pd)", "        self.cq.destroy()",
       "each unit that is closed leaves a protection domain"), ON_STORAGE),
    (m("arriving-seed-of-another-flow", "wire/arriving.py", "        self._seed_bytes = self._former_bytes = -1\n", "        self._seed_bytes = -1\n",
       "packets of two flows that are as long are dropped as damaged"), "wire/test_wire_arriving.py"),
    (m("storage-refused-login-keeps-its-channel", "storage/io_unit.py", "        except DriverError:\n            channel.close()\n            raise\n        place.by_connection", "        except DriverError:\n            raise\n        place.by_connection",
       "each login that comes to nothing takes a queue pair for good"), ON_STORAGE),
    (m("storage-channel-without-room-keeps-memory", TARGET, "        except DriverError:\n            self._memory.close()\n            raise\n        self.session", "        except DriverError:\n            raise\n        self.session",
       "each login without room for a queue pair takes memory for good"), ON_STORAGE),
    (m("storage-message-is-overwritten", TARGET, "            message = bytes(self._memory.view[place : place + length])\n            self._post_receive(index)", "            self._post_receive(index)\n            message = bytes(self._memory.view[place : place + length])",
       "a message is read that the next one overwrites"), ON_STORAGE),
    (m("journal-is-not-durable", "mailbox/journal.py", "        if self._durable:\n            os.fsync", "        if not self._durable:\n            os.fsync",
       "what was accepted is lost with the machine's power"), "mailbox/test_mailbox_journal.py"),
    (m("mailbox-larger-mtu", WIRING, "min(self._mtu_code, peer.mtu_code)", "max(self._mtu_code, peer.mtu_code)",
       "nothing comes from a peer with a smaller MTU"), ON_BOXES),
    (m("mailbox-may-be-read-in-mode-write", WIRING, "_PEER_WRITES | (_PEER_READS if self.terms.mode == \"read\" else 0)", "_PEER_WRITES | _PEER_READS",
       "a peer may read where it needs not"), ON_BOXES),
    (m("mailbox-outbox-may-be-read", WIRING, "MR(self.pd, terms.ring_bytes, _PEER_READS if reading else _LOCAL)", "MR(self.pd, terms.ring_bytes, _PEER_READS)",
       "a peer may read what was sent before"), ON_BOXES),
    (m("mailbox-any-service-level", WIRING, "sl=self._service_level, ", "",
       "messages are on service level 0 whatever was asked for"), ON_BOXES),
    (m("mailbox-reader-waits-for-good", "mailbox/remote_reader.py", "self._wanted = verdict == TAKEN or landed", "self._wanted = verdict == TAKEN",
       "a reader that has found nothing looks no more"), ON_BOXES),
    (m("links-packets-behind-frames-are-frames", "links/roce_udp.py", "            arrival.destination = self.gid\n            arrival.frames = False\n", "            arrival.destination = self.gid\n",
       "behind an Ethernet frame packets are taken for frames"), "links/test_links_frames.py"),
    (m("links-without-groups-stay-open", "links/roce_udp.py", "        except OSError:\n            self._receiver.close()\n            raise\n        self._has_groups", "        except OSError:\n            raise\n        self._has_groups",
       "a link that cannot be opened keeps its port"), "links/test_links_roce_udp.py"),
    (m("links-port-beyond-the-last", "links/sockets.py", "FIRST_SOURCE_PORT + (wanted - FIRST_SOURCE_PORT + step) % ports", "wanted + step",
       "a flow whose port is the last one, and taken, has none"), "links/test_links_roce_udp.py"),
    (m("capture-of-a-child-is-its-parents", "links/tap.py", "if capture is None or owner != pid:", "if capture is None:",
       "a forked child writes into its parent's capture"), "links/test_links_tap.py"),
    (m("storage-grant-of-nothing", INITIATOR, "if not 0 < found.request_limit_delta <= MOST_CREDIT:", "if not 0 <= found.request_limit_delta <= MOST_CREDIT:",
       "a channel stands on which nothing can be sent"), ON_INITIATOR),
    (m("storage-any-message-of-a-target", INITIATOR, "or not least // 2 <= found.max_ti_bytes <= MOST_MESSAGE_BYTES:", ":",
       "a target says that it sends messages for which there is no room"), ON_INITIATOR),
    (m("storage-write-is-whole", INITIATOR, " + (found.out_residual if found.out_under else 0)", "",
       "a write of which a part was left out is said to be good"), ON_INITIATOR),
    (m("runs-swallow-what-lies-behind", "memory/runs.py", "if end < len(self._runs) and self._runs[end][0] == first + count:", "if end < len(self._runs) and self._runs[end][0] > first + count:",
       "pages are given out twice"), "memory/test_memory_runs.py"),
    (m("storage-segments-are-lost", HOST_CHANNEL, "        self._free += operation.segments\n", "",
       "after a while nothing is read or written any more"), ON_STORAGE),
    (m("storage-message-of-before", HOST_CHANNEL, "start + min(completion.byte_len, longest)", "start + longest",
       "a message that is cut short is read on in the one before it"), ON_STORAGE),
    (m("storage-capacity-goes-round", "storage/logical_unit.py", "last = min(self.disk.blocks - 1, MOST_BLOCKS_10)", "last = (self.disk.blocks - 1) & MOST_BLOCKS_10",
       "a disk of 2 TiB and a bit says that it has the bit"), "storage/test_storage_disk.py"),
    (m("storage-well-known-units", "storage/logical_unit.py", "named = [] if cdb[2] == 1 else luns", "named = luns",
       "disks are listed where well-known units are asked for"), "storage/test_storage_disk.py"),
    (m("storage-serial-of-any-length", "storage/logical_unit.py", "serial.encode(\"ascii\")[:20]", "serial.encode(\"ascii\")",
       "a serial number is longer than hosts have room for"), "storage/test_storage_disk.py"),
    (m("storage-busy-is-asked-for-ever", DEVICE, "if again and operation.attempts < MOST_ATTEMPTS:", "if again:",
       "a read of a unit that stays busy never ends"), ON_STORAGE),
    (m("storage-attention-is-the-end", DEVICE, "            if sense is None or sense.key != scsi.UNIT_ATTENTION:\n                break", "            break",
       "after a reset a disk cannot be opened"), ON_STORAGE),
    (m("storage-closed-device-listens", DEVICE, "        self._adapters.unsubscribe(self._on_adapter_event)\n", "",
       "devices that are closed stay in memory"), ON_STORAGE),
    (m("rdmacm-mtu-of-the-path-alone", "driver/rdmacm/queue_pairs.py", "min(path.path_mtu, place.mtu)", "path.path_mtu",
       "a queue pair has a larger MTU than its port, and is refused"), "driver/test_driver_rdmacm_ports.py"),
    (m("storage-any-port-of-the-adapter", DEVICE, "if event.kind == EVENT_PORT_ERR and event.element == channel.port:", "if event.kind == EVENT_PORT_ERR:",
       "a channel ends with a port that it does not use"), ON_STORAGE),
    (m("keys-all-ones", KEYS, "if key != 0 and key != 0xFFFFFFFF:", "if key != 0:",
       "a key is one that means none"), ON_KEYS),
    (m("keys-of-a-second-round", KEYS, "            self._next -= self.indices\n            self._gone_round = True", "            self._next -= self.indices",
       "a key that died comes to life again"), ON_KEYS),
    (m("windows-fast-key-is-not-counted", "memory/windows.py", "        self.keys_withdrawn += fast.withdraw()\n        return 0", "        fast.withdraw()\n        return 0",
       "operations that lost the key of a fast region are not counted"), "memory/test_memory_windows.py"),
    (m("swap-file-counts-twice", SWAP, "self._count += count - self._held.count(1, page, page + count)", "self._count += count",
       "the room of a swap file is never given back"), ON_PAGED),
    (m("swap-file-read-for-ever", SWAP, "            if read <= 0:\n                raise", "            if read < 0:\n                raise",
       "a swap file that was cut hangs its reader"), ON_PAGED),
    (m("paged-request-of-any-size", PAGED_MEMORY, "min(max(wanted >> layout.WANTED_SHIFT, 1), MOST_AT_ONCE, self.pages - first)", "min(max(wanted >> layout.WANTED_SHIFT, 1), self.pages - first)",
       "an attachment has all of a memory brought by one request"), ON_PAGED),
    (m("paged-rights-of-before", PAGED_MEMORY, "generation = (generation + 1) & ((1 << 55) - 1)", "generation = generation & ((1 << 55) - 1)",
       "who looked at rights before they changed twice has them still"), ON_PAGED),
    (m("agent-question-stays", "driver/agents.py", "        finally:\n            del self._asked[mad[_TRANSACTION]]\n        if", "        finally:\n            pass\n        if",
       "a transaction ID can be asked with once"), "driver/test_driver_agents.py"),
    (m("flow-masked-bits-conflict", FLOW_RULES, "if (value[i] ^ bit) & mask[i] & count:", "if (value[i] ^ bit) & mask[i]:",
       "two rules for parts of one field are refused"), ON_FLOWS),
    (m("flow-masked-bits-are-asked-for", FLOW_RULES, "value[i] |= bit & count", "value[i] |= bit",
       "a rule with a mask takes no frame"), ON_FLOWS),
    (m("pageable-write-of-less-than-nothing", "verbs/pageable.py", "if length < 0 or length > source.nbytes:", "if length > source.nbytes:",
       "a negative length writes all but the end"), "verbs/suite/test_suite_pageable.py"),
    (m("burst-without-icrcs-stays-so", "wire/burst.py", "        self.closed = False\n        self.has_icrc = True\n\n\nclass Arrival", "        self.closed = False\n\n\nclass Arrival",
       "ICRCs that were made are made again"), "wire/test_wire_burst.py"),
    (m("decisions-of-packet-0", "links/decisions.py", "if not 1 <= packet <= _HIGHEST_PACKET:", "if not 0 <= packet <= _HIGHEST_PACKET:",
       "a decision that nothing can meet is taken"), "links/test_links_faults.py"),
)  # fmt: skip
"""Each with the tests that judge it."""
