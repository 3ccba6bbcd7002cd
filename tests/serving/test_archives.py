"""Pictures in archives: those that are in them, in bounded memory, whatever the archive says of itself."""

import bz2
import io
import lzma
import os
import random
import re
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
from PIL import Image
from testbed.refusals import refused

from drq.serving import tars, zips
from drq.serving.listing import listed, pictures
from drq.serving.picture import Held

NAMES = ("a.png", "b/a.png", "../c.png", "/d.PNG", "b/ö ☃.png", "b/../e.png")  # in the order of the archive
OTHERS = ("notes.txt", ".hidden.png", ".git/f.png", "__MACOSX/._a.png", "folder.png/")
TARS = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".tbz2": "w:bz2", ".tar.xz": "w:xz", ".txz": "w:xz"}


def png(level):
    file = io.BytesIO()
    Image.new("RGB", (20, 16), (level, level, 9)).save(file, "PNG")
    return file.getvalue()


CONTENTS = {name: png(10 * number) for number, name in enumerate((*NAMES, *OTHERS[:-1]), 1)} | {"folder.png/": b""}


def zipped(path, contents, method=zipfile.ZIP_DEFLATED, **changes):
    with zipfile.ZipFile(path, "w", method, **changes) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return str(path)


def tarred(path, contents, mode="w", kind=tarfile.PAX_FORMAT):
    with tarfile.open(path, mode, format=kind) as archive:
        for name, data in contents.items():
            member = tarfile.TarInfo(name.rstrip("/"))
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return str(path)


def check(path, names=NAMES, contents=CONTENTS):
    """The pictures are those of the files, by their names, and nothing is written."""
    there = sorted(Path().iterdir())
    found = [(each.name, each.image().tobytes()) for each in pictures([path], read=True)]
    expected = [(f"{path}/{name}", Image.open(io.BytesIO(contents[name])).convert("RGB").tobytes()) for name in names]
    assert found == expected
    assert listed([path]) == [name for name, _ in expected]
    assert sorted(Path().iterdir()) == there


def fault(path):
    """What is wrong with the last picture of an archive, and how many come before it."""
    *before, last = pictures([str(path)], read=True)
    return len(before), refused(last.image)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    (tmp_path / "room").mkdir()
    monkeypatch.chdir(tmp_path / "room")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
def test_a_zip(method, tmp_path):
    check(zipped(tmp_path / "a.zip", CONTENTS, method))
    check(zipped("relative.ZIP", CONTENTS, method))


@pytest.mark.parametrize("ending", TARS)
def test_a_tar(ending, tmp_path):
    check(tarred(tmp_path / f"a{ending}", CONTENTS, TARS[ending]))
    longer = {"x/" * 200 + "a.png": png(7), **CONTENTS}
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        check(tarred(f"b{ending}", longer, TARS[ending], kind), ("x/" * 200 + "a.png", *NAMES), longer)


def test_pictures_are_read_where_they_lie_from_another_folder(tmp_path, monkeypatch):
    found = [each for path in (zipped("a.zip", CONTENTS), tarred("a.tar", CONTENTS)) for each in pictures([path])]
    monkeypatch.chdir(tmp_path)
    assert {each.image().size for each in found} == {(20, 16)}


def test_a_zip_behind_other_bytes_and_with_a_comment(tmp_path):
    path = zipped(tmp_path / "a.zip", CONTENTS)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"PK" + 5000 * b"c"
    (tmp_path / "b.zip").write_bytes(b"#!/bin/sh\nexit\n" + (tmp_path / "a.zip").read_bytes())
    check(path)
    check(str(tmp_path / "b.zip"))


