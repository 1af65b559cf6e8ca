#!/usr/bin/env python3
"""Serving NBD: Tidegate beside other servers and beside the floor, in one table.

The floor is a server of one small file (nbd_floor.c) that has a thread a connection and only moves
the same bytes: what a server costs that decides nothing. The load comes from a small client that
batches (nbd_client.c), because fio uses up a core before the faster servers do, and from fio.

Every server in turn serves the same prefilled files on tmpfs over a unix socket. One server runs at
a time; within a round all of them run a cell one after the other, so that what else the machine
does meets all of them alike, and the order rotates from round to round. Ratios are those of pairs
from the same round; medians are over rounds.

CPU is what the server's process used (user and system, all threads, the kernel's io_uring
workers among them) between the first connection and the last, for each request answered.
"""

import json
import subprocess
import sys

from comparison import (
    Comparison,
    believed,
    compile_program,
    parse_options,
    parser_of,
    qemu_aio,
    run_client,
    tidegate_servers,
)
from measure import KIB, BenchError, Running, Server, die_with_parent, first_line, run_command, run_fio

EXPORTS = ["d0", "d1"]
FIO_RW = {"read": "randread", "write": "randwrite", "mixed": "randrw", "fsync": "randwrite"}
FLUSH_AFTER_WRITES = 4
READ_PERCENT = 70

EPILOG = """\
A cell's key says what it runs, and --only takes parts of keys:
  batch-read-4k-d32-c2-v1   the batching client, random reads of 4 KiB, depth
                            32, 2 clients on 1 device
  client:   batch, or fio (fio's nbd engine)
  requests: read, write, mixed (70 % reads), fsync (a flush after 4 writes)
  devices:  with 2, every other client uses a disk of another device

Without --all a selection of cells is run. CPU per request says most: it hardly
depends on what else the machine does, unlike IOPS, and unlike IOPS it goes on
telling servers apart where the client is the limit. `others` is how many cores
other programs used meanwhile: where it is not near 0, compare CPU only.

examples:
  make bench-nbd
  make bench-nbd ARGS="--only batch-read-4k --rounds 5"
  make bench-nbd ARGS="--servers tidegate,nbdkit,qemu-nbd,qsd,floor"
  make bench-nbd ARGS="--beside before=/tmp/tidegate --servers tidegate,floor"
"""


# ---------------------------------------------------------------------------- cells


class Cell:
    """One load: who asks, for what, how deep, how many clients on how many devices."""

    def __init__(self, client, rw, kib, depth, clients, devices):
        self.client, self.rw, self.block = client, rw, kib * KIB
        self.depth, self.clients, self.devices = depth, clients, devices

    @property
    def key(self):
        size = f"{self.block // KIB}k"
        return f"{self.client}-{self.rw}-{size}-d{self.depth}-c{self.clients}-v{self.devices}"


QUICK = [
    Cell("batch", "read", 4, 1, 1, 1),
    Cell("batch", "read", 4, 32, 1, 1),
    Cell("batch", "read", 4, 128, 1, 1),
    Cell("batch", "read", 4, 32, 2, 1),
    Cell("batch", "read", 4, 32, 2, 2),
    Cell("batch", "read", 128, 32, 1, 1),
    Cell("batch", "write", 4, 32, 1, 1),
    Cell("batch", "mixed", 4, 32, 1, 1),
    Cell("batch", "fsync", 4, 32, 1, 1),
    Cell("fio", "read", 4, 1, 1, 1),
    Cell("fio", "read", 4, 32, 1, 1),
    Cell("fio", "read", 4, 32, 2, 1),
]

ALL = [
    Cell(client, rw, kib, depth, clients, devices)
    for client in ("batch", "fio")
    for rw in FIO_RW
    for kib in (4, 128)
    for clients in (1, 2, 4, 8)
    for devices in (1, 2)
    if devices <= clients
    for depth in (1, 32, 128)
]


# ---------------------------------------------------------------------------- servers


def make_tidegate(args, disks, directory):
    """Each disk is on a device of its own."""
    return tidegate_servers(args, disks, directory, {export: f"of-{export}" for export in EXPORTS},
                            lambda sock: f'unix = "{sock}"\nexports = {json.dumps(EXPORTS)}')  # fmt: skip


def make_nbdkit(_args, disks, _directory):
    def command(sock):
        return ["nbdkit", "-f", "-U", str(sock), "file", f"dir={disks}"]

    return [Server("nbdkit file", first_line("nbdkit", "--version"), command, EXPORTS[0])]


def make_qemu_nbd(_args, disks, directory):
    """It has one export, so cells with two devices leave it out."""

    def command(aio, sock):
        return ["qemu-nbd", "--format=raw", "--persistent", "--shared=16", "--cache=writeback",
                f"--aio={aio}", f"--socket={sock}", f"--export-name={EXPORTS[0]}",
                str(disks / EXPORTS[0])]  # fmt: skip

    aio = qemu_aio("qemu-nbd", command, directory / "probe.sock")
    version = first_line("qemu-nbd", "--version")
    return [Server(QEMU_NBD + aio, version, lambda sock: command(aio, sock), EXPORTS[0])]


QEMU_NBD = "qemu-nbd "


def make_qsd(_args, disks, directory):
    def command(aio, sock):
        words = ["qemu-storage-daemon",
                 "--nbd-server", f"addr.type=unix,addr.path={sock},max-connections=16"]  # fmt: skip
        for export in EXPORTS:
            words += ["--blockdev",
                      f"driver=file,node-name={export},filename={disks / export},aio={aio}",
                      "--export",
                      f"type=nbd,id=e{export},node-name={export},name={export},writable=on"]  # fmt: skip
        return words

    aio = qemu_aio("qemu-storage-daemon", command, directory / "probe.sock")
    version = first_line("qemu-storage-daemon", "--version")
    return [Server(f"qemu-storage-daemon {aio}", version, lambda s: command(aio, s), EXPORTS[0])]


