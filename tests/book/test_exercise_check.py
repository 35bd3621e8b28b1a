"""What `exercises.check` tells a reader, and that it never raises at one."""

from fractions import Fraction

import numpy as np
import pytest

from specbook import display, exercises
from specbook.exercises import Exercise, ExerciseError, Report, grade, same


def make(**changes):
    settings = {
        "id": "0x07-largest",
        "question": "Return the largest of the numbers.",
        "cases": lambda rng: [(rng.integers(1, 99, 4).tolist(),) for _ in range(6)],
        "oracle": lambda case: sorted(case[0])[-1],
        "diagnose": lambda case, answer, truth: (
            "that is the smallest." if answer == min(case[0]) else None
        ),
    }
    return Exercise(**{**settings, **changes})


def crash(numbers):
    total = 0
    return numbers[10] + total


def stub(numbers):
    raise NotImplementedError


@pytest.mark.parametrize("answer", [None, ..., lambda n: None, lambda n: ..., stub])
def test_an_unsolved_stub_is_asked_again_not_judged(answer):
    report = grade(make(), answer, 0)
    assert report.status == "unsolved"
    assert not report.solved
    assert "Return the largest of the numbers." in str(report)


def test_a_right_answer_is_solved_on_every_case():
    report = grade(make(), max, 0)
    assert (report.status, report.passed, report.total) == ("solved", 6, 6)
    assert report.solved


def test_a_wrong_answer_shows_yours_right_and_the_likely_mistake():
    report = grade(make(), min, 5)
    case = next(iter(make().cases(np.random.default_rng(5))))
    assert report.status == "wrong"
    assert f"On {case[0]}" in report.lines
    assert f"Yours: {min(case[0])}" in report.lines
    assert f"Right: {max(case[0])}" in report.lines
    assert "Likely mistake: that is the smallest." in report.lines
    assert report.lines[-1].endswith("seed=5)")


def test_a_partly_right_answer_is_counted():
    report = grade(make(), lambda n: n[0], 3)
    cases = make().cases(np.random.default_rng(3))
    assert report.passed == sum(case[0][0] == max(case[0]) for case in cases)
    assert f"{report.passed} of 6 cases" in report.title


def test_a_crash_is_reported_with_its_line_and_not_raised():
    report = grade(make(), crash, 0)
    assert report.status == "crashed"
    assert any(
        line == "Yours raised IndexError (line 3 of crash): list index out of range"
        for line in report.lines
    )


@pytest.mark.parametrize(
    "answer",
    [
        lambda: 1,
        lambda n: 1 / 0,
        lambda n: (_ for _ in ()).throw(SystemError("odd")),
        lambda n: n.clear() or 0,
        lambda n: np.array([1, 2, 3]),
        lambda n: [[1], "x", {2}],
        lambda n: float("nan"),
        lambda n: object(),
        3,
        "max",
        [1, 2],
    ],
)
def test_nothing_a_reader_hands_over_raises(answer):
    report = grade(make(), answer, 0)
    assert report.status in {"wrong", "crashed", "no answer"}
    assert str(report) and report.html()


def test_a_value_that_cannot_be_printed_or_compared_is_merely_wrong():
    class Awkward:
        def __eq__(self, other):
            raise TypeError("no")

        def __repr__(self):
            raise RuntimeError("no")

    report = grade(make(), lambda n: Awkward(), 0)
    assert report.status == "wrong"
    assert "Yours: something of type Awkward that cannot be printed" in report.lines


class Stop(BaseException):
    """What only a bare except would catch."""


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), Stop()])
def test_an_answer_cannot_end_the_kernel(error):
    def answer(numbers):
        raise error

    report = grade(make(), answer, 0)
    assert report.status == "crashed"
    assert type(error).__name__ in str(report)


def test_the_reader_can_still_interrupt():
    def answer(numbers):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade(make(), answer, 0)


def test_a_diagnosis_that_crashes_costs_the_hint_only():
    report = grade(make(diagnose=lambda c, a, t: a.missing), min, 0)
    assert report.status == "wrong"
    assert not any("Likely mistake" in line for line in report.lines)


def test_the_readers_function_cannot_change_the_case():
    def greedy(numbers):
        best = max(numbers)
        numbers.clear()
        return best

    assert grade(make(), greedy, 0).solved
    wrong = grade(make(), lambda n: n.clear() or -1, 0)
    assert wrong.lines[0] != "On []"


