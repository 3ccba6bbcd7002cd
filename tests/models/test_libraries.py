"""Models of other libraries, with stand-ins in their place: what is read from them, what they are asked, what is refused.

The libraries themselves are in tests/zoo.
"""

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from testbed.stand_ins import Hub, Logits, Net, Published, Timm, Transformers, module, torchvision
from torch import nn

from drq.errors import InputError
from drq.images import View
from drq.models.classifier import Card, Classifier
from drq.models.libraries import load_huggingface, load_python, load_timm, load_torchvision
from drq.system.files import digest

SETTINGS = ("config.json", "preprocessor_config.json")


@pytest.fixture
def hub(monkeypatch) -> Hub:
    made = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", module("huggingface_hub", snapshot_download=made.snapshot_download))
    return made


@pytest.fixture
def timm(monkeypatch, hub) -> Timm:  # noqa: ARG001 - it asks the hub
    made = Timm()
    monkeypatch.setitem(sys.modules, "timm", made.module)
    monkeypatch.setitem(sys.modules, "timm.data", made.data)
    return made


@pytest.fixture
def vision(monkeypatch, tmp_path):
    made = torchvision()
    monkeypatch.setitem(sys.modules, "torchvision", module("torchvision", models=made))
    monkeypatch.setitem(sys.modules, "torchvision.models", made)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return made


@pytest.fixture
def transformers(monkeypatch, hub) -> Transformers:  # noqa: ARG001 - it asks the hub
    made = Transformers()
    monkeypatch.setitem(sys.modules, "transformers", made.module)
    return made


def repository(folder: Path, model: nn.Module, *others: str) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors")
    for name in others:
        (folder / name).write_text("{}")
    return folder


