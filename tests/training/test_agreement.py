"""Agreement: by hand, and against chains that are really drawn."""

import numpy as np
import pytest
import torch

from specbook.errors import SpecbookError
from specbook.models.tiny import tiny_llama
from specbook.training import agreement
from specbook.training.decoding import continue_all


@pytest.fixture(scope="module")
def target():
    return tiny_llama(0)


@pytest.fixture(scope="module")
def sequences(target):
    return continue_all(
        target,
        [[1, 2, 3], [7, 7], [5, 9, 1, 4]],
        temperatures=[0.0] * 3,
        max_new_tokens=14,
        top_k=4,
        eos_token_id=None,
        generator=torch.Generator(),
    )


def near(target, noise=0.05):
    """A draft that is the target with a little noise: right now and then."""
    other = tiny_llama(0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    return other


def test_chains_by_hand():
    by_depth = [[0, 0] for _ in range(3)]
    agreement.count_chains([True, True, False, True], by_depth)
    # Starts: 0 goes right, right, wrong; 1 right, wrong; 2 wrong; 3 right and ends.
    assert by_depth == [[3, 4], [1, 2], [0, 1]]


def test_the_target_agrees_with_itself(target, sequences):
    found = agreement.greedy_agreement(target, sequences)
    assert found["top1"] == 1.0 and found["rows"] == 3 * 14
    assert found["by_depth"] == [[42, 42], [39, 39], [36, 36], [33, 33]]
    assert agreement.teacher_agreement(target, sequences)["top1"] == 1.0
    shared = agreement.shared_mass(target, target, sequences, temperature=0.7)
    assert shared["rows"] == 42 and shared["shared"] == pytest.approx(1.0, abs=1e-5)


def test_depths_are_those_of_chains_that_the_draft_draws(target, sequences):
    draft = near(target)
    wanted = [[0, 0] for _ in range(4)]
    for sequence in sequences:
        tokens = sequence.tokens.tolist()
        for start in range(sequence.prompt_length, len(tokens)):
            chain = tokens[:start]
            for depth in range(4):
                if start + depth >= len(tokens):
                    break
                with torch.inference_mode():
                    law = draft(torch.tensor([chain])).logits[0, -1]
                chain.append(int(law.argmax()))
                wanted[depth][1] += 1
                if chain[-1] != tokens[start + depth]:
                    break
                wanted[depth][0] += 1
    found = agreement.greedy_agreement(draft, sequences)
    assert found["by_depth"] == wanted
    assert 0 < found["agreed"] < found["rows"]
    assert found["agreed"] == wanted[0][0] and found["rows"] == wanted[0][1]


def test_shared_mass_is_the_sum_of_the_smaller(target, sequences):
    draft = near(target)
    total, rows = 0.0, 0
    for sequence in sequences:
        ids = torch.from_numpy(sequence.tokens)[None]
        with torch.inference_mode():
            p, q = (
                torch.softmax(m(ids).logits[0].double() / 0.7, -1).numpy()
                for m in (target, draft)
            )
        for row in range(sequence.prompt_length - 1, len(sequence.tokens) - 1):
            total += np.minimum(p[row], q[row]).sum()
            rows += 1
    found = agreement.shared_mass(draft, target, sequences, temperature=0.7)
    assert found["rows"] == rows
    assert found["shared"] == pytest.approx(total / rows, abs=1e-5)
    # The planted fault, no temperature, would be seen.
    plain = agreement.shared_mass(draft, target, sequences, temperature=1.0)
    assert abs(plain["shared"] - found["shared"]) > 1e-3


def test_texts_that_nobody_continued_count_from_the_first_taught_row(target):
    sequences = continue_all(
        target,
        [[1, 2, 3, 4, 5, 6]],
        temperatures=[0.0],
        max_new_tokens=0,
        top_k=4,
        eos_token_id=None,
        generator=torch.Generator(),
        first_rows=[2],
    )
    found = agreement.teacher_agreement(target, sequences)
    assert (found["rows"], found["agreed"]) == (3, 3)
    assert agreement.greedy_agreement(target, sequences)["top1"] is None


def test_bad_input_is_refused(target, sequences):
    for heat in (0.0, -1.0, float("nan"), True, "1"):
        with pytest.raises(SpecbookError, match="temperature"):
            agreement.shared_mass(target, target, sequences, temperature=heat)
    with pytest.raises(SpecbookError, match="depths"):
        agreement.greedy_agreement(target, sequences, depths=0)
    other = tiny_llama(0, vocab_size=65)
    with pytest.raises(SpecbookError, match="65 tokens"):
        agreement.shared_mass(other, target, sequences, temperature=1.0)
