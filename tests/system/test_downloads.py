"""Downloads from a server on this machine that misbehaves in every way a real one does."""

import hashlib
import io
import tarfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from testbed.layouts import cifar10, cifar10_c

import drq.data
from drq.data.cifar import LAYOUTS
from drq.data.corrupted import ARRAYS
from drq.errors import InputError
from drq.system import downloads, files
from drq.system.downloads import Source, alone, fetch, obtain, unpack

CONTENT = bytes(range(256)) * 4096  # 1 MiB


class Server(ThreadingHTTPServer):
    """One file; how it is served is up to the test."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.asked: list[str | None] = []  # the Range of every request
        self.ranges = True  # whether Range is understood
        self.drop: list[int] = []  # for each coming request, after how many bytes the connection drops
        self.status: list[int] = []  # for each coming request, an error instead
        self.shift = 0  # by how much a range is answered wrongly
        self.length = True  # whether the size is told
        self.delay = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/files/data.bin?download=1"

    def source(self, content: bytes | None = None) -> Source:
        return Source(self.url, hashlib.md5(self.content if content is None else content).hexdigest())


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        time.sleep(server.delay)
        if server.status and (status := server.status.pop(0)):
            self.send_error(status)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
        if start >= len(server.content) > 0:
            self.send_error(416)
            return
        body = server.content[start + server.shift if start else 0 :]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start + server.shift}-{len(server.content) - 1}/{len(server.content)}")
        if server.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.drop.pop(0)] if server.drop else body)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    monkeypatch.setattr(downloads, "WAIT", 0.01)
    monkeypatch.setattr(downloads, "TIMEOUT", 2.0)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "data.bin"


def left(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


@contextmanager
def refused(*named: str):
    with pytest.raises(InputError) as error:
        yield
    message = str(error.value)
    assert "\n" not in message
    for each in named:
        assert each in message


def test_a_whole_file(server, path):
    told: list[tuple[float, str]] = []
    assert fetch(server.source(), path, lambda *each: told.append(each)) == path
    assert path.read_bytes() == CONTENT
    assert server.asked == [None]
    assert left(path) == ["data.bin"]
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 1
    assert told[-1] == (1.0, f"1.0 of 1.0 MB from 127.0.0.1:{server.server_address[1]}")


def test_sha256_and_no_length(server, path):
    server.length = False
    told: list[float] = []
    source = Source(server.url, hashlib.sha256(CONTENT).hexdigest(), size=len(CONTENT))
    fetch(source, path, lambda share, _: told.append(share))
    assert path.read_bytes() == CONTENT
    assert told[-1] == 1.0  # by the size that the source has


def test_what_is_there_is_not_asked_for(server, path):
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    fetch(server.source(), path)
    assert server.asked == []
    path.write_bytes(b"mine")
    with refused(str(path), server.source().checksum, "remove it"):
        fetch(server.source(), path)
    assert path.read_bytes() == b"mine"


def test_a_part_is_resumed(server, path):
    path.parent.mkdir()
    path.with_name("data.bin.part").write_bytes(CONTENT[:700_000])
    fetch(server.source(), path)
    assert server.asked == ["bytes=700000-"]
    assert path.read_bytes() == CONTENT
    assert left(path) == ["data.bin"]


def test_a_server_without_ranges_starts_over(server, path):
    server.ranges = False
    path.parent.mkdir()
    path.with_name("data.bin.part").write_bytes(b"x" * 700_000)
    fetch(server.source(), path)
    assert server.asked == ["bytes=700000-"]
    assert path.read_bytes() == CONTENT


def test_a_part_that_has_everything(server, path):
    path.parent.mkdir()
    path.with_name("data.bin.part").write_bytes(CONTENT)
    fetch(server.source(), path)
    assert server.asked == [f"bytes={len(CONTENT)}-"]
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("size", [1000, len(CONTENT), len(CONTENT) + 5])
def test_a_part_of_another_version_is_thrown_away(server, path, size):
    path.parent.mkdir()
    path.with_name("data.bin.part").write_bytes(b"x" * size)
    fetch(server.source(), path)
    assert server.asked == [f"bytes={size}-", None]
    assert path.read_bytes() == CONTENT


def test_a_range_that_is_answered_wrongly_is_thrown_away(server, path):
    server.shift, server.drop = 3, [1000]
    fetch(server.source(), path)
    assert server.asked == [None, "bytes=1000-", None]
    assert path.read_bytes() == CONTENT


def test_a_dropped_connection_is_resumed(server, path):
    server.drop = [400_000, 300_000]
    fetch(server.source(), path)
    assert server.asked == [None, "bytes=400000-", "bytes=700000-"]
    assert path.read_bytes() == CONTENT


def test_a_connection_that_keeps_dropping_is_given_up(server, path):
    server.drop = [10] * 50
    with refused(server.url, "dropped 5 times", "it ended after 50 of 1048576 bytes", str(path), "DRQ_DATA"):
        fetch(server.source(), path)
    assert len(server.asked) == 5
    assert path.with_name("data.bin.part").read_bytes() == CONTENT[:50]  # the next call goes on there
    server.drop = []
    fetch(server.source(), path)
    assert server.asked[-1] == "bytes=50-"
    assert path.read_bytes() == CONTENT


def test_another_checksum(server, path):
    with refused(server.url, "md5", "removed", str(path)):
        fetch(server.source(b"another"), path)
    assert left(path) == []
    assert server.asked == [None]


def test_an_empty_answer(server, path):
    server.content = b""
    with refused(server.url, "another md5"):
        fetch(server.source(b"another"), path)
    assert left(path) == []


def test_a_busy_server_is_asked_again(server, path):
    server.status = [503, 429]
    fetch(server.source(), path)
    assert server.asked == [None] * 3
    assert path.read_bytes() == CONTENT


def test_a_file_that_is_gone(server, path):
    server.status = [404]
    with refused(server.url, "404", "data.bin", str(path), "DRQ_DATA"):
        fetch(server.source(), path)
    assert server.asked == [None]


def test_no_network(server, path, monkeypatch):
    source = server.source()
    server.shutdown()
    server.server_close()  # the port is closed now
    monkeypatch.setattr(downloads, "PAUSE", 2.0)
    began = time.monotonic()
    with refused(source.url, "Connection refused", str(path), "DRQ_DATA"):
        fetch(source, path)
    assert time.monotonic() - began < 2  # nobody waits for a network that is not there


def test_a_server_that_says_nothing(server, path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", 0.05)
    server.delay = 0.3
    with refused(server.url, "timed out"):
        fetch(server.source(), path)


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("")
    with refused(str(tmp_path / "file"), "can be written", "DRQ_DATA"):
        fetch(server.source(), tmp_path / "file" / "data.bin")
    assert server.asked == []


def test_a_full_disk(server, path):
    """The device that is always full stands in for the part."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    path.parent.mkdir()
    path.with_name("data.bin.part").symlink_to(full)
    with refused("data.bin.part", "No space left on device", "DRQ_DATA"):
        fetch(server.source(), path)
    assert len(server.asked) == 1


