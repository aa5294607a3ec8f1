# Compiled as it is: a stream's lock is taken several times for each message.
