"""The agent that drives ``run_agent.AIAgent`` of the package ``hermes-agent`` (extra ``hermes``).

It is made, and runs its turn, in one thread of ours; it speaks from that thread and from threads of its own. Everything
that is private to ``hermes-agent`` is named in :mod:`hermes_trio.agents.hermes.private` and nowhere else.
"""
