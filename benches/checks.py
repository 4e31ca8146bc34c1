"""Checks of outputs. Every check takes a path and returns whether it is right."""

import filecmp
import hashlib
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
COUNT_ROWS, SUMS = HERE / "count_rows.py", HERE / "sums.py"
DATASET_SUMS = HERE / "dataset_sums.py"


def same_as(path):
    """The same bytes as another file; `path` is a path, a log or something prepared."""
    return lambda out: filecmp.cmp(out, str(path), shallow=False)


def has_rows_of(log, python):
    """A table, or tables, with all rows and payload bytes of a log, by channel."""

    def check(out):
        counted = subprocess.run([python, COUNT_ROWS, out], stdout=subprocess.PIPE, check=False)
        return counted.returncode == 0 and counted.stdout.decode() == log.counted()

    return check


def has_sums(sums, python):
    """Typed tables whose columns add up, channel by channel, to what a file says."""

    def check(out):
        added = subprocess.run([python, SUMS, out], stdout=subprocess.PIPE, check=False)
        return added.returncode == 0 and added.stdout.decode() == sums.path.read_text()

    return check


def unpacks_to(log, zstd):
    """A file that the zstd program decompresses to the log."""

    def check(out):
        with subprocess.Popen([zstd, "-d", "-q", "-c", out], stdout=subprocess.PIPE) as unpacking:
            compared = subprocess.run(["cmp", "-s", "-", log.path], stdin=unpacking.stdout,
                                      check=False)
            # Otherwise zstd would block on the rest of its output.
            unpacking.stdout.close()
        return compared.returncode == 0 and unpacking.returncode == 0

    return check


def alike():
    """The same bytes, file by file, in every file or folder that this check sees."""
    first = []

    def check(out):
        files = sorted(path for path in (out.rglob("*") if out.is_dir() else [out])
                       if path.is_file())
        found = [(str(path.relative_to(out)), hashlib.sha256(path.read_bytes()).digest())
                 for path in files]
        first.append(found)
        return found == first[0]

    return check


def both(one, other):
    return lambda out: one(out) and other(out)
