"""The same rows on Ray as in this process, whatever happens to its workers; and nothing of it stays behind."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from testbed.refusals import refused

import drq
from drq import Run
from drq.evaluation.engines import OnRay, check_reachable
from drq.evaluation.records import UNTIMED

# What a driver runs: everything that Ray is asked to do takes a process of its own, since Ray starts and stops others.
SETTING = """
import sys, time
import torch
import drq
from drq.adapters import Wrapper
from drq.errors import MissingError
from drq.evaluation.records import UNTIMED

class Slow(Wrapper):
    def forward(self, x):
        time.sleep(0.2)
        return self.model(x)

class Choosy(Wrapper):
    def forward(self, x):
        raise drq.InputError("x must be another, got these: change them")

class Absent(Wrapper):
    def forward(self, x):
        raise MissingError("a package must be installed, got none: install it")

few = {"norm": "linf", "radius": 0.2, "explore": drq.Gradient(3), "quantify": drq.Gradient(3)}

def spec(**changes):
    given = {"models": ["digits"], "data": ["digits"], "limit": 14, "shard": 2, "keep_images": 5, "seed": 3}
    given |= {"threats": {"clean": None, "noise": "gaussian_noise", "PGD": drq.threats.PGD("linf", 0.1, 3)}}
    return drq.Spec(**given | {"defences": {"standard": {}, "drq": few, "slow": Slow}} | changes)
"""
WHOLE = (
    SETTING
    + """
drq.evaluate(spec(), sys.argv[1], engine="ray")
print("evaluated", flush=True)
sys.stdin.readline()
"""
)
MISTAKES = (
    SETTING
    + """
import ray
heard = []
ray.init(address="local", include_dashboard=False, num_cpus=2, log_to_driver=False)
run = drq.evaluate(spec(defences={"absent": Absent}, threats={"clean": None}), sys.argv[1], engine="ray", tell=heard.append)
print([event.text for event in heard if event.what == "missing"], run.parts())
try:
    drq.evaluate(spec(defences={"choosy": Choosy}, threats={"clean": None}), sys.argv[2], engine="ray", workers=1)
except drq.InputError as error:
    print(error)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3)).eval()
data = torch.utils.data.TensorDataset(torch.rand(7, 1, 2, 2), torch.arange(7) % 3)
handed = spec(models={"mine": model}, data={"mine": data}, defences={"standard": {}, "drq": few})
here, there = (drq.evaluate(handed, f"{sys.argv[1]}-{name}", engine=name).records.select(UNTIMED) for name in ("local", "ray"))
print(here.height, here.equals(there))
print(ray.is_initialized())
ray.shutdown()
"""
)


class Driver:
    """A script as a process, and all the processes that came of it."""

    def __init__(self, script: str, *arguments: object) -> None:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)
        self.seen: set[psutil.Process] = set()

    def watch(self) -> list[psutil.Process]:
        """Those that are there now."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.seen |= set(children)
        return children

    def workers(self) -> list[psutil.Process]:
        """Those that judge a shard at this moment."""
        return [each for each in self.watch() if _title(each).startswith("ray::attempt")]

    def left(self) -> list[str]:
        """What is still running of all that was seen."""
        return [f"{each.pid} {_title(each)}" for each in self.seen if each.is_running() and _title(each)]


def _title(process: psutil.Process) -> str:
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The undisturbed run, in a process without Ray."""
    out = tmp_path_factory.mktemp("local")
    script = SETTING + "drq.evaluate(spec(), sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, out], check=True, timeout=300)
    return Run.open(out)


@pytest.mark.slow
def test_rows_are_those_of_this_process_though_workers_are_killed(local: Run, tmp_path: Path) -> None:
    driver, killed = Driver(WHOLE, tmp_path), []
    try:
        while driver.process.poll() is None and len(killed) < 3 and not (tmp_path / "records" / "0002.parquet").exists():
            for worker in driver.workers()[:1]:
                if list((tmp_path / "parts").glob("*")):  # at work
                    worker.send_signal(signal.SIGKILL)
                    killed.append(worker.pid)
            time.sleep(0.5)
        assert "evaluated\n" in iter(driver.process.stdout.readline, "")  # between lines of Ray on the workers that it lost
        deadline = time.monotonic() + 20
        while driver.left() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert driver.left() == []  # though the process that asked for them goes on
        assert driver.process.poll() is None
    finally:
        driver.process.communicate(timeout=100)
    print(f"killed {killed}; {len(driver.seen)} processes were seen")
    assert len(killed) >= 2
    assert len(driver.seen) > 3
    run = Run.open(tmp_path)
    assert run.records.select(UNTIMED).equals(local.records.select(UNTIMED))
    for task in range(3):
        assert (run.images(task) == local.images(task)).all()
    assert run.history[-1]["engine"] == "ray"
    assert not list((tmp_path / "parts").iterdir())


@pytest.mark.slow
def test_on_a_given_cluster_mistakes_are_one_line_and_it_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MISTAKES, tmp_path / "a", tmp_path / "b"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    missing, refusal, handed_in, still = done.stdout.splitlines()
    assert missing.count("a package must be installed, got none: install it") == 1
    assert missing.endswith(" []")
    assert refusal == "digits on digits, clean: x must be another, got these: change them"
    assert handed_in == "42 True"  # models and data that were handed in go along
    assert still == "True"


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere.invalid:6379", "nonsense"])
def test_an_address_that_leads_nowhere(address: str, tmp_path: Path) -> None:
    spec = {"models": ["digits"], "data": ["digits"], "limit": 2, "defences": {"standard": {}}}
    words = ["address must lead to a Ray cluster", f"got {address!r}", "ray status"]
    refused(drq.evaluate, spec, tmp_path, address=address, words=words)
    assert json.loads((tmp_path / "run.json").read_text())["spec"]["limit"] == 2
    assert drq.evaluate(spec, tmp_path).records.height == 2  # the run goes on without


def test_knocking() -> None:
    """Names of clusters are Ray's business; a port where nobody answers is told at once."""
    for address in ("", "auto", "local", "nonsense", "ray://cluster"):
        check_reachable(address)
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(OSError, match="refused"):
            check_reachable(address)


def test_without_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    spec = {"models": ["digits"], "data": ["digits"], "engine": "ray"}
    refused(drq.evaluate, spec, tmp_path / "run", words=["ray must be installed for the engine ray", "[ray]"])
    refused(OnRay, workers=0, words=["workers must be a whole number of at least 1, got 0"])
    assert not (tmp_path / "run").exists()
