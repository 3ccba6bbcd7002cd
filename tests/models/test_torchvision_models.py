"""Models of torchvision, with a stand-in in its place: what is read from it, what it is asked, what is refused."""

from pathlib import Path

import torch
from testbed.libraries import check_ready, refused
from testbed.stand_ins import Net

from drq.images import View
from drq.models.libraries import load_torchvision
from drq.system.files import digest


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
