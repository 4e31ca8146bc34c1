#!/usr/bin/env python3
"""Measures how time and memory grow with the length of a log and its channels, as Markdown and SVG.

    benches/growth.py [--gb 1,2,4,8] [--channels 10,100,1000] [--pipe-gb 64] [--svg FILE]

Each log is generated, used and removed, since the longest may not fit beside others; outputs go to
memory. The machine has to be idle: sizes cannot take turns. The figures are the least of several
rounds. What is expected is a line: a job of eight times the length takes eight times as long, in
the same memory.
"""

import argparse
import os
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import programs
from harness import Job, adopt_orphans, remove, say, warm

CORES = os.cpu_count()


@dataclass(frozen=True)
class Point:
    """One job on one log."""
    job: str
    threads: int
    channels: int
    gb: float
    events: int
    wall: float
    cpu: float
    # In MiB.
    anonymous: float

    @property
    def line(self):
        return self.job, self.threads


class Bench:
    def __init__(self, options):
        self.release, self.program = programs.built(options.build)
        self.rounds, self.data = options.rounds, options.data
        self.out = Path(tempfile.mkdtemp(prefix="growth-", dir=options.out))
        self.data.mkdir(exist_ok=True)

    def generator(self, *words):
        return [self.release / "gen-log", *words]

    def points(self, words, threads):
        """All jobs on one generated log, which is removed afterwards."""
        log = self.data / "growth.lcm"
        say(f"making {' '.join(words)}")
        table = run(self.generator(*words, log))
        channels, events = counted(table)
        gb = log.stat().st_size / 1e9
        try:
            for job, command in self.jobs(log).items():
                for count in threads:
                    say(f"{job}, {gb:.1f} GB, {channels} channels, {count} threads")
                    walls, cpus, memory = zip(
                        *(self.warmed([*command, "--jobs", count], log)
                          for _ in range(self.rounds)))
                    yield Point(job, count, channels, gb, events, min(walls), min(cpus),
                                max(memory))
        finally:
            log.unlink()

    def jobs(self, log):
        convert = [self.program, "convert", log, "--quiet", "--to"]
        return {
            "copy": [*convert, self.out / "copy.lcm"],
            "one Parquet table": [*convert, self.out / "table.parquet"],
        }

    def warmed(self, command, log):
        """The cost of a command. As in `run.py`, no run pays for untouched memory."""
        warm(self.out / "warm", log.stat().st_size)
        return self.once(command)

    def once(self, command):
        """Wall and CPU seconds, and the most anonymous memory in MiB, of a command that writes."""
        out = command[command.index("--to") + 1]
        job = Job("growth", "growth", "sluice", None, command, out=out)
        wall, cpu = job.run_once(self.out / "printed", watch=True)
        return wall, cpu, job.anonymous / 1024

    def piped(self, gb):
        """A log that is longer than the memory, generated while it is read."""
        pipe = self.out / "pipe.lcm"
        os.mkfifo(pipe)
        tables = []
        words = self.generator("dgc", "--mb", gb * 1000, pipe)
        making = threading.Thread(target=lambda: tables.append(run(words)))
        making.start()
        say(f"{gb} GB through a pipe")
        command = [self.program, "convert", pipe, "--quiet", "--channel", "POSE", "--types",
                   "mit-dgc", "--to", self.out / "pose.parquet"]
        wall, cpu, memory = self.once(command)
        making.join()
        pipe.unlink()
        channels, events = counted(tables[0])
        return Point("typed rows of one channel", CORES, channels, gb, events, wall, cpu, memory)


def run(words):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True,
                          check=True).stdout


def counted(table):
    """The channels of a generated log, and its events."""
    rows = [line.split("\t") for line in table.splitlines()]
    return len(rows), sum(int(row[1]) for row in rows)


def table_of(points, first):
    """A table of Markdown. What a GB takes is compared with the first point of the same line."""
    columns = ["job", "threads", "GB", "channels", "M events", "wall s", "CPU s", "anonymous MiB",
               "wall per GB, of the first", "CPU"]
    yield f"| {' | '.join(columns)} |"
    yield "|" + " --- |" * len(columns)
    for point in points:
        base = first[point.line]
        each = point.gb / base.gb
        cells = [point.job, point.threads, f"{point.gb:.1f}", f"{point.channels:,}",
                 f"{point.events / 1e6:.2f}", f"{point.wall:.2f}", f"{point.cpu:.2f}",
                 f"{point.anonymous:.0f}", f"{point.wall / base.wall / each:.2f}",
                 f"{point.cpu / base.cpu / each:.2f}"]
        yield f"| {' | '.join(map(str, cells))} |"


