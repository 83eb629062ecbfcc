"""Conversations as environments. Names are loaded on first use: importing this imports no torch."""

from __future__ import annotations

from antiphon.lazy import lazy_exports

_EXPORTS = {
    "Composite": "antiphon.envs.specs",
    "Spec": "antiphon.envs.specs",
    "NonTensor": "antiphon.envs.specs",
    "Unbounded": "antiphon.envs.specs",
    "Bounded": "antiphon.envs.specs",
    "Categorical": "antiphon.envs.specs",
    "ChatEnv": "antiphon.envs.chat",
    "Conversation": "antiphon.envs.conversation",
    "Prompter": "antiphon.envs.conversation",
    "Reply": "antiphon.envs.tasks",
    "Task": "antiphon.envs.tasks",
    "FunctionTask": "antiphon.envs.tasks",
    "WordProblems": "antiphon.envs.tasks",
    "Compose": "antiphon.envs.transformed",
    "extract_answer": "antiphon.envs.answers",
    "DataLoadingPrimer": "antiphon.envs.data",
    "RowLoader": "antiphon.envs.rows",
    "DatasetChatEnv": "antiphon.envs.dataset",
    "LLMHashingEnv": "antiphon.envs.hashing",
    "SipHash": "antiphon.envs.hashing",
    "LLMEnv": "antiphon.envs.llm",
    "Tool": "antiphon.envs.tools",
    "ToolBox": "antiphon.envs.tools",
    "ToolTransform": "antiphon.envs.tools",
    "MCPConnection": "antiphon.envs.mcp",
    "MCPToolTransform": "antiphon.envs.mcp",
    "SimulatedUser": "antiphon.envs.simulated",
    "UserSide": "antiphon.envs.simulated",
    "ReplyTransform": "antiphon.envs.tools",
    "AddThinkingPrompt": "antiphon.envs.thinking",
    "RetrieveLogProb": "antiphon.envs.kl",
    "KLComputation": "antiphon.envs.kl",
    "RetrieveKL": "antiphon.envs.kl",
    "KLRewardTransform": "antiphon.envs.kl",
    "PolicyVersion": "antiphon.envs.selection",
    "Tokenizer": "antiphon.envs.tokenizer",
    "TopKRewardSelector": "antiphon.envs.selection",
    "FormatReward": "antiphon.envs.selection",
    "LengthReward": "antiphon.envs.selection",
    "AnswerReward": "antiphon.envs.selection",
    "PythonInterpreter": "antiphon.envs.python",
    "PythonSandbox": "antiphon.envs.python",
    "LLMCollector": "antiphon.envs.collector",
    "EnvBase": "antiphon.envs.base",
    "check_env": "antiphon.envs.checking",
    "step_mdp": "antiphon.envs.base",
    "Transform": "antiphon.envs.transformed",
    "TransformedEnv": "antiphon.envs.transformed",
}

__all__ = sorted(_EXPORTS)  # noqa: PLE0605

__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
