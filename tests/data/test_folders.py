"""Pictures in folders: labels, order, sizes; and ImageNet's wnids."""

import hashlib
import re

import pytest
import torch
from PIL import Image
from testbed.layouts import folder_of

import drq.data
from drq.data.imagenet import VIEW, wnids
from drq.errors import InputError
from drq.images import View, read

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    return tmp_path


def colours(data):
    x, y = data.batch(range(len(data)))
    return [tuple((255 * each[:, 0, 0]).int().tolist()) for each in x], y.tolist()


def test_one_folder_a_class_in_the_order_of_names(home):
    folder_of(home / "mine", {"dog/1": GREEN, "cat/2": BLUE, "cat/1": RED})
    data = drq.data.load("folder:mine")
    assert data.classes == ("cat", "dog")
    assert colours(data) == ([RED, GREEN, BLUE], [0, 1, 0])  # classes take turns
    assert data[0][0].shape == (3, 6, 8)
    assert data.subset is None


def test_a_limit_keeps_classes_even(home):
    folder_of(home / "mine", {f"{name}/{number}": RED for name in ("a", "b", "c") for number in range(3)})
    assert [y for _, y in drq.data.load("folder:mine", limit=6)] == [0, 1, 2, 0, 1, 2]


def test_other_files_are_passed_over(home):
    folder_of(home / "mine", {"cat/1": RED, "dog/1": GREEN})
    (home / "mine" / "cat" / "Thumbs.db").write_text("")
    (home / "mine" / "cat" / "._1.png").write_text("")
    (home / "mine" / "README.txt").write_text("")
    (home / "mine" / ".hidden").mkdir()
    assert colours(drq.data.load("folder:mine")) == ([RED, GREEN], [0, 1])


def test_a_folder_is_looked_for_in_the_data_folder_first(home, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    folder_of(elsewhere / "mine", {"cat/1": RED})
    assert colours(drq.data.load("folder:mine"))[0] == [RED]
    assert colours(drq.data.load(f"folder:{elsewhere / 'mine'}"))[0] == [RED]
    folder_of(home / "mine", {"cat/1": BLUE})
    assert colours(drq.data.load("folder:mine"))[0] == [BLUE]


def test_pictures_of_other_sizes_need_a_view(home):
    folder_of(home / "mine", {"cat/1": RED}, size=(8, 6))
    folder_of(home / "mine", {"dog/1": BLUE}, size=(20, 30))
    data = drq.data.load("folder:mine")
    assert data[0][0].shape == (3, 6, 8)
    with pytest.raises(
        InputError, match=r"view must be given where pictures differ in size, got dog/1.png of shape \(3, 30, 20\)"
    ):
        data.batch([0, 1])
    viewed = drq.data.load("folder:mine", view=View(4, 4))
    assert viewed.batch([0, 1])[0].shape == (2, 3, 4, 4)
    assert colours(viewed) == ([RED, BLUE], [0, 1])


def test_the_digest_is_of_names_and_sizes(home):
    folder = folder_of(home / "mine", {"cat/1": RED, "dog/1": BLUE})
    before = drq.data.load("folder:mine").sha256
    lines = "".join(f"{(folder / name).stat().st_size}  {name}\n" for name in ("cat/1.png", "dog/1.png"))
    assert before == hashlib.sha256(lines.encode()).hexdigest()
    assert drq.data.load("folder:mine", limit=1).sha256 == before
    (folder / "dog" / "1.png").rename(folder / "dog" / "2.png")
    renamed = drq.data.load("folder:mine").sha256
    assert renamed != before
    folder_of(folder, {"dog/2": BLUE}, size=(80, 60))
    assert drq.data.load("folder:mine").sha256 != renamed


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ([], "name must be folder:NAME of a folder that is present, got 'folder:mine'"),
        (["mine"], "must have one folder a class, got none"),
        (["mine/cat", "mine/dog"], "in every folder, got none in cat, dog"),
    ],
)
def test_folders_without_pictures(home, made, named):
    for each in made:
        (home / each).mkdir(parents=True)
    with pytest.raises(InputError, match=named):
        drq.data.load("folder:mine")


