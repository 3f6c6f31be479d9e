"""dsaio.deepspeed and `python -m dsaio run`, on a DeepSpeed of a few lines: a tree with the builders alone.

tests/deepspeed has the tests that need the genuine one.
"""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from conftest import PACKAGE, ROOT, SECONDS

BUILDER = """
class OpBuilder:
    def __init__(self, name): self.name = name
    def load(self, verbose=True): return "genuine " + self.name
    def is_compatible(self, verbose=False): return True
"""

ASYNC_IO = """
from .builder import OpBuilder
class AsyncIOBuilder(OpBuilder):
    NAME = "async_io"
    def __init__(self): super().__init__(self.NAME)
    def load(self, verbose=False): return super().load(verbose)
    def is_compatible(self, verbose=False): return False
"""

PIN_MEMORY = """
from .builder import OpBuilder
class PinMemoryBuilder(OpBuilder):
    NAME = "pin_memory"
    def __init__(self): super().__init__(self.NAME)
"""

# As with CUDA: load() is AsyncIOBuilder's.
GDS = """
from .async_io import AsyncIOBuilder
class GDSBuilder(AsyncIOBuilder):
    NAME = "gds"
    def is_compatible(self, verbose=False): return False
"""

# As without: one class for all missing ops.
CPU = """
from ..builder import OpBuilder
from .async_io import AsyncIOBuilder
from ..pin_memory import PinMemoryBuilder
class NotImplementedBuilder(OpBuilder):
    NAME = "deepspeed_not_implemented"
    def __init__(self, name=None): super().__init__(name or self.NAME)
    def load(self, verbose=True): raise ValueError("This op had not been implemented on CPU backend.")
GDSBuilder = TransformerBuilder = NotImplementedBuilder
"""

PARTS = {
    "builder.py": BUILDER,
    "async_io.py": ASYNC_IO,
    "pin_memory.py": PIN_MEMORY,
    "gds.py": GDS,
    "cpu/async_io.py": ASYNC_IO.replace(".builder", "..builder"),
    "cpu/__init__.py": CPU,
}

TREE = {
    "deepspeed/__init__.py": "from . import swapper",
    "deepspeed/swapper.py": "from .ops.op_builder import AsyncIOBuilder, GDSBuilder, TransformerBuilder",
    "deepspeed/ops/__init__.py": """
        def __getattr__(name):
            if name != "__compatible_ops__":
                raise AttributeError(name)
            from .op_builder.all_ops import ALL_OPS
            ops = {name: op.is_compatible() for name, op in ALL_OPS.items()}
            globals()[name] = ops
            return ops
        """,
    "deepspeed/ops/op_builder/__init__.py": """
        __deepspeed__ = True
        import os
        from . import gds, pin_memory
        if os.environ.get("FAKE_ACCELERATOR") == "cuda":
            from .gds import AsyncIOBuilder, GDSBuilder
            from .pin_memory import PinMemoryBuilder
            from .cpu import TransformerBuilder
        else:
            from .cpu import AsyncIOBuilder, GDSBuilder, PinMemoryBuilder, TransformerBuilder
        """,
    "deepspeed/ops/op_builder/all_ops.py": """
        from . import AsyncIOBuilder, GDSBuilder, PinMemoryBuilder, TransformerBuilder
        ALL_OPS = {b.NAME: b() for b in (TransformerBuilder, AsyncIOBuilder, PinMemoryBuilder, GDSBuilder)}
        """,
    **{"deepspeed/ops/op_builder/" + name: text for name, text in PARTS.items()},
    "op_builder/__init__.py": "__deepspeed__ = True\nfrom . import async_io, gds, pin_memory",
    **{"op_builder/" + name: text for name, text in PARTS.items()},
}


def write_tree(folder, tree):
    for name, text in tree.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(textwrap.dedent(text))
    return folder


@pytest.fixture
def fake(tmp_path):
    """The folder of the tree."""
    return write_tree(str(tmp_path / "fake"), TREE)


