#!/usr/bin/env python3
"""Measures the costs of a unit on this machine with a real program, as JSON for scaling.py.

    benches/unit_costs.py PROGRAM [--small 120] [--bulk-seconds 60] >costs.json

Runs a scheduler, an executor and drivers on loopback, in a temporary folder. The cost per unit is
the difference between many tiny logs and few, so that the fixed cost of a run cancels out; the cost
per file is the difference between logs that become one file each and logs that become many. The CPU
of each part is read from the system while it runs. Only this machine's storage and network are
measured. PROGRAM has to be the full one.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
# The timeout in seconds for a part of the cluster to become ready.
READY = 60
# Seconds after which a process that has run units has ended.
IDLE = 0.6

MAKE = """
[sources.drive]
plugin = "demo"
seconds = {seconds}
seed = {seed}
[sinks.log]
plugin = "lcm-log"
from = "drive"
path = "{path}"
"""
CONVERT = """
[sources.log]
plugin = "lcm-log"
path = "{logs}/*.lcm"
{stage}
[sinks.out]
plugin = "{sink}"
from = "{between}"
path = "{out}/{{stem}}{suffix}"
"""
TYPED = """
[stages.typed]
plugin = "decode"
from = "log"
types = "mit-dgc"
"""


def cpu_of(pid):
    """CPU seconds of a process itself, and of the children it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, children = (sum(int(field) for field in fields[first:first + 2]) / TICKS
                     for first in (11, 13))
    return own, children


