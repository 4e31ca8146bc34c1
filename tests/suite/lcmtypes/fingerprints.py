"""Prints the fingerprints that lcm-gen computes for a folder of .lcm files: one line of JSON per type.

Arguments: lcm-gen, the folder, a folder for generated code.

`debug` is computed from the output of `lcm-gen -d`: the hash of the own members of a type, and their
types. `python` is the value in the generated class, if Python can read it.
"""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

gen, source, made = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
MASK = 2**64 - 1
hashes, held = {}, {}


def generate(*arguments):
    return subprocess.run([gen, *arguments], check=True, capture_output=True, text=True).stdout


# One file at a time: otherwise the package of one applies to the next.
for file in sorted(source.rglob("*.lcm")):
    generate("-p", "--ppath", str(made), str(file))
    inside = None
    for line in generate("-d", str(file)).splitlines():
        if struct := re.fullmatch(r"struct (\S+) \[hash=0x\s*([0-9a-f]+)\]", line):
            inside = struct[1]
            hashes[inside], held[inside] = int(struct[2], 16), []
        elif enum := re.fullmatch(r"enum (\S+)", line):
            package, _, short = enum[1].rpartition(".")
            text = (made / package.replace(".", "/") / f"{short}.py").read_text()
            inside = None
            hashes[enum[1]] = int(re.search(r"_packed_fingerprint = .*0x([0-9a-f]+)\)", text)[1], 16)
        elif inside and (member := re.match(r"\t(\S+) +\S", line)):
            held[inside].append(member[1])


def debug(name, around=()):
    if name in around:
        return 0
    if name not in held:
        return hashes[name]
    sum = hashes[name]
    for of in held[name]:
        if of in hashes:
            sum += debug(of, around + (name,))
    return ((sum << 1) | (sum & MASK) >> 63) & MASK


sys.path.insert(0, str(made))
classes = {}
for name in hashes:
    package, _, short = name.rpartition(".")
    try:
        classes[name] = getattr(importlib.import_module(package or short), short)
    except (SyntaxError, AttributeError):
        pass
for name in classes:
    # Without a package, generated code names modules instead of classes.
    if "." not in name:
        vars(importlib.import_module(name)).update({n: c for n, c in classes.items() if "." not in n})

for name in hashes:
    of_class = classes[name]._get_packed_fingerprint().hex() if name in classes else None
    print(json.dumps({"name": name, "debug": f"{debug(name):016x}", "python": of_class}))