def test_a_damaged_picture_is_named(home):
    folder = folder_of(home / "mine", {"cat/1": RED, "cat/2": RED})
    (folder / "cat" / "2.png").write_bytes((folder / "cat" / "2.png").read_bytes()[:40])
    data = drq.data.load("folder:mine")
    with pytest.raises(InputError, match=r"2\.png"):
        data.batch([1])


def test_the_wnids_of_imagenet():
    known = wnids()
    assert len(known) == len(set(known)) == 1000
    assert list(known) == sorted(known)
    assert all(re.fullmatch(r"n\d{8}", each) for each in known)
    # tench, goldfish, tabby, golden retriever and toilet tissue, by the logits that models of ImageNet have for them
    places = {"n01440764": 0, "n01443537": 1, "n02123045": 281, "n02099601": 207, "n15075141": 999}
    assert {each: known.index(each) for each in places} == places


@pytest.mark.parametrize("place", ["imagenet/val", "ILSVRC2012/val"])
def test_imagenet_is_labelled_by_wnid(home, place):
    folder = home / place
    folder_of(folder, {"n15075141/ILSVRC2012_val_1": BLUE, "n02123045/ILSVRC2012_val_2": RED}, size=(300, 400), ending="JPEG")
    data = drq.data.load("imagenet")
    assert colours(data) == ([RED, BLUE], [281, 999])
    assert data[0][0].shape == (3, 224, 224)
    assert data.classes == wnids()
    assert data.subset is None
    assert data.note == "2 classes are present, 1000 are published"
    assert torch.equal(drq.data.load("imagenet", "val")[1][0], data[1][0])


def test_the_view_of_imagenet_is_the_usual_one(home):
    folder = home / "imagenet/val/n01440764"
    folder.mkdir(parents=True)
    Image.effect_mandelbrot((320, 300), (-2, -1.5, 1, 1.5), 50).convert("RGB").save(folder / "a.png")
    assert View(224, 224, resize=256, interpolation="bilinear") == VIEW
    assert torch.equal(drq.data.load("imagenet")[0][0], VIEW(read(folder / "a.png")))
    other = View(64, 64, resize=(64, 64), interpolation="bicubic")
    assert torch.equal(drq.data.load("imagenet", view=other)[0][0], other(read(folder / "a.png")))


@pytest.mark.parametrize("name", ["imagenet-a", "imagenet-r"])
def test_variants_count_only_the_classes_they_show(home, name):
    folder_of(home / name, {"n15075141/a": BLUE, "n01443537/b": RED, "n02123045/c": GREEN})
    (home / name / "README.txt").write_text("")
    data = drq.data.load(name)
    assert colours(data) == ([RED, GREEN, BLUE], [1, 281, 999])
    assert data.subset == (1, 281, 999)
    assert data.note == "3 classes are present, 200 are published"
    cut = drq.data.Relabelled(data)
    assert colours(cut) == ([RED, GREEN, BLUE], [0, 1, 2])
    assert cut.classes == ("n01443537", "n02123045", "n15075141")


def test_whole_variants_need_no_note(home):
    folder_of(home / "imagenet-a", {f"{wnid}/a": RED for wnid in wnids()[::5]}, size=(1, 1))
    data = drq.data.load("imagenet-a", limit=3)
    assert data.note == ""
    assert data.subset == tuple(range(0, 1000, 5))
    assert [y for _, y in data] == [0, 5, 10]


def test_folders_that_are_no_wnids_are_named(home):
    folder_of(home / "imagenet-a", {"n01443537/a": RED, "tench/a": RED, "n99999999/a": RED})
    with pytest.raises(InputError, match="the 1000 wnids of ImageNet, got n99999999, tench"):
        drq.data.load("imagenet-a")