@pytest.fixture
def code(python, fake):
    """Runs code that may import the tree.  A child finds the tree and the package, too."""

    def run(text, **variables):
        prelude = """
        import dsaio.deepspeed, subprocess
        def names():
            from deepspeed import swapper
            from deepspeed.ops import op_builder
            return swapper, op_builder
        before = dict(os.environ)
        """
        variables.setdefault("PYTHONPATH", PACKAGE + os.pathsep + fake)
        return python(textwrap.dedent(prelude) + textwrap.dedent(text), **variables)

    return run


def start(arguments, folder, **variables):
    environment = dict(os.environ, **variables)
    for name in [name for name, value in variables.items() if value is None]:
        del environment[name]
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )


def output_of(arguments, folder, status=0, **variables):
    process = start(arguments, folder, **variables)
    output = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == status, output
    return output


@pytest.fixture
def dsaio_run(fake, tmp_path):
    """Runs python [options] -m dsaio run ARGUMENTS in a folder of its own."""
    folder = str(tmp_path / "work")
    os.mkdir(folder)

    def run(*arguments, status=0, options=(), **variables):
        variables.setdefault("PYTHONPATH", PACKAGE + os.pathsep + fake)
        return output_of([*options, "-m", "dsaio", "run", *arguments], folder, status, **variables)

    run.folder = folder
    return run


# ---- install() ----

REPLACED = """
swapper, op_builder = names()
for builders in (swapper, op_builder, op_builder.async_io if hasattr(op_builder, "async_io") else swapper):
    assert builders.AsyncIOBuilder().load() is dsaio and builders.AsyncIOBuilder().load(verbose=False) is dsaio
    assert builders.AsyncIOBuilder().is_compatible() is True and builders.AsyncIOBuilder().is_compatible(True) is True
assert op_builder.PinMemoryBuilder().load() is dsaio and op_builder.PinMemoryBuilder().is_compatible() is True
assert swapper.GDSBuilder is op_builder.GDSBuilder and op_builder.GDSBuilder().is_compatible(False) is True
assert op_builder.GDSBuilder().load(verbose=False) is dsaio and swapper.GDSBuilder().load() is dsaio
"""


@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
@pytest.mark.parametrize("first", ["dsaio.deepspeed.install()", "names()"])
def test_the_builders_load_dsaio(code, first, accelerator):
    code(
        f"""
        {first}
        assert ("deepspeed" in sys.modules) == {first.startswith("names")}
        dsaio.deepspeed.install()
        dsaio.deepspeed.install()
        """
        + textwrap.indent(REPLACED, " " * 8)
        + """
        for name in ("aio_handle", "gds_handle", "pin_handle", "aio_read", "aio_write", "deepspeed_memcpy"):
            assert callable(getattr(op_builder.AsyncIOBuilder().load(), name))
        """,
        FAKE_ACCELERATOR=accelerator,
    )


def test_the_class_of_all_missing_ops_stays_what_it_is(code):
    code(
        """
        dsaio.deepspeed.install()
        swapper, op_builder = names()
        shared = op_builder.TransformerBuilder
        assert shared().is_compatible() is True and shared.__name__ == "NotImplementedBuilder"
        assert issubclass(op_builder.GDSBuilder, shared) and op_builder.GDSBuilder().load() is dsaio
        try:
            shared().load()
            assert False
        except ValueError as e:
            assert "CPU backend" in str(e)
        """
    )


@pytest.mark.parametrize("name", ["op_builder", "deepspeed.ops.op_builder"])
def test_both_packages_of_the_builders_are_served(code, name):
    code(
        f"""
        import importlib
        dsaio.deepspeed.install()
        builders = importlib.import_module("{name}.cpu")
        assert builders.AsyncIOBuilder.__module__ == "{name}.cpu.async_io"
        assert builders.AsyncIOBuilder().load() is dsaio and builders.PinMemoryBuilder().load() is dsaio
        """
    )


