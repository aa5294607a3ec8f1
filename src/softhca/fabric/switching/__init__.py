"""What packets meet on their way through a switched fabric: links with credits, virtual lanes and their
arbitration, switches, congestion marks, in virtual time.

Everything happens in an `events.EventQueue`, whose unit is the picosecond: on the fastest links a byte takes
5.  `fabric.SwitchedFabric` builds it all over a `Topology` and forwarding tables.  Packets are descriptions
(`packet.Packet`): lengths and the header fields that a switch looks at; what a packet carries may go along.
"""
