"""Runs a program in a terminal of its own, presses keys, and says what came of it.

terminal.py STEPS PROGRAM ARGUMENT...

STEPS is a JSON list of steps, done one after another:
  {"until": REGEX}          waits until the program has written that since the step before
  {"send": TEXT}            types that
  {"signal": NUMBER}        sends it a signal
  {"stopped": true}         waits until it is stopped, and tells whether the terminal is as it was
Prints {"code", "signal", "output", "restored", "restored_while_stopped", "failed"}.
"""

import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time

PATIENCE = 60


def main():
    steps, command = json.loads(sys.argv[1]), sys.argv[2:]
    begin, go = os.pipe()
    pid, terminal = pty.fork()
    if pid == 0:
        # The size is set before the program looks.
        os.read(begin, 1)
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 110, 0, 0))
    before = termios.tcgetattr(terminal)
    os.write(go, b"x")
    told = {"code": None, "signal": None, "restored_while_stopped": None, "failed": None}
    output, seen, deadline = b"", 0, time.monotonic() + PATIENCE

    def read():
        nonlocal output
        if not select.select([terminal], [], [], 0.05)[0]:
            return True
        try:
            part = os.read(terminal, 65536)
        except OSError:
            return False
        output += part
        return bool(part)

    for step in steps:
        if "until" in step:
            pattern = re.compile(step["until"].encode())
            while not (found := pattern.search(output, seen)):
                if time.monotonic() > deadline or not read():
                    told["failed"] = f"never wrote {step['until']}"
                    break
            if told["failed"]:
                break
            seen = found.end()
        elif "send" in step:
            os.write(terminal, step["send"].encode())
        elif "signal" in step:
            os.kill(pid, step["signal"])
        elif "stopped" in step:
            while os.waitpid(pid, os.WUNTRACED | os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    told["failed"] = "never stopped"
                    break
                read()
            told["restored_while_stopped"] = termios.tcgetattr(terminal) == before
    if told["failed"]:
        os.kill(pid, 9)
    status = 0
    while True:
        read()
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            told["failed"] = told["failed"] or "never ended"
            os.kill(pid, 9)
    told["restored"] = termios.tcgetattr(terminal) == before
    while select.select([terminal], [], [], 0)[0] and read():
        pass
    told["code"] = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    told["signal"] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    told["output"] = output.decode(errors="replace")
    print(json.dumps(told))


main()
