"""Network of `scripts/cluster-test`: a namespace for each host, joined by a bridge.

A partition takes a host's link down: this kernel has no netem, and a link that is down
drops packets in both directions without telling either end.
"""

import os
import subprocess
from pathlib import Path

SUBNET = "10.213.77"


class NetworkError(Exception):
    """Namespaces or links cannot be made."""


def ip(*words):
    """Runs `ip` with these words."""
    done = subprocess.run(("ip", *words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"ip {' '.join(words)}: {done.stderr.strip() or done.returncode}")


def unavailable():
    """Reason for which this machine cannot have the network; `None`: it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"tg{os.getpid()}probe"
    try:
        ip("netns", "add", probe)
        ip("netns", "delete", probe)
    except (NetworkError, FileNotFoundError) as error:
        return f"no network namespaces: {error}"
    return None


class Network:
    """Hosts 1 to `count`, each in a namespace of its own, on one bridge without an uplink."""

    def __init__(self, count):
        self.prefix = f"tg{os.getpid()}"
        self.switch = f"{self.prefix}s"
        self.hosts = range(1, count + 1)
        ip("netns", "add", self.switch)
        try:
            ip("-netns", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-netns", self.switch, "link", "set", "bridge", "up")
            for host in self.hosts:
                self._add(host)
        except NetworkError:
            self.remove()
            raise

    def _add(self, host):
        namespace, port = self.namespace(host), f"port{host}"
        ip("netns", "add", namespace)
        ip("-netns", self.switch, "link", "add", port, "type", "veth", "peer", "eth0", "netns", namespace)
        ip("-netns", self.switch, "link", "set", port, "master", "bridge", "up")
        ip("-netns", namespace, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        ip("-netns", namespace, "link", "set", "eth0", "up")
        ip("-netns", namespace, "link", "set", "lo", "up")

    def namespace(self, host):
        """Name of a host's namespace."""
        return f"{self.prefix}h{host}"

    @staticmethod
    def address(host):
        """IPv4 address of a host."""
        return f"{SUBNET}.{host}"

    def inside(self, host, *words):
        """Command line that runs `words` on a host; the process is `words`' own."""
        return ("ip", "netns", "exec", self.namespace(host), *map(str, words))

    def set_connected(self, host, connected):
        """Takes the host's link up or down."""
        ip("-netns", self.switch, "link", "set", f"port{host}", "up" if connected else "down")

    def remove(self):
        """Removes all namespaces, and with them the links."""
        present = {path.name for path in Path("/run/netns").glob(f"{self.prefix}*")}
        for namespace in (self.switch, *map(self.namespace, self.hosts)):
            if namespace in present:
                subprocess.run(("ip", "netns", "delete", namespace), check=False)
