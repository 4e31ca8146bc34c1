"""The programs of the benchmarks: those built here, and the peers that are installed."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = ROOT / ".cache" / "peers-venv"
PACKAGES = ["lcm", "pyarrow", "pandas", "polars", "duckdb", "mcap", "mcap_ros2", "mcap_protobuf",
            "rosbags"]


def add_options(parser):
    """Adds the options of where logs and outputs go, and whether programs are built."""
    parser.add_argument("--data", type=Path, default=ROOT / "bench-data",
                        help="where logs are kept")
    shared = Path("/dev/shm")
    parser.add_argument("--out", type=Path, default=shared if shared.is_dir() else None,
                        help="where outputs go; by default, memory")
    parser.add_argument("--no-build", dest="build", action="store_false",
                        help="take the programs that are there")


def built(build, full=False):
    """The folder of our generators and the program `sluice`, after building them if asked."""
    command = ["cargo", "build", "--release", "--quiet", "-p", "sluice-benches", "-p",
               "sluice-logs"]
    release = target(ROOT) / "release"
    program = release / "sluice"
    if build:
        subprocess.run(command, cwd=ROOT, check=True)
    if full:
        program = target(ROOT / "full") / "release" / "sluice"
        if build:
            subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT / "full",
                           check=True)
    return release, program


def package(build):
    """The folder that has the Python package, after building its native part if asked; None if
    that is not there."""
    release = target(ROOT) / "release"
    if build:
        subprocess.run(["cargo", "build", "--release", "--quiet", "--locked", "--target-dir",
                        target(ROOT), "--manifest-path", ROOT / "python" / "Cargo.toml"],
                       check=True)
    library = release / "lib_native.so"
    if not library.exists():
        return None
    folder = release / "python"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "python" / "sluice", folder / "sluice")
    # As wheels have it.
    strip = ["strip", "-o", folder / "sluice" / "_native.abi3.so", library]
    subprocess.run(strip, check=True)
    return folder


def target(workspace):
    """A workspace's target directory."""
    return Path(os.environ.get("CARGO_TARGET_DIR", workspace / "target"))


class Peers:
    """The peer programs; None if missing."""

    def __init__(self):
        self.missing, self.versions = [], {}
        python = VENV / "bin" / "python"
        self.python = python if python.exists() else None
        if self.python:
            self.versions = versions_of(python)
        self.missing += [f"Python's {name}" for name in PACKAGES if name not in self.versions]
        self.lerobot = lerobot()
        if self.lerobot is None:
            self.missing.append("lerobot: SLUICE_LEROBOT names no Python that has it and lcm")
        self.filter = self.find("lcm-logfilter", VENV / "bin" / "lcm-logfilter")
        # The programs themselves: `bin` of the environment has scripts that start them.
        self.logger = self.find("lcm-logger", in_wheel("bin/lcm-logger"))
        self.player = self.find("lcm-logplayer", in_wheel("bin/lcm-logplayer"))
        self.lcm_gen = self.find("lcm-gen", VENV / "bin" / "lcm-gen")
        self.zstd = self.find("zstd", shutil.which("zstd"))
        if self.zstd:
            said = subprocess.run([self.zstd, "--version"], capture_output=True, text=True,
                                  check=True)
            self.versions["zstd"] = re.search(r"v([\d.]+)", said.stdout)[1]
        self.reader = self.c_program("read_c", "C reader (liblcm)")
        self.live = self.c_program("live_c", "C sender and receiver (liblcm)")
        self.mcap_rust = self.rust_program("mcap_rust", "Rust program with the crate mcap")
        self.velodyne = self.plain_c_program("velodyne", "C decoder of Velodyne packets")

    def has(self, *packages):
        return all(name in self.versions for name in packages)

    def script(self, name, *words):
        """The command for one of the scripts in `peers`."""
        return [self.python, HERE / "peers" / name, *words]

    def find(self, what, path):
        if path and Path(path).exists():
            return path
        self.missing.append(what)
        return None

    def c_program(self, name, what):
        """A C program, with the liblcm of the wheel if there is one, otherwise the system's."""
        program = ROOT / ".cache" / name
        flags, version = ["-llcm"], "of the system"
        library = in_wheel("lib/liblcm.so.*.*")
        if library:
            flags = [f"-I{library.parent.parent / 'include'}", str(library),
                     f"-Wl,-rpath,{library.parent}"]
            version = library.name.removeprefix("liblcm.so.")
        program.parent.mkdir(exist_ok=True)
        command = ["cc", "-O2", "-o", str(program), str(HERE / "peers" / f"{name}.c"), *flags]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return self.find(what, None)
        self.versions["liblcm"] = version
        return program

    def rust_program(self, name, what):
        """A program of its own workspace."""
        folder = ROOT / ".cache" / name
        command = ["cargo", "build", "--release", "--quiet", "--target-dir", str(folder)]
        failed = subprocess.run(command, cwd=HERE / "peers" / name, check=False).returncode
        return self.find(what, None if failed else folder / "release" / name)

    def plain_c_program(self, name, what):
        """A C program that needs nothing but the system."""
        program = ROOT / ".cache" / name
        program.parent.mkdir(exist_ok=True)
        command = ["cc", "-O2", "-o", str(program), str(HERE / "peers" / f"{name}.c"), "-lm"]
        failed = subprocess.run(command, capture_output=True, check=False).returncode
        return self.find(what, None if failed else program)


def lerobot():
    """The Python that SLUICE_LEROBOT names, if it has LeRobot and LCM's module."""
    python = os.environ.get("SLUICE_LEROBOT")
    command = [python or "", "-c", "import lcm._lcm, lerobot.datasets.lerobot_dataset, pandas"]
    try:
        failed = subprocess.run(command, capture_output=True, check=False).returncode
    except OSError:
        return None
    return None if failed else python


def in_wheel(pattern):
    """A file of the installed Python packages, if there is one."""
    return next(VENV.glob(f"lib/python*/site-packages/{pattern}"), None)


def versions_of(python):
    """The versions of the packages that can be imported."""
    script = (
        "import importlib, importlib.metadata as metadata, json, sys\n"
        "PACKAGES = {'mcap_ros2': 'mcap-ros2-support', 'mcap_protobuf': 'mcap-protobuf-support'}\n"
        "versions = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        importlib.import_module('lcm._lcm' if name == 'lcm' else name)\n"
        "        versions[name] = metadata.version(PACKAGES.get(name, name))\n"
        "    except ImportError:\n"
        "        pass\n"
        "print(json.dumps(versions))\n"
    )
    said = subprocess.run([python, "-c", script, *PACKAGES], capture_output=True, text=True,
                          check=True)
    return json.loads(said.stdout)
