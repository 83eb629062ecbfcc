"""``antiphon view``: rollouts, tokenised data and chats, in a terminal and as a page in a real browser."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from antiphon.cli import run
from antiphon.viewing.page import html_page
from antiphon.viewing.rows import Options, Row, made_with, read_rows, token_pieces, visible

HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
    "<!-- <script> \u2028 &lt;b&gt; \x1b[31mred\x1b[0m \u202egnp.exe"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer, a rollout in both forms, chats, and tokenised data of them."""
    import rollout_helpers

    folder = tmp_path_factory.mktemp("view")
    tokenizer = rollout_helpers.byte_tokenizer()
    tokenizer.save_pretrained(folder / "tokenizer")
    patch = pytest.MonkeyPatch()
    patch.setattr(
        "antiphon.rollouts.run.load_backend", lambda options: rollout_helpers.FakeBackend()
    )
    model = str(folder / "tokenizer")
    for name in ("o.jsonl", "o.parquet"):
        options = ["--limit", "4", "--model", model, "--output", str(folder / name)]
        assert run(["rollout", *options]) == 0
    patch.undo()
    chats = [
        [{"role": "user", "content": "Say é🦙."}, {"role": "assistant", "content": "é🦙"}],
        [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": HOSTILE}],
    ]
    lines = [json.dumps({"messages": chat}) for chat in chats]
    (folder / "chats.jsonl").write_text("\n".join(lines) + "\n")
    data = ["tokenize", str(folder / "chats.jsonl"), "--tokenizer", model]
    assert run([data[0], data[1], str(folder / "data"), *data[2:]]) == 0
    return folder


@pytest.fixture(scope="module")
def tokenizer(made: Path) -> Any:
    from antiphon.cli.inputs import load_tokenizer

    return load_tokenizer(str(made / "tokenizer"))


def shown(capsys: Any, *arguments: str | Path) -> str:
    capsys.readouterr()
    assert run(["view", *map(str, arguments)]) == 0
    return str(capsys.readouterr().out)


def texts(row: Row) -> str:
    return "".join(piece.text for piece in row.pieces)


# Rows


@pytest.mark.parametrize("name", ["o.jsonl", "o.parquet"])
def test_a_trajectory_is_its_ids_with_their_messages_and_log_probs(
    name: str, made: Path, tokenizer: Any
) -> None:
    from antiphon.rollouts.files import read_records

    rows = list(read_rows(str(made / name), Options(tokenizer)))
    records = read_records(made / name)
    assert [row.name for row in rows] == [record["conversation"] for record in records]
    for row, record in zip(rows, records, strict=True):
        assert texts(row) == tokenizer.decode(record["input_ids"])
        assert [i for piece in row.pieces for i in piece.ids] == record["input_ids"]
        assert [p for piece in row.pieces for p in piece.log_probs] == pytest.approx(
            [p for p in record["log_probs"] if p is not None]
        )
        messages = json.loads(record["messages"])
        assert row.roles == [message["role"] for message in messages]
        for number, message in enumerate(messages):
            said = "".join(piece.text for piece in row.pieces if piece.message == number)
            assert message["content"] in said
        answers = {piece.message for piece in row.pieces if piece.trained}
        assert {row.roles[number] for number in answers if number is not None} == {"assistant"}
        assert row.reward == record["reward"]


FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last %}(forgotten){% else %}{{ m.content }}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_the_segments_of_a_rewritten_conversation_are_each_as_they_were_sampled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import rollout_helpers
    from antiphon.rollouts.files import read_records

    forgetful = rollout_helpers.byte_tokenizer(FORGETFUL)
    monkeypatch.setattr(
        "antiphon.rollouts.run.load_backend",
        lambda options: rollout_helpers.FakeBackend(tokenizer=forgetful),
    )
    output = tmp_path / "o.jsonl"
    assert run(["rollout", "--limit", "6", "--max-turns", "3", "--output", str(output)]) == 0
    records = read_records(output)
    assert max(record["segment"] for record in records) == 2
    for row, record in zip(read_rows(str(output), Options(forgetful)), records, strict=True):
        assert texts(row) == forgetful.decode(record["input_ids"])
        turns = [turn for turn in record["turns"] if turn["segment"] == record["segment"]]
        answers = [i for i, role in enumerate(row.roles) if role == "assistant"]
        for turn in turns:
            number = answers[record["turns"].index(turn)]
            ids = record["input_ids"][turn["start"] : turn["end"]]
            own = [piece for piece in row.pieces if piece.message == number]
            assert [i for piece in own for i in piece.ids][: len(ids)] == ids
            assert all(piece.trained for piece in own)
        assert "segment" in row.facts


def test_samples_are_the_same_as_the_chats_they_were_made_of(made: Path, tokenizer: Any) -> None:
    samples = list(read_rows(str(made / "data"), Options(tokenizer)))
    chats = list(read_rows(str(made / "chats.jsonl"), Options(tokenizer)))
    assert [row.pieces for row in samples] == [row.pieces for row in chats]
    assert [row.name for row in samples] == ["0/0", "1/0"]
    assert "é🦙" in [piece.text for piece in samples[0].pieces] or "é" in texts(samples[0])
    trained = "".join(piece.text for piece in samples[0].pieces if piece.trained)
    assert trained == "é🦙<|im_end|>"
    (one,) = {piece.ids for piece in samples[0].pieces if piece.text == "🦙"}
    assert len(one) == 4


