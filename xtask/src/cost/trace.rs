//! System calls, counted from what `strace -ff` has written: a file for each process.

/// How many calls a process has made until it became one of the `jobs`: what those do is their own affair.
pub fn calls(text: &str, jobs: &[&str]) -> u64 {
    let mut count = 0;
    for line in text.lines() {
        // What else is there: signals (`---`) and the end (`+++`).
        let Some((name, rest)) = line.split_once('(') else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
            continue;
        }
        count += 1;
        let program = || rest.trim_start_matches('"').split('"').next().unwrap_or_default();
        if name == "execve" && line.ends_with(" = 0") && jobs.contains(&program()) {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::calls;

    const TEXT: &str = "\
execve(\"/tmp/quell\", [\"/tmp/quell\", \"run\"], 0x7ff /* 3 vars */) = 0
read(3, \"(\", 1)                         = 1
--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=9} ---
execve(\"/bin/true\", [\"true\"], 0x7ff) = -1 ENOENT (No such file or directory)
execve(\"/bin/true\", [\"true\"], 0x7ff) = 0
brk(NULL)                               = 0x55
+++ exited with 0 +++
";

    #[test]
    fn what_the_job_does_is_not_counted() {
        assert_eq!(calls(TEXT, &["/bin/true"]), 4);
    }
}
