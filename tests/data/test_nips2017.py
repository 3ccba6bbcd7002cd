"""The NIPS 2017 pictures: a table and a folder, whole, in part, or not to be believed."""

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from testbed.assets import needs_assets
from testbed.layouts import nips2017

import drq.data
from drq.data import nips2017 as module
from drq.data.dataset import Files
from drq.data.imagenet import VIEW, wnids
from drq.errors import InputError
from drq.images import View, read


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    return tmp_path


def test_pictures_in_the_order_of_the_table(home):
    folder = nips2017(home, {"b1": 306, "a0": 1, "c-2_X": 1000})
    data = drq.data.load("nips2017")
    x, y = data.batch([0, 1, 2])
    assert y.tolist() == [305, 0, 999]  # the table counts from 1
    assert x.shape == (3, 3, 224, 224)
    assert torch.equal(x[1], VIEW(read(folder / "images" / "a0.png")))
    assert data.classes == wnids()
    assert data.subset is None
    assert data.note == "3 pictures are present, 1000 are published"
    assert drq.data.load("nips2017", view=View(299, 299))[0][0].shape == (3, 299, 299)


def test_a_whole_folder_needs_no_note(home, monkeypatch):
    monkeypatch.setattr(module, "PUBLISHED", 2)
    nips2017(home, {"a": 1, "b": 2})
    assert drq.data.load("nips2017").note == ""


def test_the_digest_is_of_the_table_and_of_the_pictures(home):
    folder = nips2017(home, {"a": 1, "b": 2})
    before, table = drq.data.load("nips2017").sha256, folder / "dev_dataset.csv"
    files = ("dev_dataset.csv", "images/a.png", "images/b.png")
    lines = "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in files)
    assert before == hashlib.sha256(lines.encode()).hexdigest() == Files(folder, files).sha256
    table.write_text(table.read_text().replace("b.jpg,2", "b.jpg,3"))
    changed = drq.data.load("nips2017").sha256
    assert changed != before
    Image.new("RGB", (299, 299)).save(folder / "images" / "a.png")
    assert drq.data.load("nips2017").sha256 not in (before, changed)


def test_rows_without_pictures_are_left_out_and_said_once(home, caplog):
    folder = nips2017(home, {"a": 1, "b": 2, "c": 3}, present=("c", "a"))
    with caplog.at_level(logging.WARNING, logger="drq"):
        data = drq.data.load("nips2017")
        assert drq.data.load("nips2017", limit=1)[0][1] == 0
    assert [y for _, y in data] == [0, 2]
    assert data.note == "2 pictures are present, 1000 are published"
    (record,) = caplog.records
    table = folder / "dev_dataset.csv"
    assert record.getMessage() == f"drq: 1 of 3 pictures in {table} are not in its folder images: they are left out"


def test_pictures_beside_the_table_are_passed_over(home):
    folder = nips2017(home, {"a": 1})
    Image.new("RGB", (9, 9)).save(folder / "images" / "another.png")
    assert len(drq.data.load("nips2017")) == 1


