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
"""What can go wrong between the robot and an engine; each is one clear line."""

from __future__ import annotations


class EngineError(RuntimeError):
    """An engine did not give what was asked."""


class EngineUnreachableError(EngineError):
    """No connection, or it broke."""


class EngineDeadlineError(EngineError):
    """No whole reply by the deadline; the request was cancelled."""


class EngineRefusedError(EngineError):
    """The engine answered with an error status.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        """Keep the status beside the message."""
        super().__init__(message)
        self.status = status


class EngineBusyError(EngineRefusedError):
    """The engine is loading or its queue is full; it may answer later."""


class EngineAuthError(EngineRefusedError):
    """The API key is missing or wrong."""


class PromptTooLongError(EngineRefusedError):
    """The prompt exceeds the engine's usable limit."""


class EngineProtocolError(EngineError):
    """The reply is not what vLLM's interface promises."""


class EngineMismatchError(EngineError):
    """The engine works, but not for this policy: other tokenizer, no label scores, no room."""
