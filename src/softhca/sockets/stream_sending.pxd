from softhca.sockets.stream_state cimport StreamState