def test_another_package_called_op_builder_is_left_alone(code, tmp_path):
    own = dict(TREE, **{"op_builder/__init__.py": "from . import async_io"})
    write_tree(str(tmp_path / "other"), own)
    code(
        """
        dsaio.deepspeed.install()
        from op_builder.async_io import AsyncIOBuilder
        dsaio.deepspeed.install()
        assert AsyncIOBuilder().load() == "genuine async_io"
        """,
        PYTHONPATH=PACKAGE + os.pathsep + str(tmp_path / "other"),
    )


def test_a_library_that_is_missing_is_reported_by_load(code):
    output = code(
        """
        dsaio.deepspeed.install()
        try:
            names()[0].AsyncIOBuilder().load()
        except ImportError as e:
            print(e)
        """,
        DSAIO_LIBRARY="/none.so",
    )
    assert "/none.so" in output


def test_a_module_that_is_loaded_again_is_replaced_again(code):
    code(
        """
        import importlib, importlib.util, inspect
        from importlib.machinery import SourceFileLoader
        dsaio.deepspeed.install()
        swapper, op_builder = names()
        module = sys.modules["deepspeed.ops.op_builder.cpu.async_io"]
        old = module.AsyncIOBuilder
        importlib.reload(module)
        assert module.AsyncIOBuilder is not old
        assert old().load() is dsaio and module.AsyncIOBuilder().load() is dsaio

        assert type(module.__loader__) is SourceFileLoader and type(module.__spec__.loader) is SourceFileLoader
        assert "NAME" in inspect.getsource(module) and inspect.getsource(module.AsyncIOBuilder.__init__)

        del sys.modules[module.__name__]
        spec = importlib.util.find_spec(module.__name__)
        assert spec.loader.get_source(module.__name__)
        fresh = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(fresh)
        assert fresh.AsyncIOBuilder().load() is dsaio
        classes = [old, module.AsyncIOBuilder, fresh.AsyncIOBuilder]
        dsaio.deepspeed.uninstall()
        assert [c().load() for c in classes] == ["genuine async_io"] * 3
        """
    )


def test_a_module_that_fails_to_import_is_as_without(code, fake):
    write_tree(fake, {"deepspeed/ops/op_builder/async_io.py": "raise RuntimeError('broken')"})
    code(
        """
        dsaio.deepspeed.install()
        try:
            import deepspeed
            assert False
        except RuntimeError as e:
            assert str(e) == "broken" and "deepspeed.ops.op_builder.async_io" not in sys.modules
        """
    )


# ---- uninstall() ----


@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
@pytest.mark.parametrize("is_first", [True, False])
def test_uninstall_restores_all(code, accelerator, is_first):
    code(
        f"""
        path = list(sys.meta_path)
        def state():
            swapper, op_builder = names()
            from deepspeed.ops.op_builder.cpu import NotImplementedBuilder
            from deepspeed.ops.op_builder import gds
            named = [item for module in (swapper, op_builder, gds) for item in sorted(vars(module).items())]
            classes = [value for name, value in named if name.endswith("Builder")]
            return classes, [dict(vars(c)) for c in classes + [NotImplementedBuilder]]
        if {is_first}:
            was = state()
        dsaio.deepspeed.install()
        swapper, op_builder = names()
        assert swapper.AsyncIOBuilder().load() is dsaio
        dsaio.deepspeed.uninstall()
        dsaio.deepspeed.uninstall()
        assert swapper.AsyncIOBuilder().load() == "genuine async_io" == op_builder.AsyncIOBuilder().load()
        assert op_builder.PinMemoryBuilder().load() == "genuine pin_memory"
        assert swapper.AsyncIOBuilder().is_compatible() is False
        assert op_builder.GDSBuilder().is_compatible() is ("{accelerator}" == "cpu")
        assert swapper.GDSBuilder is op_builder.GDSBuilder
        if "{accelerator}" == "cuda":
            assert op_builder.GDSBuilder().load() == "genuine gds"
        if {is_first}:
            assert was == state()
        assert sys.meta_path == path and dict(os.environ) == before
        for given in ("/a", ":/a", "/a::/b:"):
            os.environ["PYTHONPATH"] = given
            dsaio.deepspeed.install()
            assert os.environ["PYTHONPATH"] != given
            dsaio.deepspeed.uninstall()
            assert os.environ["PYTHONPATH"] == given
        dsaio.deepspeed.install()
        assert swapper.AsyncIOBuilder().load() is dsaio
        """,
        FAKE_ACCELERATOR=accelerator,
    )


