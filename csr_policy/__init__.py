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
"""A robot policy from a language model: state in a hot prefix cache, one token a decision.

The generated `csr_policy.msg` and `csr_policy.srv` live beside these modules in the installed
package only. Where Python finds the source folder first (it was started in the repository's
root), the installed folder is searched as well, so that both are one package.
"""

from pkgutil import extend_path

__version__ = "0.1.0"

__path__ = extend_path(__path__, __name__)