def refused(call, *arguments, match: str, **options) -> str:
    """The message of a refusal; it is one line."""
    with pytest.raises(InputError, match=match) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def check_ready(model: Classifier) -> None:
    """In evaluation mode, in float32, with weights fixed; normalises with what the stand-ins have on record."""
    assert not any(each.training for each in model.modules())
    assert not any(each.requires_grad for each in model.parameters())
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    x = torch.rand(2, 3, 32, 32)
    logits = model(x)
    inner = next(each for each in model.modules() if isinstance(each, Net))
    expected = (x - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
    torch.testing.assert_close(inner.normalised, expected)
    torch.testing.assert_close(logits, inner.head(expected.mean((2, 3))))


@pytest.mark.parametrize(
    ("load", "name", "package"),
    [(load_timm, "resnet50", "timm"), (load_torchvision, "resnet50", "torchvision"), (load_huggingface, "a/b", "transformers")],
)
def test_a_missing_library_is_named(load, name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    message = refused(load, name, match=f"^{package} must be installed for its models")
    assert message.endswith("pip install 'decision-region-quantification[zoo]'")


class TestTimm:
    def test_random_weights_come_with_the_settings_on_record(self, timm, hub):
        state = torch.random.get_rng_state()
        model = load_timm("netlet", pretrained=False)
        assert torch.random.get_rng_state().equal(state)
        check_ready(model)
        assert model.card.name == "timm:netlet"
        assert model.card.view == View(32, 32, 35, "bicubic")  # 32 / 0.9, rounded down
        assert model.card.classes == tuple(f"beast {index}" for index in range(6))
        assert model.card.sha256 is None
        assert not hub.calls

    def test_the_whole_picture_squashed(self, timm):
        timm.published.settings = {"crop_mode": "squash", "crop_pct": 0.8, "interpolation": "lanczos"}
        assert load_timm("netlet", pretrained=False).card.view == View(32, 32, (40, 40), "lanczos")

    @pytest.mark.parametrize("settings", [{"crop_mode": "border"}, {"input_size": (3, 32, 24)}])
    def test_what_a_view_cannot_do_leaves_none(self, timm, settings):
        timm.published.settings = settings
        assert load_timm("netlet", pretrained=False).card.view is None

    def test_another_size_of_the_input(self, timm):
        assert load_timm("netlet", pretrained=False, img_size=64).card.view == View(64, 64, 71, "bicubic")

    def test_names_of_classes(self, timm):
        assert load_timm("netlet", pretrained=False, num_classes=4).card.classes is None
        timm.published.label_names = tuple("abcdef")
        assert load_timm("netlet", pretrained=False).card.classes == tuple("abcdef")

    @pytest.mark.parametrize("download", [False, True])
    def test_weights_in_the_cache_need_no_network(self, timm, hub, tmp_path, download):
        published = Net(6)
        hub.cached["timm/netlet.a1_in1k"] = repository(tmp_path / "held", published)
        model = load_timm("netlet", download=download)
        check_ready(model)
        assert timm.loaded_from == "file"
        assert model.card.sha256 == digest(tmp_path / "held" / "model.safetensors")
        assert model.model.head.weight.equal(published.head.weight)
        assert not hub.called_out

    def test_weights_are_downloaded_on_request_alone(self, timm, hub, tmp_path):
        hub.online["timm/netlet.a1_in1k"], hub.reachable = repository(tmp_path / "far", Net(6)), True
        message = refused(load_timm, "netlet", match="^timm:netlet must have model.safetensors on this machine")
        assert message.endswith("fetches what is missing")
        assert not hub.called_out
        check_ready(load_timm("netlet", download=True))
        assert hub.called_out

    def test_a_cache_without_the_file_is_completed(self, timm, hub, tmp_path):
        (tmp_path / "held").mkdir()
        hub.cached["timm/netlet.a1_in1k"] = tmp_path / "held"
        refused(load_timm, "netlet", match="fetches what is missing")
        hub.online["timm/netlet.a1_in1k"], hub.reachable = repository(tmp_path / "far", Net(6)), True
        check_ready(load_timm("netlet", download=True))

    def test_a_repository_without_safetensors_is_refused(self, timm, hub, tmp_path):
        (tmp_path / "far").mkdir()
        torch.save(Net(6).state_dict(), tmp_path / "far" / "pytorch_model.bin")
        hub.online["timm/netlet.a1_in1k"], hub.reachable = tmp_path / "far", True
        refused(load_timm, "netlet", download=True, match="must have model.safetensors in its repository, got none")

    def test_a_revision_is_passed_on(self, timm, hub):
        timm.published.hf_hub_id = "timm/netlet@abc"
        refused(load_timm, "netlet", match="on this machine")
        assert hub.calls == [{"repo_id": "timm/netlet", "local_files_only": True, "revision": "abc", "token": None}]

    def test_an_unreachable_hub_is_one_line(self, timm):
        message = refused(load_timm, "netlet", download=True, match="^timm:netlet must come from the Hugging Face hub")
        assert "got 'Name or service not known': check the name and the connection" in message

    def test_pickled_weights_are_read_as_data(self, timm, vision, tmp_path):
        timm.published.hf_hub_id, timm.published.url = None, "https://example.invalid/some/netlet.pth"
        path = tmp_path / "torch" / "hub" / "checkpoints" / "netlet.pth"
        refused(load_timm, "netlet", match="must have netlet.pth on this machine, got none in .*checkpoints")
        path.parent.mkdir(parents=True)
        torch.save(Net(6).state_dict(), path)
        model = load_timm("netlet")
        check_ready(model)
        assert timm.loaded_from == "state_dict"
        assert model.model.pretrained_cfg["state_dict"] is None
        torch.save(Net(6), path)
        refused(load_timm, "netlet", match="must be tensors and nothing else, .*netlet.pth.*.*could run code")

    def test_without_published_weights_only_random_ones_are_left(self, timm):
        timm.published = Published(hf_hub_id=None)
        refused(load_timm, "netlet", match="must have published weights, got none: pass pretrained=False")

    def test_mistakes(self, timm, hub):
        message = refused(load_timm, "netlett", match="^name must be one of the 3 names that timm knows, got 'netlett'")
        assert "the nearest are netlet" in message
        refused(load_timm, "zzz", match="check its spelling")
        refused(load_timm, "netlet", num_classes=0, match="^timm:netlet must have at least 2 classes, got 0")
        refused(load_timm, "netlet", num_classes=1, pretrained=False, match="must have at least 2 classes, got 1")
        refused(load_timm, "netlet", num_classes=5, match="num_classes must be 6, as in the published weights, got 5")
        refused(load_timm, "netlet", pretrained=False, colour=1, match=r"got colour=1 \(.*unexpected keyword argument 'colour'")
        refused(load_timm, "netlet", pretrained=False, checkpoint_path="evil.pth", match="multiple values for keyword argument")
        refused(load_timm, "netlet", pretrained=False, in_chans=1, match="in_chans must be 3, as for the mean on record, got 1")
        timm.published.num_classes = 0
        refused(load_timm, "netlet", match="must have at least 2 classes, got 0")
        assert not hub.calls


class TestTorchvision:
    def test_random_weights_come_with_the_settings_of_the_default(self, vision):
        model = load_torchvision("netlet", pretrained=False)
        check_ready(model)
        assert model.card.name == "torchvision:netlet"
        assert model.card.view == View(28, 28, 30, "bicubic")
        assert model.card.classes == ("ant", "bee", "cat")
        assert model.card.sha256 is None

    def test_settings_of_named_weights(self, vision):
        for choice in ("V1", "Netlet_Weights.V1", vision.get_model_weights("netlet").V1):
            assert load_torchvision("netlet", pretrained=False, weights=choice).card.view == View(28, 28, 32, "bilinear")

    def test_random_weights_with_other_classes_have_no_names(self, vision):
        model = load_torchvision("netlet", pretrained=False, num_classes=5)
        assert model(torch.rand(1, 3, 8, 8)).shape == (1, 5)
        assert model.card.classes is None

    def test_random_vision_transformers_have_the_size_of_the_weights(self, vision):
        assert load_torchvision("vit_netlet", pretrained=False).model.image_size == 28
        assert load_torchvision("netlet", pretrained=False).model.image_size == 0

    def stored(self, vision, tmp_path, content) -> tuple[Path, str]:
        """A file in the cache whose name tells its checksum."""
        torch.save(content, tmp_path / "file")
        sha256 = digest(tmp_path / "file")
        entry = vision.get_model_weights("netlet").DEFAULT
        entry.value.url = f"https://example.invalid/models/netlet-{sha256[:8]}.pth?version=2"
        path = tmp_path / "torch" / "hub" / "checkpoints" / f"netlet-{sha256[:8]}.pth"
        path.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "file").rename(path)
        return path, sha256

    def test_weights_in_the_cache(self, vision, tmp_path):
        published = Net(3)
        _, sha256 = self.stored(vision, tmp_path, published.state_dict())
        model = load_torchvision("netlet")
        check_ready(model)
        assert model.card.sha256 == sha256
        assert model.model.head.weight.equal(published.head.weight)

    def test_a_file_that_was_changed_is_refused(self, vision, tmp_path):
        path, sha256 = self.stored(vision, tmp_path, Net(3).state_dict())
        torch.save(Net(3).state_dict(), path)
        refused(load_torchvision, "netlet", match=f"must have a sha256 that begins with {sha256[:8]}, got .*: remove it")

    def test_code_is_refused(self, vision, tmp_path):
        self.stored(vision, tmp_path, Net(3))
        refused(load_torchvision, "netlet", match="must be tensors and nothing else, .*could run code")

    def test_weights_are_downloaded_on_request_alone(self, vision, tmp_path, monkeypatch):
        calls = []

        def download(url, path, digits, progress):
            calls.append((url, digits))
            assert not progress
            torch.save(Net(3).state_dict(), path)

        monkeypatch.setattr(torch.hub, "download_url_to_file", download)
        message = refused(load_torchvision, "netlet", match="^torchvision:netlet must have netlet-00000002.pth on this machine")
        assert message.endswith("fetches what is missing")
        assert not calls
        refused(load_torchvision, "netlet", download=True, match="sha256 that begins with 00000002")  # it is checked here too
        assert calls == [("https://example.invalid/models/netlet-00000002.pth", "00000002")]

    def test_an_unreachable_server_is_one_line(self, vision, monkeypatch):
        def unreachable(*_, **__):
            raise OSError("<urlopen error\n[Errno -2]>")

        monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
        message = refused(load_torchvision, "netlet", download=True, match="must come from example.invalid")
        assert "got '<urlopen error [Errno -2]>': check the name and the connection" in message

    def test_mistakes(self, vision):
        message = refused(load_torchvision, "netlat", match="one of the 2 classifiers that torchvision knows, got 'netlat'")
        assert "the nearest are netlet" in message
        refused(load_torchvision, "netlet", weights="V3", match="^weights must be one of V1, V2, FEATURES, DEFAULT, got 'V3'")
        refused(load_torchvision, "netlet", weights="FEATURES", match="netlet with FEATURES must have at least 2 classes, got 0")
        refused(load_torchvision, "netlet", pretrained=False, num_classes=1, match="must have at least 2 classes, got 1")
        refused(load_torchvision, "netlet", num_classes=5, match="num_classes must be 3, as in the published weights, got 5")
        refused(load_torchvision, "netlet", pretrained=False, colour=1, match=r"got colour=1 \(.*unexpected keyword argument")


class TestHuggingFace:
    def test_a_folder(self, transformers, hub, tmp_path):
        published = Logits(3)
        folder = repository(tmp_path / "model", published, *SETTINGS)
        model = load_huggingface(str(folder))
        check_ready(model)  # the stand-in hands out bfloat16
        torch.testing.assert_close(model.model.model.head.weight, published.head.weight.bfloat16().float())
        assert model.card.name == f"hf:{folder}"
        assert (model.card.view.height, model.card.view.width) == (24, 20)
        assert model.card.view.resize == (24, 20)
        assert model.card.view.interpolation == "bilinear"
        assert model.card.classes == ("ant", "bee", "cat")
        assert model.card.sha256 == digest(folder / "model.safetensors")
        assert not hub.calls
        safe = {"folder": folder, "trust": False, "local": True}
        assert transformers.asked.pop("quiet") == {"verbosity": 50, "bars": False}  # its reports have many lines
        assert (transformers.verbosity, transformers.bars) == (30, True)
        assert transformers.asked == {"config": safe, "processor": safe, "model": {**safe, "safe": True}}

    @pytest.mark.parametrize("download", [False, True])
    def test_a_repository_in_the_cache_needs_no_network(self, transformers, hub, tmp_path, download):
        hub.cached["some/body"] = repository(tmp_path / "held", Logits(3), *SETTINGS)
        check_ready(load_huggingface("some/body", download=download, revision="v2", token="secret"))
        assert hub.calls == [{"repo_id": "some/body", "local_files_only": True, "revision": "v2", "token": "secret"}]

    def test_a_repository_is_downloaded_on_request_alone(self, transformers, hub, tmp_path):
        held = hub.cached["some/body"] = tmp_path / "held"
        held.mkdir()
        (held / "config.json").write_text("{}")
        far = hub.online["some/body"] = repository(tmp_path / "far", Logits(3), *SETTINGS, "pytorch_model.bin", "evil.py")
        hub.reachable = True
        message = refused(load_huggingface, "some/body", match="^hf:some/body must have model.safetensors")
        assert message.endswith("fetches what is missing")
        refused(load_huggingface, "other/body", match="on this machine, got none in the cache of the Hugging Face hub")
        assert not hub.called_out
        check_ready(load_huggingface("some/body", download=True))
        assert hub.called_out
        assert {each.name for each in far.iterdir()} == {"model.safetensors", *SETTINGS}  # nothing else was asked for

    def test_an_unreachable_hub_is_one_line(self, transformers):
        message = refused(load_huggingface, "some/body", download=True, match="^hf:some/body must come from the Hugging Face hub")
        assert "got 'Name or service not known'" in message

    def test_pickled_weights_are_refused(self, transformers, hub, tmp_path):
        folder = repository(tmp_path / "model", Logits(3), *SETTINGS, "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
        match = r"must have model\.safetensors or model\.safetensors\.index\.json, since pickled weights can run code, got none"
        refused(load_huggingface, str(folder), match=match)
        hub.online["some/body"], hub.reachable = folder, True
        refused(load_huggingface, "some/body", download=True, match=match)
        assert not transformers.asked  # or it would try to have them converted

    @pytest.mark.parametrize("name", SETTINGS)
    def test_missing_settings_are_named(self, transformers, tmp_path, name):
        folder = repository(tmp_path / "model", Logits(3), *SETTINGS)
        (folder / name).unlink()
        refused(load_huggingface, str(folder), match=f"must have {name}")

    def test_random_weights(self, transformers, tmp_path):
        folder = repository(tmp_path / "model", Logits(3), *SETTINGS)
        (folder / "model.safetensors").unlink()
        model = load_huggingface(str(folder), pretrained=False, num_labels=5, attention="eager")
        check_ready(model)
        assert model.card.classes is None  # LABEL_0 is no name
        assert model.card.sha256 is None
        assert transformers.asked["random"] == {"trust": False}

    def settled(self, transformers, tmp_path, **settings) -> Classifier:
        transformers.processor.settings.update(settings)
        return load_huggingface(str(repository(tmp_path / "model", Logits(3), *SETTINGS)))

    def test_the_shorter_side_and_a_crop(self, transformers, tmp_path):
        sizes = {"size": {"shortest_edge": 32}, "do_center_crop": True, "crop_size": {"height": 28, "width": 29}}
        view = self.settled(transformers, tmp_path, **sizes, resample=3).card.view
        assert (view.height, view.width, view.resize, view.interpolation) == (28, 29, 32, "bicubic")

    def test_a_crop_that_goes_without_saying(self, transformers, tmp_path):
        view = self.settled(transformers, tmp_path, size={"shortest_edge": 28}, crop_pct=0.875).card.view
        assert (view.height, view.width, view.resize) == (28, 28, 32)

    def test_other_scales_are_taken_in(self, transformers, tmp_path):
        twice = {"rescale_factor": 2 / 255, "image_mean": [0.2, 0.4, 0.6], "image_std": [0.8, 1.0, 1.2]}
        check_ready(self.settled(transformers, tmp_path, **twice))
        raw = {"do_rescale": False, "image_mean": [25.5, 51.0, 76.5], "image_std": [102.0, 127.5, 153.0]}
        check_ready(self.settled(transformers, tmp_path, **raw))
        plain = self.settled(transformers, tmp_path, do_rescale=True, rescale_factor=1 / 255, do_normalize=False)
        assert plain.mean.flatten().tolist() == [0, 0, 0]
        assert plain.std.flatten().tolist() == [1, 1, 1]

    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            ({"do_resize": False}, "it does not resize"),
            ({"size": {"shortest_edge": 32}}, "it does not crop"),
            ({"size": {"longest_edge": 32}}, "height"),
            ({"resample": 9}, "out of range"),
        ],
    )
    def test_other_preprocessing_is_refused(self, transformers, tmp_path, settings, reason):
        match = rf"must resize, crop at the centre and normalise pictures, and do nothing else, got Processor \(.*{reason}.*\)"
        refused(self.settled, transformers, tmp_path, match=match, **settings)

    def test_preprocessing_that_keeps_something_quiet_is_refused(self, transformers, tmp_path):
        transformers.processor.flipped = True  # blue first, as in some models
        refused(self.settled, transformers, tmp_path, match=r"got Processor \(its inputs differ by up to")

    def test_a_model_without_a_head_is_refused(self, transformers, tmp_path):
        transformers.missing = {"head.weight", "head.bias"}
        refused(self.settled, transformers, tmp_path, match=r"weights for the whole classifier, got none for head\.bias, head\.w")
        transformers.missing, transformers.mismatched = set(), {("head.bias", (6,), (3,))}
        refused(self.settled, transformers, tmp_path, match=r"weights for the whole classifier, got none for head\.bias:")

    def test_mistakes(self, transformers, tmp_path):
        folder = str(repository(tmp_path / "model", Logits(3), *SETTINGS))
        refused(load_huggingface, "/no/where", match="^name must be a repository or a folder, got '/no/where'")
        refused(load_huggingface, folder, num_labels=1, match="must have at least 2 classes, got 1")
        refused(load_huggingface, folder, colour=1, match=r"got colour=1 \(.*unexpected keyword argument 'colour'")
        for option in ("trust_remote_code", "local_files_only"):
            refused(load_huggingface, folder, **{option: True}, match=f"multiple values for keyword argument '{option}'")
        refused(load_huggingface, folder, use_safetensors=False, match="multiple values for keyword argument 'use_safetensors'")


