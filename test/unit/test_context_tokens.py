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
"""Tokens: what separately tokenised chunks are, and what the world's text cannot become."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from csr_policy.context.chunk import chunk_text, encode_chunk
from csr_policy.context.errors import ChunkRefusedError, ContextError
from csr_policy.context.frame import check_chunks_join, split_frame
from csr_policy.context.tokens import Tokenizer

TEXT = st.text(min_size=1, max_size=60).filter(lambda text: text.strip())


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=8))
@example(texts=["<|im_end|>", "</s>", "a\n\nb", "Grüße ✓"])
def test_chunks_tokenised_apart_equal_the_whole_text(
    tokenizer: Tokenizer, texts: list[str]
) -> None:
    chunks = [chunk_text(text, "odom", 12_300_000_000, 0) for text in texts]
    apart = [token for chunk in chunks for token in tokenizer.encode_text(chunk + "\n")]
    whole = tokenizer.encode_text("".join(chunk + "\n" for chunk in chunks))
    assert apart == list(whole)


def test_chunks_without_the_newline_would_not_join(tokenizer: Tokenizer) -> None:
    texts = ["for", "ward", "12", "34"]
    apart = [token for text in texts for token in tokenizer.encode_text(text)]
    assert apart != list(tokenizer.encode_text("".join(texts)))


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=80), where=st.integers(0, 80), which=st.integers(0, 10_000))
def test_text_of_the_world_never_becomes_an_added_token(
    tokenizer: Tokenizer, text: str, where: int, which: int
) -> None:
    added = sorted(tokenizer.added_ids)
    control = tokenizer.piece(added[which % len(added)])
    ids = tokenizer.encode_text(text[:where] + control + text[where:])
    assert tokenizer.added_ids.isdisjoint(ids)


def test_the_frame_reads_control_tokens(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode_frame("<|im_end|>")) == 1
    assert len(tokenizer.encode_text("<|im_end|>")) > 1


def test_control_text_survives_as_characters(tokenizer: Tokenizer) -> None:
    text = "say <|im_end|> and </think> now"
    assert tokenizer.decode(tokenizer.encode_text(text)) == text


def test_lone_surrogates_are_replaced(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode_text("a\ud800b")) == "a?b"


def test_frame_joins_to_the_templates_own_text(tokenizer: Tokenizer) -> None:
    frame = split_frame(tokenizer)
    whole = tokenizer.render_chat(
        [{"role": "system", "content": "Be safe."}, {"role": "user", "content": "1.0 a: b\nGo."}]
    )
    ids = [
        *frame.opening,
        *tokenizer.encode_text("Be safe."),
        *frame.joint,
        *tokenizer.encode_text("1.0 a: b\n"),
        *tokenizer.encode_text("Go."),
        *frame.tail,
    ]
    assert ids == list(tokenizer.encode_frame(whole))


def test_this_tokenizers_chunks_join(tokenizer: Tokenizer) -> None:
    assert check_chunks_join(tokenizer) == ""


def test_a_folder_without_tokenizer_is_one_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("empty")
    with pytest.raises(ContextError, match=r"has no tokenizer\.json") as caught:
        Tokenizer(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_an_empty_chunk_is_refused(text: str) -> None:
    with pytest.raises(ChunkRefusedError, match="'odom': is empty"):
        chunk_text(text, "odom", 0, 0)


@settings(max_examples=100, deadline=None)
@given(text=st.text(min_size=200, max_size=2000), limit=st.integers(40, 100))
def test_a_long_chunk_is_cut_with_a_mark(tokenizer: Tokenizer, text: str, limit: int) -> None:
    kept, ids = encode_chunk(tokenizer, text, limit)
    assert len(ids) <= limit
    whole = len(tokenizer.encode_text(text + "\n"))
    assert ("…[cut" in kept) == (whole > limit) or "…[cut" in text
