"""Models of timm, with a stand-in in its place: what is read from it, what it is asked, what is refused."""

import pytest
import torch
from testbed.libraries import check_ready, refused, repository
from testbed.stand_ins import Net, Published

from drq.images import View
from drq.models.libraries import load_timm
from drq.system.files import digest


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
