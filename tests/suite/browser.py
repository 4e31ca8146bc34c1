"""Looks at pages in a headless Chromium, without any package: DevTools messages over two pipes.

browser.py CHROMIUM check PAGE...           every page, at three widths, light and dark, with and
                                            without scripts; prints what is wrong, a line each
browser.py CHROMIUM picture PAGE OUT.png WIDTH HEIGHT light|dark [SELECTOR]
browser.py CHROMIUM print PAGE OUT.pdf

`check` ends with code 1 if anything is wrong: a message on the console, an exception, a request
other than for the page, a missing channel, a chart without marks, a broken link or picture, text
wider than the window, a control that does nothing.
"""

import base64
import fcntl
import json
import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

PATIENCE = 600
WIDTHS = [360, 800, 1280]

# A function that is evaluated in the page.
CHECK = Path(__file__).with_name("page_check.js").read_text(encoding="utf-8").rstrip("; \n")


class Browser:
    """A Chromium that is spoken to over pipes."""

    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory()
        commands, self.to_browser = (high(end) for end in os.pipe())
        self.from_browser, answers = (high(end) for end in os.pipe())
        arguments = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={self.folder.name}",
            "about:blank",
        ]
        log = os.path.join(self.folder.name, "stderr")
        self.pid = os.posix_spawnp(
            program,
            arguments,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, commands, 3),
                (os.POSIX_SPAWN_DUP2, answers, 4),
                (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT, 0o600),
            ],
        )
        os.close(commands)
        os.close(answers)
        self.log, self.buffer, self.number, self.events = log, b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """Sends a command, and waits for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self.to_browser, rest) :]
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def receive(self, patience=PATIENCE):
        """The next message; events are kept as well."""
        deadline = time.monotonic() + patience
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.from_browser], [], [], left)[0]:
                raise TimeoutError(
                    f"no answer; {Path(self.log).read_text(errors='replace')[-2000:]}"
                )
            block = os.read(self.from_browser, 1 << 20)
            if not block:
                raise RuntimeError(
                    f"Chromium ended; {Path(self.log).read_text(errors='replace')[-2000:]}"
                )
            self.buffer += block
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def visit(self, url, width, height, scheme, scripts=True):
        """Opens a page and waits until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.receive()

    def evaluate(self, expression):
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:1000])
        return result["result"].get("value")

    def complaints(self, url):
        """What the browser said of the page since it was opened."""
        for event in self.events:
            params = event.get("params", {})
            match event["method"]:
                case "Runtime.exceptionThrown":
                    details = params["exceptionDetails"]
                    yield f"exception: {details.get('exception', {}).get('description', details['text'])}"
                case "Runtime.consoleAPICalled":
                    yield f"console.{params['type']}: {json.dumps(params['args'])[:300]}"
                case "Log.entryAdded":
                    yield f"console: {params['entry']['level']}: {params['entry']['text'][:300]}"
                case "Network.requestWillBeSent":
                    asked = params["request"]["url"]
                    if asked != url and not asked.startswith("data:"):
                        yield f"request: {asked[:200]}"

    def close(self):
        """Ends it together with its children, or kills it if it does not listen."""
        try:
            self.session = None
            self.call("Browser.close")
            self.receive(10)
        except (RuntimeError, TimeoutError, OSError):
            pass
        deadline = time.monotonic() + 10
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            time.sleep(0.02)
        try:
            self.folder.cleanup()
        except OSError:
            # Its children may still be ending.
            pass


def high(end):
    """A descriptor that is none of those that the browser expects."""
    copy = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(end)
    return copy


def check(browser, pages):
    """Prints what is wrong; whether anything is."""
    is_wrong = False
    for page in pages:
        url = Path(page).resolve().as_uri()
        for width in WIDTHS:
            for scheme, scripts in [("light", True), ("dark", True), ("light", False)]:
                browser.visit(url, width, 900, scheme, scripts)
                # Held by the page: the browser may collect a promise that it waits for itself.
                wrong = browser.evaluate(f"window.wrong = ({CHECK})({json.dumps(scripts)})")
                wrong += browser.complaints(url)
                form = f"{Path(page).name}, {width} px, {scheme}{'' if scripts else ', no scripts'}"
                for line in wrong:
                    print(f"{form}: {line}")
                is_wrong |= bool(wrong)
        if len(pdf(browser)) < 5_000:
            print(f"{page}: prints nothing")
            is_wrong = True
    return is_wrong


def pdf(browser):
    return base64.b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])


def picture(browser, page, out, width, height, scheme, selector=None):
    """A picture of a page: of its first screen, or of an element as a whole."""
    browser.visit(Path(page).resolve().as_uri(), int(width), int(height), scheme)
    time.sleep(0.5)
    clip = {}
    if selector:
        box = browser.evaluate(f"""(() => {{
            const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
            return {{ x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height }};
        }})()""")
        box["height"] = min(box["height"], int(height))
        clip = {"clip": {**box, "scale": 1}, "captureBeyondViewport": True}
    data = browser.call("Page.captureScreenshot", format="png", **clip)["data"]
    Path(out).write_bytes(base64.b64decode(data))


def main():
    program, verb, *rest = sys.argv[1:]
    browser = Browser(program)
    try:
        if verb == "check":
            sys.exit(int(check(browser, rest)))
        if verb == "picture":
            picture(browser, *rest)
        if verb == "print":
            browser.visit(Path(rest[0]).resolve().as_uri(), 1000, 1400, "light")
            Path(rest[1]).write_bytes(pdf(browser))
    finally:
        browser.close()


if __name__ == "__main__":
    main()
