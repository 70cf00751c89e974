"""The shop as an MCP server on standard input and output: the state of an order, and refunds.

LEDGER names the file in which refunds are kept; without it they end with the program. A refund is booked once for each
key that team-server sends with a call, so that a call that is repeated after a crash pays nothing twice.
"""

import json
import os
import sys

ORDERS = {"A-17": {"item": "kettle", "paid": 49.0, "state": "delivered"}, "B-3": {"item": "lamp", "paid": 20.0, "state": "sent"}}
LEDGER = os.environ.get("LEDGER")
NUMBER = {"type": "string", "description": "Number of the order, such as A-17."}
TOOLS = [
    {
        "name": "order",
        "description": "Returns what was ordered, what was paid, and where it is.",
        "inputSchema": {"type": "object", "properties": {"number": NUMBER}, "required": ["number"]},
    },
    {
        "name": "refund",
        "description": "Pays money back.",
        "inputSchema": {
            "type": "object",
            "properties": {"number": NUMBER, "amount": {"type": "number", "exclusiveMinimum": 0, "description": "EUR."}},
            "required": ["number", "amount"],
        },
    },
]
refunds = {}
if LEDGER and os.path.exists(LEDGER):
    with open(LEDGER) as file:
        refunds = json.load(file)


def refund(key, number, amount):
    if key in refunds:
        return
    paid_back = sum(r["amount"] for r in refunds.values() if r["number"] == number)
    if amount + paid_back > ORDERS[number]["paid"]:
        raise ValueError(f"only {ORDERS[number]['paid'] - paid_back:.2f} EUR are left of order {number}")
    refunds[key] = {"number": number, "amount": amount}
    if LEDGER:
        with open(LEDGER + ".new", "w") as file:
            json.dump(refunds, file)
        os.replace(LEDGER + ".new", LEDGER)


def call(name, arguments, meta):
    number = str(arguments.get("number"))
    if number not in ORDERS:
        raise ValueError(f"there is no order {number}")
    if name == "order":
        return json.dumps(ORDERS[number])
    amount = float(arguments["amount"])
    refund(meta.get("team-server/key", str(len(refunds))), number, amount)
    return f"Refunded {amount:.2f} EUR for order {number}."


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "shop", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "ping":
        return {}
    if method != "tools/call":
        raise LookupError(method)
    try:
        return {"content": [{"type": "text", "text": call(params["name"], params.get("arguments") or {}, params.get("_meta") or {})}]}
    except (KeyError, TypeError, ValueError) as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message["method"], message.get("params") or {})
    except LookupError as error:
        reply["error"] = {"code": -32601, "message": f"no method {error}"}
    print(json.dumps(reply), flush=True)