def test_missing_returns_on_one_way_out_are_named():
    report = grade(make(), lambda n: max(n) if n[0] > 50 else None, 4)
    assert report.status == "wrong"
    assert any("returns nothing here" in line for line in report.lines)


def test_none_can_be_a_right_value():
    exercise = make(oracle=lambda case: None)
    assert grade(exercise, lambda n: None, 0).solved


def test_usual_mistakes_without_a_diagnosis():
    def hint(oracle, answer):
        exercise = make(oracle=oracle, diagnose=None)
        return " ".join(grade(exercise, answer, 0).lines)

    assert "keep it a Fraction" in hint(lambda c: Fraction(1, 3), lambda n: 1 / 3)
    assert "their order is not" in hint(lambda c: [1, 2], lambda n: [2, 1])
    assert "yours has 1 entries, the right one 2" in hint(
        lambda c: [1, 2], lambda n: [1]
    )
    assert "Right: 1/3" in hint(lambda c: Fraction(1, 3), lambda n: 0)
    assert "[1/3, 2/3]" in hint(lambda c: [Fraction(1, 3), Fraction(2, 3)], lambda n: 0)
    whole = [Fraction(10), Fraction(-1), Fraction(11, 10), Fraction(1, 11)]
    assert "[10, -1, 11/10, 1/11]" in hint(lambda c: whole, lambda n: 0)


def test_cost_is_added_up_and_compared_with_ours():
    exercise = make(cost=lambda case, answer: len(case[0]), cost_unit="comparisons")
    report = grade(exercise, max, 0)
    assert (report.cost, report.reference_cost) == (24, 24)
    assert report.lines == ["Cost: yours 24, ours 24 comparisons, the same"]

    def padded(numbers):
        numbers.append(0)
        return max(numbers)

    more = grade(exercise, padded, 0)
    assert more.lines[0].endswith("yours 30, ours 24 comparisons, "
                                  "which can be done for less")  # fmt: skip
    less = grade(exercise, lambda n: max(n.pop(), *n), 0)
    assert "cheaper than ours" in less.lines[0]
    assert grade(exercise, min, 0).cost is None  # a wrong answer has no score


def test_an_exercise_can_ask_for_a_value_and_have_many_right_ones():
    exercise = make(
        takes_value=True,
        cases=lambda rng: [int(rng.integers(2, 9))],
        oracle=lambda case: 2 * case,
        right=lambda case, answer, truth: answer % 2 == 0,
        diagnose=None,
    )
    assert grade(exercise, 4, 0).solved
    assert grade(exercise, 3, 0).status == "wrong"
    assert grade(exercise, "x", 0).status == "wrong"  # the judge cannot read it
    assert grade(exercise, max, 0).status == "no answer"


