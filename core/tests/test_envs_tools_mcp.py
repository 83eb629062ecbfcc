"""Tools of a real MCP server over stdio: listed, called side by side, and never the end of a run."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from antiphon import ChatEnv, History
from antiphon.conversations.containers import ChatHistory
from antiphon.envs import MCPConnection, MCPToolTransform, ToolBox
from antiphon.errors import EnvError, InvalidParameter
from local_ports import held_port
from tensordict import TensorDict

pytest.importorskip("mcp", reason="MCP tools need the mcp package, which is not installed")
COMMAND = [sys.executable, str(Path(__file__).with_name("mcp_tools_server.py"))]
PATIENCE: Any = {"timeout": 60, "start_timeout": 300}  # for a busy machine


@pytest.fixture(scope="module")
def connection() -> Iterator[MCPConnection]:
    made = MCPConnection(COMMAND, name="small", **PATIENCE)
    yield made
    made.close()


@pytest.fixture(scope="module")
def box(connection: MCPConnection) -> Iterator[ToolBox]:
    made = ToolBox(connection.tools(), timeout=60)
    yield made
    made.close()


def call(name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments or {}}, **more}


def told(box: ToolBox, *calls: dict[str, Any]) -> list[str]:
    message = {"role": "assistant", "content": "", "tool_calls": list(calls)}
    return [reply["content"] for reply in box.answer([message])[0]]


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def test_tools_are_listed_with_their_schemas(box: ToolBox) -> None:
    schema = box.tools["add"].schema
    assert schema["function"]["description"] == "Add two numbers."
    assert schema["function"]["parameters"]["required"] == ["a"]
    assert schema["function"]["parameters"]["properties"]["b"]["type"] == "integer"
    assert {"wait", "fail", "die"} <= set(box.tools)


def test_calls_are_answered_under_their_names_and_ids(box: ToolBox) -> None:
    message = {"tool_calls": [call("add", {"a": 2}, id="c1"), call("add", '{"a": 2, "b": 3}')]}
    assert box.answer([message]) == [
        [
            {"role": "tool", "name": "add", "tool_call_id": "c1", "content": "3"},
            {"role": "tool", "name": "add", "content": "5"},
        ]
    ]
    assert told(box, call("echo", {"text": "é🦙", "self": "!"})) == ["é🦙!"]
    assert told(box, call("picture")) == ["[image image/png]"]
    assert told(box, call("much", {"size": 30_000}))[0].endswith("[10000 more characters left out]")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (call("fail"), "out of order"),
        (call("crash"), "crash"),
        (call("refuse"), "Error: not today"),
        (call("none"), "there is no tool 'none'"),
        (call("add"), "the arguments don't fit: 'a' is a required property"),
        (call("add", {"a": "two"}), "the arguments don't fit: a: 'two' is not of type 'integer'"),
        (call("add", "{broken"), "the arguments are no JSON"),
    ],
)
def test_what_goes_wrong_is_told(box: ToolBox, made: dict[str, Any], reason: str) -> None:
    (text,) = told(box, made)
    assert text.startswith("Error: ")
    assert reason in text


def test_what_the_server_itself_refuses_is_told(connection: MCPConnection) -> None:
    """The tool of a server that has changed its mind about names or arguments."""
    tools = {tool.name: tool for tool in connection.tools()}
    gone = type(tools["add"])(
        "gone",
        type(tools["add"].function)(connection, "gone"),
        {
            "type": "function",
            "function": {"name": "gone", "parameters": {"type": "object"}},
        },
    )
    (text,) = told(ToolBox([gone], timeout=60), call("gone", {"any": 1}))
    assert text.startswith("Error: ")
    assert "gone" in text


def test_calls_run_side_by_side(box: ToolBox) -> None:
    assert told(box, *[call("meet", {"count": 6})] * 6) == ["6"] * 6


def test_calls_come_from_any_thread(box: ToolBox) -> None:
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        found[number] = told(box, call("add", {"a": number, "b": 0}))[0]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: str(number) for number in range(12)}


def test_the_environment_of_the_process_is_not_handed_on(
    monkeypatch: pytest.MonkeyPatch, box: ToolBox
) -> None:
    monkeypatch.setenv("SECRET", "1")
    assert "SECRET" not in told(box, call("environment"))[0]
    assert "PATH" in told(box, call("environment"))[0]


def test_a_server_over_http() -> None:
    with held_port() as port:
        check_over_http(port)


def check_over_http(port: int) -> None:
    connection = MCPConnection({"url": f"http://127.0.0.1:{port}/mcp"}, name="web", **PATIENCE)
    with pytest.raises(EnvError, match="'web' can't be used"):
        connection.tools()
    nowhere = subprocess.DEVNULL
    server = subprocess.Popen([*COMMAND, str(port)], stdout=nowhere, stderr=nowhere)
    try:
        tools = None
        deadline = time.monotonic() + 300
        while tools is None and time.monotonic() < deadline:
            time.sleep(0.2)
            with contextlib.suppress(EnvError):  # it is not up yet
                tools = connection.tools()
        assert tools is not None
        box = ToolBox(tools, timeout=60)
        assert told(box, call("add", {"a": 1}))[0] == "2"
        assert "out of order" in told(box, call("fail"))[0]
        server.kill()
        server.wait()
        assert told(box, call("add", {"a": 1}))[0].startswith("Error: ")
    finally:
        connection.close()
        server.kill()
        server.wait()


def test_a_slow_call_is_given_up_and_the_next_one_works() -> None:
    with_little_time = MCPConnection(COMMAND, timeout=3, start_timeout=300)
    try:
        quick = ToolBox(with_little_time.tools(), timeout=60)
        assert told(quick, call("wait", {"seconds": 60}), call("add", {"a": 1})) == [
            "Error: the tool took more than 3 seconds.",
            "2",
        ]
        assert told(quick, call("add", {"a": 2})) == ["3"]
    finally:
        with_little_time.close()


def test_a_server_that_dies_is_told_and_started_again(box: ToolBox) -> None:
    (before,) = told(box, call("process"))
    texts = told(box, call("die"), call("wait", {"seconds": 60}))
    assert texts == ["Error: the MCP server 'small' has ended; the next call starts it anew."] * 2
    assert told(box, call("add", {"a": 2})) == ["3"]
    assert told(box, call("process")) != [before]
    assert not alive(int(before))


def test_nothing_is_left_when_it_is_closed_and_a_later_call_begins_anew() -> None:
    connection = MCPConnection(
        {"command": COMMAND[0], "args": COMMAND[1:]}, name="closed", **PATIENCE
    )
    box = ToolBox(connection.tools(), timeout=60)
    (process,) = told(box, call("process"))
    connection.close()
    assert not alive(int(process))
    assert not [t for t in threading.enumerate() if t.name == "antiphon-mcp-closed"]
    assert told(box, call("add", {"a": 1})) == ["2"]
    connection.close()
    connection.close()


def test_closing_ends_calls_that_run(tmp_path: Path) -> None:
    connection = MCPConnection(COMMAND, name="busy", **PATIENCE)
    box = ToolBox(connection.tools(), timeout=60)
    texts: list[str] = []
    begun = tmp_path / "begun"
    waits = call("waiting", {"file": str(begun)})
    thread = threading.Thread(target=lambda: texts.extend(told(box, waits)))
    thread.start()
    while not begun.exists() and thread.is_alive():
        time.sleep(0.01)
    connection.close()
    thread.join(30)
    assert not thread.is_alive()
    assert texts[0].startswith("Error: ")


def test_a_connection_goes_to_other_processes(box: ToolBox) -> None:
    copy = pickle.loads(pickle.dumps(box))
    try:
        assert told(copy, call("add", {"a": 1})) == ["2"]
        assert told(copy, call("process")) != told(box, call("process"))
    finally:
        copy.tools["add"].function.server.close()


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (["/no/such/program"], "No such file"),
        ([sys.executable, "-c", "raise SystemExit('no licence')"], "it said: no licence"),
        (
            [sys.executable, "-c", "print('hello')\ninput()\nraise SystemExit('odd')"],
            "can't be used",
        ),
    ],
)
def test_a_server_that_does_not_start_is_named_with_its_last_words(
    server: list[str], reason: str
) -> None:
    with pytest.raises(EnvError, match="'broken'") as caught:
        MCPToolTransform({"broken": server}, start_timeout=300)
    assert reason in str(caught.value)
    assert not [t for t in threading.enumerate() if t.name == "antiphon-mcp-broken"]


def test_a_server_that_says_nothing_is_given_up() -> None:
    silent = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(EnvError, match=r"'silent' did not tell its tools within 0\.5 seconds"):
        MCPToolTransform({"silent": silent}, start_timeout=0.5)


def test_what_is_no_server() -> None:
    with pytest.raises(InvalidParameter, match="neither 'command' nor 'url'"):
        MCPConnection({"args": []}, name="x")
    with pytest.raises(InvalidParameter, match="must hold strings"):
        MCPConnection([1])
    with pytest.raises(InvalidParameter, match="timeouts above 0"):
        MCPConnection(COMMAND, timeout=0)


def test_two_servers_with_the_same_tools_need_prefixes_and_end_with_the_environment(
    connection: MCPConnection,
) -> None:
    with pytest.raises(InvalidParameter, match="Two tools are named"):
        ToolBox([*connection.tools(), *connection.tools()])
    transform = MCPToolTransform({"a": COMMAND, "b": COMMAND}, prefix=True, **PATIENCE)
    assert {"a_add", "b_add"} <= {schema["function"]["name"] for schema in transform.schemas}
    env = ChatEnv(batch_size=1).append_transform(transform)
    root = env.reset(TensorDict({"query": ["q"]}, batch_size=1))
    prompt = root["history"].prompt
    answer = {
        "role": "assistant",
        "content": "",
        "tool_calls": [call("a_process"), call("b_process")],
    }
    full = prompt.extend(History.from_chats([[answer]]), inplace=False, dim=-1)
    root["history"] = ChatHistory(prompt=prompt, full=full, batch_size=(1,))
    chat = env.step(root)["next", "history"].prompt.to_chats()[0]
    processes = [int(message["content"]) for message in chat[-2:]]
    assert len(set(processes)) == 2
    assert all(map(alive, processes))
    env.close()
    assert not any(map(alive, processes))
    assert not [t for t in threading.enumerate() if t.name in ("antiphon-mcp-a", "antiphon-mcp-b")]
