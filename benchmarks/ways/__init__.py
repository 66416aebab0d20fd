"""The competitors: each function prepares a task and returns the action that is measured.

Rules of this folder: a module imports only what its competitor needs, at the top, so that importing
is never measured; preparing is not measured; an action returns facts to be kept in the results.
"""
