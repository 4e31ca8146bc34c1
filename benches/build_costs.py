#!/usr/bin/env python3
"""Measures the build costs of Sluice, crate by crate, and prints the results as Markdown.

    benches/build_costs.py [--only release]… [--crates 20] [-j 2]

Each build starts from an empty target directory. CPU time is user and system time; that of a crate
is the compiler's (and the linker's, for programs), that of build scripts is the rest, mostly the C
code of zstd. `BUILD.md` holds its last output. Needs Linux.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LOG = "SLUICE_BUILD_COSTS_LOG"

# The builds: name, purpose, arguments of cargo.
BUILDS = {
    "release": ("`cargo build --release`", ["build", "--release"]),
    "test": ("`cargo test --workspace --no-run`", ["test", "--workspace", "--no-run"]),
    "plugin": ("`sluice new source`, then `cargo test --no-run` in it", ["test", "--no-run"]),
    "dist": ("`cargo build --profile dist`", ["build", "--profile", "dist"]),
    "full": ("`cargo build --release`, of the full program", ["build", "--release"]),
    "full-dist": (
        "`cargo build --profile dist`, of the full program",
        ["build", "--profile", "dist"],
    ),
}
ORDINARY = ["release", "test", "plugin"]


def compile_one(command):
    """Cargo runs this instead of the compiler: it runs the compiler and logs its cost."""
    start = time.monotonic()
    status = subprocess.run(command, close_fds=False, check=False).returncode
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    name = argument(command, "--crate-name")
    if name and "--print" not in " ".join(command):
        line = {
            "crate": name,
            "test": "--test" in command,
            "kind": argument(command, "--crate-type") or "bin",
            "package": os.environ.get("CARGO_PKG_NAME", name),
            "version": os.environ.get("CARGO_PKG_VERSION", ""),
            "cpu": usage.ru_utime + usage.ru_stime,
            "wall": time.monotonic() - start,
        }
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
    return status


def argument(command, name):
    """The value of an argument of the compiler."""
    if name in command:
        return command[command.index(name) + 1]
    return next((word.split("=", 1)[1] for word in command if word.startswith(name + "=")), None)


def measure(arguments, folder, target, jobs):
    """Builds into an empty directory; returns CPU and wall seconds, and one line per compile."""
    target.mkdir(parents=True, exist_ok=True)
    log = target / "costs.jsonl"
    environment = {
        **os.environ,
        LOG: str(log),
        "RUSTC_WRAPPER": str(Path(__file__).resolve()),
        "CARGO_TARGET_DIR": str(target),
        "CARGO_INCREMENTAL": "0",
    }
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(["cargo", *arguments, *jobs], cwd=folder, env=environment, check=True)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def parents(folder):
    """The packages that depend on each package directly, by name."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    printed = subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout
    metadata = json.loads(printed)
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    found = defaultdict(set)
    for node in metadata["resolve"]["nodes"]:
        for dependency in node["deps"]:
            found[names[dependency["pkg"]]].add(names[node["id"]])
    return found


def by_package(runs):
    """CPU seconds and compiler runs of each package, the most costly first."""
    costs = defaultdict(lambda: [0.0, 0])
    for run in runs:
        costs[run["package"]][0] += run["cpu"]
        costs[run["package"]][1] += 1
    return sorted(costs.items(), key=lambda entry: -entry[1][0])


def page(name, measured, pulled_in, crates):
    """The cost of one build, as Markdown."""
    title, _ = BUILDS[name]
    cpu, wall, runs = measured
    compiled = sum(run["cpu"] for run in runs)
    packages = by_package(runs)
    yield f"## {title}\n"
    yield (
        f"{cpu / 60:.1f} CPU min, {wall / 60:.1f} min; {len(packages)} packages, "
        f"{len(runs)} runs of the compiler; build scripts {cpu - compiled:.0f} CPU s.\n"
    )
    yield "| package | CPU s | runs | pulled in by |"
    yield "| --- | --: | --: | --- |"
    for package, (seconds, count) in packages[:crates]:
        direct = sorted(pulled_in.get(package, ()))
        shown = ", ".join(direct[:4]) + (f" and {len(direct) - 4} more" if len(direct) > 4 else "")
        yield f"| {package} | {seconds:.1f} | {count} | {shown} |"
    rest = [cost for _, cost in packages[crates:]]
    seconds, count = sum(cost[0] for cost in rest), sum(cost[1] for cost in rest)
    yield f"| {len(rest)} more | {seconds:.1f} | {count} | |\n"


def sizes(program):
    """The bytes of a program as built, and without symbols."""
    with tempfile.NamedTemporaryFile() as stripped:
        subprocess.run(["strip", "-o", stripped.name, program], check=True)
        return program.stat().st_size, Path(stripped.name).stat().st_size


def new_plugin(folder, sluice):
    """A plugin crate as `sluice new` creates it."""
    command = [sluice, "new", "source", "my-log", "--sluice", ROOT]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    # The versions of this workspace are in cargo's cache.
    shutil.copy(ROOT / "Cargo.lock", folder / "my-log")
    return folder / "my-log"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = options.add_argument
    add("--only", action="append", choices=BUILDS, help="only this build; may be repeated")
    add("--crates", type=int, default=20, help="how many packages are shown of each build")
    add("-j", "--jobs", help="as cargo's")
    add("--keep", type=Path, help="keep the target directories in this folder")
    options = options.parse_args()
    jobs = ["-j", options.jobs] if options.jobs else []
    place = options.keep or ROOT / "target"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        for name in options.only or ORDINARY:
            one(name, options, jobs, (options.keep or Path(scratch)) / name)


def one(name, options, jobs, target):
    """Builds, and prints the results."""
    target.mkdir(parents=True)
    folder, arguments = ROOT / "full" if "full" in name else ROOT, BUILDS[name][1]
    if name == "plugin":
        subprocess.run(["cargo", "build", "--quiet"], cwd=ROOT, check=True)
        folder = new_plugin(target, ROOT / "target" / "debug" / "sluice")
    measured = measure(arguments, folder, target / "target", jobs)
    print("\n".join(page(name, measured, parents(folder), options.crates)))
    program = target / "target" / ("dist" if "dist" in name else "release") / "sluice"
    if program.exists():
        built, stripped = sizes(program)
        print(f"The program has {built / 1e6:.0f} MB, {stripped / 1e6:.1f} MB without symbols.\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if LOG in os.environ:
        sys.exit(compile_one(sys.argv[1:]))
    main()
