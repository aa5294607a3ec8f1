"""What the trial on a bare machine takes from the README, and what it lends."""

from __future__ import annotations

import re

import pytest

import bare

README = (bare.ROOT / "README.md").read_text()


def test_packages_are_those_of_the_readme() -> None:
    assert bare.packages_of(README) == ["python3", "python3-venv", "python3-dev", "gcc", "make"]
    assert bare.packages_of("On a fresh Debian 12 (git, make and git):\n") == ["git", "make"]
    with pytest.raises(SystemExit, match="README no longer says"):
        bare.packages_of("On another machine (gcc):")


def test_what_is_typed_are_the_two_commands_of_the_readme() -> None:
    told = re.findall(r"^    (make \w+) ", README, re.MULTILINE)
    assert bare.commands_of("whole") == told
    assert bare.commands_of("demo") == told[:1]
    demo, sample = bare.commands_of("sample")
    assert (demo, sample.split(" TEST_TOOLS= ")[0]) == tuple(told)
    assert all((bare.ROOT / name).exists() and name in sample for name in bare.SAMPLE)


def test_an_emulated_processor_gets_neither_the_whole_build_nor_the_whole_suite() -> None:
    commands = bare.commands_of("emulated")
    assert not any("make" in command for command in commands)
    built = next(command for command in commands if "setup.py" in command)
    folders = re.search(r"SOFTHCA_ONLY=(\S+)", built)[1].split(",")
    assert all(any((bare.ROOT / "src" / "softhca" / name).glob("*.pxd")) for name in folders)
    assert any("SOFTHCA_EXT=skip" in command for command in commands)


def test_a_wheel_is_tried_by_its_name_and_compiled() -> None:
    commands = bare.commands_of("emulated", bare.Path("dist/softhca-1-cp311.whl"))
    assert any("./softhca-1-cp311.whl" in command for command in commands)
    assert not any("SOFTHCA_EXT" in command or "setup.py" in command for command in commands)
    tested = next(command for command in commands if "SOFTHCA_EXPECT=compiled" in command)
    assert all((bare.ROOT / name).exists() for name in tested.split() if name.startswith("tests/"))


def test_what_says_where_packages_come_from_is_lent_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in bare.os.environ:
        monkeypatch.delenv(name)
    lent = {"PIP_CERT": "a", "SSL_CERT_FILE": "b", "https_proxy": "c", "NO_PROXY": "d"}
    for name, value in {**lent, "PYTHONPATH": "x", "SOFTHCA_DEVICES": "y", "HOME": "z"}.items():
        monkeypatch.setenv(name, value)
    assert bare.lent_variables() == lent


def test_the_command_line_has_a_sample_for_both_users_as_its_default() -> None:
    args = bare.arguments([])
    assert (args.how, args.user, args.share) == ("sample", ["root", bare.USER], [])
    args = bare.arguments(["--whole", "--user", "root", "--arch", "arm64", "--share", "/some"])
    assert (args.how, args.user, args.arch, args.share) == ("whole", ["root"], "arm64", ["/some"])
    assert args.root is None
    assert bare.arguments(["--root", "some"]).root == bare.Path.cwd() / "some"


def test_each_command_is_logged_with_its_status_and_without_dots(
    monkeypatch: pytest.MonkeyPatch, tmp_path: bare.Path
) -> None:
    log: list[str] = []
    trial = bare.Bare(tmp_path, "amd64", log)
    said = "[ 1/106]    2 s  softhca.wire.psn\n..s.. [ 50%]\n\n7 passed\n"
    said += "WARNING: Location 'file:///some/cython/' is ignored: it is neither a file nor a directory.\n"
    for status in (0, 3):
        done = bare.Done([], status, said)
        monkeypatch.setattr(trial, "_chroot", lambda *words, done=done, **how: done)
        trial.type("root", tmp_path / "clone", "make test")
        assert trial.failed == (status != 0)
        assert log[-3:-1] == ["root$ make test", "    7 passed"]
        assert log[-1].startswith(f"    status {status}, ")


class Scripted(bare.Bare):
    """A bare machine that is a folder, and remembers what ran in it."""

    def __init__(self, root: bare.Path, arch: str, log: list[str]) -> None:
        super().__init__(root, arch, log)
        Scripted.ran = []

    def make(self, foreign: bool) -> None:
        self.root.mkdir()
        self.ran.append("make")

    def mount(self, shared: list[str]) -> None:
        self.ran.append("mount")

    def lend(self) -> None:
        pass

    def _chroot(self, words: list[str], home: bare.Path = bare.ROOT, **options: object) -> bare.Done:
        if words[0] == "useradd":
            (self.root / "home" / words[-1]).mkdir(parents=True)
        self.ran.append(" ".join(words[:2]))
        return bare.Done(words, 0, "")


@pytest.mark.skipif(
    bare.shutil.which("git") is None or not (bare.ROOT / ".git").exists(), reason="no git, or no clone of it"
)
def test_a_root_that_is_kept_is_made_once_and_cloned_into_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: bare.Path
) -> None:
    monkeypatch.setattr(bare, "Bare", Scripted)
    monkeypatch.setattr(bare, "PROCESSORS", {bare.platform.machine(): "amd64"})
    root = tmp_path / "kept"
    words = ["--root", str(root), "--arch", "amd64", "--user", bare.USER, "--demo"]
    clone = root / "home" / bare.USER / "softhca"
    seen = []
    for _ in range(2):
        assert bare.trial(bare.arguments(words), [])
        seen.append(list(Scripted.ran))
        assert (clone / "README.md").exists()
        assert not (clone / "left").exists()
        (clone / "left").write_text("of the trial before")
    user = ["chown -R", "su --preserve-environment"]
    assert seen[0] == ["make", "mount", "apt-get update", "apt-get install", "useradd --create-home", *user]
    assert seen[1] == ["mount", *user]