@pytest.mark.parametrize(
    ("value", "truth", "equal"),
    [
        (1, 1, True),
        (np.int64(1), 1, True),
        (1, 2, False),
        ((1, 2), [1, 2], True),
        (np.array([1, 2]), [1, 2], True),
        ([1, 2, 3], [1, 2], False),
        ([1, [2, (3,)]], [1, [2, [3]]], True),
        (0.1 + 0.2, 0.3, True),
        (0.3001, 0.3, False),
        (float("nan"), 0.3, False),
        (1 / 3, Fraction(1, 3), False),
        (Fraction(1, 2), 0.5, True),
        (Fraction(1, 2), Fraction(2, 4), True),
        ({"a": [1]}, {"a": (1,)}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ([("a", 1)], {"a": 1}, False),
        ({1, 2}, {2, 1}, True),
        (None, 0, False),
        ("ab", ["a", "b"], False),
        (np.array([[True, False]]), [[True, False]], True),
    ],
)
def test_same(value, truth, equal):
    assert same(value, truth) is equal


def test_cases_are_new_at_each_try_and_repeat_with_a_seed(monkeypatch, capsys):
    monkeypatch.setattr(exercises, "of_notebook", lambda n: {"0x07-largest": make()})
    first = exercises.check("0x07-largest", min)
    second = exercises.check("0x07-largest", min)
    again = exercises.check("0x07-largest", min, seed=first.seed)
    assert first.seed != second.seed
    assert first.lines[:-1] != second.lines[:-1]
    assert again.lines == first.lines
    told = capsys.readouterr().out
    assert told.count("Exercise 0x07-largest: not yet, 0 of 6 cases") == 3
    # A second process draws the same cases, so a page is the same at each build.
    monkeypatch.setattr(exercises, "_attempts", type(exercises._attempts)())
    assert exercises.check("0x07-largest", min).seed == first.seed


def test_a_report_shown_by_check_does_not_show_itself_twice(monkeypatch, capsys):
    monkeypatch.setattr(exercises, "of_notebook", lambda n: {"0x07-largest": make()})
    report = exercises.check("0x07-largest")
    report._ipython_display_()  # what a notebook does with a cell's last value
    assert capsys.readouterr().out.count("not tried yet") == 1
    report._ipython_display_()
    assert capsys.readouterr().out.count("not tried yet") == 1
    assert repr(report) == "<Report 0x07-largest: unsolved, 0 of 6>"


def test_a_name_in_backquotes_is_set_as_code():
    told = "give `draw` and <b>`step`</b>, not `"
    html = display.marked(told)
    assert html.count("<b style=") == 2 and ">draw</b>" in html and ">step</b>" in html
    assert "&lt;b&gt;" in html and html.endswith("not `")
    box = Report("0x07-x", "unsolved", 0, 1, [told], 0).html()
    assert html in box


def test_the_box_escapes_what_the_reader_returned():
    html = grade(make(), lambda n: "<b>&", 0).html()
    assert "&lt;b&gt;&amp;" in html and "<b>&" not in html


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"id": "largest"}, "an exercise id looks like"),
        ({"id": "0x07"}, "an exercise id looks like"),
        ({"question": " "}, "asks nothing"),
        ({"cost": len}, "needs its unit"),
        ({"cost_unit": "rows"}, "needs its unit"),
    ],
)
def test_an_exercise_with_a_mistake_is_refused(changes, told):
    with pytest.raises(ExerciseError, match=told):
        make(**changes)


def test_authors_mistakes_raise():
    with pytest.raises(ExerciseError, match="no exercise '0x07-no-such'"):
        exercises.check("0x07-no-such", max)
    with pytest.raises(ExerciseError, match="no exercise '0xFF-no-such'"):
        exercises.check("0xFF-no-such", max)
    with pytest.raises(ExerciseError, match="looks like"):
        exercises.check(None, max)
    with pytest.raises(ExerciseError, match="has no cases"):
        grade(make(cases=lambda rng: []), max, 0)
    with pytest.raises(ValueError, match="seed"):
        grade(make(), max, -1)


# ---- notebooks against the modules -----------------------------------------------

ASK = '```{code-cell}\nexercises.check("0x07-%s", f)\n```\n'
SOLVE = (
    "```{code-cell}\n:tags: [hide-cell]\n"
    'assert exercises.check("0x07-%s", f).solved\n```\n'
)
NAMES = ("one", "two", "three")
BOOK = "".join(ASK % name + SOLVE % name for name in NAMES)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOOK, None),
        (BOOK.replace(ASK % "two", ""), "'0x07-two' is solved but not asked"),
        (
            BOOK.replace(ASK % "two", "").replace(SOLVE % "two", ""),
            "'0x07-two' is never asked",
        ),
        (BOOK.replace(SOLVE % "two", ""), "'0x07-two' has no executed solution"),
        (BOOK.replace("hide-cell", "other"), "fold the solution"),
        (BOOK.replace("assert ", ""), "has no executed solution"),
        (BOOK.replace('"0x07-one", f)\n', "name, f)\n"), "id out as a string"),
        (BOOK.replace("0x07-one", "0x07-four"), "'0x07-four' is in no module"),
        ("# Nothing\n", "fewer than 3 exercises"),
        (
            BOOK.replace("exercises.check", "def f(a, b): ...\n\n\nexercises.check", 1),
            "the stub is f(a, b), its question says f(numbers)",
        ),
        (
            BOOK.replace(
                "exercises.check", "def f(numbers): ...\n\nexercises.check", 1
            ),
            None,
        ),
    ],
)
def test_planted_faults_in_a_notebook_are_named(tmp_path, monkeypatch, text, told):
    asks = "f(numbers): the largest of them."
    table = {f"0x07-{n}": make(id=f"0x07-{n}", question=asks) for n in NAMES}
    monkeypatch.setattr(exercises, "of_notebook", lambda number: table)
    (tmp_path / "0x07_candidate_trees.md").write_text(text, encoding="utf-8")
    found = exercises.notebook_faults(tmp_path)
    if told is None:
        assert found == []
    else:
        assert any(told in fault for fault in found), found
