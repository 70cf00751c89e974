"""Writes internal/prices/prices.json from the data of genai-prices (https://github.com/pydantic/genai-prices, MIT).

    python3 -m venv /tmp/prices
    /tmp/prices/bin/pip install genai-prices==0.2.3
    /tmp/prices/bin/python tools/prices/generate.py > internal/prices/prices.json

Limits on money must hold, so a price that is in doubt is left out, and of several that may apply the highest is taken:
of all tiers, all hours of the day, all kinds of input and of output, and all changes announced for later.
"""

import datetime
import importlib.metadata
import json
import sys

from genai_prices.data import providers
from genai_prices.types import ModelPrice, StartDateConstraint, TieredPrices

# The providers that sell each model at one price, by their words in configuration files. Azure calls models by names that
# its users choose, and Azure and Bedrock have other prices in some regions; what OpenRouter charges depends on where it
# sends a call.
SOLD_BY = {
    'anthropic': 'anthropic',
    'deepseek': 'deepseek',
    'gemini': 'google',
    'groq': 'groq',
    'mistral': 'mistral',
    'openai': 'openai',
    'together': 'together',
}

# Parts of names: of models that charge for searches, too, of those that are not called for text, of names at other sellers,
# and of names that the provider gives to another model from time to time.
LEFT_OUT = ('search', 'deep-research', 'image', 'tts', 'realtime', 'live', 'audio', 'omni', 'transcribe', 'banana', '.ft-', ':', 'latest')

# The beginning of what a provider sells under its own address, if its list has more.
OWN = {'gemini': 'gemini', 'openai': ('gpt-3', 'gpt-4', 'gpt-5', 'gpt-6', 'chatgpt', 'codex', 'o1', 'o3', 'o4')}

# Prices that are not of tokens, and only due for what requests of the server do not ask for.
ON_REQUEST = ('web_searches_kcount', 'storage_searches_kcount', 'cache_write_1h_mtok', 'cache_write_5m_mtok')

CACHE_READ = ('cache_read_mtok', 'cache_text_read_mtok', 'cache_audio_read_mtok', 'cache_image_read_mtok', 'cache_video_read_mtok')


def current(prices, today):
    """Returns the prices that apply today at some hour, or later."""
    if isinstance(prices, ModelPrice):
        return [prices]
    past = [p for p in prices if p.constraint is None or isinstance(p.constraint, StartDateConstraint) and p.constraint.start_date <= today]
    return [p.prices for p in past[-1:] + [p for p in prices if p not in past]]


def highest(price):
    """Returns the price of the dearest tier."""
    if isinstance(price, TieredPrices):
        return max([price.base] + [t.price for t in price.tiers])
    return price


def reduce(prices):
    """Returns the highest price of each kind of tokens, or None if tokens are not all that is charged."""
    found = {}
    for price in prices:
        kinds = {key: highest(value) for key, value in vars(price).items() if value is not None and key not in ON_REQUEST}
        if 'input_mtok' not in kinds or 'output_mtok' not in kinds:
            return None
        for key, value in kinds.items():
            if key in CACHE_READ:
                kind = 'cached_input'
            elif key == 'cache_write_mtok':
                kind = 'cache_write'
            elif key.startswith('input_') and key.endswith('_mtok'):
                kind = 'input'
            elif key.startswith('output_') and key.endswith('_mtok'):
                kind = 'output'
            else:
                return None
            found[kind] = max(found.get(kind, 0), value)
    for kind, key in (('cached_input', 'cache_read_mtok'), ('cache_write', 'cache_write_mtok')):
        if kind in found and not all(getattr(price, key) is not None for price in prices):
            found[kind] = max(found[kind], found['input'])  # which it is where it is not known
    return {kind: float(found[kind]) for kind in ('input', 'cached_input', 'cache_write', 'output') if kind in found}


def words(match):
    """Returns the texts of a condition on names."""
    within = getattr(match, 'or_', None) or getattr(match, 'and_', None)
    if within:
        return [word for clause in within for word in words(clause)]
    return list(vars(match).values())


def names(provider, model):
    """Returns the names under which a model is called, the usual one first. A name that ends with * may be followed by a date."""
    def means(name):
        return provider.find_model(name.lower(), all_providers=[provider]) is model

    found = []
    name = model.id.lower()
    for word in [name] + sorted({w.lower().rstrip('-@') for w in words(model.match)} - {name}):
        dated = means(word + '-20990101') or means(word + '-2099-01-01')
        if means(word):
            found.append(word + ('*' if dated else ''))
    return found


def main():
    today = datetime.date.today()
    models = []
    for word, name in SOLD_BY.items():
        provider = next(p for p in providers if p.id == name)
        for model in provider.models:
            price = reduce(current(model.prices, today))
            called = [n for n in names(provider, model) if n.startswith(OWN.get(word, '')) and not any(part in n for part in LEFT_OUT)]
            if price and called:
                models.append(json.dumps({'provider': word, 'names': called, **price}))
    head = {
        'source': 'https://github.com/pydantic/genai-prices',
        'version': importlib.metadata.version('genai-prices'),
        'date': str(today),
        'license': importlib.metadata.distribution('genai-prices').read_text('licenses/LICENSE'),
    }
    sys.stdout.write(json.dumps(head)[:-1] + ', "models": [\n' + ',\n'.join(models) + '\n]}\n')


main()