FACTORIES = """
import torch
from drq.models.classifier import Card, Classifier

def table(features=3, classes=2):
    return torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(features, classes))

def images():
    return Classifier(torch.nn.Flatten(), Card("mine"), mean=[0.5], std=[0.25]).train()

def words():
    return "no model"

model = table()
number = 3

class Holder:
    made = staticmethod(table)
"""


class TestPython:
    @pytest.fixture(autouse=True)
    def factories(self, tmp_path, monkeypatch):
        (tmp_path / "my_factories.py").write_text(FACTORIES)
        (tmp_path / "my_broken.py").write_text("import a_package_that_is_missing")
        monkeypatch.syspath_prepend(tmp_path)
        yield
        sys.modules.pop("my_factories", None)

    def test_any_module_is_returned_as_it_is(self):
        model = load_python("my_factories:table", features=4, classes=3)
        assert isinstance(model, nn.Sequential)
        assert not any(each.training for each in model.modules())
        assert not any(each.requires_grad for each in model.parameters())
        assert model(torch.rand(2, 4)).shape == (2, 3)  # tabular: nothing is said of images
        assert load_python("my_factories:Holder.made")(torch.rand(1, 3)).shape == (1, 2)

    def test_a_classifier_keeps_its_card(self):
        model = load_python("my_factories:images")
        assert isinstance(model, Classifier)
        assert model.card == Card("mine")
        assert not any(each.training for each in model.modules())
        assert model(torch.full((1, 1, 1, 2), 0.75)).tolist() == [[1.0, 1.0]]

    @pytest.mark.parametrize(
        ("target", "options", "match"),
        [
            ("my_factories", {}, "^name must have the form python:package.module:factory, got 'my_factories'"),
            ("my factories:table", {}, "must have the form"),
            ("no_such_module:table", {}, "^no_such_module must be a module that can be imported, got 'No module named 'no_such"),
            ("my_broken:table", {}, "^my_broken must be a module .*got 'No module named 'a_package_that_is_missing''"),
            ("my_factories:chair", {}, "^my_factories:chair must name something in my_factories, got no chair"),
            ("my_factories:number", {}, "must name a function or class that makes the model, got int"),
            ("my_factories:model", {}, "must name a function or class that makes the model, got Sequential"),
            ("my_factories:words", {}, "^my_factories:words must return a torch.nn.Module, got str"),
            ("my_factories:table", {"colour": 1}, r"must take these options, got colour \(got an unexpected keyword argument"),
        ],
    )
    def test_mistakes(self, target, options, match):
        refused(load_python, target, **options, match=match)
