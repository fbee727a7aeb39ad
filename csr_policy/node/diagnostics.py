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
"""`/diagnostics`: the status as ROS's own tools read it. Pure."""

from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from csr_policy.msg import EngineStatus, PolicyStatus

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


def diagnostics_message(status: PolicyStatus, node_name: str) -> DiagnosticArray:
    """Diagnostics of one node from its status.

    Args:
        status: A status with its stamp.
        node_name: Fully qualified, so that several robots are told apart.
    """
    message = DiagnosticArray(header=status.header)
    message.status = [
        _policy(status, node_name),
        *(_engine(engine, node_name) for engine in status.engines),
        _ingest(status, node_name),
    ]
    return message


def _policy(status: PolicyStatus, node_name: str) -> DiagnosticStatus:
    if status.dead_thread:
        level, summary = ERROR, f"thread {status.dead_thread} died"
    elif not status.ready:
        level, summary = ERROR, "not ready: " + (status.degraded or "engines are being primed")
    elif status.degraded:
        level, summary = WARN, status.degraded
    elif status.paused:
        level, summary = WARN, "paused"
    else:
        level, summary = OK, "deciding"
    values = {
        "phase": status.phase,
        "version": status.version,
        "static tokens": status.static_tokens,
        "tau_mem tokens": status.tau_mem_tokens,
        "swaps": status.swaps,
        "in-place evictions": status.in_place_evictions,
        "cache losses": status.cache_losses,
        "ticks started": status.ticks_started,
        "ticks skipped": status.ticks_skipped,
        "ttft median s": f"{status.ttft_median_s:.4f}",
        "ttft p99 s": f"{status.ttft_p99_s:.4f}",
        "cached share": f"{status.cached_share:.4f}",
        "last error": status.last_error,
    }
    outcomes = zip(status.outcome_names, status.outcome_counts, strict=True)
    values.update({f"outcome {name}": count for name, count in outcomes})
    return _status(level, f"{node_name}: policy", summary, values)


def _engine(engine: EngineStatus, node_name: str) -> DiagnosticStatus:
    if engine.ready:
        level, summary = OK, f"ready as {engine.role}"
    else:
        # The robot decides without its secondary until the next eviction.
        level = ERROR if engine.role == "primary" else WARN
        summary = engine.error or "not primed"
    values = {
        "role": engine.role,
        "version": engine.version,
        "warmed tokens": engine.warmed_tokens,
        "last failure": engine.error,
    }
    name = f"{node_name}: {engine.name}"
    return _status(level, name, summary, values, hardware_id=engine.url)


def _ingest(status: PolicyStatus, node_name: str) -> DiagnosticStatus:
    silent = [source.name for source in status.observations if not source.qos]
    failed = sum(source.failed for source in status.observations)
    if status.dropped_messages:
        level, summary = WARN, f"{status.dropped_messages} messages dropped"
    elif silent:
        level, summary = WARN, "no publisher yet: " + ", ".join(silent)
    elif failed:
        level, summary = WARN, f"{failed} messages could not be used"
    else:
        level, summary = OK, "all sources are taken"
    values: dict[str, object] = {"queued": status.queued_messages}
    for source in status.observations:
        values[source.name] = (
            f"received {source.received}, taken {source.taken}, skipped {source.skipped}, "
            f"failed {source.failed}, dropped {source.dropped}"
        )
    return _status(level, f"{node_name}: ingest", summary, values)


def _status(
    level: bytes, name: str, summary: str, values: dict[str, object], hardware_id: str = ""
) -> DiagnosticStatus:
    pairs = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
    return DiagnosticStatus(
        level=level, name=name, message=summary, hardware_id=hardware_id, values=pairs
    )
