"""Names of code in the file of a defence: refused, unless they are allowed; words of what was measured are free."""

import pytest
from testbed.brightness import quarters
from testbed.explained import images
from testbed.refusals import refused
from testbed.stored import same

import drq

CODE = {
    "a model": ('name = "cifar10-tiny"', 'name = "python:bird:model"'),
    "a model behind another name": ('name = "cifar10-tiny"', 'name = "denoised:python:bird:model"'),
    "a search": ('quantify = { search = "Gradient"', 'quantify = { search = "python:bird:Search"'),
    "a search in a search": ("step = 2.5, direction", 'smooth = { smooth = "python:bird:Search" }, step = 2.5, direction'),
    "views": ("compile = false", 'views = "Mirror() + python:bird:seen"'),
    "a front": ("compile = false", 'front = "python:bird:Search"'),
}


@pytest.mark.parametrize("name", CODE)
def test_code_is_not_run_unasked(name, saved, canary):
    _, path = saved
    before, after = CODE[name]
    path.write_text(path.read_text().replace(before, after, 1))
    words = [str(path), "must not run code unasked, got", "python:bird:", "pass --allow-code (allow_code=True in Python)"]
    refused(drq.load_defence, path, words=words)
    assert not (canary / "imported").exists()
    if name != "views":
        refused(drq.load_defence, path, allow_code=True)  # nothing here fits, but it is looked at
        assert (canary / "imported").exists()


@pytest.mark.usefixtures("canary")
def test_views_of_ones_own_are_run_where_they_may(path):
    robust = drq.DRQ(quarters(), views="Mirror() + python:bird:seen")
    robust.save(path, "python:testbed.brightness:quarters")
    again = drq.load_defence(path, allow_code=True)
    same(robust, again, images(3, side=6))
    refused(drq.load_defence, path, quarters(), words=["python:bird:seen"])  # the model is given, the view is not


def test_words_of_what_was_measured_are_free(saved, canary):
    robust, path = saved
    robust.save(path, measured={"python:bird:model": "python:bird:seen", "at": {"rows": [1, 2.5, "x"]}, "long": [0.5] * 100})
    assert drq.load_defence(path).about.measured["at"] == {"rows": [1, 2.5, "x"]}
    assert not (canary / "imported").exists()
