"""NBD clients of `scripts/soak`: one that keeps a ledger of every sector, one that gets killed.

Every sector that they write says whose it is, where it belongs and which write it is from, so
that a sector of somebody else's, of another place or of another time is known wherever it turns
up. Run as a program, this is the client that gets killed.
"""

import errno
import random
import select
import socket
import struct
import sys
import time

SECTOR = 512
READ, WRITE, DISCONNECT, FLUSH, TRIM, WRITE_ZEROES = 0, 1, 2, 3, 4, 6
FUA, NO_HOLE = 1, 2
COMMANDS = {READ: "read", WRITE: "write", FLUSH: "flush", TRIM: "trim", WRITE_ZEROES: "zeroes"}
ZEROES = bytes(SECTOR)
# A trimmed sector may read as anything.
ANYTHING = -1
# Versions of the client that gets killed: nobody keeps a ledger of them.
PREY = 1 << 63
PATIENCE_SECONDS = 120


class WrongBytes(Exception):
    """A sector has what it must not have."""


class Gone(Exception):
    """The daemon has closed the connection."""


def sector(tag, number, version):
    """What write `version` of sector `number` of the region `tag` looks like; 0 is zeroes."""
    if version == 0:
        return ZEROES
    return struct.pack("<IIQ", tag, number, version) * (SECTOR // 16)


def described(found):
    if found == ZEROES:
        return "zeroes"
    words = struct.unpack("<IIQ", found[:16])
    if found == found[:16] * (SECTOR // 16):
        return "write {2:#x} of sector {1} of region {0}".format(*words)
    return f"bytes of nobody's, {found[:24].hex()}..."


class Client:
    """A connection with any number of requests in flight; simple replies."""

    def __init__(self, path, export):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_SECONDS)
        self.input = bytearray()
        self.reads = {}
        try:
            self.sock.connect(str(path))
            self.size = self.negotiate(export.encode())
        except (ConnectionError, FileNotFoundError, EOFError) as error:
            self.close()
            raise Gone(str(error)) from error

    def exactly(self, count):
        out = bytearray()
        while len(out) < count:
            piece = self.sock.recv(count - len(out))
            if not piece:
                raise EOFError("closed in the handshake")
            out += piece
        return bytes(out)

    def negotiate(self, export):
        greeting = self.exactly(18)
        if greeting[:16] != b"NBDMAGICIHAVEOPT":
            raise WrongBytes(f"{greeting!r} is no greeting")
        option = struct.pack(">I", len(export)) + export + b"\0\0"
        self.sock.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 7, len(option)) + option)
        size = None
        while True:
            _, _, kind, length = struct.unpack(">QIII", self.exactly(20))
            body = self.exactly(length)
            if kind == 1:
                return size
            if kind == 3 and body[:2] == b"\0\0":
                size = struct.unpack(">Q", body[2:10])[0]
            elif kind != 3:
                raise Gone(f"refused with {kind:#x}")

    def close(self):
        self.sock.close()

    def disconnect(self):
        self.send([(DISCONNECT, 0, 0, 0, 0, b"")])
        self.close()

    def encoded(self, requests):
        out = bytearray()
        for command, flags, cookie, offset, length, payload in requests:
            if command == READ:
                self.reads[cookie] = length
            out += struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length)
            out += payload
        return out

    def send(self, requests):
        """Sends requests, and takes what comes meanwhile: a server may want to be read from."""
        out = self.encoded(requests)
        try:
            while out:
                ready = select.select([self.sock], [self.sock], [], PATIENCE_SECONDS)
                if not any(ready):
                    raise TimeoutError("the daemon takes nothing and sends nothing")
                if ready[0]:
                    self.take()
                if ready[1]:
                    del out[: self.sock.send(memoryview(out)[: 1 << 18], socket.MSG_DONTWAIT)]
        except BlockingIOError:
            raise AssertionError("a socket that was ready is not") from None
        except ConnectionError as error:
            raise Gone(str(error)) from error

    def take(self):
        try:
            piece = self.sock.recv(1 << 18)
        except ConnectionError as error:
            raise Gone(str(error)) from error
        if not piece:
            raise Gone("closed")
        self.input += piece

    def receive(self):
        """The next reply: its cookie, its error, its bytes."""
        while len(self.input) < 16:
            self.take()
        magic, error, cookie = struct.unpack(">IIQ", self.input[:16])
        if magic != 0x67446698:
            raise WrongBytes(f"{magic:#x} is no reply")
        length = self.reads.pop(cookie, 0)
        length = 0 if error else length
        while len(self.input) < 16 + length:
            self.take()
        data = bytes(memoryview(self.input)[16 : 16 + length])
        del self.input[: 16 + length]
        return cookie, error, data


