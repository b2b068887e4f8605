"""What the module `resource` does, whatever its broker is."""

HAVE = {"Cpu": 16, "Memory": 4096, "Storage": 1000}
taken = {}  # by task: twice is once, and what was not taken can be given back


def check_resource(task, want):
    for name in HAVE:
        if want[name] > HAVE[name]:
            raise ValueError(f"{want[name]} of {name} are wanted, and there are {HAVE[name]}")


def deduct_resource(task, want):
    for name in HAVE:
        left = HAVE[name] - sum(other[name] for other in taken.values())
        if task not in taken and want[name] > left:
            raise ValueError(f"{want[name]} of {name} are wanted, and {left} are left")
    taken[task] = want
    return {"Reserved": True}


def restore_resource(task, want):
    taken.pop(task, None)


COMMANDS = {command.__name__: command for command in (check_resource, deduct_resource, restore_resource)}


def results(step, token):
    """Runs a step. Gives what is to be told of it: that it began, and how it ended."""
    about = {"TaskId": step["TaskId"], "Cursor": step["Cursor"], "Type": step["Type"], "Token": token}
    yield {**about, "Event": "started"}
    try:
        result = COMMANDS[step["Command"]](step["TaskId"], step["Parameters"])
        yield {**about, "Event": "succeeded", "Parameters": result or {}}
    except (KeyError, TypeError, ValueError) as error:  # 65: another try cannot help
        yield {**about, "Event": "failed", "Code": 65, "Message": str(error)}
