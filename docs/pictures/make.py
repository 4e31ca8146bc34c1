#!/usr/bin/env python3
"""Makes quickstart.svg: runs commands in a terminal of 96 columns and draws what they print.

    pip install rich
    docs/pictures/make.py PATH/TO/sluice

Run it again when the output of these commands changes.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 96
# What is typed, and the lines of the output that are shown (None: all).
COMMANDS = [
    ("sluice run quickstart", None),
    ("sluice info quickstart-out/drive.lcm", slice(0, 12)),
    ("head -c 30000000 quickstart-out/drive.lcm > cut.lcm", None),
    ("sluice convert cut.lcm --channel POSE --to pose.parquet; echo \"exit code $?\"", None),
    ("sluice cat cut.lcm --types mit-dgc --channel POSE --limit 1", slice(0, 8)),
]


def output(command, folder, environment):
    """What a command prints on a terminal."""
    main, other = pty.openpty()
    subprocess.run(["stty", "cols", str(WIDTH)], stdin=other, check=True)
    with subprocess.Popen(
        ["sh", "-c", command], cwd=folder, env=environment, stdin=other, stdout=other, stderr=other
    ) as process:
        os.close(other)
        read = bytearray()
        while True:
            try:
                block = os.read(main, 65536)
            except OSError:
                break
            if not block:
                break
            read += block
        process.wait()
    os.close(main)
    text = read.decode().replace("\r\n", "\n")
    # Of a progress bar, the last state counts: it was erased.
    lines = [re.split(r"\r|\x1b\[2K|\x1b\[K", line)[-1] for line in text.split("\n")]
    return [line for line in lines if line.strip()]


def main():
    program = Path(sys.argv[1]).resolve()
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w", encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(program, Path(folder) / "sluice")
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TERM": "xterm-256color"}
        for typed, shown in COMMANDS:
            console.print(Text("$ ", "bold green") + Text(typed, "bold"))
            lines = output(typed, folder, environment)
            for line in lines[shown] if shown else lines:
                console.print(Text.from_ansi(line))
            if shown and len(lines) > shown.stop:
                console.print(Text("  …", "dim"))
            console.print()
    target = Path(__file__).parent / "quickstart.svg"
    console.save_svg(str(target), title="sluice")
    # No fonts from elsewhere: the reader's monospaced font does.
    text = re.sub(r"@font-face \{.*?\}\s*", "", target.read_text(encoding="utf-8"), flags=re.S)
    target.write_text(text.replace("Fira Code", "ui-monospace"), encoding="utf-8")


main()
