"""Workflows, issue forms and hooks: they have the shape that they should, are safe, and call targets that there are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from testbed.repository import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-issue-forms": sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")),
    "dependabot": [GITHUB / "dependabot.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))


def checked(program: str, *arguments: str | Path) -> str:
    """What a program of this environment says, which must be content."""
    path = Path(sys.executable).with_name(program)
    if not path.exists():
        pytest.skip(f"{program} is not installed: make test installs it")
    done = subprocess.run([path, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_have_the_shape_of_their_schema(schema):
    assert SCHEMAS[schema]
    checked("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *SCHEMAS[schema])


def test_workflows_and_hooks_are_safe():
    """Among others: actions are pinned to commits, rights are least, and nothing that a stranger writes is run."""
    assert "No findings" in checked("zizmor", "--offline", "--pedantic", "--no-progress", ROOT)


def runs(workflow: Path) -> list[str]:
    """The commands of a workflow."""
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_does_nothing_that_make_does_not(workflow):
    assert runs(workflow)
    for command in runs(workflow):
        make, target, *_ = command.split()
        assert make == "make"
        assert target in TARGETS


def test_tests_docs_and_releases_have_a_workflow():
    assert {path.stem: [command.split()[1] for command in runs(path)] for path in WORKFLOWS} == {
        "docs": ["docs"],
        "release": ["release"],
        "tests": ["test", "test-slow", "check-records"],
    }


def test_every_target_is_phony_and_all_but_a_few_are_in_the_help():
    phony = set(re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)[0].split())
    assert phony == TARGETS
    assert phony - set(re.findall(r'@echo "make ([\w-]+)', MAKEFILE)) == {"help", "setup"}


def test_whoever_reports_a_fault_is_asked_for_version_and_spec():
    (form,) = SCHEMAS["github-issue-forms"]
    asked = {field["id"]: field for field in yaml.safe_load(form.read_text())["body"]}
    assert "drq --version" in asked["version"]["attributes"]["label"]
    assert asked["spec"]["attributes"]["render"] == "toml"
    assert all(asked[field]["validations"]["required"] for field in ("happened", "version", "spec"))


def test_hooks_need_nothing_from_elsewhere():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}


def test_hooks_are_well_formed():
    checked("pre-commit", "validate-config", ROOT / ".pre-commit-config.yaml")
