//! Reads all layers and combines them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use quell_core::Mask;
use quell_guard::Policy;

use super::find::{FileOwner, Here};
use super::keys::{Form, KEYS, Key, Problem, SECTIONS, one_line};
use super::settings_file::{self, Settings};
use super::{Config, ConfigFile, Layer, SettingOrigin, Sourced, find, guard, hooks, suggest};
use crate::Error;

/// The variable of `start.mask`.
const MASK_VARIABLE: &str = "QUELL_START_MASK";

/// Tables that can only be set in files, not by variables.
const FILE_SECTIONS: [&str; 3] = ["guard", "hooks", "trust"];

/// Variables that are not settings: paths of quell's files, and what quell passes to the processes of a job.
const OTHERS: [&str; 7] =
    ["QUELL_HOME", "QUELL_CONFIG", "QUELL_BIN", "QUELL_SESSION", "QUELL_JOB", "QUELL_MARK", "QUELL_LOG"];

/// Variables of quell's tests and tools (`tests/README.md`), which a quell under test inherits. Without `QUELL_`.
const DEVELOPMENT: &str = "ACTOR BENCH BENCH_WORKER BLESS CAMPAIGN_CLOCK CLOCK_BIN CLOCK_LIBRARY FAULT FAULTS_BIN FAULT_LOG FUZZ_ROUNDS \
    TEST_AFTER_FRONT TEST_ALONE TEST_CROWD TEST_HOME TEST_JOBS TEST_PART TEST_PROGRAM TEST_READY TEST_REPEAT \
    TEST_REQUIRE TEST_RESTART TEST_ROUNDS TEST_SOCKET TEST_TURN TEST_VOLUME VM_KERNEL";

/// The settings, and the origin of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Each setting as text with its origin, in a fixed order: the settings, the hooks as `hooks[1]`, `hooks[2]`, …, then
    /// `trust.projects`.
    pub values: Vec<Sourced>,
    /// The files that were read, weakest first.
    pub files: Vec<ConfigFile>,
    /// Which settings were ignored, and why.
    pub warnings: Vec<String>,
    /// The keys of the guard that were set, with the layer that set them.
    ruled: Vec<(&'static str, Layer)>,
}

impl Config {
    /// Combines all layers: the defaults, the user's file, the project's file for the directory `cwd`, and the variables in
    /// `environment`. A missing file is an error only if QUELL_CONFIG names it. Writes nothing.
    pub fn load(
        cwd: &Path,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Loaded, Error> {
        Loaded::of(&Here::at(cwd), &Environment::new(environment))
    }

    /// The settings from files only. Used by the guard, which no variable can change.
    pub(crate) fn from_files_here() -> Result<Self, Error> {
        let mut loaded = Loaded::defaults();
        loaded.read_files(&Here::now(), &Environment::new(std::env::vars_os()), |read| read)?;
        Ok(loaded.config)
    }

    /// Only the refusals of the files that can be read. Used when one of the files is damaged: a mistake in one file must not
    /// cancel what another file refuses, and nothing is allowed from a partly read policy.
    pub(crate) fn refusals_here() -> Policy {
        let environment = Environment::new(std::env::vars_os());
        let mut loaded = Loaded::defaults();
        let _ = loaded.read_files(&Here::now(), &environment, |_| Ok(()));
        let Policy { max_effect, deny, .. } = loaded.config.guard;
        Policy { max_effect, deny, ..Policy::default() }
    }

    /// The masked values by all settings that can be read. Used for messages about settings that can't be used.
    pub fn readable_mask_here() -> Mask {
        let environment = Environment::new(std::env::vars_os());
        let mut loaded = Loaded::defaults();
        let _ = loaded.read_files(&Here::now(), &environment, |_| Ok(()));
        let names = environment.0.get(OsStr::new(MASK_VARIABLE)).map(|names| names.to_string_lossy());
        let names = names.iter().flat_map(|names| names.split(',')).map(|name| name.trim().to_owned());
        loaded.config.start.mask.extend(names);
        loaded.config.mask()
    }

    /// Whether quell reads settings from `path`, or would if the file existed. `path` contains no links.
    pub fn is_read_from(path: &Path, cwd: &Path) -> bool {
        let environment = Environment::new(std::env::vars_os());
        let machine = Path::new(guard::MACHINE_FILE).parent().map(Path::to_owned);
        let own = environment.config_dir(environment.home().as_deref()).map(|dir| dir.join("quell"));
        let named = environment.path("QUELL_CONFIG").map(|path| cwd.join(path));
        let mut places = [machine, own, named].into_iter().flatten();
        let is_in = |place: PathBuf| path.starts_with(place.canonicalize().unwrap_or(place));
        path.file_name() == Some(OsStr::new(find::PROJECT_FILE)) || places.any(is_in)
    }

    /// The settings for the directory and the environment of this process. Without a working directory there is no project.
    pub fn load_here() -> Result<Loaded, Error> {
        Loaded::of(&Here::now(), &Environment::new(std::env::vars_os()))
    }
}

impl Loaded {
    fn defaults() -> Self {
        let default = |key: &Key| Sourced {
            key: key.full.into(),
            value: key.default.to_owned(),
            source: SettingOrigin::Default,
        };
        let mut values: Vec<Sourced> = KEYS.iter().map(default).collect();
        let trust =
            Sourced { key: "trust.projects".into(), value: String::new(), source: SettingOrigin::Default };
        values.push(trust);
        Self { config: Config::default(), values, files: Vec::new(), warnings: Vec::new(), ruled: Vec::new() }
    }

