"""The execution of agents: from admission to the terminal record. Internal.

``spec`` describes a run, ``run`` executes it in a nursery, ``tracker`` follows and ends it, ``log``
passes its changes to subscribers, ``delivery`` writes them through, ``persistence`` and
``recovery`` bring them to the store.
"""
