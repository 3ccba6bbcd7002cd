"""``drq play`` as its clients meet it: many at once, each with their own, and some with bad intentions."""

import json
import socket
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from testbed.playing import photograph, playground, run, uploads

pytest.importorskip("gradio", reason="gradio is not installed")
with warnings.catch_warnings():  # of libraries among themselves
    warnings.simplefilter("ignore")
    import httpx
    from gradio_client import Client, handle_file

pytestmark = pytest.mark.slow
PLANE = ["Gaussians", "RBF support vector machine", "l2", "set by hand", 0.99, 0.1, 0.5, 20]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("server")
    run(scratch / "runs" / "one")
    run(scratch / "secret")
    (scratch / "runs" / "link").symlink_to(scratch / "secret")
    with playground(scratch / "runs", scratch) as (address, outside):
        yield address, outside, scratch


def client(server):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Client(server[0], verbose=False)


def test_twenty_requests_at_once_are_all_answered(server):
    clients = [client(server) for _ in range(4)]

    def ask(number):
        return clients[number % 4].predict(0.2 + number / 50, 0.5, *PLANE, api_name="/plane")

    with ThreadPoolExecutor(20) as pool:
        answers = [*pool.map(ask, range(20))]
    for number, (panels, verdict, _) in enumerate(answers):
        assert f"the point at {0.2 + number / 50:.2f}, 0.50" in panels  # each got the answer to its own question
        assert "Classifier:" in verdict


def test_two_sessions_do_not_disturb_each_other(server, tmp_path):
    red, blue = tmp_path / "red.png", tmp_path / "blue.png"
    red.write_bytes(photograph((220, 20, 20)))
    blue.write_bytes(photograph((20, 20, 220)))
    one, two = client(server), client(server)
    shown = {}
    for name, each, path in (("red", one, red), ("blue", two, blue)):
        shown[name] = each.predict(handle_file(path), "Drawn here", "cifar10-small", "nothing", 0.5, api_name="/upload")
    again = one.predict("brightness", api_name="/shift"), two.predict("brightness", api_name="/shift")
    assert shown["red"][-2] != shown["blue"][-2]
    first = [picture(each[-2]) for each in again]
    assert first == [picture(shown["red"][-2]), picture(shown["blue"][-2])]  # each still has their own
    assert first[0] != first[1]


def picture(html):
    """The first image of a result."""
    return html.split('src="')[1].split('"')[0]


def test_cancelling_stops_only_ones_own_work(server):
    one, two = client(server), client(server)
    for each in (one, two):
        each.predict("attack on DRQ itself: Envelope", api_name="/shift")
    jobs = [
        each.submit("attack on DRQ itself: Envelope", 1.0, steps, 0, api_name="/ask") for each, steps in ((one, 500), (two, 2))
    ]
    wait_for(lambda: any("knows DRQ" in str(each) for each in jobs[0].outputs()), 60)
    began = time.monotonic()
    one.predict(api_name="/cancel")
    jobs[0].result(timeout=30)
    assert time.monotonic() - began < 10
    assert any("Cancelled" in str(each) for each in jobs[0].outputs())
    jobs[1].result(timeout=120)
    assert any("The model alone answers" in str(each) for each in jobs[1].outputs())


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("name", [name for name in uploads() if name != "large.png"])
def test_hostile_uploads_are_refused_and_the_server_lives(server, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(uploads()[name])
    answer = client(server).predict(handle_file(path), "Drawn here", "cifar10-small", "nothing", 0.5, api_name="/upload")
    assert "upload must" in str(answer) or "path must" in str(answer)
    assert httpx.get(server[0]).status_code == 200


def test_a_large_upload_is_refused(server):
    for size in (9, 13):  # beyond what an upload may have, and beyond what any request may have
        reply = httpx.post(f"{server[0]}/gradio_api/upload", files={"files": ("large.png", b"\0" * (size * 2**20))}, timeout=60)
        assert reply.status_code == 413


def test_an_upload_cannot_choose_where_it_goes(server):
    name = "../../../../escaped.png"
    reply = httpx.post(f"{server[0]}/gradio_api/upload", files={"files": (name, photograph())})
    if reply.status_code == 200:
        assert str(server[2] / "uploads") in reply.json()[0]
        assert ".." not in reply.json()[0]
    escaped = [path for path in server[2].rglob("escaped.png") if server[2] / "uploads" not in path.parents]
    assert escaped == []


def asked(server, endpoint, data):
    """What comes of a request that no page would send."""
    reply = httpx.post(f"{server[0]}/gradio_api/call/{endpoint}", json={"data": data})
    if reply.status_code != 200:
        return reply.text
    return httpx.get(f"{server[0]}/gradio_api/call/{endpoint}/{reply.json()['event_id']}", timeout=60).text


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "http://127.0.0.1:9/secret.png", "https://example.com/x.png", "../secret/run.json"]
)
def test_a_file_of_the_server_cannot_be_named(server, path):
    given = {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "x.png"}
    answer = asked(server, "upload", [given, "Drawn here", "cifar10-small", "nothing", 0.5])
    assert "event: complete" not in answer
    assert "root:" not in answer


@pytest.mark.parametrize("model", ["python:os:system", "file:/etc/passwd", "digits"])
def test_a_model_that_is_not_offered_is_refused(server, model):
    answer = asked(server, "model", [model, "nothing", 0.5])
    assert "event: complete" not in answer
    assert "not in the list of choices" in answer


@pytest.mark.parametrize("path", ["/etc/passwd", "runs/one/run.json", "../secret/run.json", "pyproject.toml"])
def test_files_are_not_served(server, path):
    for route in ("gradio_api/file=", "file=", "gradio_api/", ""):
        reply = httpx.get(f"{server[0]}/{route}{path}")
        assert reply.status_code in (403, 404, 405) or "<html" in reply.text
        assert "spec_hash" not in reply.text
        assert "root:" not in reply.text


@pytest.mark.parametrize("name", ["../secret", "link", "/etc", "..", "one/../../secret"])
def test_runs_outside_of_the_folder_are_refused(server, name):
    answer = client(server).predict(name, "all", api_name="/open")
    assert "run must be" in answer[0]
    assert answer[1] == ""


def test_a_run_is_opened(server):
    told, overview, *_ = client(server).predict("one", "all", api_name="/open")
    assert "60 samples" in told
    assert "&lt;b&gt;Bold" in told
    assert "<table" in overview


def test_only_this_machine_is_listened_to(server):
    """Every address of the machine but the loopback refuses."""
    port = urlsplit(server[0]).port
    others = {each[4][0] for each in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET, socket.SOCK_STREAM)}
    for address in others - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
            socket.create_connection((address, port), timeout=2).close()
    assert httpx.get(server[0], headers={"host": "evil.example"}).status_code == 421


def test_a_page_from_elsewhere_cannot_ask(server):
    headers = {"origin": "https://evil.example"}
    reply = httpx.get(server[0], headers=headers)
    assert reply.headers.get("access-control-allow-origin") not in ("*", "https://evil.example")


def test_nothing_was_asked_of_other_machines(server):
    assert server[1].read_text() == ""
    config = json.loads(httpx.get(f"{server[0]}/config").text)
    assert not config.get("analytics_enabled")