@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
def test_compatible_ops_are_corrected_in_both_directions(code, accelerator):
    code(
        f"""
        has_gds = "{accelerator}" == "cuda"
        from deepspeed import ops
        genuine = dict(async_io=False, pin_memory=True, deepspeed_not_implemented=True)
        genuine.update(dict(gds=False) if has_gds else {{}})
        ours = dict(genuine, async_io=True)
        ours.update(dict(gds=True) if has_gds else {{}})

        dsaio.deepspeed.install()
        assert "__compatible_ops__" not in vars(ops)
        dsaio.deepspeed.uninstall()
        first = ops.__compatible_ops__              # made before install()
        first["deepspeed_not_implemented"] = True
        assert first == genuine, first
        dsaio.deepspeed.install()
        dsaio.deepspeed.install()
        assert first == ours and ops.__compatible_ops__ is first
        dsaio.deepspeed.uninstall()
        assert first == genuine

        del ops.__compatible_ops__
        dsaio.deepspeed.install()
        second = ops.__compatible_ops__             # made after it
        second["deepspeed_not_implemented"] = True
        dsaio.deepspeed.install()
        assert second == ours
        dsaio.deepspeed.uninstall()
        assert second == genuine, second
        """,
        FAKE_ACCELERATOR=accelerator,
    )


# ---- children ----

CHILD = "from deepspeed.swapper import AsyncIOBuilder as B; print(getattr(B().load(), '__name__', B().load()))"


def test_children_are_reached_until_uninstall(code, fake):
    output = code(
        f"""
        CHILD = {CHILD!r}
        def ask(**variables):
            sys.stdout.flush()
            subprocess.run([sys.executable, "-c", CHILD], check=True, env=dict(os.environ, **variables))
        dsaio.deepspeed.install()
        ask()
        ask(DSAIO_DEEPSPEED="0")
        # A program may have found the package, too, in a folder that its children do not know.
        ask(PYTHONPATH=os.environ["PYTHONPATH"].replace(":" + {PACKAGE!r} + ":", ":"))
        dsaio.deepspeed.uninstall()
        ask()
        """
    )
    assert output.split("\n") == ["dsaio", "genuine async_io", "dsaio", "genuine async_io", ""]


def test_children_of_multiprocessing_are_reached(dsaio_run):
    write_tree(
        dsaio_run.folder,
        {
            "script.py": """
            import multiprocessing
            def work(queue):
                from deepspeed.swapper import AsyncIOBuilder
                queue.put(AsyncIOBuilder().load().__name__)
            if __name__ == "__main__":
                for method in ("fork", "spawn", "forkserver"):
                    context = multiprocessing.get_context(method)
                    queue = context.SimpleQueue()
                    child = context.Process(target=work, args=(queue,))
                    child.start()
                    print(queue.get())
                    child.join()
            """
        },
    )
    assert dsaio_run("script.py") == "dsaio\n" * 3


def test_the_user_s_sitecustomize_runs(dsaio_run, tmp_path):
    write_tree(
        str(tmp_path / "site"),
        {"sitecustomize.py": "import os, sys; sys.user_path = list(sys.path); sys.user_file = __file__"},
    )
    shown = "import sys; print(sys.user_file, sys.user_path == sys.path[1:], sys.modules['sitecustomize'].__file__)"
    environment = PACKAGE + os.pathsep + str(tmp_path / "site")
    own = str(tmp_path / "site" / "sitecustomize.py")
    assert dsaio_run("-c", shown, PYTHONPATH=environment) == f"{own} True {own}\n"


