"""Reading files: regular ones only, and failures that name the file."""

from __future__ import annotations

import hashlib
import os
import sys

import pytest

from specbook import reading
from specbook.errors import ArtifactError


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not it"),
        (b"\xff\xfe", "cannot be read"),
        (b"[1]", "no JSON object"),
        (b"[" * 100_000, "is not it"),
        (b'{"a": 1, "a": 2}', "stand twice"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": -Infinity}', "-Infinity is no JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not it"),
        (b"{", "is not it"),
    ],
)
def test_what_is_no_object(tmp_path, content, told):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=told):
        reading.json_object(path, "it")


def test_what_is_not_there(tmp_path):
    for read in (reading.contents, reading.text, reading.sha256):
        with pytest.raises(ArtifactError, match="there is no file"):
            read(tmp_path / "x")
        for bad in (tmp_path, "a\0b"):
            with pytest.raises(ArtifactError, match="cannot be read"):
                read(bad)
        for bad in (None, 3, b"x"):
            with pytest.raises(ArtifactError, match="not the path of a file"):
                read(bad)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names")
def test_pipes_and_devices_are_refused_unopened(tmp_path):
    """A pipe without a writer would wait for ever, and /dev/zero never ends."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    for path in (pipe, link, "/dev/zero"):
        for read in (reading.contents, reading.text, reading.sha256):
            with pytest.raises(ArtifactError, match="no regular file"):
                read(path)


def test_a_link_to_a_file_is_the_file(tmp_path):
    path, link = tmp_path / "x", tmp_path / "y"
    path.write_bytes(b"\xc3\xa4")
    link.symlink_to(path)
    assert reading.contents(link) == b"\xc3\xa4" and reading.text(link) == "ä"
    assert reading.sha256(link) == hashlib.sha256(b"\xc3\xa4").hexdigest()
