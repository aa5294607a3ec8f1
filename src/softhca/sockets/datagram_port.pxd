# Compiled as it is: a port is an object of Python, of which tests may replace methods.
from softhca.sockets.datagram_port_path cimport DatagramPortPath