class Ledger:
    """Random requests of all kinds on one disk, and what each of its sectors may read as.

    `latest` is the version that was acknowledged last. `unflushed` has the versions that a sector
    may also have after a crash: those since the last flush, the one before them, and those of
    writes that were in flight when the connection ended.
    """

    def __init__(self, rng, export, tag, sectors):
        self.rng, self.export, self.tag, self.sectors = rng, export, tag, sectors
        self.latest = [0] * sectors
        self.unflushed = {}
        self.pending = {}
        self.version = 0
        self.cookie = 0
        self.verified = 0
        self.requests = 0
        self.promises = 0

    def choose(self):
        """A request that overlaps none in flight, or `None`."""
        length = min(int(2 ** self.rng.uniform(0, 11.02)), self.sectors)
        first = self.rng.randrange(self.sectors - length + 1)
        for _, other, n, _, _ in self.pending.values():
            if first < other + n and other < first + length:
                return None
        command = self.rng.choices((READ, WRITE, TRIM, WRITE_ZEROES), (9, 9, 1, 1))[0]
        flags = 0
        if command != READ and self.rng.random() < 0.1:
            flags |= FUA
        if command == WRITE_ZEROES and self.rng.random() < 0.5:
            flags |= NO_HOLE
        return command, flags, first, length

    def submit(self, command, flags, first, length):
        self.cookie += 1
        version, payload = 0, b""
        if command == WRITE:
            self.version += 1
            version = self.version
            payload = b"".join(sector(self.tag, first + i, version) for i in range(length))
        elif command == TRIM:
            version = ANYTHING
        self.pending[self.cookie] = (command, first, length, version, flags & FUA)
        return command, flags, self.cookie, first * SECTOR, length * SECTOR, payload

    def burst(self, client, depth):
        """Up to `depth` requests at once, all of them waited for and checked."""
        requests = []
        for _ in range(depth):
            if (request := self.choose()) is not None:
                requests.append(self.submit(*request))
        client.send(requests)
        while self.pending:
            self.answered(client)

    def flush(self, client):
        """Nothing is in flight, so all that was acknowledged is durable afterwards."""
        client.send([self.submit(FLUSH, 0, 0, 0)])
        self.answered(client)
        self.unflushed.clear()

    def answered(self, client):
        cookie, error, data = client.receive()
        if cookie not in self.pending:
            raise WrongBytes(f"{self.export}: an answer to nothing, cookie {cookie}")
        command, first, length, version, fua = self.pending[cookie]
        if error == errno.ESHUTDOWN:
            raise Gone("shutting down")
        if error:
            raise WrongBytes(f"{self.export}: {COMMANDS[command]} of {length} sectors at {first}:"
                             f" error {error} ({errno.errorcode.get(error)})")  # fmt: skip
        del self.pending[cookie]
        self.requests += 1
        if command == READ:
            self.check(first, data)
        elif command != FLUSH:
            for number in range(first, first + length):
                if fua:
                    self.unflushed.pop(number, None)
                else:
                    self.unflushed.setdefault(number, set()).add(self.latest[number])
                self.latest[number] = version

    def check(self, first, data):
        count = len(data) // SECTOR
        for i in range(count):
            found = data[i * SECTOR : (i + 1) * SECTOR]
            version = self.latest[first + i]
            if version == ANYTHING:
                continue
            if found != sector(self.tag, first + i, version):
                raise WrongBytes(f"{self.export}: sector {first + i} of region {self.tag} should be"
                                 f" write {version:#x} and is {described(found)}")  # fmt: skip
            self.verified += SECTOR

    def disconnected(self, in_order):
        """The daemon ended: `in_order`, it kept all that it acknowledged, flushed or not."""
        if in_order:
            self.unflushed.clear()
        for _, first, length, version, _ in self.pending.values():
            for number in range(first, first + length):
                self.unflushed.setdefault(number, set()).update((self.latest[number], version))
        # Reads change nothing.
        self.pending.clear()

    def reconcile(self, client):
        """After a restart: every sector is something that it may be, and that is what it is now."""
        for first in range(0, self.sectors, 512):
            count = min(512, self.sectors - first)
            client.send([(READ, 0, 0, first * SECTOR, count * SECTOR, b"")])
            _, error, data = client.receive()
            if error:
                raise WrongBytes(f"{self.export}: error {error} after a restart")
            for number in range(first, first + count):
                found = data[(number - first) * SECTOR : (number - first + 1) * SECTOR]
                allowed = {self.latest[number], *self.unflushed.get(number, ())}
                self.latest[number] = self.recognised(number, found, allowed)
        self.unflushed.clear()

    def recognised(self, number, found, allowed):
        for version in allowed - {ANYTHING}:
            if found == sector(self.tag, number, version):
                self.verified += SECTOR
                self.promises += 1
                return version
        if ANYTHING in allowed:
            return ANYTHING
        versions = ", ".join(f"{v:#x}" for v in sorted(allowed))
        raise WrongBytes(f"{self.export}: after a restart sector {number} of region {self.tag} may"
                         f" be write {versions} and is {described(found)}")  # fmt: skip