def test_without_a_tokenizer_chats_show_text_and_rollouts_their_messages(made: Path) -> None:
    chat = next(read_rows(str(made / "chats.jsonl"), Options(family="chatml")))
    assert texts(chat).startswith("<|im_start|>user\nSay é🦙.<|im_end|>\n")
    assert [p.text for p in chat.pieces if p.message == 1 and p.trained] == ["é🦙"]
    row = next(read_rows(str(made / "o.jsonl"), Options()))
    assert row.roles[0] in texts(row)
    sample = next(read_rows(str(made / "data"), Options()))
    assert sample.pieces[0].text == f"⟨{sample.pieces[0].ids[0]}⟩"


def test_an_unfinished_rollout_can_be_looked_at(made: Path, tokenizer: Any, tmp_path: Path) -> None:
    from antiphon.rollouts.files import PartFile, part_path, read_records

    records = read_records(made / "o.jsonl")
    output = tmp_path / "new.jsonl"
    settings = {"model": "m", "tokenizer_fingerprint": "f"}
    with PartFile(output, settings, resume=False) as part:
        part.append_conversation([records[0]])
        part.append_conversation([records[1]])
    with part_path(output).open("ab") as file:
        file.write(b'[{"torn')
    rows = list(read_rows(str(part_path(output)), Options(tokenizer)))
    assert [row.name for row in rows] == [record["conversation"] for record in records[:2]]
    assert made_with(str(part_path(output))) == ("m", "f")


def test_tokens_of_every_kind_join_to_the_text(tokenizer: Any) -> None:
    """Characters spread over tokens, broken ones, and control tokens in between."""
    from antiphon.engine.tokenizers import view

    plain = tokenizer.encode("aé🦙\n ü")
    for ids in (plain, [*plain[:3], 258, *plain[3:]], plain[2:4], [256, 257, 258], []):
        pieces = token_pieces(ids, [True] * len(ids), [0] * len(ids), None, view(tokenizer))
        assert [i for piece in pieces for i in piece.ids] == list(ids)
        assert "".join(p.text for p in pieces) == view(tokenizer).decode(ids)


def test_text_that_steers_the_terminal_is_shown(capsys: Any, made: Path) -> None:
    told = shown(capsys, made / "chats.jsonl", "--family", "chatml", "--row", "1")
    assert "\x1b" not in told
    assert "␛[31mred" in told
    assert "\\u202egnp.exe" in told
    assert visible("a\tb\n\x00\x9b\ud800") == "a\tb\n␀\\x9b\ufffd"


# The terminal


def test_trained_text_stands_between_marks_where_there_are_no_colours(
    capsys: Any, made: Path
) -> None:
    told = shown(capsys, made / "chats.jsonl", "--family", "chatml", "--row", "0")
    assert "<|im_start|>assistant\n▶é🦙<|im_end|>◀" in told


def test_rows_are_chosen_by_number_and_reward(capsys: Any, made: Path) -> None:
    from antiphon.rollouts.files import read_records

    rewards = [record["reward"] for record in read_records(made / "o.jsonl")]
    assert shown(capsys, made / "o.jsonl").count("\n── ") + 1 == len(rewards)
    assert "── 0/1 · reward" in shown(capsys, made / "o.jsonl", "--row", "1")
    least = shown(capsys, made / "o.jsonl", "--min-reward", "0.05")
    assert least.count("· reward ") == sum(reward >= 0.05 for reward in rewards)
    assert shown(capsys, made / "o.jsonl", "--limit", "2").count("· reward ") == 2


def test_tokens_and_log_probs_are_shown_on_demand(capsys: Any, made: Path) -> None:
    row = next(read_rows(str(made / "o.jsonl"), Options()))
    told = shown(capsys, made / "o.jsonl", "--row", "0", "--tokens")
    assert "log-prob" in told
    assert "258" in told
    lines = [line for line in told.splitlines() if "▶" in line]
    assert len(lines) >= 1
    assert all("assistant" in line or "<|im_end|>" in line for line in lines), lines[:3]
    scored = shown(capsys, made / "o.jsonl", "--row", "0", "--log-probs")
    assert scored.count("(-") > 5
    del row


