from antiphon.testing import FamilyContract


class TestQwen3(FamilyContract):
    names = ("qwen3",)
    system = tools = calls = parallel_calls = tool_results = reasoning = True
