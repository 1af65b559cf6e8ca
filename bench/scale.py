#!/usr/bin/env python3
"""What a daemon with many VMs needs, and whether those that are active get what
their weights give them.

  memory  1,000 VMs, each with a file of 1 GiB, without data: the time until the
          daemon listens, and its resident memory: idle, with one idle client
          for each VM, and after each client has read 64 KiB three times; with
          a device that has a profile and VMs with objectives as well
  shares  100 of 1,000 VMs read 4 KiB at depth 8, half of them with twice the
          weight, from an emulated flash disk: the throughput of each as a part
          of what its weight gives it

There is no verdict, only figures.
"""

import argparse
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from measure import (  # noqa: E402
    GIB,
    KIB,
    MIB,
    BenchError,
    Fio,
    Running,
    Server,
    control_api,
    progress,
    run_command,
)
from nbd_client import READ, REPLY_BYTES, connect, exactly, request  # noqa: E402

VMS, ACTIVE = 1000, 100
SETTLE_SECONDS = 3
READ_BYTES, READS = 64 * KIB, 3
BLOCK, DEPTH, DISK_BYTES = 4 * KIB, 8, 8 * MIB
# Time in which fio has started its jobs.
START_SECONDS = 5
OBJECTIVE = 'objective = { reservation = "20 IOPS", latency = "50 ms" }\n'
PLAIN = 'kind = "file"\n'
PROFILED = 'kind = "file"\nprofile = "nvme-1tb"\n'
EMULATED = 'kind = "emulated"\nmodel = "ssd-sata-300gb"\n'


def configuration(directory, device, objective, disk):
    """1,000 VMs on one socket; `objective` and `disk` give the lines of the nth VM."""
    text = f'[control]\nsocket = "{directory}/control.sock"\n'
    text += f'[[listen]]\nunix = "{directory}/nbd.sock"\n[[device]]\nname = "disk"\n{device}'
    for n in range(VMS):
        text += f'[[vm]]\nname = "vm{n}"\n{objective(n)}[[vm.disk]]\n{disk(n)}'
    path = directory / "tidegate.toml"
    path.write_text(text)
    return path


def daemon(args, directory, config):
    command = [args.tidegate, "serve", str(config)]
    return Running(Server("tidegate", "", lambda _: command), directory / "nbd.sock")


def resident(running):
    """Resident memory in MiB."""
    for line in Path(f"/proc/{running.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / KIB
    raise BenchError("the kernel does not say what is resident")


def memory(args, directory, title, device, objective):
    def disk(n):
        path = directory / f"{n}.raw"
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(GIB)
        return f'path = "{path}"\n'

    config = configuration(directory, device, lambda _: objective, disk)
    begin = time.monotonic()
    with daemon(args, directory, config) as running:
        started = time.monotonic() - begin
        time.sleep(SETTLE_SECONDS)
        figures = [resident(running)]
        clients = [connect(running.sock, f"vm{n}") for n in range(VMS)]
        figures.append(resident(running))
        for n in range(READS):
            for client in clients:
                client.sendall(request(READ, n, n * READ_BYTES, READ_BYTES))
                exactly(client, REPLY_BYTES + READ_BYTES)
        figures.append(resident(running))
        for client in clients:
            client.close()
    columns = "  ".join(f"{figure:>10.1f}" for figure in figures)
    print(f"{title:<36} {started:>7.2f}  {columns}", flush=True)


def weight(n):
    return 200 if n % 2 else 100


def load(sock, seconds):
    """fio's arguments for the clients of the active VMs."""
    arguments = ["--ioengine=nbd", "--rw=randread", f"--bs={BLOCK}", f"--iodepth={DEPTH}",
                 f"--size={DISK_BYTES}", "--time_based", f"--runtime={seconds}"]  # fmt: skip
    for n in range(ACTIVE):
        arguments += [f"--name=vm{n}", f"--uri=nbd+unix:///vm{n}?socket={sock}"]
    return arguments


def answered(directory):
    """Reads answered so far, by VM."""
    vms = control_api(directory, "/v1/stats")["vms"]
    return {vm["vm"]: vm["operations"][0]["requests"] for vm in vms}


def shares(args, directory):
    config = configuration(
        directory,
        EMULATED,
        lambda n: f"objective = {{ weight = {weight(n)} }}\n",
        lambda _: f'size = "{DISK_BYTES} B"\n',
    )
    with daemon(args, directory, config) as running:
        whole = args.warm_up + args.seconds + START_SECONDS
        with Fio(load(running.sock, whole)) as fio:
            time.sleep(START_SECONDS + args.warm_up)
            progress(f"shares: {args.seconds} s")
            before, begin = answered(directory), time.monotonic()
            time.sleep(args.seconds)
            after, seconds = answered(directory), time.monotonic() - begin
            fio.jobs(whole + 60)
    progress("")
    rates = [(after[f"vm{n}"] - before[f"vm{n}"]) / seconds for n in range(ACTIVE)]
    total, weights = sum(rates), sum(weight(n) for n in range(ACTIVE))
    parts = [rate * weights / (total * weight(n)) for n, rate in enumerate(rates)]
    print(f"{ACTIVE} of {VMS} VMs active: {total:,.0f} IOPS; of what its weight gives it a VM has"
          f" {min(parts):.1%} to {max(parts):.1%}, median {statistics.median(parts):.1%}")  # fmt: skip


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate", default="target/release/tidegate",
                        help="the program (default: %(default)s)")  # fmt: skip
    parser.add_argument("--only", choices=["memory", "shares"], help="one of both (default: both)")
    parser.add_argument("--seconds", type=float, default=20,
                        help="time in which shares are measured (default: %(default)s)")  # fmt: skip
    parser.add_argument("--warm-up", type=float, default=10,
                        help="time before that (default: %(default)s)")  # fmt: skip
    parser.add_argument("--directory", help="where files are (default: a temporary directory)")
    return parser.parse_args()


def run(args):
    args.tidegate = str(Path(args.tidegate).resolve())
    if not Path(args.tidegate).exists():
        raise BenchError(f"{args.tidegate} is not there; build it with: make build")
    # Each VM has a file or a socket here, as it has in the daemon.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * VMS)), hard))
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        if args.only != "shares":
            print(f"{f'{VMS} VMS, RESIDENT MIB':<36} {'START S':>7}  "
                  f"{'IDLE':>10}  {'CLIENTS':>10}  {'READ':>10}")  # fmt: skip
            memory(args, Path(directory), "no objectives", PLAIN, "")
            memory(args, Path(directory), "objectives, device with a profile", PROFILED, OBJECTIVE)
        if args.only != "memory":
            shares(args, Path(directory))


if __name__ == "__main__":
    sys.exit(run_command("scale", run, parse_args))