HEAD = "ImageId,URL,TrueLabel"
TABLES = {
    "empty": ("", "must have the column ImageId, got none: put the published table there"),
    "no rows": (f"{HEAD}\n", "must list pictures, got none"),
    "no names": ("Image,TrueLabel\na,1\n", "have the column ImageId, got Image, TrueLabel"),
    "no labels": ("ImageId,Label\na,1\n", "have the column TrueLabel, got ImageId, Label"),
    "another way out": (f"{HEAD}\n../x,u,1\n", r"line 2 of .* have an ImageId of at most 64 letters.*got '../x'"),
    "an absolute path": (f"{HEAD}\n/etc/x,u,1\n", "ImageId of at most 64 letters"),
    "a path of Windows": (f"{HEAD}\nC:x,u,1\n", "ImageId of at most 64 letters"),
    "no name": (f"{HEAD}\n,u,1\n", "got ''"),
    "a long name": (f"{HEAD}\n{'a' * 65},u,1\n", "ImageId of at most 64 letters"),
    "a name of two lines": (f'{HEAD}\n"a\nb",u,1\n', r"got 'a\\nb'"),
    "a label of 0": (f"{HEAD}\na,u,0\n", "line 2 of .* must have a TrueLabel from 1 to 1000, got '0'"),
    "a label of 1001": (f"{HEAD}\na,u,1001\n", "got '1001'"),
    "a label with a sign": (f"{HEAD}\na,u,+1\n", r"got '\+1'"),
    "a label in words": (f"{HEAD}\na,u,cat\n", "got 'cat'"),
    "a row that ends early": (f"{HEAD}\na,u,1\nb\n", "line 3 of .* TrueLabel from 1 to 1000, got None"),
    "a picture twice": (f"{HEAD}\na,u,1\na,u,2\n", "line 3 of .* name a picture that no line before it names, got 'a'"),
    "an endless field": (f"{HEAD}\na,{'u' * 200_000},1\n", "table of commas and text, got field larger than field limit"),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_that_are_not_believed(home, case):
    content, named = TABLES[case]
    table = nips2017(home, {"a": 1}) / "dev_dataset.csv"
    (home / "x.png").write_bytes((home / "nips2017" / "images" / "a.png").read_bytes())
    table.write_text(content)
    with pytest.raises(InputError, match=named) as error:
        drq.data.load("nips2017")
    assert "\n" not in str(error.value)
    assert str(table) in str(error.value)


def test_tables_that_are_no_text(home):
    table = nips2017(home, {"a": 1}) / "dev_dataset.csv"
    table.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="must be a table of commas and text"):
        drq.data.load("nips2017")
    table.write_bytes(b"\xef\xbb\xbf" + f"{HEAD}\na,u,1\n".encode())  # as Excel writes it
    assert drq.data.load("nips2017")[0][1] == 0
    with table.open("wb") as file:
        file.truncate(module.MOST + 1)
    with pytest.raises(InputError, match="have at most 16,777,216 bytes, got 16,777,217"):
        drq.data.load("nips2017")


def test_a_folder_without_pictures(home):
    folder = nips2017(home, {"a": 1, "b": 2}, present=())
    with pytest.raises(InputError, match=r"images must have pictures, got none of the 2 that dev_dataset\.csv lists"):
        drq.data.load("nips2017")
    (folder / "images").rmdir()
    with pytest.raises(InputError, match=r"'nips2017' without .*nips2017/images: get it by hand from https://github\.com"):
        drq.data.load("nips2017")


def test_a_damaged_picture_is_one_line(home):
    folder = nips2017(home, {"a": 1, "b": 2})
    picture = folder / "images" / "b.png"
    picture.write_bytes(picture.read_bytes()[:200])
    data = drq.data.load("nips2017")
    assert data[0][1] == 0
    with pytest.raises(InputError, match=r"path must hold a whole picture, got '.*b\.png'") as error:
        data.batch([0, 1])
    assert "\n" not in str(error.value)


@pytest.mark.slow
@needs_assets
def test_the_real_pictures(home):
    unpack = Path(os.environ["DRQ_TEST_ASSETS"]) / "data" / "unpack_nips2017.py"
    subprocess.run([sys.executable, str(unpack), str(home)], check=True, capture_output=True, timeout=300)
    data = drq.data.load("nips2017")
    assert (len(data), data[0][1], data.note) == (400, 305, "400 pictures are present, 1000 are published")
    x, y = data.batch(range(8))
    assert x.shape == (8, 3, 224, 224)
    assert y.tolist() == [305, 883, 243, 559, 438, 990, 949, 853]
    whole = drq.data.load("nips2017", view=View(299, 299, resize=0))
    assert (255 * whole[0][0]).round().byte().sum() == sum(Image.open(home / "nips2017/images/0c7ac4a8c9dfa802.png").tobytes())
