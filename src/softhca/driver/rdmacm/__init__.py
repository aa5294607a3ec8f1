"""RDMA CM: connections by IP addresses and port numbers, the host's side (librdmacm's part of the stack).

``addresses`` and ``local_devices`` say which device and GID an IP address is, ``port_numbers`` who has which
port, ``states`` what an identifier may do when.  Nothing here knows a socket of the data path: management
datagrams are the adapter's.
"""
