"""A search from plan to closing sentence: plan, evaluate, run, confirm."""
