"""Compiled programs on disk: what is damaged is compiled again, what others could have put there is not run."""

import contextlib
import errno
import gc
import logging
import os
import re
import shutil
import socket
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.cache import directory, set_directory
from jaxdyn.cache.files import CacheFiles
from jaxdyn.compute import batched
from jaxdyn.lanes import cpu

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes of files are those of POSIX")


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


DAMAGES = {
    "empty": lambda content, other: b"",
    "truncated within the checksum": lambda content, other: content[:20],
    "truncated": lambda content, other: content[: len(content) // 2],
    "a bit of the checksum flipped": lambda content, other: flipped(content, 3),
    "a bit of the code flipped": lambda content, other: flipped(content, len(content) // 2),
    "last bit flipped": lambda content, other: flipped(content, len(content) - 1),
    "garbage": lambda content, other: np.random.default_rng(0).bytes(len(content)),
    "code without a checksum": lambda content, other: content[32:],
    "text": lambda content, other: b"not code",
    "swapped with another function": lambda content, other: other,
    "longer": lambda content, other: content + b"more",
}


def forget_compiled() -> None:
    jax.clear_caches()
    gc.collect()
    cpu._free_unheld()


@pytest.fixture
def folder(tmp_path):
    """A folder of code that is used."""
    usual = directory()
    batched(lambda x: 2.0 * x, backend="lanes")(jnp.arange(5.0))  # what all programs need is compiled
    forget_compiled()
    set_directory(tmp_path / "code")
    yield tmp_path / "code"
    set_directory(usual)


def test_damaged_code_is_compiled_again(folder):
    def tripled():
        return batched(lambda x: 3.0 * jnp.sin(x), backend="lanes")(jnp.arange(5.0))

    batched(lambda x: 4.0 * jnp.cos(x), backend="lanes")(jnp.arange(5.0))
    (other,) = folder.iterdir()
    expected = tripled()
    (path,) = set(folder.iterdir()) - {other}
    content = path.read_bytes()
    for name, damage in DAMAGES.items():
        forget_compiled()
        path.write_bytes(damage(content, other.read_bytes()))
        np.testing.assert_array_equal(tripled(), expected, err_msg=name)
        assert path.read_bytes() == content, name
    assert sorted(folder.iterdir()) == sorted([path, other])


def test_good_code_is_read_and_not_made_again(tmp_path):
    files = CacheFiles(tmp_path)
    assert files.content("a", lambda: b"code of a") == b"code of a"
    assert CacheFiles(tmp_path).content("a", lambda: pytest.fail("made again")) == b"code of a"
    assert files.content("b", lambda: b"code of b") == b"code of b"
    assert len(list(tmp_path.iterdir())) == 2
    if os.name == "posix":
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def open_to_all(path, tmp_path):
    path.chmod(0o666)


def open_to_the_group(path, tmp_path):
    path.chmod(0o620)


def of_another_user(path, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 65534, -1)


def a_link(path, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def a_pipe(path, tmp_path):
    path.unlink()
    os.mkfifo(path)


def a_folder(path, tmp_path):
    path.unlink()
    path.mkdir()


def a_socket(path, tmp_path):
    path.unlink()
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as door:  # whose names are short
        door.bind(path.name)


@posix
@pytest.mark.parametrize("attack", [open_to_all, open_to_the_group, of_another_user, a_link, a_pipe, a_socket])
def test_code_that_others_could_have_written_is_not_run_and_named_once(tmp_path, attack):
    files = CacheFiles(tmp_path / "code")
    files.content("key", lambda: b"code")
    (path,) = files.folder.iterdir()
    attack(path, tmp_path)
    with pytest.warns(RuntimeWarning, match="somebody else") as caught:
        assert files.content("key", lambda: b"made again") == b"made again"
    assert str(path) in str(caught[0].message)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert files.content("key", lambda: b"never made") == b"made again"


@posix
def test_a_folder_in_place_of_code_is_not_read_and_stays_closed(tmp_path):
    files = CacheFiles(tmp_path / "code")
    files.content("key", lambda: b"code")
    a_folder(files.folder / "key", tmp_path)
    opened = count_of_open_files()
    for _ in range(3):
        with pytest.warns(RuntimeWarning, match="somebody else"):
            assert files.content("key", lambda: b"made again") == b"made again"
    assert count_of_open_files() == opened


def count_of_open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


FAILURES = [errno.EIO, errno.ELOOP, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.ENXIO]


@pytest.mark.parametrize("failure", FAILURES, ids=errno.errorcode.get)
@pytest.mark.parametrize("where", ["os.open", "os.fstat"])
def test_code_of_the_user_that_cannot_be_read_is_made_again_and_nobody_is_suspected(
    tmp_path, monkeypatch, caplog, failure, where
):
    files = CacheFiles(tmp_path)
    files.content("key", lambda: b"code")

    def fail(*arguments, **options):
        raise OSError(failure, os.strerror(failure), str(tmp_path / "key"))

    with monkeypatch.context() as patched, caplog.at_level(logging.INFO, "jaxdyn"):
        patched.setattr(where, fail)
        assert files.read("key") is None
    (record,) = caplog.records
    assert re.fullmatch(rf".*cache: .*{os.strerror(failure)}.*key.*", record.getMessage())
    assert files.content("key", lambda: pytest.fail("made again")) == b"code"


def removed(folder):
    shutil.rmtree(folder)


def replaced_by_a_file(folder):
    shutil.rmtree(folder)
    folder.write_text("")


def without_permissions(folder):
    if os.geteuid() == 0:
        pytest.skip("root needs no permission")
    folder.chmod(0)


@posix
@pytest.mark.parametrize("event", [removed, replaced_by_a_file, without_permissions])
def test_what_happens_to_the_folder_while_it_is_used_is_told_once(tmp_path, caplog, event):
    files = CacheFiles(tmp_path / "code")
    files.content("key", lambda: b"code")
    event(files.folder)
    with caplog.at_level(logging.INFO, "jaxdyn"):
        for k in range(60):  # more than are written between two looks at the size of the folder
            assert files.content(f"{k}", lambda: b"made") == b"made"
    (record,) = caplog.records
    assert str(files.folder) in record.getMessage()
    assert "cache" in record.getMessage()


@posix
@pytest.mark.parametrize(("mode", "safe"), [(0o777, False), (0o775, False), (0o1777, True), (0o755, True)])
def test_folders_that_others_could_replace_are_refused(tmp_path, mode, safe):
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(mode)
    with contextlib.nullcontext() if safe else pytest.raises(ValueError, match=r"parent.*replace"):
        CacheFiles(parent / "middle" / "own")


@posix
def test_a_folder_of_another_user_is_refused(tmp_path):
    of_another_user(tmp_path, tmp_path)
    with pytest.raises(ValueError, match="others may write"):
        CacheFiles(tmp_path)


@posix
def test_a_link_to_a_folder_in_an_open_one_is_refused(tmp_path):
    there = tmp_path / "open" / "folder"
    there.mkdir(parents=True)
    there.parent.chmod(0o777)
    (tmp_path / "link").symlink_to(there)
    with pytest.raises(ValueError, match=r"open.*replace"):
        CacheFiles(tmp_path / "link")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is a device of Linux")
def test_without_room_on_the_disk_code_stays_in_memory(tmp_path, monkeypatch):
    files = CacheFiles(tmp_path)
    monkeypatch.setattr(
        "tempfile.mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), str(tmp_path / "x.unfinished"))
    )
    assert files.content("key", lambda: b"code") == b"code"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_has_grown_too_large_loses_what_was_unused_for_longest(tmp_path):
    files = CacheFiles(tmp_path)
    for k in range(100):
        files.write(f"{k}", bytes(1000))
        os.utime(tmp_path / f"{k}", (k, k))
    files = CacheFiles(tmp_path, largest_bytes=10_000)
    assert files.read("7") == bytes(1000)  # used again, so it stays
    files.write("last", bytes(1000))
    kept = {path.name for path in tmp_path.iterdir()}
    assert {"7", "last", "99"} <= kept
    assert 5 <= len(kept) <= 10
    assert not kept & {str(k) for k in range(7)}
