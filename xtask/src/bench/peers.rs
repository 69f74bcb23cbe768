//! The tools that quell is measured beside. They are installed by package name, into a directory of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::options::Options;

enum From {
    /// A Debian package, as root; else it has to be there.
    Debian(&'static str),
    Cargo(&'static str),
    Python(&'static str),
    Node(&'static str),
}

/// Name, where from, the file that shows that it is there, and how it tells its version.
const PEERS: &[(&str, From, &str, &[&str])] = &[
    ("timeout", From::Debian("coreutils"), "timeout", &["--version"]),
    ("setsid", From::Debian("util-linux"), "setsid", &["--version"]),
    ("tini", From::Debian("tini"), "tini", &["--version"]),
    ("dumb-init", From::Debian("dumb-init"), "dumb-init", &["--version"]),
    ("bwrap", From::Debian("bubblewrap"), "bwrap", &["--version"]),
    ("agent-exec", From::Cargo("agent-exec"), "agent-exec", &["--version"]),
    ("pueue", From::Cargo("pueue"), "pueue", &["--version"]),
    ("pueued", From::Cargo("pueue"), "pueued", &["--version"]),
    ("supervisord", From::Python("supervisor"), "bin/supervisord", &["--version"]),
    (
        "psutil",
        From::Python("psutil"),
        "bin/python",
        &["-c", "import psutil; print('psutil', psutil.__version__)"],
    ),
    ("tree-kill", From::Node("tree-kill"), "node_modules/tree-kill/index.js", &[]),
    ("pm2", From::Node("pm2"), "node_modules/pm2/bin/pm2", &[]),
];

struct Peer {
    name: &'static str,
    found: Result<(PathBuf, String), String>,
}

/// All of them, there or missing.
pub struct Peers(Vec<Peer>);

impl Peers {
    /// Looks for each, and installs what is missing and can be had.
    pub fn gather(options: &Options) -> Self {
        let peer = |(name, from, file, version): &(&'static str, From, &str, &[&str])| {
            let found = from.find(&options.peers, file).or_else(|why| {
                if !options.install {
                    return Err(why);
                }
                eprintln!("installing {name}");
                from.install(&options.peers)?;
                from.find(&options.peers, file)
            });
            let found = found.and_then(|path| Ok((path.clone(), from.version(&path, version)?)));
            Peer { name, found }
        };
        Self(PEERS.iter().map(peer).collect())
    }

    /// Where it is, or why it is missing.
    pub fn get(&self, name: &str) -> Result<PathBuf, String> {
        let peer = self.0.iter().find(|peer| peer.name == name).ok_or("not a known peer")?;
        peer.found.as_ref().map(|(path, _)| path.clone()).map_err(String::clone)
    }

    /// The number of its version.
    pub fn version(&self, name: &str) -> Option<&str> {
        let peer = self.0.iter().find(|peer| peer.name == name)?;
        let (_, text) = peer.found.as_ref().ok()?;
        let number = |word: &&str| word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit());
        text.split_whitespace().find(number)
    }

    pub fn json(&self) -> Value {
        let json = |peer: &Peer| match &peer.found {
            Ok((_, version)) => json!({"name": peer.name, "version": version}),
            Err(why) => json!({"name": peer.name, "missing": why}),
        };
        self.0.iter().map(json).collect()
    }
}

impl From {
    fn find(&self, dir: &Path, file: &str) -> Result<PathBuf, String> {
        let path = match self {
            From::Debian(_) => return on_path(file).ok_or(format!("{file} is not on the PATH")),
            From::Cargo(_) => dir.join("cargo/bin").join(file),
            From::Python(_) => dir.join("python").join(file),
            From::Node(_) => dir.join("node").join(file),
        };
        let there = match self {
            // The interpreter alone does not prove that the package is installed.
            From::Python("psutil") => package_of(&path, "psutil"),
            _ => path.exists(),
        };
        if there { Ok(path) } else { Err("not installed".into()) }
    }

    fn install(&self, dir: &Path) -> Result<(), String> {
        let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
        match self {
            From::Debian(_) if !rustix::process::geteuid().is_root() => {
                Err("not installed, and only root can install it".into())
            }
            From::Debian(package) => {
                let words = ["install", "-y", "-qq", "--no-install-recommends", package];
                run(Command::new("apt-get").args(words).env("DEBIAN_FRONTEND", "noninteractive"))
            }
            From::Cargo(package) => run(Command::new("cargo")
                .args(["install", "--quiet", "--locked", "--root", &path("cargo"), package])
                .env("CARGO_TARGET_DIR", dir.join("build"))),
            From::Python(package) => {
                if !dir.join("python/bin/pip").exists() {
                    run(Command::new("python3").args(["-m", "venv", &path("python")]))?;
                }
                run(Command::new(dir.join("python/bin/pip")).args(["install", "--quiet", package]))
            }
            From::Node(package) => {
                run(Command::new("npm").args(["install", "--silent", "--prefix", &path("node"), package]))
            }
        }
    }

    fn version(&self, path: &Path, words: &[&str]) -> Result<String, String> {
        if let From::Node(package) = self {
            on_path("node").ok_or("node is not on the PATH")?;
            let file = path.ancestors().find(|dir| dir.ends_with(format!("node_modules/{package}")));
            let text = file.and_then(|dir| std::fs::read_to_string(dir.join("package.json")).ok());
            let json: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
            return Ok(json.and_then(|json| json["version"].as_str().map(str::to_owned)).unwrap_or_default());
        }
        let output = Command::new(path).args(words).stdin(Stdio::null()).output();
        let output = output.map_err(|why| format!("{}: {why}", path.display()))?;
        let text = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned())
    }
}

/// Runs an installer; its last words are the reason if it fails.
fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|why| format!("{program}: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} failed: {}", said.lines().last().unwrap_or_default()))
}

fn package_of(python: &Path, package: &str) -> bool {
    let import = format!("import {package}");
    let status =
        Command::new(python).args(["-c", &import]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A program on the PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| quell_sys::may_execute(file))
}
