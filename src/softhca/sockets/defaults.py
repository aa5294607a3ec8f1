"""The defaults of all sockets of this process; programs may change them."""

from softhca.sockets.settings import Settings

settings = Settings.of_environment()
"""Of sockets made from here on."""

rdma = True
"""Whether connections made from here on may go by RDMA."""
