"""Archives from the net: only what is expected is unpacked, and nothing outside its folder."""

import io
import tarfile
from dataclasses import replace

import pytest
from testbed.layouts import cifar10, cifar10_c
from testbed.server import CONTENT, refused

import drq.data
from drq.data.cifar import LAYOUTS
from drq.data.corrupted import ARRAYS
from drq.system.downloads import fetch_archive, unpack


def archive(members: dict[str, bytes | str], mode: str = "w") -> bytes:
    """A tar; text is where a link leads to."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as tar:
        for name, value in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(value, str):
                member.type, member.linkname = tarfile.SYMTYPE, value
                tar.addfile(member)
            else:
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))
    return content.getvalue()


def test_only_the_expected_folder_is_unpacked(tmp_path):
    (tmp_path / "a.tar").write_bytes(archive({"set/x": b"1", "./set/deep/y": b"2", "other/z": b"3", "._set": b"4"}))
    unpack(tmp_path / "a.tar", tmp_path / "set")
    found = {str(each.relative_to(tmp_path)): each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    found.pop("a.tar")
    assert found == {"set/x": b"1", "set/deep/y": b"2"}


def test_files_that_lie_there_stay(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "x").write_bytes(b"mine")
    (tmp_path / "a.tar").write_bytes(archive({"set/x": b"1", "set/deep/y": b"2"}))
    unpack(tmp_path / "a.tar", tmp_path / "set")
    assert (tmp_path / "set" / "x").read_bytes() == b"mine"
    assert (tmp_path / "set" / "deep" / "y").read_bytes() == b"2"


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"set/x": b"1", "../evil": b"2"}, "'../evil'"),
        ({"set/x": b"1", "set/../../evil": b"2"}, "'set/../../evil'"),
        ({"/tmp/evil": b"2"}, "'/tmp/evil'"),
        ({"set/link": "/etc"}, "'set/link'"),
        ({"other": "/etc", "set/x": b"1"}, "'other'"),
    ],
)
def test_a_tampered_tar_is_refused(tmp_path, members, named):
    room = tmp_path / "room"
    room.mkdir()
    (room / "a.tar").write_bytes(archive(members))
    with refused(str(room / "a.tar"), named, "tampered"):
        unpack(room / "a.tar", room / "set")
    assert [each.name for each in tmp_path.rglob("*")] == ["room", "a.tar"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no tar",
        archive({"other/x": b"1"}),
        archive({"set/x": bytes(9000)})[:4000],
        archive({"set/x": CONTENT}, "w:gz")[:2000],
        b"\x1f\x8b" + archive({"set/x": CONTENT}, "w:gz")[100:],
    ],
)
def test_a_damaged_tar_is_one_line(tmp_path, content):
    (tmp_path / "a.tar").write_bytes(content)
    with refused(str(tmp_path / "a.tar"), "remove it"):
        unpack(tmp_path / "a.tar", tmp_path / "set")
    assert [each.name for each in tmp_path.iterdir()] == ["a.tar"]


def test_an_archive_is_fetched_unpacked_and_removed(server, tmp_path):
    server.content = archive({"set/x": b"1"})
    fetch_archive(server.remote(), tmp_path / "set", ["x"])
    assert [str(each.relative_to(tmp_path)) for each in sorted(tmp_path.rglob("*"))] == ["set", "set/x"]
    fetch_archive(server.remote(), tmp_path / "set", ["x"])
    assert server.asked == [None]


def test_an_archive_put_there_by_hand_is_used_and_stays(server, tmp_path):
    server.content = archive({"set/x": b"1"})
    (tmp_path / "data.bin").write_bytes(server.content)
    fetch_archive(server.remote(), tmp_path / "set", ["x"])
    assert server.asked == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data.bin", "set"]


def test_cifar10_comes_when_it_is_asked_for(server, tmp_path, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    cifar10(elsewhere)
    members = {f"cifar-10-batches-py/{each.name}": each.read_bytes() for each in (elsewhere / "cifar-10-batches-py").iterdir()}
    server.content = archive(members, "w:gz")
    layout = LAYOUTS["cifar10"]
    monkeypatch.setitem(LAYOUTS, "cifar10", layout._replace(origin=replace(layout.origin, archive=server.remote())))
    monkeypatch.setenv("DRQ_DATA", str(tmp_path / "new"))
    with refused("cifar-10-batches-py", server.url, "--download"):
        drq.data.load("cifar10")
    assert server.asked == []
    told: list[str] = []
    data = drq.data.load("cifar10", download=True, tell=lambda _, what: told.append(what))
    assert [y for _, y in data] == [1, 4, 7, 0, 3, 6]
    assert "MB from 127.0.0.1" in told[0]
    assert told[-1] == "unpacking data.bin"
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["cifar-10-batches-py"]
    assert len(drq.data.load("cifar10", "train", download=True)) == 10
    assert len(server.asked) == 1


def test_corrupted_arrays_come_instead_of_being_made(server, tmp_path, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    x, _ = cifar10_c(elsewhere, "fog", each=1)
    members = {f"CIFAR-10-C/{each.name}": each.read_bytes() for each in (elsewhere / "CIFAR-10-C").iterdir()}
    server.content = archive(members)
    monkeypatch.setitem(ARRAYS, "cifar10-c", replace(ARRAYS["cifar10-c"], archive=server.remote()))
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    cifar10(tmp_path)
    data = drq.data.load("cifar10-c/fog/2", download=True, tell=lambda *_: None)
    assert data.note == ""
    assert (data[0][0] * 255).round().permute(1, 2, 0).int().tolist() == x[1].tolist()
    with refused("CIFAR-10-C/snow.npy"):
        drq.data.load("cifar10-c/snow", download=True, tell=lambda *_: None)  # the archive does not have it


def test_published_addresses_are_whole():
    for origin in [layout.origin for layout in LAYOUTS.values()] + list(ARRAYS.values()):
        assert origin.archive is not None
        assert origin.archive.url.startswith("https://")
        assert origin.archive.algorithm == "md5"
        assert origin.archive.file_name.endswith((".tar", ".tar.gz"))
