#!/usr/bin/env python3
"""Packs a program that is built: an archive, a Debian package, a wheel, and their checksums.

    .ci/release/pack.py PROGRAM FOLDER TARGET PLATFORM

TARGET is the compiler's name of the system, such as `aarch64-apple-darwin`, PLATFORM that of
wheels, such as `macosx_11_0`. The same program gives the same files.
"""

import base64
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

# The time of every file: that of the last commit, if the environment names it.
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", 1_767_225_600))

DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}

# Shells, with the file of a completion script in the archive and in Debian's folders.
SHELLS = {
    "bash": ("sluice.bash", "usr/share/bash-completion/completions/sluice"),
    "fish": ("sluice.fish", "usr/share/fish/vendor_completions.d/sluice.fish"),
    "zsh": ("_sluice", "usr/share/zsh/vendor-completions/_sluice"),
}

SUMMARY = "Converts robot sensor logs: LCM, VEL, Orca, MCAP and ROS bags to tables and back"


def copy(file, to, mode=0o644):
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, to)
    to.chmod(mode)


def stage(program, staging, root):
    """Lays out what is packed: the program, its manual, completion scripts, README and licence."""
    shutil.rmtree(staging, ignore_errors=True)
    copy(program, staging / "sluice", 0o755)
    for name in ("README.md", "CHANGELOG.md", "LICENSE"):
        copy(root / name, staging / name)
    subprocess.run([staging / "sluice", "man", "--dir", staging / "man"], check=True)
    (staging / "completions").mkdir()
    for shell, (name, _) in SHELLS.items():
        script = subprocess.run([staging / "sluice", "completions", shell],
                                check=True, stdout=subprocess.PIPE).stdout
        (staging / "completions" / name).write_bytes(script)


def version(staging):
    """The version of the program, as it says itself."""
    said = subprocess.run([staging / "sluice", "--version"], check=True, stdout=subprocess.PIPE)
    return said.stdout.decode().split()[1]


def pack(staging, to, target, wheel_platform):
    """Packs the staged files into `to`, a folder."""
    to.mkdir(parents=True, exist_ok=True)
    number, machine = version(staging), target.split("-")[0]
    made = [pack_archive(staging, to, f"sluice-{number}-{target}")]
    if shutil.which("dpkg-deb") is None:
        print("skipped: the Debian package; there is no dpkg-deb here", file=sys.stderr)
    elif "linux" in target:
        made.append(pack_debian(staging, to, number, DEBIAN[machine]))
    # Wheels call processors as the system does.
    of_wheel = machine.replace("aarch64", "arm64") if "apple" in target else machine
    made.append(pack_wheel(staging, to, number, f"{wheel_platform}_{of_wheel}"))
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in made]
    (to / "SHA256SUMS").write_text("".join(sums))
    for line in sums:
        print(line, end="")


def pack_archive(staging, to, name):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in sorted(staging.rglob("*")):
            archive.add(file, f"{name}/{file.relative_to(staging)}", recursive=False,
                        filter=without_owner)
    packed = to / f"{name}.tar.gz"
    packed.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return packed


def without_owner(member):
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = EPOCH
    return member


def pack_debian(staging, to, number, architecture):
    """A Debian package. The C library is the only one that the program loads."""
    tree = staging.parent / "debian"
    shutil.rmtree(tree, ignore_errors=True)
    copy(staging / "sluice", tree / "usr/bin/sluice", 0o755)
    for page in sorted((staging / "man").glob("*.1")):
        packed = tree / "usr/share/man/man1" / f"{page.name}.gz"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(gzip.compress(page.read_bytes(), mtime=0))
    for name, place in SHELLS.values():
        copy(staging / "completions" / name, tree / place)
    documents = tree / "usr/share/doc/sluice-logs"
    copy(staging / "LICENSE", documents / "copyright")
    for file in sorted(staging.glob("*.*")):
        copy(file, documents / file.name)
    size = sum(file.stat().st_size for file in tree.rglob("*") if file.is_file()) // 1024
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(
        f"Package: sluice-logs\nVersion: {number}\nArchitecture: {architecture}\n"
        f"Maintainer: The authors of Sluice\nInstalled-Size: {size}\nDepends: libc6 (>= 2.17)\n"
        f"Section: utils\nPriority: optional\nDescription: {SUMMARY}\n")
    packed = to / f"sluice-logs_{number}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, packed], check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)})
    shutil.rmtree(tree)
    return packed


def pack_wheel(staging, to, number, platform):
    """A wheel whose one file is the program, for any Python: the package `sluice-logs-cli`."""
    name, tag = f"sluice_logs_cli-{number}", f"py3-none-{platform}"
    info = f"{name}.dist-info"
    files = {f"{name}.data/scripts/sluice": (staging / "sluice").read_bytes()}
    for file in sorted(staging.glob("LICENSE*")):
        files[f"{info}/licenses/{file.name}"] = file.read_bytes()
    metadata = (
        f"Metadata-Version: 2.4\nName: sluice-logs-cli\nVersion: {number}\nSummary: {SUMMARY}\n"
        "License-Expression: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.8\n"
        "Description-Content-Type: text/markdown\n\n")
    files[f"{info}/METADATA"] = metadata.encode() + (staging / "README.md").read_bytes()
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: sluice\nRoot-Is-Purelib: false\n"
        f"Tag: {tag}\n").encode()
    record = [f"{path},sha256={record_hash(content)},{len(content)}\n"
              for path, content in files.items()]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    packed = to / f"{name}-{tag}.whl"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, time.gmtime(EPOCH)[:6])
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            wheel.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return packed


def record_hash(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main():
    program, to = Path(sys.argv[1]), Path(sys.argv[2])
    target, platform = sys.argv[3:]
    staging = to / "staging"
    stage(program, staging, Path(__file__).resolve().parents[2])
    pack(staging, to, target, platform)
    shutil.rmtree(staging)


if __name__ == "__main__":
    main()
