"""A defence in a file answers as the one that was saved, and refuses other weights, other inputs and slips of the pen."""

import copy
import pickle
import tomllib
from pathlib import Path

import pytest
import torch
from testbed.brightness import quarters, stripes
from testbed.refusals import refused
from testbed.stored import QUICK, edited, same

import drq
from drq.serving.stored_defence import StoredDefence, Threshold


def test_answers_and_all_that_was_said_are_the_same(saved):
    robust, path = saved
    again = drq.load_defence(path)
    assert isinstance(again, drq.DRQ)
    assert isinstance(again, torch.nn.Module)
    same(robust, again, torch.rand(2, 3, 32, 32))
    about = again.about
    assert (about.model, about.inputs, about.classes) == ("cifar10-tiny", (3, 32, 32), robust.model.card.classes)
    assert about.file_sha256 == robust.model.card.sha256
    assert about.weights_sha256 == drq.models.weights.checksum(robust.model)
    assert again.threshold == Threshold(0.25)
    assert about.measured == {"data": "some pictures", "accuracy": 0.5}
    assert about.version == drq.__version__


def test_it_survives_what_modules_go_through(saved):
    _, path = saved
    again, x = drq.load_defence(path), torch.rand(1, 3, 32, 32)
    for other in (copy.deepcopy(again), pickle.loads(pickle.dumps(again)), again.to("cpu"), again.replica()):
        assert isinstance(other, StoredDefence)
        assert other.about == again.about
        same(again, other, x)


def test_a_file_is_saved_again_as_it_is(saved, tmp_path):
    _, path = saved
    again = drq.load_defence(path)
    again.save(tmp_path / "copy.toml")
    assert (tmp_path / "copy.toml").read_text() == path.read_text()
    again.save(tmp_path / "copy.toml", threshold=0.5, measured={})
    third = drq.load_defence(tmp_path / "copy.toml")
    assert (third.threshold.margin, third.about.measured) == (0.5, {})
    assert type(again.variant(alpha=0.1)) is drq.DRQ  # about which nothing was measured


def test_a_person_changes_settings_and_threshold(saved):
    robust, path = saved
    x = torch.rand(4, 3, 32, 32)
    margin = float(robust.decide(x).margin.median())
    edited(edited(path, "margin = 0.25", f"margin = {margin}"), "alpha = 0.5", "alpha = 0.25")
    again = drq.load_defence(path)
    decision = again.decide(x)
    same(robust.variant(alpha=0.25), again, x)
    assert again.abstains(decision).tolist() == [each < margin for each in decision.margin.tolist()]
    assert "chosen by hand: nothing is promised" in again.promise


@pytest.mark.usefixtures("canary")
def test_models_by_names(path, tmp_path):
    """That of load_model with its options, one that is given, and a file of weights."""
    x = torch.rand(3, 4)
    loaded = drq.load_model("python:bird:model", seed=3)
    drq.DRQ(copy.deepcopy(loaded), "l2", 0.2).save(path)
    assert 'name = "python:bird:model?seed=3"' in path.read_text()
    same(drq.load_defence(path, allow_code=True), drq.DRQ(loaded, "l2", 0.2), x)
    import bird

    robust = drq.DRQ(bird.model(), "l2", 0.2)
    robust.save(path, model="python:bird:model")
    same(drq.load_defence(path, allow_code=True), robust, x)
    same(drq.load_defence(path, bird.model()), robust, x)  # then the name runs nothing
    same(drq.load_defence(path, "python:bird:model?seed=0"), robust, x)  # and what is given in Python may
    tiny = drq.load_model("cifar10-tiny")
    drq.models.weights.write(tiny.model, tmp_path / "w.safetensors", half=False)
    mean, std = (",".join(f"{each:.4f}" for each in values.flatten().tolist()) for values in (tiny.mean, tiny.std))
    name = f"file:{tmp_path / 'w.safetensors'}?arch=wrn_10_2_half&classes=10&mean={mean}&std={std}"
    drq.DRQ(drq.load_model(name), "linf", 0.1, **QUICK).save(path)
    assert drq.load_defence(path).about.model == name