def make_floor(_args, disks, directory):
    program = compile_program("nbd_floor", directory)
    version = "a thread a connection, two copies, nothing else"
    return [Server("floor", version, lambda s: [str(program), str(s), str(disks)], EXPORTS[0])]


MAKERS = {
    "tidegate": make_tidegate,
    "nbdkit": make_nbdkit,
    "qemu-nbd": make_qemu_nbd,
    "qsd": make_qsd,
    "floor": make_floor,
}


# ---------------------------------------------------------------------------- measuring


class Nbd(Comparison):
    exports = EXPORTS
    client = "nbd_client"
    makers = MAKERS
    tools = {"nbdkit": "nbdkit", "qemu-nbd": "qemu-nbd", "qsd": "qemu-storage-daemon"}

    def needs(self):
        has_fio = any(cell.client == "fio" for cell in self.args.cells)
        return ["cc", "nbdcopy"] + ["fio"] * has_fio

    def has_cell(self, server, cell):
        return cell.devices == 1 or not server.name.startswith(QEMU_NBD)

    def check(self, server):
        """A fast answer must be a true one too."""
        with Running(server, self.socket()) as running:
            copy = subprocess.Popen(
                ["nbdcopy", running.uri(), "-"], stdout=subprocess.PIPE, preexec_fn=die_with_parent
            )
            try:
                wanted = str(self.disks / server.export)
                same = subprocess.run(["cmp", "-", wanted], stdin=copy.stdout, check=False)
                copy.stdout.close()
                if copy.wait() or same.returncode:
                    raise BenchError(f"{server.name} serves other bytes than the file has")
            finally:
                if copy.poll() is None:
                    copy.kill()
                    copy.wait()

    def load(self, running, cell):
        if cell.client == "batch":
            return believed(self.load_by_batches(running.sock, cell), cell, self.args)
        # fio's latencies leave out its flushes.
        figures = self.load_by_fio(running.sock, cell)
        return believed(figures, cell, self.args, counts=cell.rw != "fsync")

    def load_by_batches(self, sock, cell):
        """The figures of a cell by the batching client, which has the first half of each disk."""
        exports = ",".join(EXPORTS[: cell.devices])
        command = [str(self.client_program), str(sock), exports, cell.rw, str(cell.block),
                   str(cell.depth), str(cell.clients), str(self.args.seconds),
                   str(self.args.size // 2)]  # fmt: skip
        return run_client(command, cell, self.args.seconds)

    def load_by_fio(self, sock, cell):
        """The figures of a cell by fio, which has the second half of each disk: it writes other data
        than the batching client expects."""
        args = self.args
        part = args.size // 2 // cell.clients
        arguments = ["--ioengine=nbd", f"--rw={FIO_RW[cell.rw]}", f"--rwmixread={READ_PERCENT}",
                     f"--bs={cell.block}", f"--iodepth={cell.depth}", f"--size={part}",
                     "--time_based=1", f"--runtime={args.seconds}", "--norandommap=1",
                     "--group_reporting=1", "--unified_rw_reporting=1", "--clat_percentiles=0",
                     "--lat_percentiles=1", "--percentile_list=50:99"]  # fmt: skip
        if cell.rw == "fsync":
            arguments.append(f"--fsync={FLUSH_AFTER_WRITES}")
        for number in range(cell.clients):
            export = EXPORTS[number % cell.devices]
            arguments += [f"--name=c{number}", f"--uri=nbd+unix:///{export}?socket={sock}",
                          f"--offset={args.size // 2 + number * part}"]  # fmt: skip
        jobs = run_fio(arguments, args.seconds + 60)
        if len(jobs) != 1 or jobs[0]["error"]:
            raise BenchError(f"{cell.key}: fio reports {len(jobs)} groups or an error")
        job, every = jobs[0], jobs[0]["mixed"]
        flushes = job.get("sync", {}).get("total_ios", 0) if cell.rw == "fsync" else 0
        requests = every["total_ios"] + flushes
        # A share of one core, by job; the jobs' run time is their sum.
        cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
        return {
            "requests": requests,
            "seconds": every["runtime"] / 1000,
            "iops": requests / (every["runtime"] / 1000),
            "mean_us": every["lat_ns"]["mean"] / 1000,
            "p50_us": every["lat_ns"]["percentile"]["50.000000"] / 1000,
            "p99_us": every["lat_ns"]["percentile"]["99.000000"] / 1000,
            "client_us": cpu / max(requests, 1) * 1e6,
        }


def parse_args():
    parser = parser_of(
        "bench-nbd",
        "Serving NBD: Tidegate beside other servers and beside the floor, a small\n"
        "server that only moves the same bytes. Prints IOPS, latencies and the\n"
        "server's CPU for each request. All cells take over two hours.",
        EPILOG, QUICK, ALL,
    )  # fmt: skip
    parser.add_argument("--servers", default="tidegate,nbdkit,floor",
                        help=f"of {', '.join(MAKERS)}; ratios are to the first"
                        " (default: %(default)s)")  # fmt: skip
    return parse_options(parser, MAKERS, QUICK, ALL)


def run(args):
    Nbd(args).run()


if __name__ == "__main__":
    sys.exit(run_command("bench-nbd", run, parse_args))
