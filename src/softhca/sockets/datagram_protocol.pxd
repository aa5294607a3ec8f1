# Compiled as it is: a header is made and read for each datagram.
