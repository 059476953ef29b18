"""The compile cache: whole values or none, whatever happens to the disk."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import tilewright
from examples import examples
from tilewright.compile_cache import Cache, CacheWarning, default_path

SOURCE = str(Path(tilewright.__file__).parents[1])
VALUE = bytes(range(256)) * 20


def files(path: Path) -> list[Path]:
    return [p for p in path.rglob("*") if p.is_file() and p.name != ".trimmed"]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@given(st.dictionaries(st.tuples(st.sampled_from("ab"), st.binary()), st.binary(), max_size=8))
@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_gives_back_what_was_put(tmp_path: Path, entries: dict[tuple[str, bytes], bytes]) -> None:
    cache = Cache(tmp_path)
    cache.clear()
    for (kind, key), value in entries.items():
        cache.put(kind, key, value)
    again = Cache(tmp_path)
    assert {name: again.get(*name) for name in entries} == entries
    assert again.info().entries == len(entries)


def test_text_and_bytes_are_the_same_key_and_kinds_are_apart(cache: Cache) -> None:
    cache.put("cubin", "é", b"1")
    assert cache.get("cubin", "é".encode()) == b"1"
    assert cache.get("ptx", "é") is None


@pytest.mark.parametrize("where", [0, 25, 60, -1])
def test_a_flipped_bit_is_a_miss_and_is_made_again(
    cache: Cache, tmp_path: Path, where: int
) -> None:
    cache.put("cubin", "k", VALUE)
    (file,) = files(tmp_path)
    data = bytearray(file.read_bytes())
    data[where] ^= 1
    file.write_bytes(data)
    assert cache.get("cubin", "k") is None
    assert not files(tmp_path)
    assert cache.get_or_make("cubin", "k", lambda: VALUE) == VALUE
    assert cache.get("cubin", "k") == VALUE


@pytest.mark.parametrize("kept", [0, 10, 51, 100])
def test_a_truncated_file_is_a_miss(cache: Cache, tmp_path: Path, kept: int) -> None:
    cache.put("cubin", "k", VALUE)
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:kept])
    assert cache.get("cubin", "k") is None


def test_an_entry_under_another_key_is_a_miss(cache: Cache, tmp_path: Path) -> None:
    cache.put("cubin", "a", VALUE)
    (first,) = files(tmp_path)
    cache.put("cubin", "b", b"other")
    (second,) = set(files(tmp_path)) - {first}
    os.replace(first, second)
    assert cache.get("cubin", "b") is None


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=10_000)
    for n in range(4):
        cache.put("cubin", str(n), bytes(2000))
        (new,) = [f for f in files(tmp_path) if time.time() - f.stat().st_mtime < 5000]
        os.utime(new, times=(1e9 + n, 1e9 + n))
    assert cache.get("cubin", "0") is not None  # used just now
    cache.put("cubin", "new", bytes(3000))
    left = {k for k in ("0", "1", "2", "3", "new") if cache.get("cubin", k) is not None}
    assert left == {"0", "3", "new"}
    assert cache.info().bytes <= 10_000


def test_what_a_killed_writer_left_is_cleared_away(cache: Cache, tmp_path: Path) -> None:
    cache.put("cubin", "k", VALUE)
    left = files(tmp_path)[0].with_name(".new-dead")
    left.write_bytes(b"half")
    os.utime(left, times=(1e9, 1e9))
    os.utime(tmp_path / "cache" / "v1" / ".trimmed", times=(1e9, 1e9))
    Cache(tmp_path / "cache").put("cubin", "other", VALUE)
    assert not left.exists()


def test_threads_make_a_value_once(cache: Cache) -> None:
    made = []

    def make() -> bytes:
        time.sleep(0.05)
        made.append(1)
        return VALUE

    def ask() -> None:
        assert cache.get_or_make("cubin", "k", make) == VALUE

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_a_failed_make_is_not_kept(cache: Cache) -> None:
    def fail() -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get_or_make("cubin", "k", fail)
    assert cache.get_or_make("cubin", "k", lambda: b"1") == b"1"


def run(code: str, *args: str, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **more,  # type: ignore[call-overload]
    )


HAMMER = """
import hashlib, random, sys
from tilewright.compile_cache import Cache
cache, r = Cache(sys.argv[1], limit=60_000), random.Random(sys.argv[2])
for _ in range(400):
    key = str(r.randrange(12))
    value = hashlib.sha256(key.encode()).digest() * (100 + 20 * int(key))
    assert cache.get_or_make("cubin", key, lambda: value) == value
    if r.random() < 0.3:
        cache.put("cubin", key, value)
"""


def test_two_processes_at_once(tmp_path: Path) -> None:
    both = [run(HAMMER, str(tmp_path), seed) for seed in "12"]
    for process in both:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        assert output == ""
    assert 0 < Cache(tmp_path).info().bytes <= 60_000 * 1.2


FULL = """
import sys, warnings
from tilewright.compile_cache import Cache, CacheWarning
cache = Cache(sys.argv[1])
cache.put("cubin", "small", b"1")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for key in "abc":
        assert cache.get_or_make("cubin", key, lambda: bytes(5000)) == bytes(5000)
