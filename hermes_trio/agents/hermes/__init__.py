"""The agent that drives ``run_agent.AIAgent`` of the package ``hermes-agent`` (extra ``hermes``).

``AIAgent`` is created and runs its turn in one of our threads; its callbacks come from that thread
and from threads of its own. Everything private to ``hermes-agent`` is named in
:mod:`hermes_trio.agents.hermes.compat` and nowhere else.
"""
