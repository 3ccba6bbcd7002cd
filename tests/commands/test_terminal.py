"""What is shown while a bar is: above it on a terminal, and in the file where standard output is one."""

import io
import re
import sys

import pytest

from drq.commands import terminal


class Screen(io.StringIO):
    """A terminal, as far as it is asked."""

    def isatty(self):
        return True


@pytest.fixture
def screen(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Screen()


def work(monkeypatch, output, errors, quiet=False):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        patch.setattr(sys, "stderr", errors)
        with terminal.progress(quiet) as track:
            for each in track(["one", "two"], "pictures"):
                terminal.show(f"answer {each}")


def test_on_a_terminal_answers_stand_above_the_bar(screen, monkeypatch):
    work(monkeypatch, screen, screen)
    written = screen.getvalue()
    assert "pictures" in written
    for each in ("one", "two"):
        (before,) = re.findall(rf"(.*)answer {each}\n", written)
        assert re.sub(r"\x1b\[[0-9;]*[A-Za-z]|\r", "", before.rpartition("\x1b[2K")[2]) == ""


def test_where_standard_output_is_a_file_answers_go_there(screen, monkeypatch):
    file = io.StringIO()
    work(monkeypatch, file, screen)
    assert file.getvalue() == "answer one\nanswer two\n"
    assert "pictures" in screen.getvalue()
    assert "answer" not in screen.getvalue()


def shown(monkeypatch, errors, quiet=False):
    """What a bar is told of three pictures, where there is one."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", errors)
        with terminal.picture_progress(3, quiet) as (tell, draw):
            assert (tell is None) == (draw is False)
            if tell is not None:
                tell(0.0)
                tell(1.5)
                draw(300, 400)
            return tell is not None


def test_pictures_count_in_part(screen, monkeypatch):
    assert shown(monkeypatch, screen)
    assert "pictures" in screen.getvalue()
    assert "50%" in screen.getvalue()
    assert re.search(r"regions .*75%", screen.getvalue())
    for errors, quiet in ((Screen(), True), (io.StringIO(), False)):
        assert not shown(monkeypatch, errors, quiet)
        assert errors.getvalue() == ""


def test_no_bar_is_shown_in_a_file_or_where_it_is_not_wanted(screen, monkeypatch):
    for errors, quiet in ((screen, True), (io.StringIO(), False)):
        file = io.StringIO()
        work(monkeypatch, file, errors, quiet)
        assert file.getvalue() == "answer one\nanswer two\n"
        assert errors.getvalue() == ""
