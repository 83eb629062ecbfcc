"""Conversations of kinds that no probe of inference shows, for holding inferred grammars against templates.

Roles that a template was not made for, answers without a text, several messages of one side,
system texts at odd places, contents full of signs, results as JSON, calls side by side.
"""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]

QUESTION, ANSWER = "Who painted the ceiling?", "It was Michelangelo."
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Looks for {name}.",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in properties.items()},
                "required": [],
            },
        },
    }
    for name, properties in (
        ("get_weather", {"city": "string", "days": "integer", "options": "object"}),
        ("search_web", {"query": "string", "limit": "integer", "safe": "boolean"}),
    )
]


def said(role: str, content: Any, **fields: Any) -> Message:
    """Return a message."""
    return {"role": role, "content": content, **fields}


def user(content: Any) -> Message:
    """Return a question."""
    return said("user", content)


def answer(content: Any, **fields: Any) -> Message:
    """Return an answer."""
    return said("assistant", content, **fields)


def system(content: str) -> Message:
    """Return a system text."""
    return said("system", content)


def call(name: str, arguments: dict[str, Any], number: int = 1) -> dict[str, Any]:
    """Return a call."""
    function = {"name": name, "arguments": arguments}
    return {"id": f"call{number:05}", "type": "function", "function": function}


def result(content: str, number: int = 1, name: str = "get_weather") -> Message:
    """Return the result of a call."""
    return said("tool", content, tool_call_id=f"call{number:05}", name=name)


def _plain() -> dict[str, list[Message]]:
    q, a, thanks = user(QUESTION), answer(ANSWER), (user("Thanks."), answer("You are welcome."))
    asked, replied = user("And the wall?"), answer("He as well.")
    made: dict[str, list[Message]] = {}
    for role in ("developer", "tool", "function", "context", "documents", "ipython", "critic"):
        told = said(role, "It was told by somebody else.")
        made[f"{role}-first"] = [told, q, a]
        made[f"{role}-behind-system"] = [system("Be kind."), told, q, a]
        made[f"{role}-behind-question"] = [q, told, a, *thanks]
        made[f"{role}-behind-answer"] = [q, a, told, asked, replied]
        made[f"{role}-json"] = [q, answer("Looking."), said(role, '{"ok": true, "n": [1]}'), a]
    return made | {
        "unknown-roles-only": [said("human", QUESTION), said("gpt", ANSWER)],
        "unknown-answerer": [q, said("model", ANSWER)],
        "unknown-role-last": [q, answer("Looking."), said("tool", '{"ok": true}')],
        "empty-answer": [q, answer("")],
        "empty-answer-between": [q, answer(""), user("Hello?"), answer("Yes.")],
        "empty-answers": [q, answer(""), user("Hello?"), answer("")],
        "answer-of-none": [q, answer(None), user("Hello?"), answer("Yes.")],
        "empty-question": [user(""), a],
        "empty-question-later": [q, a, user(""), answer("Yes?")],
        "system-only": [system("Be kind.")],
        "system-and-answer": [system("Be kind."), answer("How can I help?"), q, a],
        "two-systems": [system("Be kind."), system("Be brief."), q, a],
        "system-last": [q, a, system("End now.")],
        "three-questions": [q, user("I mean the chapel's."), user("In Rome."), a],
        "two-questions-later": [q, a, asked, user("The one in front."), replied],
        "two-answers": [q, a, answer("In 1512."), *thanks],
        "two-answers-last": [q, a, answer("In 1512.")],
        "answer-only": [answer("Alone.")],
        "many": [m for n in range(6) for m in (user(f"q {n}?"), answer(f"a {n}."))],
        "other-scripts": [
            system("Antworte höflich – ≤ 3 Sätze…"),
            user("Где Эрмитаж? 🏛️ عربي ﷽ e\u0301"),
            answer("В Петербурге.\u00a0\u200bДа! 👩‍👩‍👧\u2028next\u3000"),
        ],
        "markdown": [
            user("# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\n---\n\n1. one\n2. two"),
            answer('### So\n\n```json\n{"a": [1, {"b": null}]}\n```\n\n* **b** _i_ `c`\n\n---\n'),
        ],
        "braces": [user("{{ user }} {% if x %} {# c #} {0} ${v} %s"), answer('{"x": {}}} }} {{')],
        "lines": [user("\n\none\n\n\n\ntwo\n \t\nthree\n\n"), answer("\n\n a\n\n\nb\n\n"), *thanks],
        "tags": [user("<p>Is <b>this</b> right?</p><br/>"), answer("<p>Yes &amp; <i>no</i></p>")],
        "other-tags": [user("<user>hi</user> <|x|> [TAG] <s>"), answer("<answer>42</answer>")],
        "spoken-roles": [user("User: a\nAssistant: b"), answer("### Instruction:\nc\nUSER: d")],
        "named-roles": [user("user"), answer("assistant"), user("system"), answer("tool")],
        "alike": [user("same"), answer("same"), user("same"), answer("same")],
        "quotes": [user('"it\'s \\"so\\"" \\n \\u00e9'), answer("'a' \"b\" \\ / ` ´")],
        "lists": [user("[1, 2]"), answer("[{'kind': 'x'}]")],
        "objects": [user("Give JSON."), answer('{"name": "x", "values": [1, 2]}')],
        "spoken-thought": [user("What is <think>?"), answer("<think> opens, </think> closes.")],
        "inline-thought": [q, answer("<think>\nThe chapel.\n</think>\n\nMichelangelo."), *thanks],
        "thought": [q, answer(ANSWER, reasoning_content="The chapel.\n1512."), *thanks],
        "thoughts": [
            system("Be kind."),
            q,
            answer(ANSWER, reasoning_content="One."),
            asked,
            answer("He.", reasoning_content="Two."),
            *thanks,
        ],
        "thought-only": [q, answer("", reasoning_content="Only thought.")],
        "empty-thought": [q, answer(ANSWER, reasoning_content="")],
        "part": [user([{"type": "text", "text": QUESTION}]), a],
        "parts": [
            system("Be kind."),
            user([{"type": "text", "text": "Look here."}, {"type": "text", "text": " And there."}]),
            answer([{"type": "text", "text": ANSWER}]),
            *thanks,
        ],
    }


