#!/usr/bin/env python3
"""What VMs that misbehave, or are only busy, cost a VM beside them: request slots
and memory.

Three daemons run side by side: one with a crowd of VMs, one with the same
crowd and bounds on request slots and payload memory so large that nobody waits
for them, and one without the crowd. In each of them a VM that reserves 500
IOPS reads 4 KiB at depth 1, in short windows by turns, so that other activity
of the machine meets all three alike. There is no verdict, only figures.
"""

import argparse
import multiprocessing
import random
import select
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from measure import KIB, MIB, BenchError, Running, Server, progress, run_command  # noqa: E402
from nbd_client import READ, REPLY_BYTES, WRITE, connect, exactly, request  # noqa: E402

BLOCK = 4 * KIB
# Of a disk of 16 MiB.
BLOCKS_READ = 2048
# More than any crowd here asks for.
LARGE_BOUNDS = """
max_requests = 1048576
max_requests_per_vm = 65536
buffer_memory = "12 GiB"
buffer_memory_per_vm = "12 GiB"
"""
SETTLE_SECONDS = 3
DRIP_SECONDS = 5


def many(count, command, length):
    payload = bytes(length) if command == WRITE else b""
    return b"".join(
        request(command, n, n * length, length) + payload for n in range(count)
    )


class Crowd:
    """VMs of one kind: how many, what each is promised, and what its client does."""

    def __init__(self, title, vms, objective, sends, reads=True, drips=False):
        self.title, self.vms, self.objective = title, vms, objective
        self.sends, self.reads, self.drips = sends, reads, drips


CROWDS = {
    "reads": Crowd(
        "limit 1 MB/s, 64 x 1 MiB reads", 5, 'limit = "1 MB/s"', lambda: many(64, READ, MIB)
    ),
    "writes": Crowd(
        "limit 1 MB/s, 64 x 1 MiB writes", 5, 'limit = "1 MB/s"', lambda: many(64, WRITE, MIB)
    ),
    "slots": Crowd(
        "limit 10 IOPS, 1,100 x 4 KiB", 20, 'limit = "10 IOPS"', lambda: many(1100, READ, BLOCK)
    ),
    "deaf": Crowd(
        "64 x 1 MiB reads, no reply taken", 8, "", lambda: many(64, READ, MIB), reads=False
    ),
    "drip": Crowd(
        "32 MiB write, a byte every 5 s",
        8,
        "",
        lambda: request(WRITE, 0, 0, 32 * MIB) + b"x",
        reads=False,
        drips=True,
    ),
}


def misbehave(sock, members, there, stop):
    """In a process of its own: what all clients of the crowd do until they are stopped."""
    poll, clients = select.epoll(), {}
    for crowd, export in members:
        client = connect(sock, export)
        client.setblocking(False)
        clients[client.fileno()] = [client, crowd, memoryview(crowd.sends())]
        poll.register(client, select.EPOLLOUT | (select.EPOLLIN if crowd.reads else 0))
    there.set()
    dripped = time.monotonic()
    while not stop.is_set():
        for number, events in poll.poll(0.2):
            entry = clients[number]
            client, crowd, unsent = entry
            try:
                if events & select.EPOLLIN and not client.recv(MIB):
                    poll.unregister(client)
                    continue
                if events & select.EPOLLOUT:
                    entry[2] = unsent[client.send(unsent[: 256 * KIB]) :]
                    if not entry[2]:
                        poll.modify(client, select.EPOLLIN if crowd.reads else 0)
            except BlockingIOError:
                pass
            except OSError:
                # Closed for being slow beyond its part: that is what the daemon does.
                poll.unregister(client)
        if time.monotonic() - dripped > DRIP_SECONDS:
            dripped = time.monotonic()
            for client, crowd, _ in clients.values():
                if crowd.drips:
                    try:
                        client.send(b"y")
                    except OSError:
                        pass


def configuration(directory, members, bounds):
    text = f'[control]\nsocket = "{directory}/control.sock"\n'
    text += f'[[listen]]\nunix = "{directory}/nbd.sock"\n'
    text += f'[[device]]\nname = "device"\nkind = "file"\npolicy = "mclock"\n{bounds}\n'
    vms = [(export, crowd.objective, "128 MiB") for crowd, export in members]
    vms.append(("good", 'reservation = "500 IOPS @ 4 KiB"', "16 MiB"))
    for name, objective, size in vms:
        text += f'[[vm]]\nname = "{name}"\ndevice = "device"\n'
        text += f"[vm.objective]\n{objective}\n" if objective else ""
        text += f'[[vm.disk]]\nsize = "{size}"\npath = "{name}.raw"\ncreate = "sparse"\n'
    path = directory / "tidegate.toml"
    path.write_text(text)
    return path


