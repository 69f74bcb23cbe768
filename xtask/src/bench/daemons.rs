//! Peers that need a daemon, or that are a library of another language: each with the best settings that it has.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::bench_env::{BenchEnv, finish, output, until};
use super::peers::on_path;

/// pueue with its daemon.
pub struct Pueue<'a, 'p> {
    env: &'a BenchEnv<'p>,
    client: PathBuf,
}

impl<'a, 'p> Pueue<'a, 'p> {
    /// Starts the daemon; `parallel` jobs at once, 0 for no limit.
    pub fn start(env: &'a BenchEnv<'p>, parallel: usize) -> Result<Self, String> {
        let (client, daemon) = (env.peers.get("pueue")?, env.peers.get("pueued")?);
        let dir = env.path("pueue");
        std::fs::create_dir(&dir).map_err(|why| format!("{}: {why}", dir.display()))?;
        let place = dir.display();
        let text = format!(
            "shared:\n  pueue_directory: {place}\n  runtime_directory: {place}\n  use_unix_socket: true\n\
             client: {{}}\ndaemon: {{}}\n"
        );
        let config = env.path("pueue.yml");
        std::fs::write(&config, text).map_err(|why| format!("{}: {why}", config.display()))?;
        let mut command = env.command(daemon);
        command.arg("-c").arg(&config);
        env.daemon(command)?;
        let pueue = Self { env, client };
        until("pueued answers", || finish(pueue.client(&["status"])).is_ok())?;
        finish(pueue.client(&["parallel", &parallel.to_string()]))?;
        Ok(pueue)
    }

    /// `pueue WORDS…`.
    pub fn client(&self, words: &[&str]) -> Command {
        let mut command = self.env.command(&self.client);
        command.arg("-c").arg(self.env.path("pueue.yml")).args(words);
        command
    }

    /// Whether no task waits or runs any more.
    pub fn all_done(&self) -> Result<bool, String> {
        let tasks = &self.status()?["tasks"];
        Ok(tasks.as_object().into_iter().flatten().all(|(_, task)| task["status"]["Done"].is_object()))
    }

    /// Whether this task is over.
    pub fn done(&self, id: &str) -> Result<bool, String> {
        Ok(self.status()?["tasks"][id]["status"]["Done"].is_object())
    }

    fn status(&self) -> Result<serde_json::Value, String> {
        let (text, _) = output(self.client(&["status", "--json"]))?;
        serde_json::from_str(&text).map_err(|why| format!("pueue status: {why}"))
    }

    /// Adds a task that starts at once: its number, and how long it took to get it.
    pub fn add(&self, words: &[String]) -> Result<(String, f64), String> {
        let mut command = self.client(&["add", "--immediate", "--print-task-id", "--"]);
        command.args(words);
        output(command)
    }
}

/// agent-exec, which has a supervisor for each job.
pub struct AgentExec<'a, 'p> {
    env: &'a BenchEnv<'p>,
    program: PathBuf,
}

impl<'a, 'p> AgentExec<'a, 'p> {
    pub fn find(env: &'a BenchEnv<'p>) -> Result<Self, String> {
        Ok(Self { env, program: env.peers.get("agent-exec")? })
    }

    /// `agent-exec WORDS…`.
    pub fn call(&self, words: &[&str]) -> Command {
        let mut command = self.env.command(&self.program);
        command.args(words);
        command
    }

    /// Starts a job: its id, and how long it took to get it.
    pub fn start(&self, words: &[String]) -> Result<(String, f64), String> {
        let mut command = self.call(&["run", "--no-wait", "--"]);
        command.args(words);
        let (text, elapsed) = output(command)?;
        let json: serde_json::Value =
            serde_json::from_str(&text).map_err(|why| format!("agent-exec run: {why}"))?;
        let id = json["job_id"].as_str().ok_or("agent-exec run: no job_id")?;
        Ok((id.to_owned(), elapsed))
    }
}

/// supervisord, with one program, `job`, that it starts on demand and stops as a group.
pub struct Supervisor<'a, 'p> {
    env: &'a BenchEnv<'p>,
    ctl: PathBuf,
    config: PathBuf,
}

