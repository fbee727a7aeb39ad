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
"""How many sessions share an engine: prediction and sizing of its prefix cache.

The theory is that of multi-turn conversations under LRU: a workload
(`workload`, `readers`, `generators`), its mean-field limit (`mean_field`), a
simulator of what the limit describes and of what vLLM does (`simulator`), and
the questions an operator has (`provisioning`, `robots`, `ttft`, `watch`).
Nothing here imports ROS or needs an engine; `validate` talks to one on request.
"""