def test_two_at_once_download_once(server, path):
    server.delay, waited = 0.2, []
    source = server.source()
    threads = [threading.Thread(target=fetch, args=(source, path, lambda *each: waited.append(each[1]))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert server.asked == [None]
    assert path.read_bytes() == CONTENT
    assert left(path) == ["data.bin"]
    assert any("waiting" in each for each in waited)


def test_a_lock_that_was_left_behind_holds_nobody_up(server, path):
    path.parent.mkdir()
    path.with_name(".data.bin.lock").write_text("")
    fetch(server.source(), path)
    assert left(path) == ["data.bin"]


def test_file_systems_without_locks(server, path, monkeypatch):
    def unknown(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", unknown)
    with alone(path, lambda *_: None):
        pass
    fetch(server.source(), path)
    assert path.read_bytes() == CONTENT


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
    obtain(server.source(), tmp_path / "set", ["x"])
    assert [str(each.relative_to(tmp_path)) for each in sorted(tmp_path.rglob("*"))] == ["set", "set/x"]
    obtain(server.source(), tmp_path / "set", ["x"])
    assert server.asked == [None]


def test_an_archive_put_there_by_hand_is_used_and_stays(server, tmp_path):
    server.content = archive({"set/x": b"1"})
    (tmp_path / "data.bin").write_bytes(server.content)
    obtain(server.source(), tmp_path / "set", ["x"])
    assert server.asked == []
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data.bin", "set"]


def test_cifar10_comes_when_it_is_asked_for(server, tmp_path, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    cifar10(elsewhere)
    members = {f"cifar-10-batches-py/{each.name}": each.read_bytes() for each in (elsewhere / "cifar-10-batches-py").iterdir()}
    server.content = archive(members, "w:gz")
    layout = LAYOUTS["cifar10"]
    monkeypatch.setitem(LAYOUTS, "cifar10", layout._replace(origin=replace(layout.origin, archive=server.source())))
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
    monkeypatch.setitem(ARRAYS, "cifar10-c", replace(ARRAYS["cifar10-c"], archive=server.source()))
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
