"""Networks of adapters for tests: in this process, in virtual time, with faults whose dice are seeded.

::

    from softhca.testing import Network, completions, connected

    with Network("loss=10%,reorder=10%", seed=7) as network:
        client, server = connected(network)        # contexts, regions, queue pairs: the verbs' own
        client.send(…)
        (done,) = completions(network, client.send_cq)

No socket, thread, clock or sleep has part in it, so a test is as fast as its packets are few, and the same
seed gives the same packets.  `Network` is what is between adapters, `verbs` has ends of connections for
programs, `ends` those for tests below the verbs.  ``docs/testing.md`` is the guide.
"""

from softhca.links.faults import Faults, FaultsError
from softhca.testing.datagram import LOST, RECEIVED, SENT, Datagram
from softhca.testing.network import Network, NotAtRest
from softhca.testing.node import Node
from softhca.testing.verbs import VerbsEnd, completions, connect, connected, handle_to, make_end

__all__ = [
    "LOST",
    "RECEIVED",
    "SENT",
    "Datagram",
    "Faults",
    "FaultsError",
    "Network",
    "Node",
    "NotAtRest",
    "VerbsEnd",
    "completions",
    "connect",
    "connected",
    "handle_to",
    "make_end",
]