class Part:
    """A part of the cluster, until the end of this program. Its stderr goes into a file."""

    def __init__(self, program, file, *words, says):
        command = [program, "cluster", *words]
        with open(file, "wb") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=said,
                                            start_new_session=True)
        until = time.monotonic() + READY
        while not (found := re.search(says, file.read_text())):
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                sys.exit(
                    f"unit_costs.py: `{' '.join(words)}` did not say {says!r}, but {file.read_text()!r}")
            time.sleep(0.02)
        self.said = found[found.lastindex or 0]

    def cpu(self):
        return cpu_of(self.process.pid)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Site:
    """A folder with logs and pipelines, and a cluster."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.parts, self.runs = [], 0

    def start(self):
        words = ["scheduler", "--listen", "127.0.0.1:0"]
        scheduler = Part(self.program, self.folder / "scheduler", *words,
                         says=r"listening on (\S+)\n")
        self.parts.append(scheduler)
        self.address = scheduler.said
        words = ["executor", "--scheduler", self.address, "--slots", "1", "--jobs", "1"]
        self.parts.append(Part(self.program, self.folder / "executor", *words, says="joined"))

    def end(self):
        for part in reversed(self.parts):
            part.end()

    def logs(self, name, count, seconds):
        folder = self.folder / name
        folder.mkdir()
        file = self.folder / "make.toml"
        for number in range(count):
            file.write_text(
                MAKE.format(seconds=seconds, seed=number, path=folder / f"{number:05}.lcm"))
            self.sluice("run", "-q", "--progress", "none", file)
        return folder

    def run(self, logs, *flags, sink="parquet", suffix="/", stage=""):
        """Converts the logs of a folder; returns wall time, CPU of the driver and of the others,
        and the output size."""
        self.runs += 1
        out, file = self.folder / f"out-{self.runs}", self.folder / f"run-{self.runs}.toml"
        between = "typed" if stage else "log"
        file.write_text(CONVERT.format(logs=logs, out=out, sink=sink, suffix=suffix, stage=stage,
                                       between=between))
        before = [part.cpu() for part in self.parts]
        began = time.perf_counter()
        command = [self.program, "run", "-q", "--progress", "none", *map(str, flags), str(file)]
        pid = os.posix_spawn(command[0], command, os.environ)
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - began
        if status:
            sys.exit(f"unit_costs.py: {' '.join(command)} failed")
        # Until then, the time of a process that waits for another unit is not counted.
        time.sleep(IDLE)
        after = [part.cpu() for part in self.parts]
        of_parts = [[a - b for a, b in zip(new, old)] for new, old in zip(after, before)]
        files = [path for path in out.rglob("*") if path.is_file()
                 and path.name != "_manifest.json"]
        return {"wall": wall, "driver": usage.ru_utime + usage.ru_stime, "parts": of_parts,
                "files": len(files),
                "bytes": sum(path.stat().st_size for path in files)}

    def sluice(self, *words):
        subprocess.run([self.program, *map(str, words)], check=True, stdin=subprocess.DEVNULL)

    def on_cluster(self, logs, **more):
        return self.run(logs, "--engine", "ballista", "--scheduler", self.address, **more)


def folder_sync(folder, count=50):
    """The median seconds to sync a folder after a rename in it."""
    took = []
    for number in range(count):
        within = folder / f"sync-{number}"
        within.mkdir()
        (within / "new").write_bytes(bytes(4096))
        (within / "new").rename(within / "named")
        opened = os.open(within, os.O_RDONLY)
        began = time.perf_counter()
        os.fsync(opened)
        took.append(time.perf_counter() - began)
        os.close(opened)
    return statistics.median(took)


def per_unit(few, many, count, of):
    """The cost per unit: the difference between two runs."""
    return max(0.0, (of(many) - of(few)) / count)


def measure(site, options):
    costs = {}
    bulk = site.logs("bulk", 1, options.bulk_seconds)
    size = sum(path.stat().st_size for path in bulk.iterdir()) / 1e6
    some = site.logs("few", 4, 0.02)
    more = site.logs("many", 4 + options.small, 0.02)
    tiny = sum(path.stat().st_size for path in more.iterdir()) / 1e6 / (4 + options.small)
    # One thread, on this machine: the rate of a core.
    site.run(bulk, "--jobs", 1, stage=TYPED)
    whole = site.run(bulk, "--jobs", 1, stage=TYPED)
    nothing = site.run(some, "--jobs", 1, stage=TYPED)
    costs["rate"] = (size - 4 * tiny) / max(1e-6, whole["wall"] - nothing["wall"])
    costs["written"] = whole["bytes"] / 1e6 / size
    costs["files"] = whole["files"]
    site.start()
    lines = {"sink": "lcm-log", "suffix": ".lcm"}
    few, many = site.on_cluster(some, **lines), site.on_cluster(more, **lines)
    wide_few, wide = site.on_cluster(some), site.on_cluster(more)
    count = options.small
    files = (wide["files"] - wide_few["files"]) / count - 1
    print(f"local and cluster, {size:.0f} MB typed: {whole}",
          f"{count} tiny logs, a file each: {many}",
          f"{count} tiny logs, {files + 1:.0f} files each: {wide}", sep="\n", file=sys.stderr)
    wall, driver = (lambda run: run["wall"]), (lambda run: run["driver"])
    scheduler = lambda run: sum(run["parts"][0])
    own, children = (lambda run: run["parts"][1][0]), (lambda run: run["parts"][1][1])
    costs["dispatch"] = per_unit(few, many, count, scheduler)
    costs["publish"] = per_unit(few, many, count, driver)
    costs["publish_file"] = max(0.0,
                                per_unit(wide_few, wide, count, driver) - costs["publish"]) / files
    costs["publish_sync"] = folder_sync(site.folder)
    costs["start"] = per_unit(few, many, count, lambda run: own(run) + children(run))
    # With one slot, the rest of a unit's time is waiting: for the order, for disks, for the
    # driver's poll.
    costs["hand_over"] = max(0.0,
                             per_unit(few, many, count, wall) - costs["start"] - costs["dispatch"])
    costs["sync"] = max(
        0.0, per_unit(wide_few, wide, count, wall) - per_unit(few, many, count, wall)) / files
    return costs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--small", type=int, default=120, help="how many tiny logs")
    parser.add_argument("--bulk-seconds", type=int, default=60, help="length of the long log")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-costs-") as folder:
        site = Site(str(options.program.resolve()), Path(folder))
        try:
            costs = measure(site, options)
        finally:
            site.end()
    json.dump({name: round(value, 6) for name, value in costs.items()}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
