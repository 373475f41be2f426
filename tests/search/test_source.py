"""A search that is read from its folder, and the server of its page."""

from __future__ import annotations

import http.client
import json
import os
import threading
from pathlib import Path

import pytest

from footplate.report.page import Plot
from footplate.search.outcomes import Outcome
from footplate.search.page import save_search_page
from footplate.search.record import TrialRecord
from footplate.search.source import SearchServer, SearchSource, holds_search
from footplate.search.summary import SearchSummary

ABOUT = {"backend": "grid", "directions": ["maximize"], "objective": "eval_f1"}


def filled(folder: Path, count: int = 2, num_trials: int | None = 5) -> TrialRecord:
    record = TrialRecord(str(folder), ABOUT)
    for number in range(count):
        record.add(Outcome(number, "complete", {"a": number}, [float(number)], 4, f"run-{number}"))
        os.makedirs(folder / f"run-{number}")
        (folder / f"run-{number}" / "events.jsonl").write_text(
            json.dumps({"kind": "begin", "name": "it"}) + "\n"
        )
        (folder / f"run-{number}" / "report.html").write_text("what somebody put there")
    summary = SearchSummary(str(folder), "eval_f1", ["maximize"], record.outcomes)
    save_search_page(summary, num_trials, False)
    return record


@pytest.mark.parametrize("num_trials", [5, None])
def test_trials_come_from_their_file_and_how_many_there_will_be_from_the_page(tmp_path, num_trials):
    filled(tmp_path, num_trials=num_trials)
    source = SearchSource(tmp_path, lambda: True)
    assert source.update()
    search = source.describe()["search"]
    assert (search["objective"], search["directions"], search["backend"]) == ("eval_f1", ["maximize"], "grid")
    assert (search["num_trials"], search["is_over"], search["best"]) == (num_trials, False, [1])


@pytest.mark.parametrize(
    "page", [None, "no page", 'id="data">{"search": 3}</script>', 'id="data">{</script>']
)
def test_without_a_page_that_knows_nobody_knows_how_many_there_will_be(tmp_path, page):
    filled(tmp_path)
    (tmp_path / "report.html").unlink()
    if page is not None:
        (tmp_path / "report.html").write_text(page)
    source = SearchSource(tmp_path, lambda: False)
    source.update()
    assert source.describe()["search"]["num_trials"] is None


def test_only_what_is_new_is_read_again(tmp_path):
    record = filled(tmp_path)
    is_going = [True]
    source = SearchSource(tmp_path, lambda: is_going[0])
    assert [source.update(), source.update()] == [True, False]
    record.add(Outcome(2, "failed", error="no"))
    assert [source.update(), source.update()] == [True, False]
    assert len(source.summary.trials) == 3
    is_going[0] = False
    assert source.update()
    assert source.is_over


@pytest.mark.parametrize(
    "first",
    ["", "{}", '{"search": {}}', '{"search": {"directions": 3}}', '{"search": {"directions": ["up"]}}'],
)
def test_a_file_that_does_not_say_what_its_search_is_is_refused(tmp_path, first):
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "trials.jsonl").write_text(first + "\n")
    with pytest.raises(ValueError, match=r"trials\.jsonl does not begin with what its search is"):
        SearchSource(tmp_path, lambda: False).update()


def test_a_folder_holds_a_search_unless_a_later_run_has_left_its_page(tmp_path):
    assert not holds_search(tmp_path)
    filled(tmp_path)
    assert holds_search(tmp_path)
    trials, page = tmp_path / "search" / "trials.jsonl", tmp_path / "report.html"
    (tmp_path / "events.jsonl").write_text('{"kind": "begin"}\n')  # of an evaluation afterwards
    os.utime(trials, (1000, 1000))
    assert holds_search(tmp_path)
    Plot([{"loss": 1.0, "step": 1}]).save(page)
    assert not holds_search(tmp_path)
    os.utime(page, (900, 900))
    assert holds_search(tmp_path)


@pytest.fixture
def server(tmp_path):
    filled(tmp_path)
    with SearchServer(SearchSource(tmp_path, lambda: True), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, path="/", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(
        "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    body = answer.read().decode("utf-8")
    connection.close()
    return answer, body


def test_the_page_the_data_and_the_pages_of_trials_are_served_and_nothing_else(server):
    answer, page = ask(server)
    assert answer.status == 200
    assert "connect-src 'self';" in page
    answer, text = ask(server, "/data.json")
    assert json.loads(text)["search"]["best"] == [1]
    assert ask(server, "/data.json", If_None_Match=answer.headers["ETag"])[0].status == 304
    answer, page = ask(server, "/run-1/report.html")
    assert answer.status == 200
    assert "<title>it · footplate</title>" in page  # made from the journal, not what lay in the folder
    for path in ("/run-9/report.html", "/run-1/events.jsonl", "/search/trials.jsonl", "/../x", "/run-1"):
        assert ask(server, path)[0].status == 404
    assert ask(server, "/run-1/report.html", Host="evil.example")[0].status == 403


def test_what_was_read_last_is_served_while_another_search_takes_the_place(server, tmp_path):
    ask(server)
    (tmp_path / "search" / "trials.jsonl").unlink()
    answer, text = ask(server, "/data.json")
    assert answer.status == 200
    assert len(json.loads(text)["search"]["trials"]) == 2
