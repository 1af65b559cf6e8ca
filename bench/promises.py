#!/usr/bin/env python3
"""Promises judged live: mixes of `make promises` against a daemon, by its own
attainment.

Each mix is served by a daemon without a profile, as a daemon is in its first
minute, and fio is its VMs, over NBD. The verdict is the daemon's: the kept and
missed seconds of each part of an objective that `tidegate vm show` has, from
the end of the warm-up on. The exit status is 1 if a part was missed.

  emulated  mixes of experiments/promises on emulated devices, scaled to the
            device as `tidegate promises --scenario` prints them. VMs with a
            deadline transfer are left out: fio cannot say when one begins.
  disk      two mixes with fixed figures on the disk below a directory: a
            latency target beside a writer, and a reservation beside long reads.

The daemon and fio share the machine's processors. Seconds in which the machine
itself stood still say nothing; how long it did is printed. On a busy machine:
chrt -r 5 python3 bench/promises.py
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from measure import BenchError, Fio, Running, Watcher, control_api, prefill, progress, serve
from workload import Workload, lines

# Mixes whose workloads fio has words for, and devices whose rates it reaches on two processors.
MIXES = ("p1-floors", "p1-latency", "p2-background", "oltp", "etcd", "noisy-writer", "ordinary-host")
DEVICES = ("hdd-7200-1tb", "ssd-sata-300gb")
START_SECONDS_MAX = 60
# A stream of writes goes round in so much of its disk, which is all in memory.
WRITTEN = 1 << 30
DISK_SIZE = 2 << 30

DISK_MIXES = {
    "latency": """
[[vm]]
name = "db"
objective = { reservation = "500 IOPS", latency = "20 ms" }
workload = [{ rw = "randread", bs = "8 KiB", rate_iops = "200 IOPS", rate_process = "poisson" }]
[[vm]]
name = "bulk"
workload = [{ rw = "write", bs = "1 MiB", iodepth = 16 }]
""",
    "floor": """
[[vm]]
name = "db"
objective = { reservation = "1000 IOPS", weight = 400 }
workload = [{ rw = "randread", bs = "8 KiB", iodepth = 16 }]
[[vm]]
name = "etl"
objective = { weight = 100 }
workload = [{ rw = "read", bs = "1 MiB", iodepth = 16 }]
""",
}


class Mix:
    """VMs with their objectives and workloads, on one device."""

    def __init__(self, name, device, table):
        self.name, self.device = name, device
        self.vms, self.workloads = [], []
        tenants = [(vm, False) for vm in table["vm"]]
        tenants += [(vm, True) for vm in table.get("background", [])]
        for vm, is_background in tenants:
            if any("deadline" in workload for workload in vm["workload"]):
                continue
            for copy in range(vm.get("count", 1)):
                vm_name = vm["name"] + (str(copy + 1) if "count" in vm else "")
                self.vms.append((vm_name, vm, is_background))
                self.workloads += [Workload(vm_name, workload) for workload in vm["workload"]]

    def served(self, args, directory, disk):
        """The daemon; `disk` gives the lines of a VM's disk."""
        vms = [(name, disk(name, vm), lines(vm.get("objective", {})),
                "background = true\n" if background else "")
               for name, vm, background in self.vms]  # fmt: skip
        return serve(args, directory, self.device, vms)

    def jobs(self, directory, seconds):
        head = ["[global]", "ioengine=nbd", "time_based", f"runtime={round(seconds)}s", "randseed=1",
                "norandommap"]  # fmt: skip
        file = directory / "jobs.fio"
        jobs = [self.fio(workload, directory, number) for number, workload in enumerate(self.workloads)]
        file.write_text("\n".join([*head, *jobs]) + "\n")
        return str(file)

    @staticmethod
    def fio(workload, directory, number):
        size = WRITTEN if workload.table["rw"] == "write" else "100%"
        return workload.fio(directory, f"{workload.vm}-{number}", size=size)


def emulated(args, model, name):
    """A mix on an emulated device, scaled to it."""
    command = [args.tidegate, "promises", "--scenario", "--device", model, "--mix", name,
               "--profile", "no", "--rtt", "100 us", "--seeds", "1"]  # fmt: skip
    out = subprocess.run(command, capture_output=True, check=True, text=True)
    table = tomllib.loads(out.stdout)
    return Mix(name, f'kind = "emulated"\nmodel = "{model}"\n', table)


