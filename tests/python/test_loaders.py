"""dsaio.safetensors.install(): who loads a file with safetensors loads it through the daemon.

The first tests have a package safetensors of a few lines.  Those with the genuine safetensors, transformers,
accelerate and vLLM run where these are installed: make check-loaders.
"""

import os
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import PACKAGE
from dsaio.safetensors import save_file

SAFETENSORS = """
class SafetensorError(Exception): pass
class safe_open:
    def __init__(self, filename, framework, device="cpu"):
        self.what = f"genuine {framework}"
    def __enter__(self): return self
    def __exit__(self, *exception): pass
    def offset_keys(self): return ["a"]
    def get_tensor(self, name): return self.what
"""
NUMPY = """
from safetensors import safe_open
def load_file(filename):
    with safe_open(filename, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.offset_keys()}
"""
MODEL = "from safetensors import safe_open as opened\nfrom safetensors.numpy import load_file as safe_load_file\n"


@pytest.fixture
def fake(tmp_path):
    """A folder with packages safetensors and model, which loads with it."""
    os.mkdir(tmp_path / "safetensors")
    for name, text in (("safetensors/__init__.py", SAFETENSORS), ("safetensors/numpy.py", NUMPY), ("model.py", MODEL)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    return str(tmp_path)


@pytest.fixture
def file(path):
    numpy = pytest.importorskip("numpy")
    save_file({"a": numpy.arange(5)}, path)
    return path


SHOW = """
import sys
def show(path):
    import model
    return str(model.safe_load_file(path)["a"]), str(model.opened(path, "np").get_tensor("a"))
GENUINE, OURS = ("genuine np",) * 2, ("[0 1 2 3 4]",) * 2
"""


def test_it_is_installed_before_and_after_others_have_imported_theirs(python, fake, file):
    for first in ("", "import model"):
        python(
            f"""
            sys.path.insert(0, {fake!r})
            {first or "pass"}
            {textwrap.indent(SHOW, " " * 12).strip()}
            import safetensors as genuine
            before = genuine.safe_open if {bool(first)} else None
            if not {bool(first)}:
                del sys.modules["safetensors"]
            import dsaio.safetensors as ours
            path, found = {file!r}, list(sys.meta_path)
            environment = dict(os.environ)
            ours.install()
            ours.install()
            assert show(path) == OURS, show(path)
            try:
                import model
                model.opened(path, "mlx")
            except ValueError as e:
                assert "'mlx'" in str(e), e
            else:
                raise AssertionError("mlx")
            ours.uninstall()
            ours.uninstall()
            assert show(path) == GENUINE, show(path)
            assert sys.meta_path == found and dict(os.environ) == environment
            assert ours.safe_open is not genuine.safe_open
            mine = ours.safe_open
            ours.install()
            ours.uninstall()
            assert mine is ours.safe_open
            """
        )


CHILD = SHOW + "print(show(sys.argv[1])[0], show(sys.argv[1])[1])"
LOADED = b"[0 1 2 3 4] [0 1 2 3 4]\n"


def test_children_are_reached(fake, file, tmp_path):
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    parent = tmp_path / "parent.py"
    run_script = f"subprocess.run([sys.executable, {str(script)!r}, sys.argv[1]], check=True)"
    parent.write_text(f"import subprocess, sys; {run_script}")
    environment = dict(os.environ, PYTHONPATH=PACKAGE + os.pathsep + fake)

    def run(*arguments, **variables):
        command = [sys.executable, *arguments, file]
        return subprocess.run(command, env=dict(environment, **variables), stdout=subprocess.PIPE, check=True).stdout

    genuine = b"genuine np genuine np\n"
    assert run(str(parent)) == genuine
    for program in (script, parent):
        assert run("-m", "dsaio", "run", str(program)) == LOADED
        assert run("-m", "dsaio", "run", str(program), DSAIO_SAFETENSORS="0") == genuine
    text = "import dsaio.safetensors as s; s.install(); import runpy, sys; runpy.run_path(%r, run_name='__main__')"
    assert run("-c", text % str(parent)) == LOADED


@pytest.mark.parametrize("first", ["dsaio.safetensors", "safetensors"])
def test_a_child_that_imports_ours_first(fake, file, first):
    text = f"import {first}, safetensors; print(safetensors.safe_open(sys.argv[1], 'np').get_tensor('a'))"
    environment = dict(os.environ, PYTHONPATH=PACKAGE + os.pathsep + fake)
    command = [sys.executable, "-m", "dsaio", "run", "-c", "import sys; " + text, file]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"[0 1 2 3 4]\n"


# ---- the genuine libraries ----


@pytest.fixture
def genuine(python, folder):
    pytest.importorskip("transformers", reason="transformers is not installed: make check-loaders")
    return python


CHECKPOINT = """
import torch, time, warnings
import dsaio.safetensors as ours
if {first}:
    ours.install()
import transformers
from transformers import LlamaConfig, LlamaForCausalLM
opened = []
real = ours._Source.__init__
def count(self, path):
    opened.append(os.path.basename(str(path)))
    real(self, path)
ours._Source.__init__ = count
torch.manual_seed(1)
config = LlamaConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=8,
                     num_key_value_heads=8, vocab_size=32000)
model = LlamaForCausalLM(config)
wanted = {{name: tensor.clone() for name, tensor in model.state_dict().items()}}
model.save_pretrained(folder + "/m", max_shard_size={shard!r})
time.sleep(2.1)
if not {first}:
    ours.install()
del opened[:]
"""


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("shard", ["4GB", "100MB"])
def test_from_pretrained(genuine, first, shard):
    genuine(
        CHECKPOINT.format(first=first, shard=shard)
        + """
loaded = LlamaForCausalLM.from_pretrained(folder + "/m")
files = sorted(name for name in os.listdir(folder + "/m") if name.endswith(".safetensors"))
assert sorted(set(opened)) == files, (opened, files)
assert (len(files) == 1) == ("%s" == "4GB"), files
for name, tensor in loaded.state_dict().items():
    assert torch.equal(tensor, wanted[name]), name
with torch.no_grad():
    loaded.lm_head.weight.zero_()  # in place: it is this process's own
again = LlamaForCausalLM.from_pretrained(folder + "/m")
assert torch.equal(again.lm_head.weight, wanted["lm_head.weight"])
"""
        % shard
    )


def test_accelerate(genuine):
    pytest.importorskip("accelerate", reason="accelerate is not installed: make check-loaders")
    genuine(
        CHECKPOINT.format(first=False, shard="100MB")
        + """
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
from accelerate.utils.modeling import load_state_dict
import accelerate.utils.modeling as modeling
assert issubclass(modeling.safe_open, ours.safe_open)
with init_empty_weights():
    empty = LlamaForCausalLM(config)
loaded = load_checkpoint_and_dispatch(empty, folder + "/m", device_map={"": "cpu"})
for name, tensor in loaded.state_dict().items():
    assert torch.equal(tensor, wanted[name]), name
assert len(set(opened)) == 2, opened
"""
    )


def test_vllm(python, folder):
    pytest.importorskip("vllm", reason="vllm is not installed: make check-loaders LOADERS_PACKAGES='vllm pytest'")
    python(
        """
        import time, torch
        from types import SimpleNamespace
        from vllm.config.load import LoadConfig
        from vllm.model_executor.model_loader import get_model_loader, weight_utils
        import dsaio.safetensors as ours, dsaio.vllm
        wanted = {f"layer.{i}": torch.full((1 << 20,), i) for i in range(4)}
        for shard in range(2):
            part = {name: tensor for name, tensor in wanted.items() if int(name[-1]) // 2 == shard}
            ours.save_file(part, f"{folder}/model-0000{shard + 1}-of-00002.safetensors")
        dsaio.vllm.register()
        opened = []
        real = ours._Source.__init__
        def count(self, path):
            opened.append(os.path.basename(path))
            real(self, path)
        ours._Source.__init__ = count
        genuine = weight_utils.safe_open
        loader = get_model_loader(LoadConfig(load_format="dsaio"))
        config = SimpleNamespace(model=folder, revision=None)
        found = dict(loader.get_all_weights(config, torch.nn.Module()))
        assert sorted(found) == sorted(wanted) and len(opened) == 2, (found, opened)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
        assert weight_utils.safe_open is genuine
        for options in (dict(safetensors_load_strategy="eager"),
                        dict(model_loader_extra_config={"enable_multithread_load": True})):
            try:
                get_model_loader(LoadConfig(load_format="dsaio", **options))
            except ValueError as e:
                assert "load format dsaio: leave out" in str(e), e
            else:
                raise AssertionError(options)
        """
    )
