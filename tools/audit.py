"""Audit the built site in a real browser (see tools/web/audit.mjs for what is checked).

    python tools/audit.py              every page
    python tools/audit.py notebooks/   pages whose name contains this

Needs Chromium and Node.js 20 or newer with npm. As root on a Debian system Chromium is
installed when it is missing; elsewhere the message says what to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import webparts  # noqa: E402

SITE = ROOT / "build" / "site"
OUT = ROOT / "build" / "audit"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> str | None:
    """Return the browser to use: SPECBOOK_BROWSER, or the first one on the path."""
    chosen = os.environ.get("SPECBOOK_BROWSER")
    if chosen:
        return shutil.which(chosen)
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def install_browser() -> None:
    """Install Debian's chromium where this process may."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if not root or shutil.which("apt-get") is None:
        return
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", "-qq", *words], env=env, check=False)


def main(only: str = "") -> int:
    """Audit the pages whose name contains ``only``; return the exit status."""
    if not (SITE / "index.html").exists():
        print("there is no site to audit: run make book first", file=sys.stderr)
        return 1
    browser = find_browser()
    if browser is None:
        install_browser()
        browser = find_browser()
    if browser is None:
        print(
            "the audit needs Chromium: install it, or name a browser of its family "
            "in SPECBOOK_BROWSER",
            file=sys.stderr,
        )
        return 1
    node = shutil.which("node")
    if node is None:
        print("the audit needs Node.js 20 or newer with npm", file=sys.stderr)
        return 1
    try:
        modules = webparts.node_modules(audit=True)
    except webparts.MissingPart as error:
        print(f"the audit needs packages from npm: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(OUT, ignore_errors=True)
    script = ROOT / "tools" / "web" / "audit.mjs"
    command = [node, str(script), str(SITE), str(modules), browser, str(OUT)]
    command.append(only)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
