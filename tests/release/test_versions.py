"""One version in all places, and claims about Python that tests bear out."""

import os
import re
import tomllib

import pytest
import yaml
from testbed.repository import ROOT

import drq

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LATEST = re.search(r"^## \[(.+?)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_version_is_that_of_the_changelog_and_of_the_citation():
    assert LATEST.group(1) == drq.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == drq.__version__


def test_what_is_tagged_is_that_version_and_has_a_date():
    tag = os.environ.get("DRQ_TAG")
    if not tag:
        pytest.skip("make release TAG=v1.2.3 sets DRQ_TAG")
    assert tag == f"v{drq.__version__}"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", LATEST.group(2)), "the changelog must give the day of the release"


def test_no_newer_python_is_claimed_than_the_workflow_tries():
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]["quick"]["strategy"]["matrix"]
    claimed = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert set(claimed) <= set(matrix["python"])
    assert f">={matrix['python'][0]}" == PROJECT["requires-python"]


def test_the_licence_is_the_same_everywhere():
    assert PROJECT["license"] == yaml.safe_load((ROOT / "CITATION.cff").read_text())["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert not [name for name in PROJECT["classifiers"] if name.startswith("License")]  # which SPDX has replaced
