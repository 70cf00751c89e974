"""LangGraph API as a server, `python script.py`; it is no client of A2A."""

import json
import os
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

NIGHT = str(Path(__file__).resolve().parent.parent)
sys.path.insert(0, NIGHT)
from common import OUT

GRAPH = '''
import asyncio
import sys

sys.path.insert(0, NIGHT)
from common import reply
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


async def answer(state):
    said, asked = state["messages"][-1].text, False
    if said == "wait":
        await asyncio.Event().wait()
    if said == "ask":
        said, asked = interrupt("Which city?"), True
    text = "".join(reply(said, asked))
    model = GenericFakeChatModel(messages=iter([AIMessage(text)]))  # streams word by word
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").add_edge("answer", END).compile(name="peer")
'''


def get(url, body=None):
    request = urllib.request.Request(url, data=body and json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def announce(url):
    for _ in range(600):
        try:
            [assistant] = get(f"{url}/assistants/search", {"graph_id": "peer"})
            break
        except (OSError, ValueError):
            time.sleep(0.1)
    print(f"ready {url}/a2a/{assistant['assistant_id']}", file=OUT, flush=True)


with tempfile.TemporaryDirectory() as folder:
    graph = Path(folder) / "graph.py"
    graph.write_text(f"NIGHT = {NIGHT!r}\n" + GRAPH)
    os.chdir(folder)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    # Nothing is lost when it ends at once: it keeps nothing.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    threading.Thread(target=announce, args=[f"http://127.0.0.1:{port}"], daemon=True).start()
    from langgraph_api.cli import run_server

    run_server(host="127.0.0.1", port=port, graphs={"peer": f"{graph}:graph"}, disable_persistence=True, env={"LANGSMITH_TRACING": "false"})