@pytest.mark.usefixtures("canary")
def test_a_model_without_a_name_is_refused(path):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3)).eval()
    refused(drq.DRQ(model).save, path, words=["model must be given for one without a name, got Sequential: save(path, model="])
    refused(drq.DRQ(quarters()).save, path, words=["got 'quarters'", "python:package.module:factory"])
    refused(drq.DRQ(model).save, path, "python:bird:model", words=["which has others"])  # other weights
    refused(drq.DRQ(model).save, path, "python:bird:nothing", words=["model must be a name that drq.load_model knows"])
    refused(drq.DRQ(model).save, path, "nothing", words=["'nothing'"])
    refused(drq.DRQ(lambda x: x).save, path, words=["model must be a torch.nn.Module to be saved, got function"])
    trained_on = drq.load_model("cifar10-tiny")
    with torch.no_grad():
        next(trained_on.parameters()).add_(1)
    refused(drq.DRQ(trained_on).save, path, words=["'cifar10-tiny', which has others"])
    assert not path.exists()


def test_other_weights_are_refused(saved):
    _, path = saved
    other = drq.load_model("cifar10-tiny")
    with torch.no_grad():
        next(other.parameters()).flatten()[0] += 1e-3
    words = [f"{path}: weights_sha256 of cifar10-tiny", "the defence was saved for others"]
    refused(drq.load_defence, path, other, words=words)
    refused(drq.load_defence, path, "cifar10-small", words=words)
    edited(path, 'name = "cifar10-tiny"', 'name = "cifar10-small"')
    refused(drq.load_defence, path, words=["file_sha256", "cifar10-small"])
    text = path.read_text().replace('name = "cifar10-small"', 'name = "cifar10-tiny"')
    path.write_text(text.replace(tomllib.loads(text)["model"]["file_sha256"], "0" * 64))
    refused(drq.load_defence, path, words=["model.file_sha256 must be", "0000"])


def test_other_inputs_are_refused(saved):
    _, path = saved
    again = drq.load_defence(path)
    for x in (torch.rand(2, 3, 28, 28), torch.rand(2, 1, 32, 32), torch.rand(3, 32, 32)):
        for call in (again, again.decide):
            refused(call, x, words=["x must have the shape (N, 3, 32, 32), got", "the defence was saved for these inputs"])
    refused(
        drq.load_defence, edited(path, "[3, 32, 32]", "[3, 64, 64]"), words=["model.inputs must be [3, 32, 32]", "[3, 64, 64]"]
    )


@pytest.mark.usefixtures("canary")
def test_shapes_are_free_where_nobody_knows_them(path):
    import bird

    drq.DRQ(bird.model(), "l2", 0.2).save(path, model="python:bird:model")
    assert drq.load_defence(path, allow_code=True).decide(torch.rand(2, 2, 2)).label.shape == (2,)


SLIPS = [
    ('norm = "linf"', 'nrom = "linf"', "settings must have keys that exist, got 'nrom': did you mean norm?"),
    ("[settings]", "[setings]", "the file must have keys that exist, got 'setings': did you mean settings?"),
    ("margin = 0.25", "magrin = 0.25", "threshold must have keys that exist, got 'magrin': did you mean margin?"),
    ("inputs = ", "imputs = ", "model must have keys that exist, got 'imputs': did you mean inputs?"),
    (
        'explore = { search = "Gradient", steps = 2',
        'explore = { search = "Gradient", stesp = 2',
        "settings.explore must have settings that exist, got 'stesp': did you mean step",
    ),
    ("bounds = [0.0, 1.0]", 'preset = "fast"', "settings must have keys that exist, got 'preset'"),
    ('prune = "exact"', 'defence = "hedge"', "settings must have keys that exist, got 'defence'"),
    ("keep_points = false", "progress = true", "settings must have keys that exist, got 'progress'"),
    ('norm = "linf"', 'norm = "l3"', "settings: norm must be one of linf, l2, l1"),
    ("alpha = 0.5", "alpha = 7", "settings: alpha must lie in [0, 1], got 7"),
    (
        "bounds = [0.0, 1.0]",
        "bounds = [[0.0, 1.0], [1.0]]",
        "bounds must broadcast over the features (3, 32, 32), got shape (2,)",
    ),
    ("bounds = [0.0, 1.0]", "bounds = [1.0, 0.0]", "bounds must have lowest <= highest"),
    ("bounds = [0.0, 1.0]", "bounds = [[[0.0], 1.0], 1.0]", "settings.bounds must be numbers, in rows of one length"),
    ("compile = false", 'views = "Monotone(2)"', "settings: x must be rows of a table"),
    ("keep_points = false", 'chunk = "many"', "settings must be of the right kind"),
    ("explore_base = true", 'frozen = [1, "a"]', "settings.frozen must be true or false"),
    ("compile = false", 'views = "Rotate(90)"', "settings.views: views must be of Rotation"),
    ("margin = 0.25", "margin = 1.5", "threshold must lie between 0 and 1, got 1.5"),
    ('prune = "exact"', 'gate = { data = "digits" }', "settings.gate must be plain numbers"),
    ('precision = "float32"', "radius = 1e999", "Cannot overwrite"),
    ('name = "cifar10-tiny"', "name = 7", "model.name must be a line of text, got 7"),
    ('name = "cifar10-tiny"', 'name = "cifar10\\ntiny"', "model.name must be a line of text"),
    ("inputs = [3, 32, 32]", f"inputs = [{10**30}]", "model.inputs must be a list of whole numbers above 0"),
    ("margin = 0.25", f"margin = {10**400}", "threshold must lie between 0 and 1"),
    ("margin = 0.25", "margin = 0.25\nfitted = { margin = nan }", "threshold.fitted.margin must be a number, got nan"),
    ("radius = 0.06274509803921569", f"radius = {10**400}", "settings"),
    ("radius = 0.06274509803921569", 'radius = "' + 5000 * "9" + '/1"', "settings"),
    ('weights_sha256 = "', 'classes = ["a"]\nweights_sha256 = "', "Cannot overwrite"),
    ("inputs = [3, 32, 32]", 'inputs = ["a"]', "model.inputs must be a list of whole numbers"),
    ("[measured]", "[[measured]]", "measured must be a table"),
]


