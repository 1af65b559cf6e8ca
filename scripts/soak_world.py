"""The daemon that `scripts/soak` soaks: what it lies on, how it is asked, what it uses."""

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
TICK = os.sysconf("SC_CLK_TCK")
START_SECONDS_MAX = 30
END_SECONDS_MAX = 120

# Name, MiB, whether it is a tenant of the host.
VMS = (
    ("alpha", 256, False),
    ("beta", 192, False),
    ("ledger", 32, False),
    ("prey", 64, False),
    ("doomed", 64, False),
    ("backup", 64, True),
)


class SoakError(Exception):
    """What was soaked did not hold, or cannot be soaked."""


def die_with_parent():
    """In a child: even if this program is killed, none stays behind."""
    pr_set_pdeathsig = 1
    LIBC.prctl(pr_set_pdeathsig, signal.SIGTERM)


LIBC = ctypes.CDLL(None)


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SoakError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


class Backing:
    """What the disks lie on; `disk` is the configuration of one, `device` that of the device."""

    def __init__(self, kind, model, directory):
        self.kind, self.model, self.directory = kind, model, directory
        self.loops = {}

    def device(self):
        if self.kind == "emulated":
            return f'kind = "emulated"\nmodel = "{self.model}"\n'
        return f'kind = "{"memory" if self.kind == "memory" else "file"}"\n'

    def prepare(self):
        if self.kind != "block":
            return
        for name, mib, _ in VMS:
            image = self.directory / f"{name}.img"
            with open(image, "wb") as file:
                file.truncate(mib * MIB)
            self.loops[name] = command(
                "losetup", "--find", "--show", "--direct-io=on", "--sector-size=4096", image
            )

    def disk(self, name, mib):
        size = f'size = "{mib} MiB"\n'
        if self.kind == "memory":
            return size
        if self.kind == "block":
            return f'path = "{self.loops[name]}"\n'
        return f'path = "{name}.raw"\ncreate = "sparse"\n{size}'

    def keeps_bytes(self):
        return self.kind != "memory"

    def remove(self):
        for device in self.loops.values():
            subprocess.run(["losetup", "--detach", device], check=False)
        self.loops.clear()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("tidegate", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Daemon:
    """`tidegate serve` in a directory of its own; it can be ended and started again."""

    def __init__(self, binary, backing, directory):
        self.binary, self.backing, self.directory = binary, backing, directory
        self.nbd = directory / "nbd.sock"
        self.control = directory / "control.sock"
        self.log = directory / "log"
        self.process = None
        self.cpu_before = 0.0
        self.config = directory / "tidegate.toml"

    def write_config(self):
        text = (
            '[control]\nsocket = "control.sock"\n[[listen]]\nunix = "nbd.sock"\n'
            f'[[device]]\nname = "disk"\n{self.backing.device()}'
            # Little memory for payloads: clients wait for it all the time.
            'buffer_memory = "64 MiB"\nbuffer_memory_per_vm = "24 MiB"\n'
        )
        for name, mib, background in VMS:
            text += f'[[vm]]\nname = "{name}"\n'
            text += "background = true\n" if background else ""
            text += f"[[vm.disk]]\n{self.backing.disk(name, mib)}"
        self.config.write_text(text)

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(self.binary), "serve", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "NO_COLOR": "1"},
                preexec_fn=die_with_parent,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (listens(self.nbd) and listens(self.control)):
            self.assert_runs()
            if time.monotonic() > deadline:
                raise SoakError(f"the daemon does not listen on {self.nbd}")
            time.sleep(0.02)

    def assert_runs(self):
        if (status := self.process.poll()) is not None:
            raise SoakError(f"the daemon has ended by itself ({status}):\n{self.last_words()}")

    def last_words(self):
        return self.log.read_text(errors="replace")[-3000:]

    def end(self, in_order):
        """SIGTERM and whatever it still has to do, or SIGKILL."""
        if self.process is None:
            return
        self.cpu_before += self.cpu_of_this_life()
        self.process.send_signal(signal.SIGTERM if in_order else signal.SIGKILL)
        try:
            status = self.process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise SoakError(f"the daemon did not end {END_SECONDS_MAX} s after SIGTERM") from None
        finally:
            self.process = None
        if in_order and status != 0:
            raise SoakError(f"the daemon ended with {status}:\n{self.last_words()}")

    def cpu_of_this_life(self):
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat[stat.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def cpu_seconds(self):
        return self.cpu_before + (self.cpu_of_this_life() if self.process else 0)

    def resident(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * KIB
        raise SoakError("the daemon has no memory")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def ask(self, method, path, body=None):
        """Status and text of an answer of the control API."""
        connection = UnixConnection(self.control)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def uri(self, export):
        return f"nbd+unix:///{export}?socket={self.nbd}"


def listens(path):
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
