# Compiled as it is: a stream is an object of Python, of which programs and tests may replace methods.
from softhca.sockets.stream_path cimport StreamPath