assert [w.category for w in said] == [CacheWarning], said
assert "can't be written" in str(said[0].message)
assert cache.get("cubin", "small") == b"1"
assert cache.info().entries == 1
"""


def test_a_full_disk_means_no_cache_and_one_warning(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    process = run(FULL, str(tmp_path), preexec_fn=small_files)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output


def test_an_unwritable_place_means_no_cache_and_one_warning(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way: root ignores permissions")
    cache = Cache(blocked)
    with pytest.warns(CacheWarning) as message:
        assert cache.get_or_make("cubin", "k", lambda: b"1") == b"1"
        cache.put("cubin", "k", b"1")
        assert cache.get("cubin", "k") is None
    assert len(message) == 1
    assert cache.info().path is None


READ_ONLY = """
import os, sys, warnings
from tilewright.compile_cache import Cache, CacheWarning
os.chdir(sys.argv[1])
Cache(".").put("cubin", "k", b"1")
for where, _, names in os.walk("."):
    os.chmod(where, 0o500)
    if os.geteuid() == 0:
        for path in (where, *(os.path.join(where, n) for n in names)):
            os.chown(path, 65534, 65534)
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anywhere
cache = Cache(".")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert cache.get("cubin", "k") == b"1"
    assert cache.get_or_make("cubin", "new", lambda: b"2") == b"2"
    assert cache.get_or_make("cubin", "new", lambda: b"2") == b"2"
assert [w.category for w in said] == [CacheWarning], said
"""


def test_a_read_only_cache_is_still_read(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:  # which any user may enter, unlike pytest's
        process = run(READ_ONLY, name)
        output, _ = process.communicate(timeout=60)
        for path in (Path(name), *Path(name).rglob("*")):
            path.chmod(0o700)
    assert process.returncode == 0, output


WRITE_ON = """
import sys
from tilewright.compile_cache import Cache
cache, n = Cache(sys.argv[1]), 0
while True:
    cache.put("cubin", "k", bytes([n % 256]) * 4_000_000)
    n += 1
    if n == 3:
        print("going", flush=True)
"""


def test_a_killed_writer_leaves_a_whole_value(tmp_path: Path) -> None:
    with run(WRITE_ON, str(tmp_path)) as process:
        assert process.stdout and process.stdout.readline() == "going\n"
        time.sleep(0.05)
        process.kill()
    value = Cache(tmp_path).get("cubin", "k")
    assert value is not None
    assert len(value) == 4_000_000
    assert len(set(value)) == 1


def test_a_folder_that_others_may_write_is_not_trusted(tmp_path: Path) -> None:
    Cache(tmp_path).put("cubin", "k", VALUE)
    (tmp_path / "v1").chmod(0o777)
    with pytest.warns(CacheWarning, match="others may write"):
        assert Cache(tmp_path).get("cubin", "k") is None


@pytest.mark.parametrize("what", ["parent", "kind", "two digits", "entry"])
def test_every_level_that_others_may_write_is_not_trusted(tmp_path: Path, what: str) -> None:
    place = tmp_path / "parent" / "cache"
    Cache(place).put("cubin", "k", VALUE)
    (entry,) = files(place)
    levels = {"parent": place.parent, "kind": entry.parents[1], "two digits": entry.parent}
    levels.get(what, entry).chmod(0o777)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        assert Cache(place).get("cubin", "k") is None


def test_what_another_user_created_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cache(tmp_path).put("cubin", "k", VALUE)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)  # all there is belongs to somebody else
    with pytest.warns(CacheWarning, match="others may write"):
        assert Cache(tmp_path).get("cubin", "k") is None


def test_a_sticky_parent_is_trusted_and_links_are_followed_once_checked(tmp_path: Path) -> None:
    place = tmp_path / "shared" / "cache"
    place.mkdir(parents=True)
    place.parent.chmod(0o1777)
    (tmp_path / "link").symlink_to("shared/../shared/cache")
    Cache(tmp_path / "link").put("cubin", "k", VALUE)
    assert Cache(place).get("cubin", "k") == VALUE
    for name in ("one", "two"):
        (tmp_path / name).symlink_to({"one": "two", "two": "one"}[name])
    with pytest.warns(CacheWarning, match="too many symbolic links"):
        assert Cache(tmp_path / "one").get("cubin", "k") is None


def test_a_link_in_the_place_of_a_level_or_of_an_entry_is_not_followed(tmp_path: Path) -> None:
    Cache(tmp_path).put("cubin", "k", VALUE)
    (entry,) = files(tmp_path)
    entry.rename(tmp_path / "moved")
    entry.symlink_to(tmp_path / "moved")
    assert Cache(tmp_path).get("cubin", "k") is None
    entry.unlink()
    (tmp_path / "moved").rename(entry)
    assert Cache(tmp_path).get("cubin", "k") == VALUE
    kind = entry.parents[1]
    kind.rename(tmp_path / "elsewhere")
    kind.symlink_to(tmp_path / "elsewhere")
    assert Cache(tmp_path).get("cubin", "k") is None


def test_a_deleted_folder_comes_back(cache: Cache, tmp_path: Path) -> None:
    cache.put("cubin", "k", VALUE)
    shutil.rmtree(tmp_path / "cache")
    assert cache.get("cubin", "k") is None
    cache.put("cubin", "k", VALUE)
    assert cache.get("cubin", "k") == VALUE


def test_where_it_lives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TILEWRIGHT_CACHE", "TILEWRIGHT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert default_path() == Path("/home/me/.cache/tilewright")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_path() == Path("/home/me/.cache/tilewright")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_path() == Path("/xdg/tilewright")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    assert default_path() == tmp_path
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    cache = Cache()
    assert cache.get_or_make("cubin", "k", lambda: b"1") == b"1"
    assert cache.get("cubin", "k") is None
    assert not files(tmp_path)
