"""The frame of the project: what a fresh clone promises."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BINARY = {".png", ".ico", ".gz", ".woff2", ".bin"}
# Folders of a machine, and hosts that serve packages: neither belongs into a file of the project.
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:home|root|work|Users|opt|mnt)/[\w.-]+")
PACKAGE_HOSTS = re.compile(
    r"--(?:extra-)?index-url|--find-links|--trusted-host|files\.pythonhosted|\bpypi\.|/simple/"
)
THIS_FILE = "tests/unit/test_project.py"


def tracked_files() -> list[Path]:
    """List what git tracks or would track; a source archive without git has nothing to list."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = [name for name in listing.stdout.splitlines() if name != THIS_FILE]
    paths = [ROOT / name for name in names]
    return [path for path in paths if path.is_file() and path.suffix not in BINARY]


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, PACKAGE_HOSTS], ids=["paths", "hosts"])
def test_no_file_names_this_machine_or_a_package_host(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("pins", sorted((ROOT / "requirements").glob("*.txt")), ids=str)
def test_the_pins_are_names_versions_and_hashes_only(pins: Path) -> None:
    text = re.sub(r"^ +#.*\n", "", pins.read_text(encoding="utf-8"), flags=re.MULTILINE)
    entry = r"[a-z0-9-]+==[\w.]+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(f"({entry})+", text)


def test_nothing_is_installed_whose_hash_is_not_pinned() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    makefile = makefile.replace(
        "$(INSTALL)", re.findall(r"^INSTALL := (.+)$", makefile, re.MULTILINE)[0]
    )
    image = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"\bpip (?:install|wheel) (.+)$", makefile + image, re.MULTILINE)
    assert len(installs) > 6
    for line in installs:
        assert "--require-hashes" in line or "--no-deps" in line, line
        assert (
            "--no-build-isolation" in line
            or "--only-binary" in line
            or "build.txt" in line
            or ("--no-index" in line)
        ), line


def test_the_tools_of_the_build_are_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert sorted(project["build-system"]["requires"]) == project["dependency-groups"]["build"]
    pins = (ROOT / "requirements/build.txt").read_text(encoding="utf-8")
    for asked in project["build-system"]["requires"]:
        assert re.search(rf"^{re.split('[><=]', asked)[0]}==", pins, re.MULTILINE), asked


@pytest.mark.parametrize("group", ["dev", "bench", "docs"])
def test_every_development_dependency_is_pinned(group: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = (ROOT / f"requirements/{group}.txt").read_text(encoding="utf-8")
    for asked in [*project["dependency-groups"][group], *project["project"]["dependencies"]]:
        name = asked.partition("[")[0]
        assert re.search(rf"^{name}(\[[\w,-]+\])?==", pins, re.MULTILINE), name


@pytest.mark.parametrize(
    "extra", ["server", "client", "cli", "spark", "executor", "connect", "s3", "otel", "all"]
)
def test_every_dependency_is_justified(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs/internals/dependencies.md").read_text(encoding="utf-8")
    for requirement in [*project["optional-dependencies"][extra], *project["dependencies"]]:
        name = re.split(r"[\[=<>]", requirement)[0]
        assert f"`{name}`" in page


@pytest.mark.parametrize("group", ["build", "bench", "docs", "server"])
def test_the_sets_of_pins_agree(group: str) -> None:
    pins = [
        dict(re.findall(r"^([a-z0-9-]+)==([\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        for page in (ROOT / "requirements/dev.txt", ROOT / f"requirements/{group}.txt")
    ]
    shared = pins[0].keys() & pins[1].keys()
    assert {name: pins[0][name] for name in shared} == {name: pins[1][name] for name in shared}


def test_the_readme_says_how_to_run_and_to_test() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make run" in readme
    assert "make test" in readme


def test_the_makefile_lists_itself() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    command = ["make", "--no-print-directory"]  # it may run inside of another make
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listing.splitlines()] == targets
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    assert phony[1].split() == targets


def test_the_types_ship() -> None:
    assert (ROOT / "src/topics/py.typed").exists()
