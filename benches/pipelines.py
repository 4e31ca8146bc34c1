"""The pipelines of the benchmarks, and how to run them. The only place that spells options."""

import json
import subprocess

from harness import fail, say

NONE, SNAPPY = "none", "snappy"


def zstd(level):
    return f"zstd:{level}"


def parquet(out, layout="single", order=None, compression=None):
    """Tables; options that are not given have the defaults of the sink."""
    codec, _, level = (compression or "").partition(":")
    options = {"plugin": "parquet", "path": str(out), "layout": layout, "order": order}
    options |= {"compression": codec or None, "level": int(level) if level else None}
    return {key: value for key, value in options.items() if value is not None}


def archive(out, level=3):
    return {"plugin": "archive", "path": str(out), "level": level}


def lcm_log(path):
    """A log, as a source or as a sink."""
    return {"plugin": "lcm-log", "path": str(path)}


def archived(path):
    """The source that reads archives."""
    return {"plugin": "archive", "path": str(path)}


def decode(types, undecoded="stop"):
    """Payloads to columns."""
    return {"plugin": "decode", "types": [str(path) for path in types], "undecoded": undecoded}


def align(rate, fields, **options):
    """Fields of several channels as rows."""
    return {"plugin": "align", "rate": rate, "fields": fields, **options}


def episodes(table):
    """Rows cut by a table of times."""
    return {"plugin": "episodes", "table": str(table)}


def lerobot(out, fps, task):
    """Rows as a dataset."""
    return {"plugin": "lerobot", "path": str(out), "fps": fps, "task": task}


def encode():
    """Columns to payloads, by the description in the columns."""
    return {"plugin": "encode"}


def typed(tables):
    """The source that reads a folder of tables."""
    return {"plugin": "parquet", "path": str(tables)}


def lcm_udp(url, **options):
    """Live LCM, as a source or as a sink; None means the default."""
    options = {key: value for key, value in options.items() if value is not None}
    return {"plugin": "lcm-udp", "url": url, **options}


def report(out):
    """What is in a log, as a page or as JSON."""
    return {"plugin": "report", "path": str(out)}


def null():
    return {"plugin": "null"}


def text(source, sink, stage=None):
    """A pipeline file, with one stage, several, or none."""
    tables, before = {"sources.log": source}, "log"
    stages = stage if isinstance(stage, list) else [stage] if stage else []
    for number, options in enumerate(stages):
        name = "between" if number == 0 else f"between{number}"
        tables[f"stages.{name}"] = {"from": before, **options}
        before = name
    tables["sinks.out"] = {"from": before, **sink}
    lines = []
    for table, options in tables.items():
        lines += [f"[{table}]", *(f"{key} = {value_text(value)}" for key, value in options.items()),
                  ""]
    return "\n".join(lines)


def value_text(value):
    """A value in TOML. JSON's strings, numbers and lists of them are TOML's, too."""
    if not isinstance(value, dict):
        return json.dumps(value)
    each = (f"{json.dumps(key)} = {value_text(inner)}" for key, inner in value.items())
    return f"{{ {', '.join(each)} }}"


class Sluice:
    """The program as users run it, with pipeline files in a folder."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.files = {}

    def run(self, name, source, sink, *flags, stage=None):
        """The command that runs a pipeline."""
        file = self.folder / f"{name}.toml"
        self.files[file] = text(source, sink, stage)
        return [self.program, "run", "-q", "--progress", "none", *flags, file]

    def query(self, query, log, types, cache=None):
        """The command that runs a query on a log, which it reads each time without a cache."""
        known = [word for path in types for word in ("--types", path)]
        command = [self.program, "query", "-q", "--format", "csv", *known, query, log]
        if cache is None:
            return [*command, "--no-cache"]
        return ["/usr/bin/env", f"XDG_CACHE_HOME={cache}", *command]

    def info(self, log):
        """The command that counts a log's events by channel."""
        return [self.program, "info", log]

    def has(self, verb):
        """Whether this program was built with support for a subcommand."""
        words = {"query": ["select 1"], "cluster": ["status", "--scheduler", "127.0.0.1:1"]}[verb]
        said = subprocess.run([self.program, verb, *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True,
                              check=False)
        # An older program does not know the subcommand or its arguments.
        return not any(word in said.stderr
                       for word in ("built without", "unrecognized", "unexpected"))

    def check(self, jobs):
        """Writes the pipelines of these jobs, and fails if this program cannot run one of them."""
        if not self.program.exists():
            fail(f"{self.program} is not there: run.py builds it, unless told otherwise")
        self.folder.mkdir(parents=True, exist_ok=True)
        wrong = {}
        for job in jobs:
            for command in (job.command, *(prepared.command for prepared in job.needs)):
                file = command[-1]
                if file in self.files and not self.can_run(file):
                    wrong[f"{job.group} {job.log.name}"] = None
        if wrong:
            fail(f"this sluice cannot run the pipelines of: {', '.join(wrong)}; see the mistakes above")

    def prepare(self, file):
        """Writes a pipeline, if this is the file of one."""
        if file in self.files:
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(self.files[file])

    def can_run(self, file):
        self.prepare(file)
        checked = subprocess.run([self.program, "check", "-q", file], capture_output=True,
                                 text=True, check=False)
        if checked.returncode:
            say(checked.stderr)
        return checked.returncode == 0
