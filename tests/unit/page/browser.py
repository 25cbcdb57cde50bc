# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's Chromium without a window, spoken to over its two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "lab"))
import recipe

WORDS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage")
# Chromium reads commands from descriptor 3 and answers on 4.
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD_CLOEXEC, 10) for end in sys.argv[1:3]]
for number, end in enumerate(ends, 3):
    os.dup2(end, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def is_there() -> bool:
    """Whether Debian's Chromium is on this machine."""
    return shutil.which("chromium") is not None


class Browser:
    """One page. events are the console's entries, exceptions, and all requests that the page has made."""

    def __init__(self, program: str, folder: Path) -> None:
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        command = [sys.executable, "-c", START, str(read), str(write)]
        command += [program, *WORDS, *QUIET, "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )
        os.close(read)
        os.close(write)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        (target,) = [one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    @classmethod
    def installed(cls, folder: Path) -> Browser:
        """With what apt installs, 120 MB, if it is not there."""
        if not is_there():
            recipe.install(["chromium", "fonts-dejavu-core"])
        return cls("chromium", folder)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_what: object) -> None:
        self._session = None
        self.ask("Browser.close")
        os.close(self._write)
        os.close(self._read)
        self._process.wait(30)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command; what happens in between is noted."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        os.write(self._write, json.dumps({**command, **self._to()}).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                assert "error" not in said, f"{method}: {said}"
                return dict(said["result"])

    def _to(self) -> dict[str, str]:
        return {"sessionId": self._session} if self._session else {}

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has ended"
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\0", 1)
        said: dict[str, Any] = json.loads(line)
        if "method" in said:
            self.events.append(said)
        return said

    def open(self, page: Path) -> None:
        """Returns when the page has loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(one["method"] == "Page.loadEventFired" for one in self.events):
            self._next()

    def run(self, script: str, wait: bool = False) -> Any:
        """What an expression is worth there, or what its promise is kept with."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=wait)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def width(self, pixels: int) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=pixels, height=900, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str) -> None:
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, target: Path, height: int = 0) -> None:
        """The page as PNG: all of it, or so many pixels of it."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        taken = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        target.write_bytes(base64.b64decode(taken["data"]))

    def print(self, target: Path) -> None:
        """The page as PDF."""
        target.write_bytes(base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True)["data"]))

    def complaints(self) -> list[str]:
        """What the console says, and what the page has asked for beside itself."""
        found = [json.dumps(one) for one in self.events if one["method"] in TOLD]
        asked = [one["params"]["request"]["url"] for one in self.events if one["method"] == "Network.requestWillBeSent"]
        return found + asked[1:]


TOLD = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
