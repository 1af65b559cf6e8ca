"""What the measuring programs here have in common: servers, fio, and saying what is wrong."""

import atexit
import ctypes
import http.client
import json
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
TICK = os.sysconf("SC_CLK_TCK")
START_SECONDS_MAX = 10
FIO_END_SECONDS_MAX = 10


class BenchError(Exception):
    """The measurement cannot be had, or cannot be believed."""


def first_line(*command):
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    return (out.stdout or out.stderr).strip().splitlines()[0]


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def interrupted(_signal, _frame):
    raise KeyboardInterrupt


def run_command(name, run, parse_args):
    """What a program here does, with what it says when that is not to be; its exit status."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, interrupted)
    try:
        run(parse_args())
    except BenchError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\n{name}: stopped", file=sys.stderr)
        return 130
    return 0


# ---------------------------------------------------------------------------- servers


class Awake:
    """Keeps the processors from halting for the time of a `with` block.

    A virtual processor that has halted takes 20 to 40 us to wake, so a request on an idle machine
    takes longer than the same request beside others. Where the kernel lets a program bound the
    latency of idle processors, their idle loop polls. Elsewhere a process of the scheduling class
    SCHED_IDLE spins on each of them: whatever else wants to run takes its place at once, but the
    scheduler finds no processor idle any more, and leaves programs on one that others use."""

    def __enter__(self):
        self.latency, self.spinners = None, []
        try:
            # Of no use without a driver that has a state which polls.
            driver = Path("/sys/devices/system/cpu/cpuidle/current_driver").read_text().strip()
            if driver != "none":
                self.latency = open("/dev/cpu_dma_latency", "wb", buffering=0)
                self.latency.write(struct.pack("i", 0))
                return self
        except OSError:
            pass
        self.spinners = [self.spin(cpu) for cpu in sorted(os.sched_getaffinity(0))]
        return self

    @staticmethod
    def spin(cpu):
        parent = os.getpid()
        child = os.fork()
        if child:
            return child
        try:
            die_with_parent()
            os.sched_setaffinity(0, {cpu})
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            # A parent that died before the first line is not noticed by it.
            while os.getppid() == parent:
                for _ in range(1_000_000):
                    pass
        finally:
            os._exit(0)

    def __exit__(self, *_):
        if self.latency:
            # The bound lasts for as long as the file is open.
            self.latency.close()
        for spinner in self.spinners:
            os.kill(spinner, signal.SIGKILL)
            os.waitpid(spinner, 0)


class Server:
    """One way to serve the file; `start` gives a process that listens on `socket`."""

    def __init__(self, name, version, command, export=""):
        self.name, self.version, self.command, self.export = name, version, command, export


def die_with_parent():
    """In a child: even if this program is killed, no server stays behind."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


class Running:
    """A server for the time of a `with` block, ended by its process id however that ends."""

    def __init__(self, server, sock):
        self.server, self.sock, self.process = server, sock, None

    def __enter__(self):
        self.sock.unlink(missing_ok=True)
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.server.command(self.sock),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            preexec_fn=die_with_parent,
            start_new_session=True,  # Ctrl-C is for us; we end the server.
        )
        try:
            self.wait_for_socket(self.sock)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        self.sock.unlink(missing_ok=True)

    def wait_for_socket(self, sock):
        """Waits until the server listens on a socket."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(sock))
                    return
                except OSError:
                    pass
            if self.process.poll() is not None:
                raise BenchError(f"{self.server.name} ended at once:\n{self.output()}")
            if time.monotonic() > deadline:
                raise BenchError(f"{self.server.name} does not listen:\n{self.output()}")
            time.sleep(0.005)

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-4000:]

    def stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def cpu_seconds(self):
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat[stat.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def uri(self):
        return f"nbd+unix:///{self.server.export}?socket={self.sock}"


def serve(args, directory, device, vms):
    """A Tidegate of these VMs, each (name, the lines of its disk, those of its objective where it has
    one, and its own other lines where it has any), each with a socket of its own."""
    config = directory / "tidegate.toml"
    text = f'[control]\nsocket = "{directory}/control.sock"\n'
    for name, *_ in vms:
        text += f'[[listen]]\nunix = "{directory}/{name}.sock"\nexports = ["{name}"]\n'
    text += f'[[device]]\nname = "disk"\n{device}'
    for name, disk, *more in vms:
        objective, own = [*more, "", ""][:2]
        text += f'[[vm]]\nname = "{name}"\n{own}'
        text += f"[vm.objective]\n{objective}" if objective else ""
        text += f"[[vm.disk]]\n{disk}"
    config.write_text(text)
    return Server("tidegate", "", lambda _: [str(args.tidegate), "serve", str(config)])


def control_api(directory, path):
    """What the daemon of `serve` answers to a GET on its control socket."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    with connection.sock:
        connection.sock.connect(str(directory / "control.sock"))
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise BenchError(f"GET {path}: {answer.status} {answer.reason}")
        return json.loads(answer.read())