class Side:
    """One daemon with its good VM and, if it has one, its crowd; for the time of a `with` block."""

    def __init__(self, args, directory, members, bounds, comes):
        directory.mkdir()
        config = configuration(directory, members, bounds)
        command = [args.tidegate, "serve", str(config)]
        server = Server("tidegate", "", lambda _: command)
        self.running = Running(server, directory / "nbd.sock")
        self.members, self.comes, self.crowd = members, comes, None

    def __enter__(self):
        self.running.__enter__()
        try:
            self.good = connect(self.running.sock, "good")
            blank = bytes(BLOCK)
            for n in range(BLOCKS_READ):
                self.ask(WRITE, n, blank)
            if self.comes:
                self.let_crowd_in()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.crowd is not None:
            self.stop.set()
            self.crowd.join(5)
            self.crowd.kill()
        self.running.__exit__()

    def let_crowd_in(self):
        there, self.stop = multiprocessing.Event(), multiprocessing.Event()
        self.crowd = multiprocessing.Process(
            target=misbehave, args=(self.running.sock, self.members, there, self.stop), daemon=True
        )
        self.crowd.start()
        if not there.wait(60):
            raise BenchError("the crowd did not get in within 60 s")

    def ask(self, command, block, payload=b""):
        self.good.sendall(request(command, block, block * BLOCK, BLOCK) + payload)
        reply = exactly(self.good, REPLY_BYTES + (BLOCK if command == READ else 0))
        _, error, _ = struct.unpack(">IIQ", reply[:REPLY_BYTES])
        if error:
            raise BenchError(f"the good VM was answered with error {error}")

    def measure(self, seconds):
        """IOPS, and the 99th percentile of latency in milliseconds, over a window."""
        latencies, begin = [], time.perf_counter()
        now = begin
        while now - begin < seconds:
            self.ask(READ, len(latencies) % BLOCKS_READ)
            before, now = now, time.perf_counter()
            latencies.append(now - before)
        latencies.sort()
        return len(latencies) / (now - begin), latencies[len(latencies) * 99 // 100] * 1e3


def start(args, members):
    """Medians of each side over the windows of one start."""
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        directory = Path(directory)
        with (
            Side(args, directory / "default", members, "", True) as default,
            Side(args, directory / "large", members, LARGE_BOUNDS, True) as large,
            Side(args, directory / "without", members, "", False) as without,
        ):
            time.sleep(SETTLE_SECONDS)
            sides = [default, large, without]
            windows = {id(side): [] for side in sides}
            order = list(sides)
            for _ in range(args.windows):
                for side in order:
                    windows[id(side)].append(side.measure(args.seconds))
                random.shuffle(order)
            return [
                tuple(statistics.median(column) for column in zip(*windows[id(side)]))
                for side in sides
            ]


def row(args, title, members):
    starts = []
    for n in range(args.starts):
        progress(f"{title}: start {n + 1} of {args.starts}")
        starts.append(start(args, members))
    progress("")
    columns = []
    for side in range(3):
        iops = statistics.median(sides[side][0] for sides in starts)
        p99 = statistics.median(sides[side][1] for sides in starts)
        columns.append(f"{iops:>8,.0f} {p99:>7.3f}")
    for other in (1, 2):
        iops = statistics.median(sides[0][0] / sides[other][0] for sides in starts)
        p99 = statistics.median(sides[0][1] / sides[other][1] for sides in starts)
        columns.append(f"{iops:>6.3f} {p99:>5.2f}")
    print(f"{title:<48} " + "  ".join(columns), flush=True)


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate", default="target/release/tidegate", help="the program (default: %(default)s)")
    parser.add_argument(
        "--only",
        metavar="CROWD,...",
        default=",".join([*CROWDS, "all"]),
        help=f"of {', '.join(CROWDS)}, and all: all of them at once, with 64 VMs each"
        " (default: each)",
    )
    parser.add_argument("--starts", type=int, default=3, help="starts of the daemons (default: %(default)s)")
    parser.add_argument("--windows", type=int, default=12, help="windows of each start (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a window (default: %(default)s)")
    parser.add_argument("--directory",
                        help="directory for the disks (default: a temporary one)")  # fmt: skip
    args = parser.parse_args()
    unknown = [name for name in args.only.split(",") if name not in {*CROWDS, "all"}]
    if unknown:
        parser.error(f"no crowd is called {unknown[0]}; there are {', '.join(CROWDS)} and all")
    return args


def run(args):
    args.tidegate = str(Path(args.tidegate).resolve())
    if not Path(args.tidegate).exists():
        raise BenchError(f"{args.tidegate} is not there; build it with: make build")
    heads = [f"{head:>16}" for head in ("AS IT IS", "LARGE BOUNDS", "NO CROWD")]
    heads += [f"{head:>12}" for head in ("OF LARGE", "OF NO CROWD")]
    print(f"{'':<48} " + "  ".join(heads))
    figures = [f"{'IOPS':>8} {'P99 MS':>7}"] * 3 + [f"{'IOPS':>6} {'P99':>5}"] * 2
    print(f"{'CROWD':<48} " + "  ".join(figures))
    for name in args.only.split(","):
        if name == "all":
            kinds = [(crowd, 64) for crowd in CROWDS.values() if crowd is not CROWDS["writes"]]
            title = "64 of each but the writes"
        else:
            kinds = [(CROWDS[name], CROWDS[name].vms)]
            title = f"{CROWDS[name].vms} x {CROWDS[name].title}"
        members = [
            (crowd, f"crowd{kind}-{n}")
            for kind, (crowd, vms) in enumerate(kinds)
            for n in range(vms)
        ]
        row(args, title, members)


if __name__ == "__main__":
    sys.exit(run_command("isolation", run, parse_args))
