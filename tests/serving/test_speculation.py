"""Speculative decoding of `nvcoll.serving`: its limits, what it costs, and how it is asked for."""

import pytest
from command_line import cli, refused

import nvcoll
from nvcoll.serving import serve
from nvcoll.training.planning import Machine

HOW = {"tp": 1, "pp": 1, "concurrency": 4}


@pytest.fixture(scope="module")
def h100():
    return Machine("hgx-h100", 1)


def served(h100, **how):
    return serve("llama3-8b", on=h100, **{**HOW, **how})


def test_no_drafts_are_the_server_without_them(h100):
    plain, none = served(h100), served(h100, speculate=0, accept=0.7)
    assert (none.tpot_s, none.tokens_per_second, none.cache_tokens) == (
        plain.tpot_s,
        plain.tokens_per_second,
        plain.cache_tokens,
    )


@pytest.mark.parametrize("draft", ["head", "ngram", "llama3.2-1b"])
def test_drafts_that_are_never_accepted_cost_time(h100, draft):
    assert served(h100, speculate=3, accept=0.0, draft=draft).tpot_s > served(h100).tpot_s


def test_a_token_takes_less_the_more_drafts_are_accepted(h100):
    times = [served(h100, speculate=3, accept=accept).tpot_s for accept in (0.0, 0.3, 0.6, 0.9, 1.0)]
    assert times == sorted(times, reverse=True) and len(set(times)) == len(times)


def test_accepted_drafts_are_worth_less_where_products_limit(h100):
    def gain(concurrency):
        how = {"concurrency": concurrency, "input": 128, "output": 128}
        return served(h100, **how).tpot_s / served(h100, speculate=3, accept=0.7, **how).tpot_s

    few, many = gain(1), gain(512)
    assert 1 < few < 1 + 0.7 + 0.7**2 + 0.7**3 and many < 0.75 * few


def test_what_drafts_takes_time_and_memory(h100):
    ngram, head, model = (served(h100, speculate=3, accept=0.7, draft=one) for one in ("ngram", "head", "llama3.2-1b"))
    assert ngram.tpot_s < head.tpot_s < model.tpot_s
    assert ngram.cache_tokens > head.cache_tokens > model.cache_tokens
    assert ngram.weights_gib < head.weights_gib < model.weights_gib


def test_latent_attention_and_experts_draft_with_a_layer_of_their_own():
    how = {"on": Machine("hgx-h200", 8), "precision": "fp8", "tp": 8, "pp": 1, "ep": 8, "concurrency": 1}
    plain, drafted = serve("deepseek-v3", **how), serve("deepseek-v3", speculate=1, accept=0.82, **how)
    assert 1.4 < plain.tpot_s / drafted.tpot_s < 1.82
    assert drafted.weights_gib - plain.weights_gib == pytest.approx(plain.weights_gib / 61, rel=0.2)


def test_the_interval_says_that_no_row_has_drafts(h100):
    plain, drafted = served(h100), served(h100, speculate=3, accept=0.7)
    widths = [one.tpot_90[1] / one.tpot_90[0] for one in (plain, drafted)]
    assert widths[1] > widths[0] and any("2.53 tokens of a sequence" in note for note in drafted.notes)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"speculate": 3}, "needs `speculate`.* and `accept`"),
        ({"accept": 0.7}, "needs `speculate`"),
        ({"speculate": 65, "accept": 0.7}, "0 to 64"),
        ({"speculate": 3, "accept": 1.1}, "0 to 1 were expected"),
        ({"speculate": 3, "accept": 0.7, "draft": "llama9"}, "no model is called `llama9`"),
    ],
)
def test_drafts_that_cannot_be_are_refused(h100, how, says):
    with pytest.raises(nvcoll.InvalidArgument, match=says):
        served(h100, **how)


def test_the_command_drafts():
    words = ("serve", "llama3-8b", "-n", "1", "--tp", "1", "--speculate", "3")
    text = cli(*words, "--accept", "0.7", "--draft", "llama3.2-1b").stdout
    assert "an iteration of 15." in text and "2.53 tokens of a sequence in an iteration" in text
    assert "`accept`" in refused(*words)
