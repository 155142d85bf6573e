"""One compilation cache per test process, a count of what is compiled, and what the tests take of the processor."""

import gc
import os
import tempfile
from pathlib import Path

import jax
import pytest

# Each compiled program takes a few of the regions of memory that Linux grants a process, 65,530 by default, and LLVM
# crashes when there are none left.
_MOST_REGIONS = 20_000
# A third of the processor time for compiling; the programs are slower, which few tests feel.
_QUICK_COMPILATION = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
if jax.__version_info__ < (0, 11):  # newer ones end the process at a flag that they do not know
    _QUICK_COMPILATION += " --xla_cpu_use_fusion_emitters=false"
# Python would look through millions of objects of JAX for cycles every few tests.
_GARBAGE = (50_000, 20, 100)  # allocations before the youngest are looked through; for the two older generations
_FOLDER = "MILE_TESTS_FOLDER"  # variable that hands the folder of compiled programs to the processes of xdist
_COSTS = pytest.StashKey[dict[str, float]]()  # of each test, in seconds
_OF_WORKERS = pytest.StashKey[list[float]]()  # processor time of each process of xdist


def pytest_addoption(parser):
    parser.addoption("--costly", type=int, default=0, metavar="N", help="list the N tests that took the most processor")


def processor_seconds():
    """Return user and system time of this process and of its children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Note what a test takes, fixtures included; of a shared fixture the first test that asks for it."""
    before = processor_seconds()
    result = yield
    item.config.stash[_COSTS][item.nodeid] = processor_seconds() - before
    return result


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # a process of xdist: hand over to the one that prints
        session.config.workeroutput["costs"] = session.config.stash[_COSTS]
        session.config.workeroutput["processor_seconds"] = processor_seconds()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[_COSTS] |= node.workeroutput.get("costs", {}) if hasattr(node, "workeroutput") else {}
    node.config.stash[_OF_WORKERS].append(getattr(node, "workeroutput", {}).get("processor_seconds", 0.0))


def pytest_terminal_summary(terminalreporter, config):
    own = 0.0 if config.stash[_OF_WORKERS] else processor_seconds()
    total = own + sum(config.stash[_OF_WORKERS])
    terminalreporter.write_line(f"processor time: {total / 60:.1f} minutes")
    for name, seconds in sorted(config.stash[_COSTS].items(), key=lambda pair: -pair[1])[: config.option.costly]:
        terminalreporter.write_line(f"{seconds:7.1f} s  {name}")


def pytest_configure(config):
    # Tests compile thousands of programs and run most of them for milliseconds; the slow ones and what users run are
    # compiled as JAX does it. Processes that tests start inherit the variable.
    if "not slow" in config.option.markexpr and _QUICK_COMPILATION not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK_COMPILATION}".strip()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of the processes that tests start compiles all modules
    config.stash[_COSTS], config.stash[_OF_WORKERS] = {}, []
    gc.set_threshold(*_GARBAGE)
    # A new folder for each run, so that no run sees another's programs. Processes that tests start share it; those that
    # run tests keep their programs in memory, where most are asked for once: files would cost more than they save.
    if _FOLDER not in os.environ:
        temporary = tempfile.TemporaryDirectory(prefix="mile-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(temporary.cleanup)
        config.add_cleanup(lambda: os.environ.pop(_FOLDER))
        os.environ[_FOLDER] = temporary.name
    os.environ["XDG_CACHE_HOME"] = os.path.join(os.environ[_FOLDER], "children")
    jax.config.update("jax_enable_compilation_cache", False)


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forget compiled programs between files when there are very many."""
    yield
    regions = Path("/proc/self/maps")
    if regions.exists() and regions.read_bytes().count(b"\n") > _MOST_REGIONS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def compilations():
    """Return the names of the programs compiled, or loaded from a cache, from now on."""
    names = []

    def listen(event, seconds, fun_name="", **_):
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)