@pytest.mark.parametrize("given", ["PACKAGE", "PACKAGE:/b", ":PACKAGE:/b", "/a::PACKAGE:"])
def test_the_path_is_that_of_a_python_without_us(dsaio_run, given):
    given = given.replace("PACKAGE", PACKAGE)
    text = "import sys; print(sys.path)"
    assert dsaio_run("-c", text, PYTHONPATH=given) == output_of(["-c", text], dsaio_run.folder, PYTHONPATH=given)


def test_an_error_in_the_user_s_sitecustomize_is_reported_as_without_us(dsaio_run, tmp_path):
    write_tree(str(tmp_path / "site"), {"sitecustomize.py": "raise ValueError('mine')"})
    output = dsaio_run("-c", "print('goes on')", PYTHONPATH=PACKAGE + os.pathsep + str(tmp_path / "site"))
    assert "ValueError: mine" in output and output.endswith("goes on\n")


# ---- the wheel's dsaio.pth ----


@pytest.fixture
def installed(tmp_path):
    """A virtual environment with the package and dsaio.pth, as the wheel installs them.  Returns its Python."""
    folder = str(tmp_path / "venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    version = "python%d.%d" % sys.version_info[:2]
    packages = os.path.join(folder, "lib", version, "site-packages")
    os.symlink(os.path.join(PACKAGE, "dsaio"), os.path.join(packages, "dsaio"))
    os.symlink(os.path.join(ROOT, "client", "python", "dsaio.pth"), os.path.join(packages, "dsaio.pth"))
    return os.path.join(folder, "bin", "python")


def test_the_pth_file_installs_where_the_variable_says_so(installed, fake):
    def ask(text, *options, **variables):
        environment = dict(os.environ, PYTHONPATH=fake, **variables)
        command = [installed, *options, "-c", text]
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout.decode()

    assert ask(CHILD) == ask(CHILD, DSAIO_DEEPSPEED="0") == "genuine async_io\n"
    assert ask(CHILD, DSAIO_DEEPSPEED="1") == "dsaio\n"
    assert ask("import os; print(os.environ['PYTHONPATH'])", DSAIO_DEEPSPEED="1") == fake + "\n"
    in_child = f"""
import os, subprocess, sys, dsaio.deepspeed
dsaio.deepspeed.install()
assert os.environ["PYTHONPATH"] == {fake!r}
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
"""
    assert ask(in_child) == "dsaio\n"
    is_there = "import dsaio.deepspeed as d, sys; print(d._finder in sys.meta_path)"
    command = [installed, "-E", "-m", "dsaio", "run", "-c", is_there]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout == b"True\n"


@pytest.mark.parametrize("value", ["no", "yes", "00", "1 "])
def test_another_value_of_the_variable_is_ignored_with_one_line(installed, dsaio_run, fake, value):
    warning = f"dsaio: DSAIO_DEEPSPEED={value} is ignored: 1 makes DeepSpeed use dsaio, and 0 does not\n"
    for path in (fake, os.path.join(PACKAGE, "dsaio", "_site") + os.pathsep + fake):
        python = installed if path == fake else sys.executable
        environment = dict(os.environ, PYTHONPATH=path, DSAIO_DEEPSPEED=value)
        done = subprocess.run([python, "-c", CHILD], env=environment, capture_output=True, check=True, text=True)
        assert (done.stdout, done.stderr) == ("genuine async_io\n", warning)


def test_the_pth_file_costs_nothing_where_it_is_not_used(installed):
    text = f"""
import os, sys, time
assert not any(name.startswith("dsaio") for name in sys.modules)
line = open({os.path.join(ROOT, "client", "python", "dsaio.pth")!r}).read()
def seconds():
    began = time.perf_counter()
    exec(line)
    return time.perf_counter() - began
assert min(seconds() for _ in range(100)) < 1e-3
assert not any(name.startswith("dsaio") for name in sys.modules)
"""
    subprocess.run([installed, "-c", text], check=True)


# ---- python -m dsaio run ----

SHOW = """
import os, sys
print(sys.argv, sys.path[0], __name__, globals().get("__file__"), __spec__ and __spec__.name, __package__)
print(vars(sys.modules["__main__"]) is globals(), sys.flags.optimize, sys.stdout.write_through, sys.warnoptions)
print("deepspeed" in sys.modules, sorted(sys._xoptions), sys.stdin.read())
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["script.py", "a", "-b", "--", "run"],
        ["-m", "package.part", "x"],
        ["-m", "package"],
        ["folder", "y"],
        ["-c", SHOW, "z"],
    ],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize("options", [[], ["-u", "-O", "-X", "dev"], ["-uW", "ignore"]], ids="".join)
def test_run_is_as_python_itself(dsaio_run, fake, arguments, options):
    write_tree(
        dsaio_run.folder,
        {
            "script.py": SHOW,
            "package/__init__.py": "",
            "package/part.py": SHOW,
            "package/__main__.py": SHOW,
            "folder/__main__.py": SHOW,
        },
    )
    expected = output_of(
        [*options, *arguments], dsaio_run.folder, PYTHONPATH=PACKAGE + os.pathsep + fake, PYTHONDONTWRITEBYTECODE="1"
    )
    assert dsaio_run(*arguments, options=options, PYTHONDONTWRITEBYTECODE="1") == expected


def test_run_takes_options_that_are_joined_to_m(dsaio_run, fake):
    text = "import sys; print(sys.stdout.write_through, sys.argv)"
    for options in (["-um", "dsaio"], ["-umdsaio"], ["-u", "-mdsaio"]):
        output = output_of([*options, "run", "-c", text, "dsaio"], dsaio_run.folder, PYTHONPATH=PACKAGE)
        assert output == "True ['-c', 'dsaio']\n"


def test_run_serves_the_program(dsaio_run):
    write_tree(dsaio_run.folder, {"script.py": CHILD})
    assert dsaio_run("script.py") == "dsaio\n"


@pytest.mark.parametrize("end, status", [("sys.exit(7)", 7), ("os._exit(3)", 3), ("os.abort()", -6), ("1 / 0", 1)])
def test_run_ends_as_the_program_does(dsaio_run, end, status):
    output = dsaio_run("-c", f"import os, sys; {end}", status=status)
    assert "runpy" not in output and "dsaio" not in output


def test_ctrl_c_reaches_the_program(dsaio_run, fake):
    text = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
signal.pause()
"""
    process = start(["-m", "dsaio", "run", "-c", text], dsaio_run.folder, PYTHONPATH=PACKAGE)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in output and "dsaio" not in output


def test_run_without_a_program_shows_its_usage(dsaio_run):
    assert "usage: python -m dsaio run" in dsaio_run(status=2)
    assert "usage:" in output_of(["-m", "dsaio"], dsaio_run.folder, 2, PYTHONPATH=PACKAGE)
    assert "usage:" in output_of(["-m", "dsaio", "--help"], dsaio_run.folder, PYTHONPATH=PACKAGE)
    assert "usage: python -m dsaio run" in dsaio_run("--help") and "usage: python -m dsaio run" in dsaio_run("-h")
    assert "none.py" in dsaio_run("none.py", status=2)


def test_run_says_so_where_python_would_not_look_at_the_variable(dsaio_run):
    begin = f"""
import runpy, sys
sys.path.insert(0, {PACKAGE!r})
sys.argv[1:] = ["run", "x.py"]
runpy.run_module("dsaio")
"""
    for option, cause in (("-S", "option -S"), ("-E", "-E and -I"), ("-I", "-E and -I")):
        assert cause in output_of([option, "-c", begin], dsaio_run.folder, 1)
