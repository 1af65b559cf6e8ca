"""NBD clients of the measuring programs, with simple replies.

Source: the NBD protocol, https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md.
"""

import socket
import struct

from measure import BenchError

READ, WRITE = 0, 1
REQUEST_MAGIC = 0x25609513
REPLY_BYTES = 16


def request(command, cookie, offset, length):
    return struct.pack(">IHHQQI", REQUEST_MAGIC, 0, command, cookie, offset, length)


def connect(sock, export):
    """A connection in transmission with simple replies (NBD_OPT_EXPORT_NAME)."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(str(sock))
    greeting = exactly(client, 18)
    if greeting[:8] != b"NBDMAGIC":
        raise BenchError(f"{export}: this is no NBD server")
    name = export.encode()
    client.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, len(name)) + name)
    exactly(client, 10)
    return client


def exactly(client, count):
    got = bytearray()
    while len(got) < count:
        piece = client.recv(count - len(got))
        if not piece:
            raise BenchError("the daemon closed the connection")
        got += piece
    return bytes(got)
