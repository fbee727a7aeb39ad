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
"""The ROS 2 node: wiring around `Policy`, and the only place that imports rclpy.

Threads of a running node, and who may call what:

* the executor's thread runs every callback; callbacks stamp, enqueue and return;
* the ingest thread formats, tokenises and appends (`ingest_thread`);
* the decision thread starts the ticks (`decision_loop`);
* the question threads serve `~/decide` and `~/ask` (`questions`);
* the signal thread waits for SIGINT and SIGTERM (`signals`);
* the threads inside `Policy` are its own.

Entities of ROS are created and destroyed by the executor's thread alone; any
thread may publish.
"""