def test_a_zip_whose_sizes_come_behind_its_members(tmp_path):
    """As they are written to a pipe."""

    class Pipe(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            return file.write(data)

    with (tmp_path / "a.zip").open("wb") as file, zipfile.ZipFile(Pipe(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in CONTENTS.items():
            archive.writestr(name, data)
    check(str(tmp_path / "a.zip"))


def test_a_zip_with_more_members_than_two_bytes_count(tmp_path):
    small = {f"{number}.txt": b"" for number in range(2**16)}
    path = zipped(tmp_path / "a.zip", small | CONTENTS)
    assert zips.FAR_END in (tmp_path / "a.zip").read_bytes()[-200:]
    check(path)


def test_a_zip_with_numbers_that_need_more_room(tmp_path, monkeypatch):
    """Sizes and offsets of a member in its notes, as beyond 4 GiB."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 50)
    path = zipped(tmp_path / "a.zip", CONTENTS, zipfile.ZIP_STORED)
    assert b"\xff\xff\xff\xff" in (tmp_path / "a.zip").read_bytes()
    check(path)


def test_a_cut_archive_answers_what_is_whole_and_says_so_once(tmp_path):
    for ending in (".tar", ".tar.gz", ".tar.xz", ".tar.bz2"):
        noise = {f"{number}.png": random.Random(number).randbytes(40_000) for number in range(60)}
        path = tmp_path / f"a{ending}"
        tarred(path, noise, TARS[ending])
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
        whole, words = fault(path)
        assert 0 < whole < 60, ending
        assert words.startswith(f"an archive must be whole, got '{path}' (")
        names = listed([str(path)])
        assert names == [each.name for each in pictures([str(path)], read=True)]
        assert len(set(names)) == len(names) == whole + 1


@pytest.mark.parametrize("ending", [".zip", *TARS])
@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\5\6" + 30 * b"\xff"], ids=["empty", "text", "end"])
def test_no_archive(ending, content, tmp_path):
    path = tmp_path / f"a{ending}"
    path.write_bytes(content)
    assert fault(path)[0] == 0
    assert fault(path)[1].startswith(f"an archive must be whole, got '{path}' (")


def test_an_archive_without_pictures(tmp_path):
    for path in (zipped(tmp_path / "a.zip", {"notes.txt": b"x"}), tarred(tmp_path / "a.tgz", {"notes.txt": b"x"}, "w:gz")):
        whole, words = fault(path)
        assert whole == 0
        assert words.startswith(f"an archive must have pictures in it, got none in {path!r}: those that end as pictures do")


def test_what_only_ends_like_an_archive(tmp_path):
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "folder.zip" / "a.png").write_bytes(png(3))
    os.mkfifo(tmp_path / "pipe.tar")
    assert listed([str(tmp_path / "folder.zip")]) == [str(tmp_path / "folder.zip" / "a.png")]
    for name, words in (("pipe.tar", "a device or pipe"), ("missing.zip", "which does not exist")):
        assert words in fault(tmp_path / name)[1]


def test_encrypted_and_strangely_packed_members_are_refused_alone(tmp_path):
    path = tmp_path / "a.zip"
    zipped(path, {"a.png": png(1), "b.png": png(2)}, zipfile.ZIP_LZMA)
    assert all("stored or deflated" in words for words in (refused(each.image) for each in pictures([str(path)])))
    zipped(path, {"a.png": png(1), "b.png": png(2)})
    data = bytearray(path.read_bytes())
    entry = data.index(zips.ENTRY)
    data[entry + 8] |= zips.ENCRYPTED
    path.write_bytes(data)
    first, second = pictures([str(path)])
    assert "must not be encrypted, got 'a.png'" in refused(first.image)
    assert second.image().size == (20, 16)


def test_a_member_whose_bytes_are_others(tmp_path):
    path = tmp_path / "a.zip"
    for spoil in (8, 30):  # bytes before its end: in the packed data
        zipped(path, {"a.png": png(1)})
        data = bytearray(path.read_bytes())
        data[data.index(zips.ENTRY) - spoil] ^= 255
        path.write_bytes(data)
        (picture,) = pictures([str(path)])
        assert "a zip must have whole members" in refused(picture.image)
    found = [*pictures([tarred(tmp_path / "gone.tar", CONTENTS)])]
    (tmp_path / "gone.tar").unlink()
    assert "No such file" in refused(found[0].image)


def test_links_and_holes_in_a_tar_are_refused_alone(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"{kind[0]}.png")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        member = tarfile.TarInfo("z.png")
        member.size = len(png(4))
        archive.addfile(member, io.BytesIO(png(4)))
    *links, last = pictures([str(path)])
    assert len(links) == 4
    assert all("a picture in a tar must be a plain file" in refused(each.image) for each in links)
    assert last.image().size == (20, 16)


def peak(path):
    """The most memory that listing and reading an archive takes, in MB; what is wrong is told, nothing else happens."""
    tracemalloc.start()
    try:
        for each in pictures([str(path)], read=True):
            refused(each.image)
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def packed(ending, chunks):
    """The compressed form of many chunks, of which one is held at a time."""
    packer = {".gz": lambda: zlib.compressobj(9, wbits=31), ".bz2": bz2.BZ2Compressor}[ending]()
    return b"".join([packer.compress(each) for each in chunks] + [packer.flush()])


@pytest.mark.parametrize("claimed", [2**33, 100 * 2**20, 1000], ids=["more than a picture", "as it is", "less than it is"])
def test_bombs_in_zips_fill_no_memory(claimed, tmp_path, monkeypatch):
    """A hundred MB of zeros in a hundred kB, which claim to be more, as much, and less."""
    monkeypatch.setattr(zips, "BYTES", 10 * 2**20)
    path = tmp_path / "a.zip"
    zipped(path, {"a.png": bytes(100 * 2**20)})
    data = bytearray(path.read_bytes())
    entry = data.index(zips.ENTRY)
    struct.pack_into("<I", data, entry + 24, min(claimed, zips.FULL - 1))
    path.write_bytes(data)
    assert peak(path) < 5


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
def test_bombs_in_tars_fill_no_memory(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(tars, "BYTES", 10 * 2**20)
    member = tarfile.TarInfo("a.png")
    member.size = 200 * 2**20
    path = tmp_path / f"a.tar{ending}"
    path.write_bytes(packed(ending, [member.tobuf(), *200 * [bytes(2**20)]]))
    assert peak(path) < 10


def test_headers_of_tars_fill_no_memory(tmp_path):
    """A name of a hundred MB."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 100 * 2**20
    path = tmp_path / "a.tar.gz"
    path.write_bytes(packed(".gz", [header.tobuf(tarfile.GNU_FORMAT), *100 * [2**20 * b"x"]]))
    assert peak(path) < 5
    assert re.search(r"headers of at most 262,144 bytes, got one of 104,857,600", fault(path)[1])


def test_an_xz_that_needs_much_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tars, "DICTIONARY", 2**20)
    path = tarred(tmp_path / "a.tar.xz", CONTENTS, "w:xz")
    assert "emory usage limit" in fault(path)[1]


def test_only_what_passes_once_is_held(tmp_path):
    for ending, mode in TARS.items():
        path = tarred(tmp_path / f"a{ending}", CONTENTS, mode)
        held = [len(each.place.data) for each in pictures([path], read=True) if isinstance(each.place, Held)]
        assert held == ([] if ending == ".tar" else [len(CONTENTS[name]) for name in NAMES])
        assert not any(each.place.data for each in pictures([path]) if isinstance(each.place, Held))


def test_several_xz_in_one(tmp_path):
    """As programs that pack in several threads write them, with zeros between."""
    whole = tarred(tmp_path / "a.tar", CONTENTS)
    data = (tmp_path / "a.tar").read_bytes()
    parts = [lzma.compress(data[first : first + 3000]) + bytes(8) for first in range(0, len(data), 3000)]
    (tmp_path / "b.tar.xz").write_bytes(b"".join(parts))
    check(str(tmp_path / "b.tar.xz"))
    check(whole)
