"""The contenders of `run.py`: what a mission costs each, and a program of each that can be killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from model import PacedOllama

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
END_S = 90  # for all missions, before they are given up


class Contender:
    """One of them: what it costs, and its program.

    :param python: the interpreter that has it.
    """

    script = ""
    more: tuple[str, ...] = ()

    def __init__(self, python: str) -> None:
        self.python = python

    def recovery_lines(self) -> int:
        """Lines that a user has to write to go on after a crash: those between the marks in the script."""
        lines = [line.strip() for line in (HERE / self.script).read_text("utf-8").splitlines()]
        if "# recovery: begin" not in lines:
            return 0
        return sum(bool(line) for line in lines[lines.index("# recovery: begin") + 1 : lines.index("# recovery: end")])

    def cost(self, folder: Path, count: int) -> dict[str, float]:
        """Of a mission whose calls are instant: missions a second one after the other and fifty at once, milliseconds of processor, bytes
        kept, fsyncs."""
        alone, many = (self._timed(folder / name, count, at_once) for name, at_once in (("alone", 1), ("many", 50)))
        return {
            "missions_per_s": round(count / alone["wall_s"], 1), "missions_per_s_50": round(count / many["wall_s"], 1),
            "cpu_ms": round(alone["cpu_s"] / count * 1e3, 2), "bytes": round(alone["bytes"] / count),
            "fsyncs": self._fsyncs(folder),
        }  # fmt: skip

    def _timed(self, folder: Path, count: int, at_once: int, wrapper: tuple[str, ...] = ()) -> dict[str, float]:
        folder.mkdir(parents=True)
        words = [*wrapper, self.python, str(HERE / self.script), "run", str(folder / "db"), str(count), str(at_once), *self.more]
        env = {name: value for name, value in os.environ.items() if name != "PEERS_MODEL"}
        done = subprocess.run(words, check=True, capture_output=True, text=True, env=env, cwd=folder, timeout=600)
        kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return {**json.loads(done.stdout.splitlines()[-1]), "bytes": kept}

    def _fsyncs(self, folder: Path) -> float:
        """By strace: of a few missions more, since a start has some of its own."""
        if shutil.which("strace") is None:
            return float("nan")
        counts = []
        for number in (5, 25):
            out = folder / f"trace{number}"
            self._timed(folder / f"traced{number}", number, 1, ("strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(out)))
            counts.append(out.read_text("utf-8").count("sync("))
        return round((counts[1] - counts[0]) / 20, 1)

    def program(self, folder: Path, model: PacedOllama) -> Program:
        return Program(self, folder, model)


class Program(contextlib.AbstractContextManager["Program"]):
    """One that runs missions in a process of its own."""

    def __init__(self, contender: Contender, folder: Path, model: PacedOllama) -> None:
        self.contender, self.folder, self.model = contender, folder, model
        self.scripts = HERE
        self.process: subprocess.Popen[str] | None = None
        self.missions = 0

    def __exit__(self, *_: object) -> None:
        self.kill()

    def begin(self, missions: int) -> None:
        """Submit them all."""
        self.missions = missions
        self._start("run")

    def again(self) -> None:
        """Start the program again, as it was, and no more."""
        self._start("start")

    def recover(self, missions: int) -> None:
        """Start it with what its user has to write to go on."""
        self._start("resume")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None

    def change(self) -> None:
        """Add a harmless line to the function that is under way."""
        there = self.folder / "changed"
        shutil.copytree(HERE, there, ignore=shutil.ignore_patterns("__pycache__"))
        script = there / self.contender.script
        text = script.read_text("utf-8")
        script.write_text(text.replace("# changed here\n", "assert len(FACETS) == 3\n"), "utf-8")
        assert script.read_text("utf-8") != text
        self.scripts = there

    def ended(self, missions: int) -> int:
        """Wait for their end; how many never did."""
        assert self.process is not None
        try:
            out, _ = self.process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            return missions
        return 0 if self.process.returncode == 0 and '"done"' in out else missions

    def _start(self, mode: str) -> None:
        words = [self.contender.python, str(self.scripts / self.contender.script), mode, str(self.folder / "db"), str(self.missions)]
        self.process = subprocess.Popen(
            [*words, str(self.missions), *self.contender.more], env={**os.environ, "PEERS_MODEL": self.model.host}, cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip


class LangGraph(Contender):
    script = "langgraph_agent.py"


class LangGraphInSync(Contender):
    script, more = "langgraph_agent.py", ("sync",)


class LangGraphAtExit(Contender):
    script, more = "langgraph_agent.py", ("exit",)


class Dbos(Contender):
    script = "dbos_agent.py"


class CrewAi(Contender):
    script = "crewai_agent.py"


class BatOs(Contender):
    """BAT OS: a daemon, and a client that only submits."""

    def __init__(self, python: str) -> None:
        super().__init__(sys.executable)

    def recovery_lines(self) -> int:
        return 0

    def cost(self, folder: Path, count: int) -> dict[str, float]:
        folder.mkdir()
        alone, many = (self._bench(folder, count, at_once) for at_once in (1, 50))
        return {
            "missions_per_s": alone["missions_per_s"], "missions_per_s_50": many["missions_per_s"], "cpu_ms": alone["cpu_ms_per_mission"],
            "bytes": alone["bytes_per_mission"], "fsyncs": alone["fsyncs_per_mission"],
        }  # fmt: skip

    def _bench(self, folder: Path, count: int, at_once: int) -> dict[str, float]:
        words = [self.python, str(HERE.parent / "kernel.py"), "--missions", str(count), "--concurrency", str(at_once), "--dir", str(folder)]
        done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=600)
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def program(self, folder: Path, model: PacedOllama) -> Program:
        return Daemon(self, folder, model)


class Daemon(Program):
    """`python -m batos`, and a client beside it."""

    def __init__(self, contender: Contender, folder: Path, model: PacedOllama) -> None:
        super().__init__(contender, folder, model)
        self.package = ROOT
        self.endpoint = f"ipc://{folder / 'batos.sock'}"

    def begin(self, missions: int) -> None:
        self.missions = missions
        self.again()
        asyncio.run(self._submit())

    def again(self) -> None:
        settings = {
            "ollama_host": self.model.host, "concurrent_missions": self.missions, "inference_concurrency": 64, "autotelic": "off",
            "lora_staging": self.folder / "staging", "depth": "facets", "flavour": "full",  # five calls, as the others make
        }  # fmt: skip
        (self.folder / "staging").mkdir(exist_ok=True)
        words = [self.contender.python, "-m", "batos", "run", "--data", str(self.folder / "data"), "--listen", self.endpoint]
        for name, value in settings.items():
            words += ["--set", f"{name}={value}"]
        self.process = subprocess.Popen(
            words, env={**os.environ, "PYTHONPATH": str(self.package)}, cwd=self.folder, stdout=subprocess.DEVNULL,
            stderr=(self.folder / "log").open("ab"), text=True,
        )  # fmt: skip

    def change(self) -> None:
        self.package = self.folder / "changed"
        for name in ("batos", "modelfiles"):
            shutil.copytree(ROOT / name, self.package / name, ignore=shutil.ignore_patterns("__pycache__"))
        states = self.package / "batos" / "mind" / "states.py"
        text = states.read_text("utf-8")
        states.write_text(
            text.replace(
                "    names = [name for name, _ in cycle.facets]\n",
                "    names = [name for name, _ in cycle.facets]\n    assert isinstance(names, list)\n",
            ),
            "utf-8",
        )
        assert states.read_text("utf-8") != text

    def ended(self, missions: int) -> int:
        return asyncio.run(self._results())

    async def _submit(self) -> None:
        from batos.wire import Client

        async with Client(self.endpoint) as client:
            for number in range(self.missions):
                await client.submit(f"mission-{number:03}: I feel stuck. Why is that?", id=f"mission-{number:03}")

    async def _results(self) -> int:
        from batos.wire import Client

        lost = self.missions
        async with Client(self.endpoint) as client:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    for number in range(self.missions):
                        lost -= bool((await client.result(f"mission-{number:03}"))["text"])
        return lost


CONTENDERS = {
    "BAT OS": BatOs,
    "LangGraph": LangGraph,
    "LangGraph, sync": LangGraphInSync,
    "LangGraph, exit": LangGraphAtExit,
    "DBOS": Dbos,
    "CrewAI": CrewAi,
}
