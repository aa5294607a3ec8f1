"""A switched fabric: its topology, its routes, and the manager that brings it up (IBTA vol. 1, chapters 14
to 19).

Nothing here knows a socket, a thread or a clock: topologies are values, routes are computed from them, and
management datagrams come in and go out as bytes.  Tables of routes are numpy arrays; the modules that make
them need the extra ``softhca[fabric]`` (numpy, scipy, PyYAML), `topology` and `topology_file` do not.
"""