    fn of(here: &Here, environment: &Environment) -> Result<Self, Error> {
        let mut loaded = Self::defaults();
        loaded.read_files(here, environment, |read| read)?;
        let approval = loaded.config.guard.test.approval_variable.clone();
        for (key, name, text) in environment.settings(&approval)? {
            loaded.put(key, &text, SettingOrigin::Env { name });
        }
        Ok(loaded)
    }

    /// Reads all files, the strongest for the guard first. `read` decides whether a damaged file is an error.
    fn read_files(
        &mut self,
        here: &Here,
        environment: &Environment,
        read: impl Fn(Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let home = environment.home();
        let home = home.as_deref();
        let machine = Path::new(guard::MACHINE_FILE);
        let machine_dir = find::has_machine_dir(machine.parent().unwrap_or(machine));
        if !matches!(machine_dir, Ok(false)) {
            read(machine_dir.map(drop))?;
            if find::is_there(machine) {
                read(self.read_file(machine, Layer::Machine, true, home))?;
            }
        }
        let user = match environment.user_file(&here.dir, home) {
            Ok(user) => user,
            Err(error) => read(Err(error)).map(|()| None)?,
        };
        if let Some(path) = &user {
            read(self.read_file(path, Layer::User, true, home))?;
        }
        let own = environment.config_dir(home).map(|dir| dir.join("quell").join(find::GUARD_FILE));
        if let Some(path) = own.filter(|path| path.symlink_metadata().is_ok()) {
            read(self.read_file(&path, Layer::User, true, home))?;
        }
        let trusted = find::physical(&self.config.trusted);
        let project = find::project_file(here, &trusted)
            .filter(|path| user.as_deref().is_none_or(|user| !same_file(user, path)));
        if let Some(path) = &project {
            let trusted = path.parent().is_some_and(|dir| trusted.iter().any(|trusted| trusted == dir));
            read(self.read_file(path, Layer::Project, trusted, home))?;
        }
        Ok(())
    }

    /// Applies the value of a command-line flag, which overrides all layers. `key` is a full name like `stop.grace`.
    pub fn set_flag(&mut self, key: &str, text: &str) -> Result<(), Error> {
        let bad = |message: String| Error::BadValue(format!("{key}: {message}"));
        let known =
            KEYS.iter().find(|known| known.full == key).ok_or_else(|| bad("no such setting".into()))?;
        known.check(text).map_err(|problem| bad(problem.message))?;
        self.put(known, text, SettingOrigin::Flag);
        Ok(())
    }

    fn read_file(
        &mut self,
        path: &Path,
        layer: Layer,
        trusted: bool,
        home: Option<&Path>,
    ) -> Result<(), Error> {
        let whose = match layer {
            Layer::Machine => FileOwner::Root,
            Layer::Project if trusted => FileOwner::Any,
            Layer::User | Layer::Project => FileOwner::UserOrRoot,
        };
        let text = find::read(path, whose)?;
        let Settings { values, hooks, guard, trusted: trusts } =
            settings_file::parse(path, layer, home, &text)?;
        let ruled = self.files.iter().any(|file| file.layer == Layer::Machine);
        self.files.push(ConfigFile { layer, path: path.to_owned(), trusted });
        for setting in values {
            // These settings affect the records of all projects.
            if setting.key.section() == "gc" && !trusted {
                self.distrust(path, setting.line, setting.key.full);
                continue;
            }
            self.put(setting.key, &setting.text, layer.origin(path, setting.line));
        }
        for (hook, line) in hooks {
            if !trusted {
                self.distrust(path, line, "a hook");
                continue;
            }
            let key = format!("hooks[{}]", self.config.hooks.len() + 1);
            self.show(key, hooks::describe(&hook), layer.origin(path, line));
            self.config.hooks.push(hook);
        }
        let before = self.ruled.clone();
        for mut rule in guard {
            let (key, line) = (rule.key, rule.line);
            if rule.allows() && ruled {
                self.warnings.push(format!(
                    "{}:{line}: {key} is ignored, because {} decides what is allowed on this machine",
                    path.display(),
                    guard::MACHINE_FILE
                ));
                continue;
            }
            if rule.needs_trust() && !trusted {
                self.distrust(path, line, key);
                continue;
            }
            if rule.approves_for_stronger(layer, &before) {
                let path = path.display();
                self.warnings.push(format!(
                    "{path}:{line}: {key} is ignored, because a stronger file requires approval"
                ));
                continue;
            }
            if !trusted && let Some(left) = rule.drop_absolute_scopes() {
                self.distrust(path, line, "an absolute path in guard.test.scope");
                if left == 0 {
                    continue;
                }
            }
            for user in rule.unknown_users() {
                let path = path.display();
                self.warnings.push(format!(
                    "{path}:{line}: {key}: user {user} is not in /etc/passwd; use the numeric id of such users"
                ));
            }
            rule.put(&mut self.config.guard, layer, &before);
            if !rule.is_void() {
                self.ruled.push((key, layer));
            }
            self.show(key.into(), rule.value.text(), layer.origin(path, line));
        }
        if let Some((directories, line)) = trusts {
            let words: Vec<String> = directories.iter().map(|dir| dir.display().to_string()).collect();
            self.note("trust.projects", words.join(","), layer.origin(path, line));
            self.config.trusted = directories;
        }
        Ok(())
    }

    fn distrust(&mut self, path: &Path, line: usize, what: &str) {
        let dir = path.parent().unwrap_or(path).display();
        self.warnings.push(format!(
            "{}:{line}: {what} is ignored, because this project is not trusted (add \"{dir}\" to [trust] projects in your own \
             file if you trust it)",
            path.display()
        ));
    }

    /// Sets a checked value.
    fn put(&mut self, key: &Key, text: &str, source: SettingOrigin) {
        let text = match key.form {
            Form::Text | Form::Flag | Form::Count => text.to_owned(),
            // Lists of all layers add up, so that no layer can unmask what another one masks.
            Form::Words => format!("{},{text}", self.config.start.mask.join(",")),
        };
        if (key.set)(&mut self.config, &text).is_ok() {
            let text = match key.form {
                Form::Words => self.config.start.mask.join(","),
                // A number without a unit is in seconds.
                Form::Text if key.is_duration() && text.ends_with(|c: char| c.is_ascii_digit()) => text + "s",
                Form::Text | Form::Flag | Form::Count => text,
            };
            self.note(key.full, text, source);
        }
    }

    /// Adds a row before `trust.projects`, which stays last.
    fn show(&mut self, key: String, value: String, source: SettingOrigin) {
        let at = self.values.len().saturating_sub(1);
        self.values.insert(at, Sourced { key, value, source });
    }

    fn note(&mut self, key: &str, value: String, source: SettingOrigin) {
        if let Some(sourced) = self.values.iter_mut().find(|sourced| sourced.key == key) {
            *sourced = Sourced { key: key.to_owned(), value, source };
        }
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((std::fs::canonicalize(one), std::fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// The environment. An empty variable counts as unset.
struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self(variables.into_iter().filter(|(_, value)| !value.is_empty()).collect())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.get(OsStr::new(name)).map(PathBuf::from)
    }

    fn home(&self) -> Option<PathBuf> {
        self.path("HOME").filter(|path| path.is_absolute()).or_else(quell_sys::own_home)
    }

    /// The user's configuration directory (`XDG_CONFIG_HOME`).
    fn config_dir(&self, home: Option<&Path>) -> Option<PathBuf> {
        let dir = self.path("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
        dir.or_else(|| home.map(|home| home.join(".config")))
    }

    /// The user's file, if it exists.
    fn user_file(&self, cwd: &Path, home: Option<&Path>) -> Result<Option<PathBuf>, Error> {
        if let Some(named) = self.path("QUELL_CONFIG") {
            // The usual way to say: no file.
            if named == Path::new("/dev/null") {
                return Ok(None);
            }
            let path = std::path::absolute(cwd.join(&named)).unwrap_or(named);
            if std::fs::symlink_metadata(&path).is_err() {
                let message = format!("{} does not exist", path.display());
                let hint = "set it to an existing file, set it to /dev/null for no file, or unset it".into();
                return Err(Error::Variable { name: "QUELL_CONFIG".into(), message, hint });
            }
            return Ok(Some(path));
        }
        let file = self.config_dir(home).map(|dir| dir.join("quell/config.toml"));
        Ok(file.filter(|file| std::fs::symlink_metadata(file).is_ok()))
    }

    /// The settings given by variables, checked. An unknown `QUELL_*` variable is an error, because the caller would rely on a
    /// setting that has no effect. `approval` is the policy's approval variable, which is allowed.
    fn settings(&self, approval: &str) -> Result<Vec<(&'static Key, String, String)>, Error> {
        let mut settings = Vec::new();
        for (name, value) in &self.0 {
            if !name.as_encoded_bytes().starts_with(b"QUELL_") {
                continue;
            }
            let name = one_line(&name.to_string_lossy());
            let Some(rest) = name.strip_prefix("QUELL_") else { continue };
            // The default is known, also if the policy names another variable.
            if [approval, guard::APPROVAL].contains(&name.as_str())
                || OTHERS.contains(&name.as_str())
                || DEVELOPMENT.split(' ').any(|known| known == rest)
            {
                continue;
            }
            let ours = |section: &&&str| rest.starts_with(&format!("{}_", section.to_uppercase()));
            if let Some(section) = FILE_SECTIONS.iter().find(ours) {
                let message = format!("[{section}] can only be set in a file");
                return Err(Error::Variable { message, hint: format!("unset {name}"), name });
            }
            let Some(key) = KEYS.iter().find(|key| key.variable() == name) else {
                let hint = nearest_variable(&name, SECTIONS.iter().find(ours).copied(), approval);
                return Err(Error::UnknownVariable { name, hint });
            };
            let refuse = |problem: Problem| Error::Variable {
                hint: if problem.hint.is_empty() {
                    format!("correct it, or unset {name}")
                } else {
                    problem.hint
                },
                message: problem.message,
                name: name.clone(),
            };
            let text = value.to_str().ok_or_else(|| refuse(Problem::new("is not UTF-8", "")))?;
            key.check(text).map_err(refuse)?;
            settings.push((key, name, text.to_owned()));
        }
        Ok(settings)
    }
}

/// The hint for an unknown variable that begins like the variables of this section.
fn nearest_variable(name: &str, section: Option<&str>, approval: &str) -> String {
    let keys: Vec<String> = KEYS.iter().map(Key::variable).collect();
    let known = keys.iter().map(String::as_str).chain(OTHERS).chain([approval]);
    // Compare without the common prefix.
    let short = |name: &'_ str| name.trim_start_matches("QUELL_").to_owned();
    let all: Vec<String> = known.filter(|known| known.starts_with("QUELL_")).map(short).collect();
    match (suggest::nearest(&short(name), all.iter().map(String::as_str)), section) {
        (Some(near), _) => format!("did you mean QUELL_{near}?"),
        (None, Some(section)) => {
            let here: Vec<String> =
                KEYS.iter().filter(|key| key.section() == section).map(Key::variable).collect();
            format!("unset it; known are {}", here.join(", "))
        }
        (None, None) => "unset it; docs/config.md lists the variables that quell knows".into(),
    }
}
