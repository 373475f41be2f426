"""Two hosts on one machine: network namespaces with a cable between them, and mounts of their own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

NETWORK = "10.213.77"  # private addresses, which exist in the namespaces alone
TOOLS = ("ip", "unshare", "mount")


class TwoHosts:
    """Within the block, commands can run on host 0 and on host 1; afterwards nothing of it is left."""

    def __init__(self) -> None:
        self.names = [f"fp{os.getpid()}-{number}" for number in range(2)]
        self.addresses = [f"{NETWORK}.{number + 1}" for number in range(2)]
        self._folder = tempfile.TemporaryDirectory(prefix="hosts")
        self._file = Path(self._folder.name, "hosts")  # gloo asks for the address of its host's name
        lines = [f"{address} host-{number}" for number, address in enumerate(self.addresses)]
        self._file.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]), encoding="utf-8")

    def __enter__(self) -> TwoHosts:
        try:
            for name in self.names:
                ip("netns", "add", name)
            ends = [f"v{os.getpid()}{end}" for end in "ab"]  # at most 15 characters
            ip(
                "link",
                "add",
                ends[0],
                "netns",
                self.names[0],
                "type",
                "veth",
                "peer",
                ends[1],
                "netns",
                self.names[1],
            )
            for name, end, address in zip(self.names, ends, self.addresses, strict=True):
                ip("-n", name, "address", "add", f"{address}/24", "dev", end)
                ip("-n", name, "link", "set", end, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for name in self.names:  # the cable goes with them
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        self._folder.cleanup()

    def command(self, number: int, words: list[Any], hidden: Path | None = None) -> list[str]:
        """A command on one of the hosts, which has a name of its own.

        Args:
            number: 0 or 1.
            words: The command.
            hidden: A folder in whose place this host has a disk of its own.
        """
        file = shlex.quote(str(self._file))
        steps = [f"hostname host-{number}", f"mount --bind {file} /etc/hosts"]
        if hidden is not None:
            steps.append(f"mount -t tmpfs none {shlex.quote(str(hidden))}")
        steps.append("exec " + shlex.join([str(word) for word in words]))
        inside = ["unshare", "--mount", "--uts", "sh", "-c", " && ".join(steps)]
        return ["ip", "netns", "exec", self.names[number], *inside]


def ip(*words: str) -> None:
    """Run `ip` and raise what it says if it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def find_obstacle() -> str | None:
    """Why namespaces cannot be made here; None if they can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    try:
        with TwoHosts() as hosts:
            done = subprocess.run(hosts.command(1, ["true"]), capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return done.stderr.strip() or "commands do not run there" if done.returncode else None


def without_network(words: list[Any]) -> list[str]:
    """The command where there is no network but the loopback; the command as it is if that cannot be had."""
    plain = [str(word) for word in words]
    inside = ["unshare", "--net", "sh", "-c", f"ip link set lo up && exec {shlex.join(plain)}"]
    can = all(map(shutil.which, TOOLS)) and not subprocess.run([*inside[:2], "true"], check=False).returncode
    return inside if can else plain