@pytest.mark.parametrize(("line", "changed", "said"), SLIPS, ids=[changed for _, changed, _ in SLIPS])
def test_a_slip_of_the_pen_is_one_line(line, changed, said, saved):
    _, path = saved
    message = refused(drq.load_defence, edited(path, line, changed), words=[said])
    assert message.startswith((str(path), "defence must be a TOML file"))
    assert len(message) < 600


def test_a_whole_part_may_be_missing(saved):
    _, path = saved
    text = path.read_text()
    for heading in ("[model]", "[settings]"):
        path.write_text(text.replace(heading, "[measured.other]"))
        refused(drq.load_defence, path, words=["must be a table"])
    path.write_text(text[: text.index("[threshold]")])
    assert drq.load_defence(path).threshold == Threshold()
    assert drq.load_defence(path).about.measured == {}


def test_an_old_file_stays_where_a_new_one_cannot_be(saved, tmp_path):
    robust, path = saved
    before = path.read_text()
    refused(drq.DRQ(robust.model, radius=torch.tensor([0.1, 0.2])).save, path, words=["radius must be one number to be saved"])
    refused(robust.save, path, measured={"x": object()}, words=["a value must be text"])
    refused(robust.save, path, threshold=2, words=["threshold must lie between 0 and 1"])
    assert path.read_text() == before
    assert [each.name for each in path.parent.iterdir() if each.is_file()] == ["defence.toml"]
    refused(robust.save, tmp_path, words=["path must name a file that can be written"])
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    robust.save(link, threshold=0.75)
    assert drq.load_defence(path).threshold.margin == 0.75


def test_only_a_defence_is_read(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text('models = ["digits"]\ndata = ["digits"]\n')
    refused(drq.load_defence, spec, words=["the file must have keys that exist, got 'models': did you mean model?"])
    refused(drq.load_defence, tmp_path / "nothing.toml", words=["nothing.toml' (No such file or directory)"])


def test_the_file_can_be_read_by_people(saved):
    """Lines have a bearable length, every table says what it is for, and the fields are plain values."""
    _, path = saved
    text = path.read_text()
    assert max(map(len, text.splitlines())) <= 130
    for words in ("# A defence:", "[model]", "[settings]", "[threshold]", "[measured]", "radius = 0.0627", "--risk 0.05"):
        assert words in text


def test_a_model_may_have_no_view_of_pictures(path):
    drq.DRQ(stripes(), "linf", 0.1, **QUICK).save(path, "python:testbed.brightness:stripes")
    again = drq.load_defence(path, stripes())
    assert again.about.classes == ("dark", "grey", "bright")
    renamed = edited(path, '["dark", "grey", "bright"]', '["dunkel", "grau", "hell"]')
    assert drq.load_defence(renamed, stripes()).about.classes == ("dunkel", "grau", "hell")
    fewer = edited(path, '["dunkel", "grau", "hell"]', '["dunkel", "grau"]')
    refused(drq.load_defence, fewer, stripes(), words=["model.classes must have a name for each of 3 classes, got 2"])


def test_a_path_may_be_text_and_leave_to_download_given(saved):
    _, path = saved
    assert drq.load_defence(str(path)).about == drq.load_defence(Path(path), download=True).about
