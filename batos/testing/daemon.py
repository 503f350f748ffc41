"""DaemonProcess: a real daemon in a process of its own, for tests of programs that talk to BAT OS.

    with ScriptedOllama(["qwen3:8b"]) as ollama, DaemonProcess(tmp_path, ollama.host, model="qwen3:8b") as daemon:
        with SyncClient(daemon.endpoint) as batos:
            ...
            daemon.kill()
            daemon.start()

Its image, sockets and settings are its own: no variable of the environment and no settings file of the user reaches it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

START_S, STOP_S = 120.0, 60.0
_QUIET = {"autonomy.mode": "off", "doors.enabled": "off", "daemon.log_format": "json", "daemon.shutdown_s": "3"}


class DaemonProcess:
    """The process of one daemon. A context manager: it starts the daemon, and stops it in good order."""

    def __init__(self, folder: Path, ollama_host: str, *, model: str = "", settings: Mapping[str, object] | None = None) -> None:
        """
        :param folder: data folder, and the daemon's working folder; made if it is missing.
        :param ollama_host: `host:port` of the Ollama that the daemon uses, such as `ScriptedOllama.host`.
        :param model: chat model of that Ollama to think with; empty: the daemon chooses.
        :param settings: further settings by name, such as `{"missions.attempts": 1}`. Self-improvement and HTTP are off by default.
        """
        self.folder = folder
        self.log: list[str] = []
        """Lines that the daemon wrote to standard error, over all its starts."""
        self._sockets = tempfile.mkdtemp(prefix="batos-")  # the path of a socket has at most 107 characters
        given = {**_QUIET, "inference.host": ollama_host, "inference.model": model, **(settings or {})}
        self._words = [word for name, value in given.items() if value != "" for word in ("--set", f"{name}={value}")]
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._heard = threading.Event()  # that it accepts missions, or that it ended
        self._accepts = False

    @property
    def endpoint(self) -> str:
        """Return the address for clients. It stays the same after `kill` and `start`."""
        return f"ipc://{self._sockets}/wire.sock"

    @property
    def pid(self) -> int:
        """Return the id of the process, 0 if none runs."""
        return self._process.pid if self._process is not None else 0

    def __enter__(self) -> DaemonProcess:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def start(self) -> None:
        """Start the daemon on its folder, and return once it accepts missions.

        :raises RuntimeError: if it ended before, or took longer than two minutes; with the end of its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
        command = [sys.executable, "-m", "batos", "run", "--data", str(self.folder), "--listen", self.endpoint, *self._words]
        self._heard.clear()
        self._accepts = False
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process.stderr,), name="log of a daemon", daemon=True)
        self._reader.start()
        self._heard.wait(START_S)
        if not self._accepts:
            self.kill()
            raise RuntimeError(f"the daemon on {self.folder} did not start; its log ends with\n" + "".join(self.log[-20:]))

    def kill(self) -> None:
        """End the process as a crash does (SIGKILL); `start` starts it again on the same folder."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End the daemon in good order (SIGTERM). Return its exit code; 0 if none runs."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if self._reader is not None:
            self._reader.join(STOP_S)
        return code

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.log.append(line)
                if _event(line) == "started":
                    self._accepts = True
                    self._heard.set()
        self._heard.set()


def _event(line: str) -> object:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry.get("event") if isinstance(entry, dict) else None
