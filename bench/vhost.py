#!/usr/bin/env python3
"""Disks by vhost-user-blk: Tidegate beside qemu-storage-daemon, in one table.

The load is a driver of this folder (vhost_guest.c) with memory of its own, which batches: one thread
for each guest, one virtqueue, the same for every server. Servers serve the same prefilled files on
tmpfs. One server runs at a time; within a round all of them run a cell one after the other, so that
what else the machine does meets all of them alike, and the order rotates from round to round. Ratios
are those of pairs from the same round; medians are over rounds.

CPU is what the server's process used (user and system, all threads, the kernel's io_uring workers
among them) from the guests' connection to their end, for each request answered.
"""

import sys

from comparison import (
    Comparison,
    believed,
    parse_options,
    parser_of,
    qemu_aio,
    run_client,
    tidegate_servers,
)
from measure import KIB, Server, first_line, run_command

# Exports and what they share: the second guest's disk is on the first one's device or on another.
DEVICES = {"d0": "first", "d1": "first", "d2": "second"}
DISKS_OF = {1: ["d0", "d1"], 2: ["d0", "d2"]}

EPILOG = """\
A cell's key says what it runs, and --only takes parts of keys:
  read-4k-d32-g2-v1   random reads of 4 KiB, depth 32 each, 2 guests with disks
                      on 1 device
  requests: read, write, mixed (70 % reads)
  devices:  in qemu-storage-daemon an iothread each

servers:
  tidegate      objectives set, `slo`
  qsd           qemu-storage-daemon, iothreads that sleep when they have nothing
                to do (poll-max-ns=0)
  qsd-polling   iothreads as they are by default: they look for requests for up
                to 32 us before they sleep
  qsd-main      no iothread: the main loop serves, and does not poll

With --wait notify the guests sleep until they are notified, as guests do; with
poll they look at the used ring all the time, and no notification is sent.
CPU per request says most. `others` is how many cores other programs used
meanwhile: where it is not near 0, compare CPU only.

examples:
  make bench-vhost
  make bench-vhost ARGS="--only read-4k --rounds 5 --wait poll"
  make bench-vhost ARGS="--beside before=/tmp/tidegate --servers tidegate"
"""


class Cell:
    """One load: what guests ask for, how deep, how many guests on how many devices."""

    def __init__(self, rw, kib, depth, guests, devices):
        self.rw, self.block, self.depth = rw, kib * KIB, depth
        self.clients, self.devices = guests, devices

    @property
    def key(self):
        size = f"{self.block // KIB}k"
        return f"{self.rw}-{size}-d{self.depth}-g{self.clients}-v{self.devices}"


QUICK = [
    Cell("read", 4, 1, 1, 1),
    Cell("read", 4, 32, 1, 1),
    Cell("read", 4, 128, 1, 1),
    Cell("write", 4, 32, 1, 1),
    Cell("read", 128, 32, 1, 1),
    Cell("read", 4, 32, 2, 1),
    Cell("read", 4, 32, 2, 2),
]

ALL = [
    Cell(rw, kib, depth, guests, devices)
    for rw in ("read", "write", "mixed")
    for kib in (4, 128)
    for guests, devices in ((1, 1), (2, 1), (2, 2))
    for depth in (1, 32, 128)
]


def make_tidegate(args, disks, directory):
    def listener(sock):
        return f'vhost_user = "{sock.parent}/{{disk}}.sock"'

    return tidegate_servers(args, disks, directory, DEVICES, listener)


def make_qsd(suffix, iothread):
    """A maker of qemu-storage-daemon with an `iothread` of these options for each device; without any
    for None."""

    def make(_args, disks, directory):
        def command(aio, sock):
            words = ["qemu-storage-daemon"]
            for device in dict.fromkeys(DEVICES.values()):
                if iothread is not None:
                    words += ["--object", f"iothread,id={device}{iothread}"]
            for export, device in DEVICES.items():
                place = f",iothread={device}" if iothread is not None else ""
                words += ["--blockdev",
                          f"driver=file,node-name={export},filename={disks / export},aio={aio}",
                          "--export",
                          f"type=vhost-user-blk,id=e{export},node-name={export},writable=on,"
                          f"addr.type=unix,addr.path={sock.parent / export}.sock{place}"]  # fmt: skip
            return words

        aio = qemu_aio("qemu-storage-daemon", command, directory / "d0.sock")
        version = first_line("qemu-storage-daemon", "--version") + f", aio={aio}"
        return [Server(f"qsd{suffix}", version, lambda sock: command(aio, sock))]

    return make


MAKERS = {
    "tidegate": make_tidegate,
    "qsd": make_qsd("", ",poll-max-ns=0"),
    "qsd-polling": make_qsd("-polling", ""),
    "qsd-main": make_qsd("-main", None),
}


class VhostUser(Comparison):
    exports = list(DEVICES)
    client = "vhost_guest"
    makers = MAKERS
    tools = dict.fromkeys(("qsd", "qsd-polling", "qsd-main"), "qemu-storage-daemon")

    def socket(self):
        return self.directory / "d0.sock"

    def load(self, running, cell):
        disks = DISKS_OF[cell.devices][: cell.clients]
        sockets = [self.directory / f"{disk}.sock" for disk in disks]
        for sock in sockets:
            running.wait_for_socket(sock)
        command = [str(self.client_program), ",".join(map(str, sockets)), cell.rw, str(cell.block),
                   str(cell.depth), self.args.wait, str(self.args.seconds),
                   str(self.args.size)]  # fmt: skip
        return believed(run_client(command, cell, self.args.seconds), cell, self.args)


def parse_args():
    parser = parser_of(
        "bench-vhost",
        "Disks by vhost-user-blk: Tidegate beside qemu-storage-daemon. Prints IOPS,\n"
        "latencies and the server's CPU for each request.",
        EPILOG, QUICK, ALL,
    )  # fmt: skip
    parser.add_argument("--servers", default="tidegate,qsd,qsd-polling",
                        help=f"of {', '.join(MAKERS)}; ratios are to the first"
                        " (default: %(default)s)")  # fmt: skip
    parser.add_argument("--wait", choices=["notify", "poll"], default="notify",
                        help="how guests wait for answers (default: %(default)s)")  # fmt: skip
    return parse_options(parser, MAKERS, QUICK, ALL)


def run(args):
    VhostUser(args).run()


if __name__ == "__main__":
    sys.exit(run_command("bench-vhost", run, parse_args))
