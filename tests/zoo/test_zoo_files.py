"""Files of weights as the libraries publish and cache them: found, checked, and loaded as the libraries load them."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from testbed import zoo
from testbed.zoo import huggingface_hub, timm, torchvision, transformers

from drq.errors import InputError
from drq.models.huggingface_models import preprocessing
from drq.models.libraries import load_huggingface, load_timm, load_torchvision
from drq.system.files import digest

models = torchvision.models
COMMIT = "0123456789abcdef0123456789abcdef01234567"
BUILT = {"vit_b_16": {"image_size": 384}, "googlenet": {"init_weights": False}}


@pytest.fixture(autouse=True)
def empty_caches(monkeypatch, tmp_path):
    """Nobody's own cache is read or written."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def repository(tmp_path: Path, name: str) -> Path:
    """The folder in which the hub's own cache keeps the files of a repository."""
    root = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    (root / "snapshots" / COMMIT).mkdir(parents=True)
    return root / "snapshots" / COMMIT


def images(model, count: int = 2):
    return torch.stack([model.card.view(zoo.picture(200, 180, seed)) for seed in range(count)])


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("resnet18", "DEFAULT"),
        ("googlenet", "DEFAULT"),  # normalises its input once more
        ("densenet121", "DEFAULT"),  # old names in its file
        ("vit_b_16", "IMAGENET1K_SWAG_E2E_V1"),  # 384 pixels wide
        ("mnasnet0_5", "DEFAULT"),  # asks for the version of its file
    ],
)
def test_weights_of_torchvision_are_loaded_as_torchvision_does(name, entry, monkeypatch, tmp_path):
    published = models.get_model_weights(name)[entry]
    model = models.get_model(name, weights=None, **BUILT.get(name, {}))
    state = model.state_dict()
    if name == "densenet121":
        for key in [key for key in state if "denselayer" in key and "num_batches" not in key]:
            state[key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2.")] = state.pop(key)
    torch.save(state, tmp_path / "file")
    sha256 = digest(tmp_path / "file")
    monkeypatch.setattr(published.value, "url", f"https://example.invalid/{name}-{sha256[:8]}.pth")
    cache = tmp_path / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    (tmp_path / "file").rename(cache / f"{name}-{sha256[:8]}.pth")
    ours, theirs = load_torchvision(name, weights=entry), models.get_model(name, weights=published).eval()
    assert ours.card.sha256 == sha256
    assert len(ours.card.classes) == 1000
    picture = zoo.picture(301, 267)
    with torch.no_grad():
        logits = theirs(published.transforms()(picture)[None])
        torch.testing.assert_close(ours(ours.card.view(picture)[None]), logits, rtol=1e-4, atol=1e-5)


def test_a_file_with_another_checksum_is_refused(tmp_path):
    cache = tmp_path / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save(models.resnet18().state_dict(), cache / "resnet18-f37072fd.pth")
    with pytest.raises(InputError, match=r"must have a sha256 that begins with f37072fd, got .* remove it"):
        load_torchvision("resnet18")


def test_weights_of_timm_are_found_in_the_cache_of_the_hub(tmp_path):
    model = timm.create_model("resnet18.a1_in1k").eval()
    path = repository(tmp_path, "timm/resnet18.a1_in1k") / "model.safetensors"
    save_file({key: each.bfloat16() if each.is_floating_point() else each for key, each in model.state_dict().items()}, path)
    loaded = load_timm("resnet18.a1_in1k")
    assert loaded.card.sha256 == digest(path)
    assert {each.dtype for each in loaded.parameters()} == {torch.float32}
    expected = {key: each.bfloat16().float() if each.is_floating_point() else each for key, each in model.state_dict().items()}
    for key, value in loaded.model.state_dict().items():
        assert value.equal(expected[key]), key


def test_a_pickled_file_of_timm_is_read_as_data(monkeypatch, tmp_path):
    path = tmp_path / "torch" / "hub" / "checkpoints" / "seresnet18-4bb0ce65.pth"
    path.parent.mkdir(parents=True)
    model = timm.create_model("legacy_seresnet18")
    torch.save(model.state_dict(), path)
    with pytest.raises(InputError, match="must have a sha256 that begins with 4bb0ce65"):
        load_timm("legacy_seresnet18")
    monkeypatch.setattr(torch.hub, "HASH_REGEX", re.compile("(a name without digits)"))
    loaded = load_timm("legacy_seresnet18").model
    assert all(each.equal(model.state_dict()[key]) for key, each in loaded.state_dict().items())
    assert loaded.pretrained_cfg["state_dict"] is loaded.default_cfg["state_dict"] is None  # not kept twice
    torch.save({"state_dict": model}, path)  # a whole module: code
    with pytest.raises(InputError, match="must be tensors and nothing else"):
        load_timm("legacy_seresnet18")


def test_a_repository_in_the_cache_needs_no_network(tmp_path):
    held = repository(tmp_path, "somebody/vit")
    model = zoo.save("vit", held)
    for download in (False, True):
        loaded = load_huggingface("somebody/vit", download=download)
        assert loaded.card.name == "hf:somebody/vit"
        assert loaded.card.classes == tuple(f"animal {index}" for index in range(12))
        assert loaded.card.sha256 == digest(held / "model.safetensors")
        x = images(loaded)
        with torch.no_grad():
            torch.testing.assert_close(loaded(x), model((x - loaded.mean) / loaded.std).logits)


def test_half_precision_becomes_float32(tmp_path):
    zoo.save("vit", tmp_path)
    save_file(
        {key: each.bfloat16() for key, each in load_file(tmp_path / "model.safetensors").items()},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16", "torch_dtype": "bfloat16"}))
    loaded = load_huggingface(str(tmp_path))
    assert {each.dtype for each in loaded.parameters()} == {torch.float32}


def test_weights_in_several_files_are_put_together(tmp_path):
    model = zoo.save("vit", tmp_path, max_shard_size="100KB")
    assert not (tmp_path / "model.safetensors").exists()
    loaded = load_huggingface(str(tmp_path))
    assert loaded.card.sha256 is None
    x = images(loaded)
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), model((x - loaded.mean) / loaded.std).logits)