def test_what_can_not_be_shown_is_told(capsys: Any, made: Path, tmp_path: Path) -> None:
    def refused(*arguments: str | Path) -> str:
        capsys.readouterr()
        assert run(["view", *map(str, arguments)]) != 0
        told = str(capsys.readouterr().err)
        assert "Traceback" not in told
        return told

    assert "no row 99" in refused(made / "o.jsonl", "--row", "99")
    assert "such a reward" in refused(made / "o.jsonl", "--min-reward", "5")
    assert "There is no file" in refused(tmp_path / "none.jsonl")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"messages": [{"role": "user", "content": "a"}]}\n{broken\n')
    assert "Row 1 of" in refused(broken, "--family", "chatml")
    broken.write_text('{"input_ids": [1, 2], "labels": [1]}\n')
    assert "differ in length" in refused(broken)
    broken.write_text('{"text": "a"}\n')
    assert "Row 0 of" in refused(broken, "--family", "chatml")


def test_a_tokenizer_that_is_not_the_files_own_is_told(
    capsys: Any, made: Path, tmp_path: Path
) -> None:
    import rollout_helpers

    other = rollout_helpers.byte_tokenizer()
    other.add_tokens(["<more>"])
    other.save_pretrained(tmp_path / "other")
    assert run(["view", str(made / "o.jsonl"), "--tokenizer", str(tmp_path / "other")]) == 0
    assert "is not the one that" in capsys.readouterr().err


# The page


def test_the_page_is_one_file_and_content_is_data(capsys: Any, made: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    told = shown(capsys, made / "chats.jsonl", "--family", "chatml", "--html", page)
    assert "2 rows are in" in told
    source = page.read_text(encoding="utf-8")
    assert "window.hacked = 1" in source
    assert source.count("<script") == 2
    assert "<img" not in source
    assert "http://" not in source
    assert "https://" not in source
    assert "<title>&lt;b&gt;</title>" in html_page("<b>", [])


def _chromium() -> str | None:
    return (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    reason = "the page is only tried where playwright and a chromium (or CHROMIUM) are installed"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    program = _chromium()
    if program is None:
        pytest.skip(reason)
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=program,
            headless=True,
            viewport={"width": 1200, "height": 700},
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
        )
        yield context
        context.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    opened = browser.new_page()
    opened.faults = []
    opened.asked = []
    opened.on("console", lambda told: opened.faults.append(told.text))
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.on("request", lambda request: opened.asked.append(request.url))
    yield opened
    assert opened.faults == []
    assert all(url.startswith("file:") for url in opened.asked)
    opened.close()


def test_hostile_text_stays_text_in_a_browser(page: Any, made: Path, tokenizer: Any) -> None:
    rows = list(read_rows(str(made / "chats.jsonl"), Options(tokenizer)))
    target = made / "hostile.html"
    rows.append(Row(HOSTILE, rows[1].pieces, [HOSTILE, HOSTILE], {HOSTILE: HOSTILE}, 1.0))
    target.write_text(html_page(HOSTILE, rows), encoding="utf-8")
    page.goto(target.as_uri())
    for number in range(3):
        page.click(f"nav button[data-row='{number}']")
        page.hover("#text span.piece >> nth=6")
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img").count() == 0
    told = page.evaluate(
        "[...document.querySelectorAll('#text .piece')].map((e) => e.textContent).join('')"
    )
    assert told == visible(texts(rows[1]))
    assert visible(HOSTILE) in told


def test_rows_are_walked_by_key_and_filtered_by_reward(page: Any, made: Path) -> None:
    assert run(["view", str(made / "o.parquet"), "--html", str(made / "o.html")]) == 0
    rows = list(read_rows(str(made / "o.parquet"), Options()))
    page.goto((made / "o.html").as_uri())
    current = "nav button[aria-current='true'] >> nth=0"

    def name() -> str:
        return str(page.locator(current).locator("span").first.text_content())

    assert name() == rows[0].name
    for key, number in (("j", 1), ("ArrowRight", 2), ("k", 1), ("ArrowLeft", 0), ("k", 0)):
        page.keyboard.press(key)
        assert name() == rows[number].name
    page.fill("#least", "0.05")
    good = [row for row in rows if row.reward is not None and row.reward >= 0.05]
    assert page.text_content("#count") == f"{len(good)} of {len(rows)}"
    assert page.locator("nav button").count() == len(good)
    page.fill("#least", "50")
    assert page.is_visible("#nothing")
    page.fill("#least", "")
    assert page.locator("nav button").count() == len(rows)


def test_a_token_says_what_it_is(page: Any, made: Path, tokenizer: Any) -> None:
    assert run(["view", str(made / "o.jsonl"), "--html", str(made / "o.html")]) == 0
    row = next(read_rows(str(made / "o.jsonl"), Options(tokenizer)))
    place = next(i for i, piece in enumerate(row.pieces) if piece.trained)
    piece = row.pieces[place]
    page.goto((made / "o.html").as_uri())
    page.hover(f"#text span[data-place='{place}']")
    told = page.text_content("#token")
    assert f"id{piece.ids[0]}" in told
    assert f"text{json.dumps(piece.text)}" in told
    assert f"log-prob{round(piece.log_probs[0], 4):g}" in told
    assert "mask1" in told
    assert f"message{piece.message} assistant" in told
    page.hover("#text span[data-place='0']")
    assert "none (template)" in page.text_content("#token")
    before = page.evaluate("getComputedStyle(document.querySelector('#text .trained')).background")
    page.keyboard.press("l")
    after = page.evaluate("getComputedStyle(document.querySelector('#text .trained')).background")
    assert before != after
    page.keyboard.press("s")
    assert not page.is_visible("#text span[data-place='0']")
    page.keyboard.press("t")
    assert "⏎" in page.text_content("#text")
