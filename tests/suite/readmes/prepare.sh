#!/bin/sh
# Creates every file that examples in READMEs name. $1 is the repository.
set -eu
sluice run quickstart --quiet
mv quickstart-out/drive.lcm .
cp -r quickstart-out/tables tables
rm -r quickstart-out
cp -r "$1/plugins/dgc/types" lcmtypes
mkdir logs
cp drive.lcm logs/1.lcm
cp drive.lcm logs/2.lcm
cp drive.lcm a.lcm
cp drive.lcm b.lcm
# The first record has no sync word.
{ printf 'XXXX'; tail -c +5 drive.lcm; } >broken.lcm
cp "$1"/plugins/orca/testdata/dialect_a/060804_* .
cp "$1/plugins/orca/testdata/dialect_a/master.log" 060804_153321_master.log
cp "$1/plugins/dgc/testdata/camlog/frame-info.camlog" forward.camlog
cp "$1/plugins/ros/testdata/bag-lz4/log.bag" drive.bag
# Logs stored as text: bytes in hexadecimal, and the dump at the start of the README of `records`.
python3 - "$1" <<'END'
import pathlib
import sys

root = pathlib.Path(sys.argv[1])
for case, name in (("example", "drive.vel"), ("wrong-index", "broken.vel")):
    lines = (root / "plugins/vel/testdata" / case / "log.hex").read_text().splitlines()
    digits = "".join(line.split("#")[0] for line in lines)
    pathlib.Path(name).write_bytes(bytes.fromhex(digits))
# A drive without pictures of a camera for half a second, with numbers that follow each other.
log, silent, number, at, begin = pathlib.Path("drive.lcm").read_bytes(), bytearray(), 0, 0, None
while at < len(log):
    time, name, data = (int.from_bytes(log[a:b], "big") for a, b in
                        ((at + 12, at + 20), (at + 20, at + 24), (at + 24, at + 28)))
    begin = time if begin is None else begin
    event, channel = log[at:at + 28 + name + data], log[at + 28:at + 28 + name]
    at += len(event)
    if channel.startswith(b"CAM_") and 800_000 <= time - begin < 1_300_000:
        continue
    silent += event[:4] + number.to_bytes(8, "big") + event[12:]
    number += 1
pathlib.Path("silent.lcm").write_bytes(silent)
dump = (root / "plugins/records/README.md").read_text().splitlines()
digits = "".join(line[10:49] for line in dump if line[:4] == "0000" and line[8:10] == ": ")
pathlib.Path("run.bin").write_bytes(bytes.fromhex(digits))
END