def prefill(path, size):
    """Random bytes that differ from block to block."""
    block = bytearray(os.urandom(4 * MIB))
    with open(path, "wb") as file:
        for index in range(size // len(block)):
            for at in range(0, len(block), 4096):
                block[at : at + 8] = (index * 1024 + at // 4096).to_bytes(8, "little")
            file.write(block)


# ---------------------------------------------------------------------------- the machine


class Watcher:
    """Whether the machine stood still during a `with` block: somebody who sleeps for 10 ms at a time and
    wakes far too late. What was measured meanwhile says nothing of a server."""

    SLEEP, LATE = 0.01, 0.1

    def __enter__(self):
        self.stalls, self.ended = [], threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    def watch(self):
        before = time.monotonic()
        while not self.ended.wait(self.SLEEP):
            now = time.monotonic()
            if now - before - self.SLEEP > self.LATE:
                self.stalls.append(now - before)
            before = now

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


class KernelScheduler:
    """The scheduler of the disk under a file; what it was comes back at the end of the block, or of this
    program where that is cut short."""

    def __init__(self, path):
        self.disk, self.knob, self.offered, self.before = None, None, [], None
        device = os.stat(path).st_dev
        node = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
        for place in (node, node.parent):
            knob = place / "queue" / "scheduler"
            if knob.exists():
                words = knob.read_text().split()
                self.offered = [word.strip("[]") for word in words]
                self.before = next((w.strip("[]") for w in words if w.startswith("[")), None)
                self.disk, self.knob = place.name, knob if os.access(knob, os.W_OK) else None
                break

    def __enter__(self):
        atexit.register(self.put_back)
        return self

    def use(self, name):
        self.knob.write_text(name)
        if f"[{name}]" not in self.knob.read_text():
            raise BenchError(f"{self.knob} does not take {name!r}")

    def put_back(self):
        if self.knob and self.before:
            self.knob.write_text(self.before)

    def __exit__(self, *_):
        self.put_back()
        atexit.unregister(self.put_back)


# ---------------------------------------------------------------------------- fio


class Fio:
    """fio, while it runs; ended with its jobs at the end of a `with` block."""

    def __init__(self, arguments):
        command = ["fio", "--output-format=json", *arguments]
        self.shown = " ".join(command)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=die_with_parent
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is not None:
            return
        # It ends its jobs, which may be processes of their own, before itself.
        self.process.terminate()
        try:
            self.process.communicate(timeout=FIO_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def jobs(self, seconds_max):
        """What it reports of its jobs. It must end within so many seconds, and say nothing besides."""
        try:
            out, err = self.process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired as timeout:
            raise BenchError(f"fio did not end: {self.shown}") from timeout
        return reported(out.decode(), err.decode().strip(), self.process.returncode, self.shown)


def run_fio(arguments, seconds_max):
    with Fio(arguments) as fio:
        return fio.jobs(seconds_max)


def reported(text, noise, status, shown):
    if status or "{" not in text:
        raise BenchError(f"fio failed ({status}): {shown}\n{noise}{text}")
    # Notices come before the JSON; any but this one may mean that an option was not taken.
    notices, text = text[: text.index("{")] + noise, text[text.index("{") :]
    notices = [n for n in notices.splitlines() if n and n != "fio: connected to NBD server"]
    if notices:
        raise BenchError(f"fio said something: {notices}\n{shown}")
    return json.loads(text)["jobs"]
