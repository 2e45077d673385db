"""Code that is kept is loaded from nowhere that somebody else may write to, or replace."""

import grp
import os
import pwd
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from archiver.process.machine.caches import CachePlace
from archiver.process.machine.jvm_classes import options_to_read, options_to_write
from archiver.process.machine.tampering import exposure
from tests.support.strangers import NOBODY

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A file that is ours, in two folders that are."""
    found = tmp_path / "outer" / "inner" / "code"
    found.parent.mkdir(parents=True)
    found.write_bytes(b"code")
    found.chmod(0o644)
    found.parent.chmod(0o755)
    found.parents[1].chmod(0o755)
    return found


def test_what_is_ours_is_loaded(place: Path) -> None:
    assert exposure(place) == ""
    assert exposure(place.with_name("not there yet")) == ""


@pytest.mark.parametrize("up", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o757, 0o777])
def test_what_anybody_may_write_to_is_not(mode: int, up: int, place: Path) -> None:
    """Nor what they may put something else in the place of."""
    changed = [place, *place.parents][up]
    changed.chmod(mode)
    assert exposure(place) == f"anybody may write to {changed}"


@needs_root
@pytest.mark.parametrize("up", [0, 1, 2])
def test_a_path_of_another_user_is_exposed(up: int, place: Path) -> None:
    changed = [place, *place.parents][up]
    os.chown(changed, NOBODY, -1)
    assert exposure(place) == f"{changed} belongs to {pwd.getpwuid(NOBODY).pw_name}"
    assert exposure(place, trusted=[NOBODY]) == ""  # the code is, too


@needs_root
def test_nor_what_is_reached_by_links_of_others(place: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "link").symlink_to(place.parent)
    ours = tmp_path / "ours"
    ours.symlink_to("theirs/link")
    assert exposure(ours / place.name) == ""
    os.chown(theirs, NOBODY, -1)
    assert "theirs belongs to" in exposure(ours / place.name)
    os.chown(theirs, 0, -1)
    os.chown(theirs / "link", NOBODY, -1, follow_symlinks=False)
    assert "link belongs to" in exposure(ours / place.name)


def test_a_folder_of_everybodys_may_be_above_but_not_the_place_itself(place: Path) -> None:
    place.parents[1].chmod(0o1777)  # as /tmp is: nobody else can replace what is ours
    assert exposure(place) == ""
    place.parent.chmod(0o1777)
    assert exposure(place) == ""
    assert exposure(place.parent) == f"anybody may write to {place.parent}"


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> dict[int, SimpleNamespace]:
    known: dict[int, SimpleNamespace] = {}
    monkeypatch.setattr(grp, "getgrgid", known.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ann"))
    return known


@pytest.mark.parametrize(
    ("name", "members", "is_ours"),
    [("ann", [], True), ("ann", ["ann"], True), ("ann", ["bob"], False), ("devs", ["ann"], False)],
)
def test_a_group_with_only_this_user_exposes_nothing(
    name: str, members: list[str], is_ours: bool, place: Path, groups: dict[int, SimpleNamespace]
) -> None:
    """As many Linux systems make it for each user, with a umask of 002."""
    if os.geteuid() == 0:
        os.chown(place, -1, 1234)
    groups[place.stat().st_gid] = SimpleNamespace(gr_name=name, gr_mem=members)
    place.chmod(0o664)
    assert (exposure(place) == "") == is_ours


@needs_root
def test_the_group_of_root_is_root(place: Path, groups: dict[int, SimpleNamespace]) -> None:
    """Containers that run as any user are of that group, and what they may write belongs to it."""
    place.chmod(0o664)
    assert exposure(place) == ""  # an image without /etc/group
    groups[0] = SimpleNamespace(gr_name="root", gr_mem=[])
    assert exposure(place) == ""
    groups[0] = SimpleNamespace(gr_name="wheel", gr_mem=["root", "bob"])
    assert exposure(place) == f"group wheel may write to {place}"


def test_folders_are_made_for_us_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = tmp_path / "home" / ".cache" / "kernels"
        private = CachePlace(path=folder, mode=0o700)
        assert private.make(folder)
        shared = CachePlace(path=tmp_path / "code" / "kernels", mode=0o755)
        assert shared.make(shared.path)
        for place in (private, shared):
            with place.making_files():
                (place.path / "made").write_bytes(b"")
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    modes = {one.relative_to(tmp_path).as_posix(): oct(one.stat().st_mode & 0o777) for one in tmp_path.rglob("*")}
    assert modes == {
        "home": "0o700", "home/.cache": "0o700", "home/.cache/kernels": "0o700", "home/.cache/kernels/made": "0o600",
        "code": "0o755", "code/kernels": "0o755", "code/kernels/made": "0o644",
    }  # fmt: skip


def test_links_that_lead_to_one_another_have_an_end(place: Path) -> None:
    place.unlink()
    place.symlink_to(place.name)
    assert exposure(place) == ""


def test_nothing_is_made_where_others_may_write(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert not CachePlace(path=folder / "kernels", mode=0o700).make(folder / "kernels")
    assert list(folder.iterdir()) == []


def test_a_jvm_maps_no_classes_that_others_could_have_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "classes.jsa"
    with options_to_write(file) as options:
        Path(options[0].partition("=")[2]).write_bytes(b"classes")
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert options_to_read(file)
    file.chmod(0o602)
    assert options_to_read(file) == []
    (line,) = caplog.messages
    assert line.startswith(f"kept classes in {file} are not used: anybody may write to {file}; ")


@needs_root
def test_an_access_control_list_is_reported(place: Path) -> None:
    """The file's own group may be ours alone: its bits then are those of the list."""
    place.chmod(0o600)
    entries = [(1, 6, -1), (2, 6, NOBODY), (4, 0, -1), (16, 6, -1), (32, 0, -1)]  # owner, a user, group, most, others
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(place, "system.posix_acl_access", content)
    except (AttributeError, OSError):
        pytest.skip("no access control lists here")
    assert exposure(place) == f"an access control list may let others write to {place}"
    place.chmod(0o600)  # which takes the right from all whom it names
    assert exposure(place) == ""