def test_pickled_weights_are_refused(tmp_path):
    model = zoo.save("vit", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"must have model.safetensors .*since pickled weights can run code"):
        load_huggingface(str(tmp_path))


def test_a_model_without_a_head_is_refused(tmp_path):
    zoo.save("vit", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(
        {key: each for key, each in tensors.items() if "classifier" not in key}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(InputError, match=r"have weights for the whole classifier, got none for classifier\.bias"):
        load_huggingface(str(tmp_path))


def test_another_number_of_classes_is_refused():
    with pytest.raises(InputError, match=r"got num_labels=5"):
        load_huggingface(str(zoo.folder("vit")), num_labels=5)
    with pytest.raises(InputError, match=r"have weights for the whole classifier, got none for classifier\.bias"):
        load_huggingface(str(zoo.folder("vit")), num_labels=5, ignore_mismatched_sizes=True)


def test_code_in_a_repository_is_not_run(tmp_path):
    zoo.save("vit", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    code = {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "evil", "auto_map": code}))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(InputError, match=r"hf:.* must be what its library can build"):
        load_huggingface(str(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_random_weights_come_from_the_configuration_alone(tmp_path):
    zoo.save("vit", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = torch.random.get_rng_state()
    loaded = load_huggingface(str(tmp_path), pretrained=False, num_labels=5)
    assert torch.random.get_rng_state().equal(state)
    assert loaded(images(loaded)).shape == (2, 5)
    assert loaded.card.sha256 is None


@pytest.mark.parametrize(
    "processor",
    [
        transformers.EfficientNetImageProcessor(size={"height": 96, "width": 96}),  # normalises twice
        transformers.LevitImageProcessor(size={"shortest_edge": 96}, crop_size={"height": 96, "width": 96}),  # enlarges first
        transformers.MobileViTImageProcessor(size={"shortest_edge": 96}, crop_size={"height": 96, "width": 96}),  # blue first
        transformers.ViTImageProcessor(do_resize=False),
        transformers.CLIPImageProcessor(do_center_crop=False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_preprocessing_that_does_something_else_is_refused(processor, tmp_path):
    shutil.copytree(zoo.folder("vit"), tmp_path, dirs_exist_ok=True)
    processor.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"must resize, crop at the centre and normalise pictures.* got \w+Processor"):
        load_huggingface(str(tmp_path))


@pytest.mark.parametrize("size", [(301, 267), (97, 143)])
@pytest.mark.parametrize(
    "processor",
    [
        transformers.ConvNextImageProcessor(),  # 384: squashed
        transformers.ConvNextImageProcessor(size={"shortest_edge": 256}, crop_pct=0.9),
        transformers.BitImageProcessor(),
        transformers.BeitImageProcessor(),
        transformers.CLIPImageProcessor(),
        transformers.DeiTImageProcessor(),
        transformers.MobileNetV2ImageProcessor(),
        transformers.PoolFormerImageProcessor(),
        transformers.PvtImageProcessor(),
        transformers.SiglipImageProcessor(),
    ],
    ids=lambda each: getattr(type(each), "__name__", ""),
)
def test_usual_preprocessing_is_followed(processor, size):
    picture = zoo.picture(*size, contrast=0.6)
    view, mean, std = preprocessing("hf:test", processor)
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (mean, std))
    zoo.check_near(view(picture), processor(images=picture, return_tensors="pt")["pixel_values"][0] * std + mean)


def test_another_scale_of_pixels_is_taken_in(tmp_path):
    shutil.copytree(zoo.folder("vit"), tmp_path, dirs_exist_ok=True)
    size = {"height": 96, "width": 96}
    transformers.ViTImageProcessor(
        size=size, rescale_factor=1 / 127.5, image_mean=[1.0] * 3, image_std=[1.0] * 3
    ).save_pretrained(tmp_path)
    loaded = load_huggingface(str(tmp_path))
    torch.testing.assert_close(loaded.mean.flatten(), torch.full((3,), 0.5))
    torch.testing.assert_close(loaded.std.flatten(), torch.full((3,), 0.5))


@pytest.mark.parametrize(
    ("load", "name", "message"),
    [
        (load_timm, "resnet18", "must have model.safetensors on this machine, got none in the cache"),
        (load_timm, "legacy_seresnet18", "must have seresnet18-4bb0ce65.pth on this machine"),
        (load_torchvision, "resnet18", "must have resnet18-f37072fd.pth on this machine"),
        (load_huggingface, "google/vit-base-patch16-224", "must have model.safetensors on this machine, got none in the cache"),
    ],
)
def test_nothing_is_downloaded_unasked(load, name, message, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("it called out"))
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("it called out"))
    with pytest.raises(InputError, match=message) as caught:
        load(name)
    assert str(caught.value).endswith("download=True (--download) fetches what is missing")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("load", "name"),
    [(load_timm, "resnet18"), (load_timm, "legacy_seresnet18"), (load_torchvision, "resnet18"), (load_huggingface, "some/body")],
)
def test_without_a_network_a_download_fails_in_one_line(load, name, monkeypatch):
    def unreachable(*_, **__):
        raise OSError("Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unreachable)
    with pytest.raises(InputError, match=r"must come from .* got '.*not known.*': check the name and the connection") as caught:
        load(name, download=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("load", "name", "options", "message"),
    [
        (
            load_timm,
            "resnet81",
            {},
            r"name must be one of the \d+ names that timm knows, got 'resnet81': the nearest are .*resnet18",
        ),
        (load_timm, "resnet18.unknown_tag", {}, "name must be one of"),
        (load_timm, "vit_small_patch14_dinov2", {}, "have at least 2 classes, got 0"),
        (load_timm, "resnet18", {"num_classes": 0, "pretrained": False}, "have at least 2 classes, got 0"),
        (load_timm, "resnet18", {"num_classes": 10}, "num_classes must be 1000"),
        (load_timm, "resnet18", {"colour": 1, "pretrained": False}, r"got colour=1 \(.*unexpected keyword"),
        (load_timm, "resnet18", {"checkpoint_path": "a.pth", "pretrained": False}, "multiple values for keyword argument"),
        (load_timm, "resnet18", {"in_chans": 1, "pretrained": False}, "in_chans must be 3"),
        (load_torchvision, "resnet81", {}, "classifiers that torchvision knows, got 'resnet81': the nearest are .*resnet18"),
        (load_torchvision, "fcn_resnet50", {}, "classifiers that torchvision knows"),
        (load_torchvision, "vgg16", {"weights": "IMAGENET1K_FEATURES"}, "have at least 2 classes, got 0"),
        (load_torchvision, "resnet18", {"weights": "V9"}, "weights must be one of IMAGENET1K_V1, DEFAULT, got 'V9'"),
        (load_huggingface, "/no/folder", {}, "be a repository or a folder, got '/no/folder'"),
    ],
)
def test_mistakes_are_one_line(load, name, options, message):
    with pytest.raises(InputError, match=message) as caught:
        load(name, **options)
    assert "\n" not in str(caught.value)


def test_every_classifier_of_torchvision_has_a_view():
    for name in models.list_models(module=models):
        for entry in models.get_model_weights(name):
            if entry.meta.get("categories"):
                preset = entry.transforms()
                assert preset.interpolation.value in ("bilinear", "bicubic")
                assert len(preset.crop_size) == len(preset.resize_size) == 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("convnextv2_nano.fcmae_ft_in22k_in1k_384", {}),  # the whole picture, squashed
        ("vit_tiny_patch16_224", {"img_size": 112}),  # another size than that on record
    ],
)
def test_other_ways_of_cropping_of_timm(name, options):
    loaded = load_timm(name, pretrained=False, **options)
    config = timm.data.resolve_model_data_config(loaded.model, args=options)
    transform = timm.data.create_transform(**config, is_training=False)
    picture = zoo.picture(301, 267)
    x = loaded.card.view(picture)
    torch.testing.assert_close((x - loaded.mean) / loaded.std, transform(picture), rtol=0, atol=1e-5)
    assert loaded(x[None]).isfinite().all()
