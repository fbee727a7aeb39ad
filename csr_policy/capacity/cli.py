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
"""csr-policy capacity: how many sessions share an engine.

`python -m csr_policy.capacity.cli` is the same as `csr-policy capacity`.
"""

from __future__ import annotations

import typer

from csr_policy.capacity.commands.estimate import estimate_command
from csr_policy.capacity.commands.fleet import fleet_command
from csr_policy.capacity.commands.plot import plot_command
from csr_policy.capacity.commands.provision import provision_command
from csr_policy.capacity.commands.simulate import simulate_command
from csr_policy.capacity.commands.validate import validate_command
from csr_policy.capacity.commands.watch import watch_command

capacity_app = typer.Typer(
    help="Predict cache hits and size KV memory for many sessions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
capacity_app.command("estimate")(estimate_command)
capacity_app.command("simulate")(simulate_command)
capacity_app.command("provision")(provision_command)
capacity_app.command("fleet")(fleet_command)
capacity_app.command("validate")(validate_command)
capacity_app.command("watch")(watch_command)
capacity_app.command("plot")(plot_command)

if __name__ == "__main__":
    capacity_app(prog_name="csr-policy capacity")
