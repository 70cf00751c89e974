"""An agent that echoes, on LangGraph's development server: server.py FOLDER.

The server is that of `langgraph dev`, with its queue and its tasks in memory, and writes a copy of them
below the folder. The URL for JSON-RPC is printed when the server answers.
"""

import json
import os
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path

os.environ.update(LANGSMITH_TRACING="false", LANGGRAPH_CLI_NO_ANALYTICS="1")

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph


def echo(state):
    return {"messages": [AIMessage(content=state["messages"][-1].content)]}


graph = StateGraph(MessagesState).add_node("echo", echo).add_edge(START, "echo").add_edge("echo", END).compile()


def announce(port):
    """Prints the URL as soon as the server knows the id of its agent."""
    search = urllib.request.Request(
        f"http://127.0.0.1:{port}/assistants/search", b"{}", {"Content-Type": "application/json"}
    )
    while True:
        try:
            with urllib.request.urlopen(search) as response:
                found = json.load(response)
        except OSError:
            found = []
        if found:
            print(f"ready http://127.0.0.1:{port}/a2a/{found[0]['assistant_id']}", flush=True)
            return
        time.sleep(0.05)


if __name__ == "__main__":
    from langgraph_api.cli import run_server

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    threading.Thread(target=announce, args=(port,), daemon=True).start()
    source = Path(__file__).resolve()
    os.chdir(sys.argv[1])
    run_server(port=port, graphs={"echo": f"{source}:graph"})
