"""Workloads of scenarios as fio's jobs: the words, units and defaults that both have."""

import json

from measure import GIB, KIB, MIB, BenchError

SIZES = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
TIMES_US = {"us": 1, "ms": 1_000, "s": 1_000_000}


def figure(text, units):
    """A figure with its unit, in the smallest of the units."""
    number, unit = text.split(" ")
    if unit not in units:
        raise BenchError(f"{text!r}: unknown unit; one of {', '.join(units)}")
    return round(float(number) * units[unit])


def toml(value):
    """A value as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def lines(table):
    """A table as TOML, a key a line."""
    return "".join(f"{key} = {toml(value)}\n" for key, value in table.items())


class Workload:
    """A workload of a VM, in the scenario's words."""

    # fio has the same name and unit for these.
    SAME = ("rw", "rwmixread", "iodepth", "numjobs", "fsync", "rate_process", "random_distribution")
    SIZED = ("bs", "size", "offset", "offset_increment")
    TIMES = ("startdelay", "thinktime")
    RATES = ("rate_iops",)

    def __init__(self, vm, table):
        self.vm, self.table = vm, table
        known = {*self.SAME, *self.SIZED, *self.TIMES, *self.RATES}
        if unknown := set(table) - known:
            raise BenchError(f"{vm}: no option of fio is known for {', '.join(sorted(unknown))}")

    def fio(self, directory, section, *options, size="100%"):
        """A section of fio's job file; `size`: of the file, where the workload sets none."""
        table = self.table
        own = [f"[{section}]", *options,
               f"uri=nbd+unix:///{self.vm}?socket={directory / self.vm}.sock"]  # fmt: skip
        # fio 3.33 ends an NBD job that has both a rate and flushes with an error.
        paced = "fsync" in table and "rate_iops" in table
        same = [key for key in self.SAME if key in table and not (paced and key == "rate_process")]
        own += [f"{key}={table[key]}" for key in same]
        own += [f"{key}={figure(table[key], SIZES)}" for key in self.SIZED if key in table]
        own += [f"{key}={figure(table[key], TIMES_US)}us" for key in self.TIMES if key in table]
        if "rate_iops" in table:
            rate = float(table["rate_iops"].split()[0])
            own.append(f"thinktime={round(1e6 / rate)}" if paced else f"rate_iops={round(rate)}")
        if "size" not in table:
            own.append(f"size={size}")
        return "\n".join(own)
