# Compiled as it is: its methods are what a program calls for each datagram.
from softhca.sockets.datagram_path cimport DatagramPath