def attainment(directory):
    """Kept, missed and stalled seconds by (VM, part)."""
    vms = control_api(directory, "/v1/vms")
    vms = vms["vms"] if isinstance(vms, dict) else vms
    return {(vm["name"], part["part"]): [part[key] for key in ("kept_s", "missed_s", "stalled_s")] +
            [part["detail"]] for vm in vms for part in vm.get("attainment", [])}  # fmt: skip


def judge(args, mix, directory, disk):
    """Rows of one live run."""
    with Watcher() as machine, Running(mix.served(args, directory, disk), directory / f"{mix.vms[0][0]}.sock"):
        total = args.warm_up + args.seconds + START_SECONDS_MAX
        with Fio([mix.jobs(directory, total)]) as fio:
            time.sleep(args.warm_up)
            before = attainment(directory)
            time.sleep(args.seconds)
            after = attainment(directory)
            if fio.process.poll() is not None:
                raise BenchError(f"{mix.name}: fio ended before its time")
    rows = []
    for key, (kept, missed, stalled, detail) in sorted(after.items()):
        earlier = before.get(key, [0, 0, 0, ""])
        kept, missed, stalled = (now - then for now, then in zip((kept, missed, stalled), earlier))
        judged = kept + missed
        rows.append({"vm": key[0], "part": key[1], "judged_s": judged, "missed_s": missed,
                     "stalled_s": stalled, "kept": judged > 0 and missed * 100 <= judged,
                     "detail": detail if judged else "nothing was judged"})  # fmt: skip
    return {"mix": mix.name, "parts": rows, "stalls_s": machine.stalls}


def show(where, result):
    for number, row in enumerate(result["parts"]):
        first = f"{where:16} {result['mix']:14}" if number == 0 else " " * 31
        verdict = "kept" if row["kept"] else f"MISSED: {row['detail']}"
        print(f"{first} {row['vm']:10} {row['part']:12} {row['judged_s']:>5} s judged, {row['missed_s']} missed  {verdict}")
    if result["stalls_s"]:
        print(f"{'':31} the machine stood still for {sum(result['stalls_s']):.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tidegate", default="target/release/tidegate", help="the program (default: %(default)s)")
    parser.add_argument("--device", default=",".join(DEVICES),
                        help="models of devices, separated by commas; '' for the disk alone"
                        " (default: %(default)s)")  # fmt: skip
    parser.add_argument("--mix", default=",".join(MIXES), help="mixes, separated by commas (default: %(default)s)")
    parser.add_argument("--directory", default="/var/tmp",
                        help="a directory on the disk to measure (default: %(default)s)")  # fmt: skip
    parser.add_argument("--no-disk", action="store_true", help="only emulated devices")
    parser.add_argument("--seconds", type=int, default=20, help="seconds of each mix that are judged (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=5, help="seconds before that (default: %(default)s)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table",
                        help="format of the results (default: %(default)s)")  # fmt: skip
    args = parser.parse_args()
    args.tidegate = Path(args.tidegate).resolve()
    if not os.access(args.tidegate, os.X_OK):
        parser.error(f"{args.tidegate} is not there; build it with: make build")
    runs = [(model, emulated(args, model, name)) for model in filter(None, args.device.split(","))
            for name in args.mix.split(",")]  # fmt: skip
    if not args.no_disk:
        device = 'kind = "file"\n'
        runs += [("disk", Mix(name, device, tomllib.loads(text))) for name, text in DISK_MIXES.items()]
    results = []
    for number, (where, mix) in enumerate(runs):
        progress(f"{number + 1}/{len(runs)}: {mix.name} on {where}")
        place = args.directory if where == "disk" else None
        directory = Path(tempfile.mkdtemp(prefix="tidegate-promises-", dir=place))
        try:
            if where == "disk":
                for name, *_ in mix.vms:
                    prefill(directory / f"{name}.raw", DISK_SIZE)
                os.sync()
                disk = lambda name, _: f'path = "{directory / name}.raw"\n'  # noqa: E731
            else:
                disk = lambda _, vm: lines(vm["disk"][0])  # noqa: E731
            result = judge(args, mix, directory, disk)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        results.append({"device": where, **result})
        if args.output == "table":
            show(where, result)
    if args.output == "json":
        json.dump(results, sys.stdout, indent=2)
    sys.exit(any(not row["kept"] for result in results for row in result["parts"]))


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"promises: {error}")
