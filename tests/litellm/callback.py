"""Writes what LiteLLM says that each call has cost, as lines of JSON, to the file COST_LOG."""

import json
import os

from litellm.integrations.custom_logger import CustomLogger


class CostLog(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        line = json.dumps({"model": kwargs.get("model"), "cost": kwargs.get("response_cost")})
        with open(os.environ["COST_LOG"], "a", encoding="utf-8") as f:
            f.write(line + "\n")


costs = CostLog()
