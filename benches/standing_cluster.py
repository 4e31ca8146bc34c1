#!/usr/bin/env python3
"""Times a run on a cluster that is there already, and prints its wall and CPU seconds as JSON.

    benches/standing_cluster.py PROGRAM EXECUTORS FOLDER COMMAND…

Starts a scheduler and executors on this machine, runs the command on them once, untimed, removes
the folder that it wrote, and runs it again. CPU time is that of the command and of the cluster.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


class Process:
    """A process of the cluster, until the end of the block."""

    def __init__(self, *command):
        self.command = [str(word) for word in command]

    def __enter__(self):
        self.child = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        return self

    def waited_for(self, words):
        """The rest of the line that contains these words."""
        for line in self.child.stderr:
            if words in line:
                return line.partition(words)[2].strip()
        sys.exit(f"{' '.join(self.command)} ended before it said `{words}`")

    def __exit__(self, *_):
        self.child.terminate()
        # Whatever it still says must not block it.
        self.child.communicate()


def main(program, executors, folder, *command):
    with Process(program, "cluster", "scheduler", "--listen", "127.0.0.1:0") as scheduler:
        address = scheduler.waited_for("listening on")
        cores = max(1, os.cpu_count() // int(executors))
        share = ["--slots", cores, "--jobs", 1]
        command = [*command, "--scheduler", address]
        with contextlib.ExitStack() as stack:
            for _ in range(int(executors)):
                executor = Process(program, "cluster", "executor", "--scheduler", address, *share)
                stack.enter_context(executor).waited_for("joined")
            subprocess.run(command, check=True)
            shutil.rmtree(folder)
            print(json.dumps(timed(command)))


def timed(command):
    began, before = time.perf_counter(), cpu_seconds()
    subprocess.run(command, check=True)
    return {"seconds": time.perf_counter() - began, "cpu": cpu_seconds() - before}


def cpu_seconds():
    """What this process, its children and theirs have used, ended ones included."""
    ticks, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))
        parents[int(folder.name)] = int(fields[1])
    return sum(ticks[pid] for pid in ticks if is_ours(pid, parents)) / TICK


def is_ours(pid, parents):
    while pid and pid != os.getpid():
        pid = parents.get(pid)
    return bool(pid)


if __name__ == "__main__":
    main(*sys.argv[1:])
