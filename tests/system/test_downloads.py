"""Downloads from a server on this machine that misbehaves in every way a real one does."""

import hashlib
import threading
import time
from pathlib import Path

import pytest
from testbed.server import CONTENT, left, refused

from drq.system import downloads, files
from drq.system.downloads import RemoteFile, fetch, locked


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "data.bin"


def test_a_whole_file(server, path):
    told: list[tuple[float, str]] = []
    assert fetch(server.remote(), path, lambda *each: told.append(each)) == path
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
    remote = RemoteFile(server.url, hashlib.sha256(CONTENT).hexdigest(), size=len(CONTENT))
    fetch(remote, path, lambda share, _: told.append(share))
    assert path.read_bytes() == CONTENT
    assert told[-1] == 1.0  # by the size that the source has


def test_what_is_there_is_not_asked_for(server, path):
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    fetch(server.remote(), path)
    assert server.asked == []
    path.write_bytes(b"mine")
    with refused(str(path), server.remote().checksum, "remove it"):
        fetch(server.remote(), path)
    assert path.read_bytes() == b"mine"


def test_a_part_is_resumed(server, path):
    path.parent.mkdir()
    path.with_name("data.bin.part").write_bytes(CONTENT[:700_000])
    fetch(server.remote(), path)
    assert server.asked == ["bytes=700000-"]
    assert path.read_bytes() == CONTENT
    assert left(path) == ["data.bin"]


def test_a_server_without_ranges_starts_over(server, path):
    server.ranges = False
    path.parent.mkdir()
    path.with_name("data.bin.part").write_bytes(b"x" * 700_000)
    fetch(server.remote(), path)
    assert server.asked == ["bytes=700000-"]
    assert path.read_bytes() == CONTENT


def test_a_part_that_has_everything(server, path):
    path.parent.mkdir()
    path.with_name("data.bin.part").write_bytes(CONTENT)
    fetch(server.remote(), path)
    assert server.asked == [f"bytes={len(CONTENT)}-"]
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("size", [1000, len(CONTENT), len(CONTENT) + 5])
def test_a_part_of_another_version_is_thrown_away(server, path, size):
    path.parent.mkdir()
    path.with_name("data.bin.part").write_bytes(b"x" * size)
    fetch(server.remote(), path)
    assert server.asked == [f"bytes={size}-", None]
    assert path.read_bytes() == CONTENT


def test_a_range_that_is_answered_wrongly_is_thrown_away(server, path):
    server.shift, server.drop = 3, [1000]
    fetch(server.remote(), path)
    assert server.asked == [None, "bytes=1000-", None]
    assert path.read_bytes() == CONTENT


def test_a_dropped_connection_is_resumed(server, path):
    server.drop = [400_000, 300_000]
    fetch(server.remote(), path)
    assert server.asked == [None, "bytes=400000-", "bytes=700000-"]
    assert path.read_bytes() == CONTENT


def test_a_connection_that_keeps_dropping_is_given_up(server, path):
    server.drop = [10] * 50
    with refused(server.url, "dropped 5 times", "it ended after 50 of 1048576 bytes", str(path), "DRQ_DATA"):
        fetch(server.remote(), path)
    assert len(server.asked) == 5
    assert path.with_name("data.bin.part").read_bytes() == CONTENT[:50]  # the next call goes on there
    server.drop = []
    fetch(server.remote(), path)
    assert server.asked[-1] == "bytes=50-"
    assert path.read_bytes() == CONTENT


def test_another_checksum(server, path):
    with refused(server.url, "md5", "removed", str(path)):
        fetch(server.remote(b"another"), path)
    assert left(path) == []
    assert server.asked == [None]


def test_an_empty_answer(server, path):
    server.content = b""
    with refused(server.url, "another md5"):
        fetch(server.remote(b"another"), path)
    assert left(path) == []


def test_a_busy_server_is_asked_again(server, path):
    server.status = [503, 429]
    fetch(server.remote(), path)
    assert server.asked == [None] * 3
    assert path.read_bytes() == CONTENT


def test_a_file_that_is_gone(server, path):
    server.status = [404]
    with refused(server.url, "404", "data.bin", str(path), "DRQ_DATA"):
        fetch(server.remote(), path)
    assert server.asked == [None]


def test_no_network(server, path, monkeypatch):
    remote = server.remote()
    server.shutdown()
    server.server_close()  # the port is closed now
    monkeypatch.setattr(downloads, "PAUSE", 2.0)
    began = time.monotonic()
    with refused(remote.url, "Connection refused", str(path), "DRQ_DATA"):
        fetch(remote, path)
    assert time.monotonic() - began < 2  # nobody waits for a network that is not there


def test_a_server_that_says_nothing(server, path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", 0.05)
    server.delay = 0.3
    with refused(server.url, "timed out"):
        fetch(server.remote(), path)


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("")
    with refused(str(tmp_path / "file"), "can be written", "DRQ_DATA"):
        fetch(server.remote(), tmp_path / "file" / "data.bin")
    assert server.asked == []


def test_a_full_disk(server, path):
    """The device that is always full stands in for the part."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    path.parent.mkdir()
    path.with_name("data.bin.part").symlink_to(full)
    with refused("data.bin.part", "No space left on device", "DRQ_DATA"):
        fetch(server.remote(), path)
    assert len(server.asked) == 1


def test_two_at_once_download_once(server, path):
    server.delay, waited = 0.2, []
    remote = server.remote()
    threads = [threading.Thread(target=fetch, args=(remote, path, lambda *each: waited.append(each[1]))) for _ in range(3)]
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
    fetch(server.remote(), path)
    assert left(path) == ["data.bin"]


def test_file_systems_without_locks(server, path, monkeypatch):
    def unknown(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", unknown)
    with locked(path, lambda *_: None):
        pass
    fetch(server.remote(), path)
    assert path.read_bytes() == CONTENT
