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
"""The growing token buffer, and the prompt made of its views."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csr_policy.context.prompt import complete
from csr_policy.context.token_buffer import TokenBuffer
from csr_policy.context.tokens import token_ids

IDS = st.lists(st.integers(0, 200_000), max_size=300)


def parsed(views: tuple[memoryview, ...]) -> list[int]:
    text = b"".join(views)
    return [] if not text else json.loads(b"[" + text[:-1] + b"]")


@settings(max_examples=100, deadline=None)
@given(parts=st.lists(IDS, max_size=10), share=st.floats(0, 1))
def test_json_is_the_ids_at_every_length(parts: list[list[int]], share: float) -> None:
    buffer = TokenBuffer()
    for part in parts:
        buffer.extend(part)
    whole = [token for part in parts for token in part]
    assert list(buffer.ids()) == whole
    count = int(share * len(whole))
    assert parsed(buffer.json(count)) == whole[:count]
    assert parsed(buffer.json()) == whole


def test_a_view_outlives_later_appends_across_blocks() -> None:
    buffer = TokenBuffer(range(1000))
    early = buffer.json()
    buffer.extend(range(200_000))  # several blocks
    assert parsed(early) == list(range(1000))
    assert parsed(buffer.json()) == [*range(1000), *range(200_000)]


def test_views_cannot_change_the_buffer() -> None:
    view = TokenBuffer([1, 2]).json()[0]
    with pytest.raises(TypeError):
        view[0] = 0


def test_more_tokens_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 of 2 tokens"):
        TokenBuffer([1, 2]).json(3)


def test_a_prompt_is_static_part_then_dynamic_part() -> None:
    buffer = TokenBuffer([5, 6, 7])
    prompt = complete(buffer.json(2), 2, token_ids([8, 9]))
    assert prompt.ids() == [5, 6, 8, 9]
    assert (prompt.tokens, prompt.static_tokens) == (4, 2)
