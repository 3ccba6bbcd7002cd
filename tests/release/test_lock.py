"""The lock: every package with its hashes and no address, without torch, and nothing missing that the project asks for."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from testbed.repository import ROOT

LOCK = (ROOT / "requirements.lock").read_text()
ENTRIES = [line for line in LOCK.replace("\\\n", "").splitlines() if not line.startswith("#")]  # a package with its hashes each
PINS = [Requirement(entry.partition("--hash")[0]) for entry in ENTRIES]
LOCKED = {pin.name for pin in PINS}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
APART = {"torch", PROJECT["project"]["name"]}  # torch's file differs between machines; the project is installed from the clone


def test_it_holds_no_address():
    assert not [line for line in LOCK.splitlines() if "://" in line or "file:" in line]


def test_every_package_has_one_version_and_hashes():
    assert len(PINS) > 100
    for entry, pin in zip(ENTRIES, PINS, strict=True):
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), entry
        assert pin.url is None, entry
        assert re.fullmatch(r"( +--hash=sha256:[0-9a-f]{64})+", entry[entry.index(" --hash") :].replace("    ", " ")), entry
    here = [pin.name for pin in PINS if not pin.marker or pin.marker.evaluate()]
    assert len(here) == len({*here})


def test_neither_torch_nor_what_only_some_of_its_files_need_is_locked():
    assert not {name for name in LOCKED if name in APART or name.startswith(("torch", "nvidia", "cuda", "triton"))}


def group(name: str) -> Iterator[str]:
    for each in PROJECT["dependency-groups"][name]:
        yield from group(each["include-group"]) if isinstance(each, dict) else [each]


def asked(requirements: Iterable[str], extras: Iterable[str] = ()) -> Iterator[Requirement]:
    """Those that hold on this machine, with these extras or without any."""
    for requirement in map(Requirement, requirements):
        if not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            yield requirement


def direct() -> list[Requirement]:
    """What the project itself asks for, but for the extra with an environment of its own."""
    optional = PROJECT["project"]["optional-dependencies"]
    extras = [each for extra in optional if extra != "zoo" for each in optional[extra]]
    return [each for each in asked([*PROJECT["project"]["dependencies"], *group("test"), *extras]) if each.name not in APART]


def test_what_the_project_asks_for_is_locked_in_a_version_that_will_do():
    for requirement in direct():
        pins = [pin for pin in PINS if pin.name == canonicalize_name(requirement.name)]
        assert pins, requirement
        versions = [each.version for pin in pins for each in pin.specifier]
        assert all(requirement.specifier.contains(version) for version in versions), requirement


def test_what_that_asks_for_in_turn_is_locked_too():
    """As far as it is installed."""
    ahead, known = direct(), set()
    while ahead:
        requirement = ahead.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if name in APART or (name, extras) in known:
            continue
        known.add((name, extras))
        assert name in LOCKED, requirement
        try:
            ahead += asked(requires(name) or [], extras)
        except PackageNotFoundError:
            continue
    assert len(known) > 50
