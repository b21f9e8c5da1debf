"""The agent of all nodes: commands go to the demo agent, everything else describes a synthetic load."""

from __future__ import annotations

from hermes_trio.agent.interface import AgentContext
from hermes_trio.agents import demo, synthetic
from hermes_trio.agents.demo import DemoAgent
from hermes_trio.agents.synthetic import AsyncSyntheticAgent, SyntheticAgent


def factory(context: AgentContext) -> DemoAgent | SyntheticAgent | AsyncSyntheticAgent:
    """Create the agent for one turn."""
    is_command = context.turn.text.startswith("/")
    return demo.factory(context) if is_command else synthetic.factory(context)
