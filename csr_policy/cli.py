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
"""csr-policy: the command line. Thin; every command calls one function of the package."""

from __future__ import annotations

import json
import logging
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from csr_policy import __version__
from csr_policy.capacity.cli import capacity_app
from csr_policy.parameters import (
    Parameter,
    SettingsError,
    flat_parameters,
    load_parameter_file,
    observation_table,
    parameter_table,
    settings_from_parameters,
)

app = typer.Typer(
    help="A large language model as the continuously running policy of a robot.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
engines_app = typer.Typer(help="The embedded pair of vLLM servers.", no_args_is_help=True)
bench_app = typer.Typer(help="Measurements on real engines.", no_args_is_help=True)
app.add_typer(engines_app, name="engines")
app.add_typer(bench_app, name="bench")
app.add_typer(capacity_app, name="capacity")

Engines = Annotated[
    list[str] | None,
    typer.Option("--engine", help="Base URL of an engine, once or twice; else an own pair."),
]
TokenizerFolder = Annotated[
    Path | None, typer.Option("--tokenizer", help="Model folder of the named engines.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")]
ModelFolder = Annotated[
    Path | None, typer.Option("--model", help="Model folder; else the demo model.")
]
Length = Annotated[int, typer.Option(min=0, help="Longest prompt plus reply; 0: the model's.")]
Ports = Annotated[list[int] | None, typer.Option("--port", help="Port of a server, twice.")]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    """Set up logging for every command."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def demo(
    bag: Annotated[Path | None, typer.Option(help="Play this rosbag2 instead.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("demo_output"),
) -> None:
    """Start two vLLM servers, the node and a robot, and watch it decide."""
    from csr_policy.demo.run import run_demo

    raise typer.Exit(run_demo(output, bag))


@app.command()
def replay(
    bag: Annotated[Path, typer.Argument(help="rosbag2 folder or file.")],
    params: Annotated[Path | None, typer.Option(help="ROS 2 parameter file.")] = None,
    offline: Annotated[bool, typer.Option(help="Lock-step on bag time, without ROS.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("replay_output"),
    rate: Annotated[float | None, typer.Option(help="Live: speed of the bag.")] = None,
    engine: Engines = None,
    tokenizer: TokenizerFolder = None,
    max_decisions: Annotated[int, typer.Option(min=0, help="Offline: stop after.")] = 0,
) -> None:
    """Decide on a recording: live through topics, or offline in lock-step."""
    if offline:
        from csr_policy.evaluation.replay_command import ReplayRequest, replay_offline

        request = ReplayRequest(bag, params, output, tuple(engine or ()), tokenizer, max_decisions)
        summary = replay_offline(request, _say, _ProgressBar)
        _say(
            f"{summary['decisions']} decisions, {summary['outcomes']}, {summary['swaps']} swaps; "
            f"see {output / 'decisions.csv'} and {output / 'summary.json'}"
        )
        return
    if engine or tokenizer or max_decisions:
        raise typer.BadParameter("--engine, --tokenizer, --max-decisions go with --offline")
    from csr_policy.demo.run import run_replay_live

    raise typer.Exit(run_replay_live(bag, params, output, rate=rate))


@bench_app.command("prefix")
def bench_prefix(
    decisions: Annotated[int, typer.Option(min=1)] = 100,
    chunk_tokens: Annotated[int, typer.Option(min=1, max=500)] = 100,
    tau_mem: Annotated[int, typer.Option(min=1500, help="tau_mem in tokens.")] = 3000,
    rate: Annotated[float, typer.Option(min=0.05, max=50, help="Decisions a second.")] = 4.0,
    seed: Annotated[int, typer.Option(help="Of the chunks' text.")] = 1,
    engine: Engines = None,
    tokenizer: TokenizerFolder = None,
    json_file: JsonFile = None,
) -> None:
    """Hold the engines' cached tokens against what the design says must be cached."""
    from csr_policy.evaluation.prefix import run_prefix_bench
    from csr_policy.serving.access import engine_access
    from csr_policy.serving.models import tiny_model

    with engine_access(
        engine or (), tokenizer, tiny_model(progress=_say), _say, max_model_len=4 * tau_mem
    ) as access:
        settings = settings_from_parameters(
            {
                "engines": list(access.urls),
                "tokenizer": str(access.model_folder),
                "engine.cache_salt": uuid.uuid4().hex,
                "reconciliation.tau_mem_tokens": tau_mem,
                "decision.rate_hz": rate,
            }
        )
        with _ProgressBar(decisions, "decisions") as advance:
            report = run_prefix_bench(
                settings,
                decisions=decisions,
                chunk_tokens=chunk_tokens,
                seed=seed,
                progress=lambda made, swaps: advance(made),
            )
    _write_json(json_file, report.as_json())
    _say(
        f"{report.decisions} decisions, {report.swaps} swaps, {report.violations} violations "
        f"(block {report.block_tokens} tokens, N_catchup {report.n_catchup_tokens})"
    )
    if report.violations:
        raise typer.Exit(1)


@engines_app.command("start")
def engines_start(
    model: ModelFolder = None, max_model_len: Length = 0, port: Ports = None
) -> None:
    """Start the pair in the background and wait until both are primed."""
    from csr_policy.serving import embedded

    pair = embedded.start(
        embedded.EmbeddedOptions(model, max_model_len, ports=tuple(port or ())), _say
    )
    _say(f"engines: {' '.join(pair.urls)}; tokenizer: {pair.model_folder}")
    _say(f"engine.api_key_file: {pair.api_key_file}")


@engines_app.command("run")
def engines_run(model: ModelFolder = None, max_model_len: Length = 0, port: Ports = None) -> None:
    """Run the pair in the foreground until Ctrl-C."""
    from csr_policy.serving import embedded

    embedded.run(embedded.EmbeddedOptions(model, max_model_len, ports=tuple(port or ())), _say)


@engines_app.command("status")
def engines_status() -> None:
    """Show the pair that was started in the background; exit status 1 where there is none."""
    from csr_policy.serving import embedded

    pair = embedded.status()
    if pair is None or not pair.running:
        _say("no embedded engines are running")
        raise typer.Exit(1)
    for server in pair.engines:
        state = "healthy" if server.healthy else "not answering"
        _say(f"{server.name} {server.url} {state}, log {server.log_path}")
    _say(f"tokenizer: {pair.model_folder}, engine.api_key_file: {pair.api_key_file}")


@engines_app.command("prime")
def engines_prime() -> None:
    """Ask each server one decision twice; the second must come from the cache."""
    from csr_policy.serving import embedded

    for priming in embedded.prime_pair():
        _say(str(priming))


@engines_app.command("stop")
def engines_stop() -> None:
    """Stop the pair and all of its processes."""
    from csr_policy.serving import embedded

    _say("stopped" if embedded.stop() else "no embedded engines were running")


@app.command("parameters")
def parameters(
    markdown: Annotated[bool, typer.Option(help="As a Markdown table.")] = False,
) -> None:
    """Print every parameter with its type, default, range and meaning."""
    rows = [(row.name, row) for row in parameter_table()]
    rows += [(f"observations.<name>.{row.name}", row) for row in observation_table()]
    cells = [
        (name, row.type, _default(row), row.range_text, row.description) for name, row in rows
    ]
    if markdown:
        print("| parameter | type | default | range | meaning |\n|---|---|---|---|---|")
        for line in cells:
            print("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |")
        return
    table = Table("parameter", "type", "default", "range", "meaning")
    for line in cells:
        table.add_row(*line)
    Console().print(table)


@app.command("check")
def check(params: Annotated[Path, typer.Argument(help="ROS 2 parameter file.")]) -> None:
    """Validate a parameter file; prints it back, complete."""
    settings = settings_from_parameters(load_parameter_file(params))
    for name, value in flat_parameters(settings).items():
        print(f"{name}: {json.dumps(value, ensure_ascii=False)}")


def main() -> int:
    """Run the command line; what goes wrong is one line on standard error."""
    from csr_policy.evaluation.offline import ReplayError
    from csr_policy.evaluation.prefix import BenchError
    from csr_policy.observation.bags import BagError
    from csr_policy.observation.templates import TemplateError
    from csr_policy.policy import PolicyError
    from csr_policy.serving.command import ServerError
    from csr_policy.serving.models import ModelError

    faults = (
        BagError,
        BenchError,
        ModelError,
        PolicyError,
        ReplayError,
        ServerError,
        SettingsError,
        TemplateError,
    )
    try:
        app()
    except faults as error:
        print(f"csr-policy: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


class _ProgressBar:
    """A progress bar with the time left; plain silence where there is no terminal."""

    def __init__(self, total: int, what: str) -> None:
        self._bar = Progress(
            TextColumn(what),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(what, total=total)

    def __enter__(self) -> Callable[[float], None]:
        self._bar.start()
        return lambda done: self._bar.update(self._task, completed=done)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _say(line: str) -> None:
    print(line, flush=True)


def _default(row: Parameter) -> str:
    return "required" if row.default is None else json.dumps(row.default, ensure_ascii=False)


def _write_json(path: Path | None, document: dict[str, Any]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