def _with_calls() -> dict[str, list[Message]]:
    asked = user("Rain?")
    one = call("get_weather", {"city": "Oslo", "days": 3})
    two = call("search_web", {"query": 'rain & "snow" <now>', "limit": 5, "safe": True}, 2)
    odd = {"a": [1, {"b": None}], "c": "</tool_call>", "d": 1.5}
    nested = call("get_weather", {"city": 'Å "x"\n{y}', "days": -1, "options": odd})
    cities = [call("get_weather", {"city": city}, n) for n, city in enumerate("ABC", 1)]
    found = result('[{"url": "http://a.b"}]', 2, "search_web")
    weather = result('{"rain": {"mm": 1.5, "sure": false}, "note": "a } b"}')
    thanks = (user("Thanks."), answer("You are welcome."))
    return {
        "call": [asked, answer("", tool_calls=[one])],
        "call-with-text": [system("Be kind."), asked, answer("Looking.", tool_calls=[one])],
        "two-calls": [asked, answer("", tool_calls=[one, two])],
        "two-results": [asked, answer("", tool_calls=[one, two]), weather, found, answer("Yes.")],
        "result-of-json": [asked, answer("", tool_calls=[one]), weather, answer("Yes."), *thanks],
        "result-of-lines": [
            asked,
            answer("Looking.", tool_calls=[one]),
            result("It rains.\n\nA lot: <b>5</b> mm."),
            answer("Yes."),
        ],
        "rounds": [
            asked,
            answer("", tool_calls=[one]),
            weather,
            answer("Again.", tool_calls=[two]),
            found,
            answer("Done."),
        ],
        "nested-call": [asked, answer("", tool_calls=[nested])],
        "call-of-nothing": [
            asked,
            answer("", tool_calls=[call("get_weather", {})]),
            result(""),
            answer("Hm."),
        ],
        "thought-call": [
            asked,
            answer("", reasoning_content="I must look.", tool_calls=[one]),
            weather,
            answer("Yes.", reasoning_content="So yes."),
        ],
        "call-left-alone": [
            asked,
            answer("", tool_calls=[one]),
            user("Never mind."),
            answer("Ok."),
        ],
        "text-beside-first-of-three-calls": [
            asked,
            answer("Looking.", tool_calls=cities[:1]),
            result("a", 1),
            answer("", tool_calls=cities[1:2]),
            result("b", 2),
            answer("", tool_calls=cities[2:]),
            result("c", 3),
            answer("Done."),
        ],
        "three-calls": [
            asked,
            answer("", tool_calls=cities),
            *(result(text, n) for n, text in enumerate(("a", "b", "c"), 1)),
            answer("All three."),
        ],
    }


def further() -> list[dict[str, Any]]:
    """Return the conversations, in the corpus' form."""
    plain, calls = _plain(), _with_calls()
    made = [{"id": name, "messages": messages} for name, messages in plain.items()]
    made += [{"id": name, "messages": messages, "tools": TOOLS} for name, messages in calls.items()]
    made.append({"id": "no-tools-given", "messages": calls["two-results"]})
    made.append({"id": "tools-given", "messages": plain["many"], "tools": TOOLS})
    for role in ("answer", "developer", "tool"):
        first = plain["system-and-answer"][1:] if role == "answer" else plain[f"{role}-first"]
        made.append({"id": f"tools-before-{role}", "messages": first, "tools": TOOLS})
    for case in made:
        case["kwargs"] = {"add_generation_prompt": False}
    asking = ("unknown-role-last", "empty-answer", "system-only", "two-results", "three-questions")
    for case in [case for case in made if case["id"] in asking]:
        kwargs = {"add_generation_prompt": True}
        made.append({**case, "id": f"{case['id']}-prompt", "kwargs": kwargs})
    return made