def firsts(points):
    found = {}
    for point in points:
        found.setdefault(point.line, point)
    return found


# The picture: two diagrams beside each other, in pixels.
WIDTH, HEIGHT, MARGIN = 340, 240, 50
COLOURS = ["#1f77b4", "#7fb3d8", "#d62728", "#ef9a9a"]


def picture(points):
    """Time and memory over length, as SVG."""
    most_gb = max(point.gb for point in points)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * (WIDTH + MARGIN) + 20}" '
             f'height="{HEIGHT + 2 * MARGIN + 20}" font-family="sans-serif" font-size="11">',
             '<rect width="100%" height="100%" fill="white"/>']
    diagrams = [("wall seconds", lambda point: point.wall),
                ("anonymous MiB", lambda point: point.anonymous)]
    for number, (title, of) in enumerate(diagrams):
        left = MARGIN + number * (WIDTH + MARGIN + 10)
        most = nice(max(of(point) for point in points))
        parts += axes(left, title, most, most_gb)
        for colour, line in zip(COLOURS, firsts(points)):
            some = [point for point in points if point.line == line]
            spots = [(left + point.gb / most_gb * (WIDTH - 20),
                      MARGIN + HEIGHT * (1 - of(point) / most)) for point in some]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                         'stroke-width="2"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
                      for x, y in spots]
    for number, (colour, (job, threads)) in enumerate(zip(COLOURS, firsts(points))):
        x, y = MARGIN + 190 * number, HEIGHT + 2 * MARGIN + 8
        label = f"{job}, {threads} thread{'s' if threads > 1 else ''}"
        parts.append(f'<rect x="{x}" y="{y - 8}" width="10" height="10" fill="{colour}"/>'
                     f'<text x="{x + 15}" y="{y + 1}">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])


def axes(left, title, most, most_gb):
    bottom = MARGIN + HEIGHT
    yield f'<text x="{left}" y="{MARGIN - 20}" font-size="13">{title}</text>'
    for step in range(5):
        y = bottom - HEIGHT * step / 4
        yield (f'<line x1="{left}" y1="{y}" x2="{left + WIDTH}" y2="{y}" stroke="#ddd"/>'
               f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{most * step / 4:g}</text>')
    gb = 1
    while gb <= most_gb * 1.01:
        x = left + gb / most_gb * (WIDTH - 20)
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{gb} GB</text>'
        gb *= 2


def nice(value):
    """The next round number for an axis."""
    for digits in range(-2, 6):
        for first in (1, 2, 4, 8):
            if value <= first * 10 ** digits:
                return first * 10 ** digits
    return value


def arguments():
    numbers = lambda text: [int(word) for word in text.split(",") if word]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=numbers, default=[1, 2, 4, 8], help="lengths, in GB")
    parser.add_argument("--channels", type=numbers, default=[10, 100, 1000, 10_000, 65_536],
                        help="numbers of channels, in logs of a GB")
    parser.add_argument("--pipe-gb", type=int, default=64,
                        help="length of the log that comes through a pipe; 0 for none")
    parser.add_argument("--rounds", type=int, default=3)
    programs.add_options(parser)
    parser.add_argument("--svg", type=Path, help="write the picture of the lengths to this file")
    return parser.parse_args()


def main():
    options = arguments()
    bench = Bench(options)
    adopt_orphans()
    threads = sorted({1, CORES})
    try:
        by_length = [point for gb in options.gb
                     for point in bench.points(["dgc", "--mb", str(gb * 1000)], threads)]
        by_channels = [point for channels in options.channels
                       for point in bench.points(["many", "--channels", str(channels)], threads)]
        through_pipe = [bench.piped(options.pipe_gb)] if options.pipe_gb else []
    finally:
        remove(bench.out)
    for points in (by_length, by_channels, through_pipe):
        if points:
            points = sorted(points, key=lambda point: point.line)
            print("\n".join(["", *table_of(points, firsts(points))]))
    if options.svg and by_length:
        options.svg.write_text(picture(by_length))


if __name__ == "__main__":
    main()
