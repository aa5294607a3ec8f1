"""A channel between two programs: softhca run -n 2 -- python examples/channel_sync.py"""

import os

import softhca

address = os.environ["SOFTHCA_PEERS"].split(",")[0] + ":7500"
if os.environ["SOFTHCA_RANK"] == "0":
    with softhca.Channel.listen(address) as listener, listener.accept() as channel:
        counter = bytearray(8)
        channel.share("counter", counter, "rwa")
        for message in channel:
            print(f"{message.decode()}; the counter is {counter[0]}")
else:
    with softhca.Channel.connect(address, patient=True) as channel:
        counter = channel.remote("counter")
        for name in ("hello", "and good bye"):
            counter.fetch_add(0, 1)
            channel.send(name.encode())
