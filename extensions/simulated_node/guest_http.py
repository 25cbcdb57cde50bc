# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest for `simnode guests on`: a web server that says which image it was booted from.

In customer_metadata the VM has `port`; `address`, where it listens (127.0.0.1); `boot_delay`, the seconds before that
(0.2); `answer_delay`, the seconds that an answer takes (0); and `broken`, UUIDs of images, with commas between them,
that answer 503 for ever.
"""

from __future__ import annotations

import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict


def answer(vm: Dict[str, Any]) -> Dict[str, Any]:
    """What the guest says of itself."""
    images = [disk.get("image_uuid") for disk in vm.get("disks", []) if disk.get("boot")]
    return {"alias": vm.get("alias"), "image": images[0] if images else None, "pid": os.getpid()}


def serve(vm: Dict[str, Any]) -> None:
    """Boot, and answer for ever."""
    metadata = vm["customer_metadata"]
    response = answer(vm)
    status = 503 if response["image"] in str(metadata.get("broken", "")).split(",") else 200

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # so connections are kept, and break when the VM stops
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            time.sleep(float(metadata.get("answer_delay", 0)))
            body = json.dumps(response).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    time.sleep(float(metadata.get("boot_delay", 0.2)))
    where = (str(metadata.get("address", "127.0.0.1")), int(metadata["port"]))
    ThreadingHTTPServer(where, Handler).serve_forever()


if __name__ == "__main__":
    serve(json.loads(Path(os.environ["SIMNODE_VM"]).read_text()))
