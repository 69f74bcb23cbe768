// tree-kill as a program would use it that runs already: a line is one order, an answer is one line.
const { spawn } = require("child_process");
const kill = require("tree-kill");

let child;
require("readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    const [order, program, ...words] = line.split(" ");
    if (order === "start") {
      child = spawn(program, words, { stdio: "ignore" });
      console.log("started");
      return;
    }
    // Both: every signal is sent, and the first process is gone. It doesn't look at the others.
    let left = 2;
    const done = () => --left || console.log("0");
    child.on("exit", done);
    kill(child.pid, "SIGKILL", done);
  });
