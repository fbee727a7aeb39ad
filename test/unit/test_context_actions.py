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
"""Actions as single tokens after the frame's tail."""

from __future__ import annotations

import pytest

from csr_policy.context.actions import build_action_set
from csr_policy.context.assembler import PromptAssembler
from csr_policy.context.errors import ContextError
from csr_policy.context.frame import split_frame
from csr_policy.context.tokens import Tokenizer
from csr_policy.settings import ActionCoding, PrefixSettings, Settings

WORDS = ("forward", "left", "right")
PHRASES = ("turn left", "turn right", "forward")


def built(tokenizer: Tokenizer, actions: tuple[str, ...], coding: ActionCoding):  # type: ignore[no-untyped-def]
    return build_action_set(tokenizer, split_frame(tokenizer), actions, coding)


def test_single_tokens_stay_words(tokenizer: Tokenizer) -> None:
    actions = built(tokenizer, WORDS, ActionCoding.AUTO)
    assert actions.codes == WORDS and not actions.letters
    assert [tokenizer.piece(token) for token in actions.tokens] == list(WORDS)


def test_one_long_label_gives_letters_to_all(tokenizer: Tokenizer) -> None:
    actions = built(tokenizer, PHRASES, ActionCoding.AUTO)
    assert actions.codes == ("A", "B", "C") and actions.letters
    assert actions.listing() == "A: turn left\nB: turn right\nC: forward"


def test_labels_that_start_alike_are_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(ContextError) as caught:
        built(tokenizer, ("go", "go home"), ActionCoding.WORDS)
    assert str(caught.value) == (
        "actions: 'go' and 'go home' start with the same token; "
        "expected action_coding 'letters' or 'auto'"
    )


def test_many_actions_get_distinct_letter_codes(tokenizer: Tokenizer) -> None:
    labels = tuple(f"go to room {number}" for number in range(128))
    actions = built(tokenizer, labels, ActionCoding.AUTO)
    assert len(set(actions.tokens)) == 128


def test_more_actions_than_scores_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ContextError, match="has 129 entries"):
        built(tokenizer, tuple(f"a {n}" for n in range(129)), ActionCoding.AUTO)


def test_label_tokens_are_what_the_model_would_say_next(tokenizer: Tokenizer) -> None:
    frame = split_frame(tokenizer)
    actions = built(tokenizer, PHRASES, ActionCoding.LETTERS)
    tail_text = "".join(tokenizer.piece(token) for token in frame.tail)
    for code, token in zip(actions.codes, actions.tokens, strict=True):
        assert list(tokenizer.encode_frame(tail_text + code)) == [*frame.tail, token]


def settings(folder: object, **changes: object) -> Settings:
    return Settings.model_validate({"tokenizer": str(folder), "actions": PHRASES, **changes})


def test_the_prefix_states_profile_behaviour_actions_and_examples(tiny_folder: object) -> None:
    assembler = PromptAssembler(
        settings(
            tiny_folder,
            action_descriptions=("90 degrees", "", ""),
            prefix=PrefixSettings(
                robot_profile="A cart.", behaviour="Be kind.", examples=("x -> A",)
            ),
        )
    )
    text = assembler.tokenizer.decode(assembler.prefix)
    expected = ("A cart.", "Be kind.", "A: turn left (90 degrees)", "B: turn right", "x -> A")
    positions = [text.index(part) for part in expected]
    assert positions == sorted(positions)


def test_a_questions_own_actions_are_listed_in_the_task(tiny_folder: object) -> None:
    assembler = PromptAssembler(settings(tiny_folder))
    own = assembler.action_set(["yes", "no way"])
    text = assembler.tokenizer.decode(assembler.decision_tail({}, "Is it open?", own))
    assert "Is it open?" in text and "A: yes\nB: no way" in text


def test_suffix_stands_before_the_task(tiny_folder: object) -> None:
    assembler = PromptAssembler(settings(tiny_folder))
    tail = assembler.decision_tail({"clock": "12:00", "empty": " "}, "Go.", assembler.actions)
    text = assembler.tokenizer.decode(tail)
    assert text.index("now clock: 12:00") < text.index("Go.") and "empty" not in text


def test_a_threshold_without_room_is_refused(tiny_folder: object) -> None:
    small = settings(tiny_folder, reconciliation={"tau_mem_tokens": 1000})
    with pytest.raises(ContextError, match=r"reconciliation\.tau_mem_tokens: is 1000; expected"):
        PromptAssembler(small)


def test_no_tokenizer_is_one_line() -> None:
    with pytest.raises(ContextError, match="tokenizer: is empty"):
        PromptAssembler(Settings())