def audit(data, tag, first, export):
    """Of a region that killed clients wrote: every sector is theirs and in its place, or zero."""
    for i in range(len(data) // SECTOR):
        found = data[i * SECTOR : (i + 1) * SECTOR]
        if found == ZEROES:
            continue
        version = struct.unpack("<Q", found[8:16])[0]
        if version < PREY or found != sector(tag, first + i, version):
            raise WrongBytes(f"{export}: sector {first + i} of region {tag} should be a killed"
                             f" client's and is {described(found)}")  # fmt: skip
    return len(data)


def prey(path, export, tag, first, count, seed):
    """Works without end on sectors `first` to `first + count`, until it is killed."""
    rng = random.Random(seed)
    client = Client(path, export)
    serial = PREY | rng.getrandbits(62)
    reads = {}
    batch = rng.choice((1, 8, 32, 64))
    longest = rng.choice((1, 8, 128, 1024))
    # One that never reads its replies, and one that pauses, leave other things behind.
    silent = rng.random() < 0.3
    patience = rng.choice((0, 0.002, 0.02))
    said = False
    while True:
        requests = []
        for _ in range(batch):
            serial += 1
            length = rng.randint(1, longest)
            at = first + rng.randrange(count - length + 1)
            command = rng.choices((READ, WRITE, WRITE_ZEROES, TRIM), (10, 10, 1, 1))[0]
            if command == TRIM and not rng.random() < 0.3:
                command = WRITE
            payload = b""
            if command == WRITE:
                payload = b"".join(sector(tag, at + i, serial) for i in range(length))
            cookie = serial & 0xFFFFFFFF
            if command == READ:
                reads[cookie] = at
            requests.append((command, 0, cookie, at * SECTOR, length * SECTOR, payload))
        client.send(requests[:1])
        if not said:
            print("at work", flush=True)
            said = True
        if silent:
            client.sock.sendall(client.encoded(requests[1:]))
            time.sleep(PATIENCE_SECONDS)
        client.send(requests[1:])
        for _ in requests:
            cookie, error, data = client.receive()
            if error:
                raise WrongBytes(f"{export}: a doomed client got error {error}")
            if cookie in reads:
                audit(data, tag, reads.pop(cookie), export)
        time.sleep(patience)


def main():
    path, export, tag, first, count, seed = sys.argv[1:]
    try:
        prey(path, export, int(tag), int(first), int(count), int(seed))
    except Gone:
        return 2
    except WrongBytes as error:
        print(f"wrong: {error}", flush=True)
        return 3


if __name__ == "__main__":
    sys.exit(main())
