"""What the machine has to give, and who was given how much: a JSON file that is replaced whole."""

import json

from common import folder, read, refuse, replace

FILE = folder / "ledger.json"


def load():
    """The capacity, and the grants by task."""
    text = read(FILE)
    if not text:
        refuse(f'there is no ledger at {FILE}: write one such as {{"capacity": {{"cpu": 16, "memory": 4096, "storage": 1000}}}}')
    ledger = json.loads(text)
    ledger.setdefault("grants", {})
    return ledger


def save(ledger):
    replace(FILE, json.dumps(ledger, indent=2) + "\n")


def left(ledger):
    """What was not given away."""
    taken = [grant for grant in ledger["grants"].values() if grant]
    return {what: most - sum(grant[what] for grant in taken) for what, most in ledger["capacity"].items()}
