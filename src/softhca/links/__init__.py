"""How bytes reach the wire: RoCEv2 over UDP sockets, and what Linux says of interfaces and paths.

``roce_udp`` is the link over ``sockets``; ``interfaces``, ``netlink`` and ``paths`` ask the kernel; ``tap``
writes what passes to capture files; ``identification_check`` looks at IPv4 headers that sockets hide.
``faults`` are the faults that a link can be given, and ``impairment`` what they do to its packets.
"""
