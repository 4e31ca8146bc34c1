"""Runs a program in its own terminal, presses keys, and reports the result.

terminal.py STEPS PROGRAM ARGUMENT...

STEPS is a JSON list of steps:
  {"until": REGEX}          waits until the program has written this since the previous step
  {"send": TEXT}            types this
  {"signal": NUMBER}        sends it a signal
  {"stopped": true}         waits until it is stopped, and reports whether the terminal is restored
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
        # Wait until the size of the terminal is set.
        os.read(begin, 1)
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 110, 0, 0))
    before = termios.tcgetattr(terminal)
    os.write(go, b"x")
    result = {"code": None, "signal": None, "restored_while_stopped": None, "failed": None}
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
                    result["failed"] = f"never wrote {step['until']}"
                    break
            if result["failed"]:
                break
            seen = found.end()
        elif "send" in step:
            os.write(terminal, step["send"].encode())
        elif "signal" in step:
            os.kill(pid, step["signal"])
        elif "stopped" in step:
            while os.waitpid(pid, os.WUNTRACED | os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    result["failed"] = "never stopped"
                    break
                read()
            result["restored_while_stopped"] = termios.tcgetattr(terminal) == before
    if result["failed"]:
        os.kill(pid, 9)
    status = 0
    while True:
        read()
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            result["failed"] = result["failed"] or "never ended"
            os.kill(pid, 9)
    result["restored"] = termios.tcgetattr(terminal) == before
    while select.select([terminal], [], [], 0)[0] and read():
        pass
    result["code"] = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    result["signal"] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    result["output"] = output.decode(errors="replace")
    print(json.dumps(result))


main()
