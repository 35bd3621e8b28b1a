"""`specbook decode` on a tiny target, and the text that it prints."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbook import cli
from specbook.cli import TextPieces, app
from specbook.display import visible
from specbook.ledger import COST_TERMS
from tests.cli.helpers import refused

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
PROMPT = "abcabcabc naïve 中文 abcabc"


def decode(runner, tiny, *options):
    command = ["decode", "--prompt", PROMPT, "--target", str(tiny)]
    return runner.invoke(app, [*command, "--max-new-tokens", "24", *options])


def test_json_tells_text_tokens_rounds_and_ledger(runner, tiny):
    done = decode(runner, tiny, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["new_tokens"] == len(told["tokens"]) == 24
    assert told["stop_reason"] == "length"
    assert set(told["ledger_seconds"]) == set(COST_TERMS)
    assert told["rounds"] == len(told["per_round"])
    assert sum((r["committed"] for r in told["per_round"]), []) == told["tokens"]
    assert told["accepted"] == sum(r["accepted"] for r in told["per_round"])
    assert told["tokens_per_round"] == pytest.approx(24 / told["rounds"])
    assert told["seconds"] == pytest.approx(sum(told["ledger_seconds"].values()))
    assert told["manifest"]["verifier"] == "greedy"
    assert len(told["manifest_hash"]) >= 16


def test_lookup_and_plain_decoding_agree_and_a_seed_repeats(runner, tiny):
    def tokens(*options):
        return json.loads(decode(runner, tiny, "--json", *options).stdout)["tokens"]

    assert tokens() == tokens("--source", "none")
    warm = ("--temperature", "2", "--seed")
    assert tokens(*warm, "1") == tokens(*warm, "1")
    assert tokens(*warm, "1") != tokens(*warm, "2")


def test_the_printed_text_is_the_decoded_whole(runner, tiny):
    """Random bytes are mostly no characters: the marks printed must be those, and only
    those, that decoding all ids at once gives."""
    for options in ([], ["--temperature", "3", "--seed", "5"]):
        whole = json.loads(decode(runner, tiny, "--json", *options).stdout)["text"]
        printed = decode(runner, tiny, *options).stdout
        assert printed.startswith(visible(whole).rstrip("\n"))


def test_the_ledger_table_names_terms_counts_and_stop_reason(runner, tiny):
    done = decode(runner, tiny)
    assert done.exit_code == 0, done.output
    for term in COST_TERMS:
        assert re.search(
            rf"{term.replace('_', ' ')} +[\d.]+ +[\d.]+ +[\d.]+ ", done.stdout
        )
    assert re.search(r"24 new tokens in \d+ rounds: [\d.]+ tokens a round", done.stdout)
    assert re.search(r"\d+ of \d+ candidates accepted", done.stdout)
    assert "ms a token" in done.stdout
    assert "stopped by length" in done.stdout


def test_a_prompt_that_fills_the_context_leaves_no_round(runner, tiny):
    options = ["--prompt", "a" * 256, "--no-chat", "--target", str(tiny)]
    done = runner.invoke(app, ["decode", *options])
    assert done.exit_code == 0, done.output
    assert "no round was run; stopped by context" in done.stdout


def test_the_context_limit_ends_the_output(runner, tiny):
    done = decode(runner, tiny, "--max-new-tokens", "999", "--json")
    told = json.loads(done.stdout)
    assert told["stop_reason"] == "context"
    assert told["prompt_tokens"] + told["new_tokens"] == 256


def test_chat_template_or_not(runner, tiny, tiny_without_template):
    size = len(PROMPT.encode("utf-8"))
    asked = json.loads(decode(runner, tiny, "--json").stdout)
    assert asked["prompt_tokens"] == size + len("<user>\n<assistant>")
    bare = json.loads(decode(runner, tiny, "--json", "--no-chat").stdout)
    assert bare["prompt_tokens"] == size
    base = decode(runner, tiny_without_template, "--json")
    assert "no chat template" in base.stderr
    assert json.loads(base.stdout)["prompt_tokens"] == size


def test_a_prompt_from_standard_input(runner, tiny):
    options = ["--target", str(tiny), "--max-new-tokens", "1", "--json", "--no-chat"]
    done = runner.invoke(app, ["decode", "--prompt", "-", *options], input="abc")
    assert json.loads(done.stdout)["prompt_tokens"] == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--temperature", "-1"], "temperature must be at least 0"),
        (["--temperature", "nan"], "temperature"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--max-new-tokens", "-3"], "max_new_tokens must be at least 1"),
        (["--max-new-tokens", "0"], "max_new_tokens must be at least 1"),
        (["--dtype", "int4"], "dtype must be one of"),
        (["--source", "oracle"], "source must be one of"),
        (["--verifier", "hope"], "verifier must be one of"),
        (["--verifier", "greedy", "--temperature", "1"], "needs temperature 0"),
        (["--verifier", "typical", "--temperature", "1"], "typical"),
        (["--verifier", "single", "--temperature", "1"], "'single'"),
        # A draft model is a model too, and is not loaded for bad options either.
        (["--source", "draft_model", "--prompt", ""], "the prompt is empty"),
        (["--source", "draft_model", "--seed", "-1"], "seed must be at least 0"),
        (["--source", "draft_model", "--verifier", "hope"], "verifier must be"),
        (["--source", "draft_model", "--verifier", "typical"], "'typical'"),
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt", "a\udcff"], "the prompt is not UTF-8 text"),
    ],
)
def test_bad_options_are_refused_before_a_model_is_loaded(
    runner, tiny, no_model, options, told
):
    refused(decode(runner, tiny, *options), told)


def test_bad_targets_are_one_line_and_debug_shows_where(runner, tmp_path):
    for name, told in (
        (str(tmp_path / "absent"), "there is no model folder"),
        (str(tmp_path), "not a model folder"),
        ("../x", "there is no model folder '../x'"),
        (" ", "a target is a folder or a hub id, got ' '"),
    ):
        refused(decode(runner, name), told)
    loud = decode(runner, tmp_path, "--debug")
    assert loud.exception is not None
    assert isinstance(loud.exception, ValueError)


def test_wrong_usage_is_status_2(runner):
    for command in (
        ["decode"],
        ["decode", "--prompt"],
        ["decode", "--prompt", "a", "--seed", "x"],
        ["decode", "--prompt", "a", "--no-such"],
        ["no-such-command"],
        ["bench", "no-such-command"],
        ["train"],
        ["export"],
    ):
        done = runner.invoke(app, command)
        assert done.exit_code == 2, command
        assert "Traceback" not in done.output


# ---- text as it comes ------------------------------------------------------------


def bytes_to_text(ids):
    return bytes(ids).decode("utf-8", errors="replace")


def pieces_of(ids):
    pieces = TextPieces(bytes_to_text)
    return [pieces.add(token) for token in ids], pieces.finish()


@given(st.text(max_size=200))
def test_pieces_join_to_the_text_without_a_replacement_mark(text):
    text = text.encode("utf-8", "ignore").decode("utf-8").replace(REPLACEMENT, "")
    pieces, rest = pieces_of(text.encode("utf-8"))
    assert "".join(pieces) == text
    assert rest == ""
    assert all(REPLACEMENT not in piece for piece in pieces)


@given(st.binary(max_size=300))
def test_pieces_of_any_bytes_join_to_what_decoding_all_gives(data):
    pieces, rest = pieces_of(data)
    assert "".join(pieces) + rest == bytes_to_text(data)


def test_decoding_token_by_token_would_be_found_out():
    data = "naïve 中文".encode()
    assert "".join(bytes_to_text([b]) for b in data) != "naïve 中文"
    assert pieces_of(data)[0].count("中") == 1


def test_an_unfinished_character_is_shown_at_the_end_only():
    pieces, rest = pieces_of("a中".encode()[:-1])
    assert "".join(pieces) == "a"
    assert rest == REPLACEMENT
    assert TextPieces(bytes_to_text).finish() == ""


def test_the_cost_of_a_token_does_not_grow():
    longest = 0

    def decode_and_count(ids):
        nonlocal longest
        longest = max(longest, len(ids))
        return bytes_to_text(ids)

    pieces = TextPieces(decode_and_count)
    text = "中 ok " * 300
    assert "".join(pieces.add(b) for b in text.encode()) == text
    assert longest < 80


def test_a_model_cannot_steer_the_terminal():
    assert visible("a\x1b[31mb\x07\r\n\tc\x7f\x9b1m") == "a␛[31mb␇␍\n\tc␡1m"


# ---- marks of accepted tokens ----------------------------------------------------


class Record:
    def __init__(self, committed, accepted):
        self.committed, self.accepted = committed, accepted


def printed(monkeypatch, capsys, **environment):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    printer = cli.RoundPrinter(bytes_to_text, ends=(0,))
    printer(Record(tuple(b"ab[/]c"), 2))
    printer(Record((*"é:x:".encode(), 0), 2))
    printer.finish()
    return capsys.readouterr().out


def test_accepted_tokens_are_coloured_and_underlined(monkeypatch, capsys):
    out = printed(monkeypatch, capsys)
    assert "\x1b[4;32ma\x1b[0m\x1b[4;32mb\x1b[0m[/]c" in out
    assert "\x1b[4;32mé\x1b[0m:x:\n" in out  # the end token is not shown


def test_without_colours_the_underline_stays(monkeypatch, capsys):
    out = printed(monkeypatch, capsys, NO_COLOR="1")
    assert "\x1b[4ma\x1b[0m\x1b[4mb\x1b[0m[/]c" in out
    assert "32m" not in out


def test_a_file_gets_plain_text(capsys):
    printer = cli.RoundPrinter(bytes_to_text)
    printer(Record(tuple(b"[bold]x"), 3))
    printer.finish()
    assert capsys.readouterr().out == "[bold]x\n"


@pytest.mark.real
def test_the_real_target_answers(runner):
    """A first-time reader's command, on the fetched model."""
    prompt = "Repeat exactly: naïve café 中文 naïve café 中文"
    command = ["decode", "--prompt", prompt, "--max-new-tokens", "12"]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    text = done.stdout.partition("ledger")[0]
    assert text.strip()
    assert REPLACEMENT not in text[:-2]
    assert re.search(r"\d+ new tokens in \d+ rounds", done.stdout)
