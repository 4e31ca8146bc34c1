"""The logs of the benchmarks: deterministic generated ones, or real ones from the user."""

import subprocess
from functools import cached_property
from pathlib import Path

from harness import fail, say

HERE = Path(__file__).resolve().parent
# The programs that generate logs, and the sources that determine their output.
GENERATORS = {"gen-log": ("mix.rs", "robots.rs"), "decoders": ("bin/decoders.rs", "robots.rs"),
              "points": ("points.rs",)}
# The command of each, and its length in millions of bytes or in events.
MADE_UP = {
    "dgc": (["gen-log", "dgc", "--mb"], 1000),
    "small": (["gen-log", "small", "--events"], 10_000_000),
    "many": (["gen-log", "many", "--mb"], 1000),
    "large": (["gen-log", "dgc", "--mb"], 4000),
    "car": (["gen-log", "dgc", "--mb"], 200),
    "pose": (["decoders", "make", "pose"], 500_000),
    "imu": (["decoders", "make", "imu"], 500_000),
    "laser": (["decoders", "make", "laser"], 100_000),
    "status": (["decoders", "make", "status"], 300_000),
    "vel": (["gen-log", "vel", "--mb"], 1000),
    "large-vel": (["gen-log", "vel", "--mb"], 4000),
    "orca": (["gen-log", "orca", "--mb"], 1000),
    "vel-scans": (["decoders", "make", "vel"], 60_000),
    "orca-scans": (["decoders", "make", "orca"], 80_000),
    "velodyne": (["points", "make"], 100_000),
}


class Log:
    """A log, with the events and payload bytes of each channel. Generated on demand."""

    def __init__(self, name, path, programs):
        self.name, self.path, self.programs = name, path, programs
        self.there = False

    def __str__(self):
        return str(self.path)

    def make(self):
        if not self.there:
            self.write()
            self.there = True

    def write(self):
        """Does nothing, unless the log is generated."""

    def table(self):
        """Channel, events and bytes, with tabs between them."""
        counted = subprocess.run([self.programs / "read-loop", self.path], stdout=subprocess.PIPE,
                                 check=False)
        if counted.returncode:
            fail(f"{self.path} is no clean LCM log")
        return counted.stdout.decode()

    @cached_property
    def bytes(self):
        self.make()
        # An Orca log has more files than its master.
        files = [self.path, *self.path.parent.glob(f"{self.name}_*.log")]
        return sum(file.stat().st_size for file in files)

    @cached_property
    def channels(self):
        self.make()
        rows = [line.split("\t") for line in self.table().splitlines()]
        return {channel: (int(events), int(size)) for channel, events, size in rows}

    @cached_property
    def events(self):
        return sum(events for events, _ in self.channels.values())

    def counted(self):
        """The expected output of a program that counts events and payload bytes."""
        return "".join(f"{c}\t{n}\t{size}\n" for c, (n, size) in sorted(self.channels.items()))

    def carried(self, keeps=lambda channel: True):
        """The expected output of a pipeline that keeps some channels."""
        rows = sorted(self.channels.items())
        return "".join(f"{c}\t{n}\t{n if keeps(c) else 0}\n" for c, (n, _) in rows)


class MadeUp(Log):
    """A generated log, kept until the generator changes."""

    def __init__(self, name, data, programs, percent, how=None):
        suffix = {"vel": ".vel", "large-vel": ".vel", "orca": ".orca"}.get(name, ".lcm")
        super().__init__(name, data / f"{name}{suffix}", programs)
        words, length = how or MADE_UP[name]
        self.how = [*words, str(max(1, length * percent // 100))]

    def table(self):
        return self.path.with_suffix(".tsv").read_text()

    def write(self):
        stamp = self.path.with_suffix(".made")
        program, *words = self.how
        generator = "".join((HERE / "src" / file).read_text()
                            for file in GENERATORS[program]) + repr(self.how)
        if stamp.exists() and stamp.read_text() == generator and self.path.exists():
            return
        say(f"making {self.path}")
        with open(self.path.with_suffix(".tsv"), "wb") as table:
            subprocess.run([self.programs / program, *words, self.path], stdout=table, check=True)
        stamp.write_text(generator)

    def remove(self):
        for path in [*self.path.parent.glob(f"{self.name}.*"),
                     *self.path.parent.glob(f"{self.name}_*.log")]:
            path.unlink()


class Drives(Log):
    """Twenty logs like `dgc`, of different lengths, a gigabyte in total."""

    COUNT = 20

    def __init__(self, data, programs, percent):
        super().__init__("drives", data / "drives", programs)
        self.path.mkdir(exist_ok=True)
        # 12 to 88 MB, long ones among short ones.
        lengths = [12 + 4 * (number * 7 % self.COUNT) for number in range(self.COUNT)]
        self.logs = [MadeUp(f"{number:02}", self.path, programs, percent,
                            (["gen-log", "dgc", "--mb"], length))
                     for number, length in enumerate(lengths)]

    def write(self):
        for log in self.logs:
            log.make()

    @cached_property
    def bytes(self):
        return sum(log.bytes for log in self.logs)

    @cached_property
    def channels(self):
        sums = {}
        for channel, (events, size) in (item for log in self.logs for item in log.channels.items()):
            some = sums.get(channel, (0, 0))
            sums[channel] = some[0] + events, some[1] + size
        return sums
