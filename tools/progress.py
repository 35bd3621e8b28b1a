"""A pytest plugin for nbmake: one line for each notebook, and a record of them all.

Loaded by tools/execute.py with ``-p tools.progress``. For each notebook it prints
name, seconds and peak memory as soon as the notebook ends, and at the end it writes
``timings.json`` beside the executed copies. Memory is that of the notebook's kernel
and of the processes it started, sampled every tenth of a second; on Linux the
kernel's own high-water mark is read too, so that short peaks count.

A time never fails a run. Memory does: the limit is what a free Binder machine gives.
"""

from __future__ import annotations

import json
import platform
import threading
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import pytest

LIMIT_MB = 1500
PERIOD_SECONDS = 0.1


def resident_mb(process: psutil.Process) -> float:
    """Return a process's peak resident memory so far, or its present one, in MB."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return process.memory_info().rss / 1e6
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return process.memory_info().rss / 1e6


def kernels() -> list[psutil.Process]:
    """Return the notebook kernels that this process started and that still live."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if "ipykernel_launcher" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found


class MemoryWatch:
    """Sample the kernels of this process from a thread; ``peak_mb`` is the largest."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            self.sample()

    def sample(self) -> None:
        """Take one sample now."""
        for kernel in kernels():
            try:
                total = resident_mb(kernel)
                for child in kernel.children(recursive=True):
                    total += child.memory_info().rss / 1e6
            except psutil.Error:
                continue
            self.peak_mb = max(self.peak_mb, total)


def machine() -> dict[str, Any]:
    """Return what a reader needs to know to compare a time with their own."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    versions = {}
    for package in ("numpy", "torch", "transformers"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "cpu": name,
        "cores": psutil.cpu_count(logical=True),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": versions,
    }


class Progress:
    """The plugin object; one for each pytest run over notebooks."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.records: dict[str, dict[str, Any]] = {}
        self.told: set[str] = set()
        self.total = 0
        self.limit_mb = LIMIT_MB

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Count the notebooks, for the progress line."""
        self.total = sum(1 for item in items if getattr(item, "nbmake", False))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Time one notebook and watch its kernel; leave no kernel behind."""
        if not getattr(item, "nbmake", False):
            return (yield)
        start = time.perf_counter()
        passed = False
        watch = MemoryWatch()
        try:
            with watch:
                result = yield
            if watch.peak_mb > self.limit_mb:
                raise MemoryError(
                    f"{item.name}: peak memory {watch.peak_mb:.0f} MB is more than "
                    f"{self.limit_mb} MB"
                )
            passed = True
            return result
        finally:
            self.stop_kernels()
            self.record(item, passed, time.perf_counter() - start, watch.peak_mb)

    @staticmethod
    def stop_kernels() -> None:
        """End kernels that a timed-out notebook left running."""
        for kernel in kernels():
            try:
                kernel.kill()
                kernel.wait(10)
            except psutil.Error:
                continue

    def record(
        self, item: pytest.Item, passed: bool, seconds: float, peak_mb: float
    ) -> None:
        """Keep a notebook's numbers and print its line."""
        self.told.add(item.nodeid)
        self.records[item.path.stem] = {
            "passed": passed,
            "seconds": round(seconds, 1),
            "peak_mb": round(peak_mb),
        }
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        mark = "ok  " if passed else "FAIL"
        line = (
            f"[{len(self.records)}/{self.total}] {mark} {item.path.stem:32} "
            f"{seconds:6.1f} s {peak_mb:6.0f} MB"
        )
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)
            reporter.flush()

    def pytest_report_teststatus(self, report: Any) -> Any:
        """Print no letter for a notebook: its own line has said it."""
        if report.when == "call" and report.nodeid in self.told:
            return report.outcome, "", ""
        return None

    def pytest_sessionfinish(self) -> None:
        """Write timings.json into the folder that was asked for."""
        folder = self.config.getoption("--timings")
        if not folder:
            return
        target = Path(folder) / "timings.json"
        part = target.with_name(target.name + ".part")
        content = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "notebooks": self.records,
        }
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        part.replace(target)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--timings FOLDER``."""
    parser.addoption("--timings", default="", help="folder for timings.json")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin object."""
    config.pluginmanager.register(Progress(config), "specbook-progress")
