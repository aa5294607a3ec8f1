# Compiled as it is: its methods are what a program calls for each datagram.
