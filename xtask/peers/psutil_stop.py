"""psutil as a program would use it that runs already: a line is one order, an answer is one line."""
import subprocess
import sys

import psutil

child = None
for line in sys.stdin:
    order, *words = line.split()
    if order == "start":
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        print("started", flush=True)
    else:
        root = psutil.Process(child.pid)
        tree = [root, *root.children(recursive=True)]
        for process in tree:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        child.wait()
        gone, alive = psutil.wait_procs(tree, timeout=30)
        print(len(alive), flush=True)
