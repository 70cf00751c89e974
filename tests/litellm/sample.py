"""Prints what LiteLLM computes for the usage of calls of models, with the prices of its local map, as JSON.

The costs are those of litellm.completion_cost, which the proxy uses for its response header and its spend.
"""

import json
from importlib.metadata import version

import litellm
from litellm.types.utils import CompletionTokensDetailsWrapper, ModelResponse, PromptTokensDetailsWrapper, Usage

MODELS = {
    "openai": ["gpt-4o", "gpt-4.1", "gpt-5", "o3-mini"],
    "anthropic": ["claude-sonnet-4-5", "claude-haiku-4-5"],
    "gemini": ["gemini/gemini-2.5-flash"],
}
PRICES = {
    "input": "input_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "output": "output_cost_per_token",
    "reasoning": "output_cost_per_reasoning_token",
}
# All input tokens, those read from a cache, those written to it, all output tokens, and those of reasoning.
USAGES = [
    (1, 0, 0, 1, 0),
    (1000, 0, 0, 500, 0),
    (1234, 1000, 0, 77, 0),
    (50_000, 1, 0, 4096, 4000),
    (99_999, 99_999, 0, 1, 1),
    (7, 3, 0, 8191, 8191),
]
WRITES = [(5000, 0, 4096, 100, 0), (90_001, 60_000, 30_000, 1024, 0), (33, 11, 22, 3, 0)]


def sample(provider, model, usage):
    inputs, cached, written, outputs, reasoning = usage
    u = Usage(
        prompt_tokens=inputs,
        completion_tokens=outputs,
        total_tokens=inputs + outputs,
        prompt_tokens_details=PromptTokensDetailsWrapper(cached_tokens=cached, cache_creation_tokens=written),
        completion_tokens_details=CompletionTokensDetailsWrapper(reasoning_tokens=reasoning, text_tokens=outputs - reasoning),
        cache_read_input_tokens=cached,
        cache_creation_input_tokens=written,
    )
    cost = litellm.completion_cost(completion_response=ModelResponse(model=model, usage=u), model=model, custom_llm_provider=provider)
    return {
        "usage": {"input": inputs, "cached_input": cached, "cache_write": written, "output": outputs, "reasoning": reasoning},
        "cost_usd": round(cost, 12),
    }


def main():
    models = []
    for provider, names in MODELS.items():
        for name in names:
            price = litellm.model_cost[name]
            usages = USAGES + (WRITES if price.get(PRICES["cache_write"]) else [])
            models.append({
                "provider": provider,
                "model": name,
                "usd_per_token": {ours: price[theirs] for ours, theirs in PRICES.items() if price.get(theirs) is not None},
                "samples": [sample(provider, name, u) for u in usages],
            })
    print(json.dumps({"litellm": version("litellm"), "models": models}, indent=1))


main()
