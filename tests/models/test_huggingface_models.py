"""Models of transformers, with a stand-in in its place: what is read from it, what it is asked, what is refused."""

import pytest
import torch
from testbed.libraries import check_ready, refused, repository
from testbed.stand_ins import Logits

from drq.models.classifier import Classifier
from drq.models.libraries import load_huggingface
from drq.system.files import digest

SETTINGS = ("config.json", "preprocessor_config.json")


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