impl<'a, 'p> Supervisor<'a, 'p> {
    pub fn start(env: &'a BenchEnv<'p>, words: &[String]) -> Result<Self, String> {
        let daemon = env.peers.get("supervisord")?;
        let place = env.fresh("supervisor");
        std::fs::create_dir(&place).map_err(|why| format!("{}: {why}", place.display()))?;
        let (dir, words) = (place.display(), words.join(" "));
        let text = format!(
            "[unix_http_server]\nfile={dir}/sock\n[supervisord]\nnodaemon=true\nlogfile={dir}/log\n\
             pidfile={dir}/pid\nchildlogdir={dir}\n[rpcinterface:supervisor]\n\
             supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n\
             [supervisorctl]\nserverurl=unix://{dir}/sock\n\
             [program:job]\ncommand={words}\nautostart=false\nautorestart=false\nstartsecs=0\n\
             stopasgroup=true\nkillasgroup=true\nstopwaitsecs=1\n"
        );
        let config = place.join("conf");
        std::fs::write(&config, text).map_err(|why| format!("{}: {why}", config.display()))?;
        let ctl = daemon.with_file_name("supervisorctl");
        let mut command = env.command(daemon);
        command.arg("-c").arg(&config);
        env.daemon(command)?;
        until("supervisord answers", || place.join("sock").exists())?;
        Ok(Self { env, ctl, config })
    }

    /// `supervisorctl WORDS…`.
    pub fn ctl(&self, words: &[&str]) -> Command {
        let mut command = self.env.command(&self.ctl);
        command.arg("-c").arg(&self.config).args(words);
        command
    }
}

/// pm2, whose daemon comes with the first call and has to be told to go.
pub struct Pm2<'a, 'p> {
    env: &'a BenchEnv<'p>,
    script: PathBuf,
}

impl<'a, 'p> Pm2<'a, 'p> {
    pub fn start(env: &'a BenchEnv<'p>) -> Result<Self, String> {
        let pm2 = Self { env, script: env.peers.get("pm2")? };
        finish(pm2.call(&["ping"]))?;
        Ok(pm2)
    }

    /// `pm2 WORDS…`.
    pub fn call(&self, words: &[&str]) -> Command {
        let mut command = self.env.command(on_path("node").unwrap_or_default());
        command.arg(&self.script).args(words);
        command
    }
}

impl Drop for Pm2<'_, '_> {
    fn drop(&mut self) {
        let _ = finish(self.call(&["kill"]));
    }
}

/// A program that takes orders line by line: psutil or tree-kill in their own language, already running.
pub struct Orders {
    child: Child,
    pipes: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Orders {
    pub fn psutil(env: &BenchEnv<'_>) -> Result<Self, String> {
        let mut command = env.command(env.peers.get("psutil")?);
        command.arg(script("psutil_stop.py"));
        Self::start(command)
    }

    pub fn tree_kill(env: &BenchEnv<'_>) -> Result<Self, String> {
        let module = env.peers.get("tree-kill")?;
        let modules = module.ancestors().nth(2).map(Path::to_owned).unwrap_or_default();
        let mut command = env.command(on_path("node").ok_or("node is not on the PATH")?);
        command.arg(script("tree_kill_stop.js")).env("NODE_PATH", modules);
        Self::start(command)
    }

    fn start(mut command: Command) -> Result<Self, String> {
        let failed = |why| format!("peer: {why}");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => {
                Ok(Self { child, pipes: RefCell::new((input, BufReader::new(output))) })
            }
            _ => Err("peer: no pipes".into()),
        }
    }

    /// One order and its answer.
    pub fn ask(&self, order: &str) -> Result<String, String> {
        let failed = |why| format!("peer: {why}");
        let (input, output) = &mut *self.pipes.borrow_mut();
        writeln!(input, "{order}").map_err(failed)?;
        let mut answer = String::new();
        match output.read_line(&mut answer).map_err(failed)? {
            0 => Err("peer: it has ended".into()),
            _ => Ok(answer.trim().to_owned()),
        }
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}
