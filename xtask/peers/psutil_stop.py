"""psutil as a program would use it that runs already: a line is one order, an answer is one line."""
import subprocess
import sys
import time

import psutil


def lives(process):
    """A zombie doesn't: it only waits for its parent, which may be an init that takes its time."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


child = None
for line in sys.stdin:
    order, *words = line.split()
    if order == "start":
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        print("started", flush=True)
        continue
    root = psutil.Process(child.pid)
    tree = [root, *root.children(recursive=True)]
    for process in tree:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    child.wait()
    alive = tree
    while alive := [process for process in alive if lives(process)]:
        time.sleep(0.0005)
    print(len(alive), flush=True)
