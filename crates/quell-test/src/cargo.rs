//! Files by which cargo, rustup and nextest run other programs, or take code from elsewhere. They look for them in the working
//! directory and in all directories above it, whatever package is tested.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::rules::{Decision, GUIDE, PathWord, Place, Runner, Scope, matches};
use toml::de::{DeTable, DeValue};

use super::check::{Variables, Verdict};
use super::ini;

/// Whether no file outside the scope has settings of cargo's by which code comes from outside of it.
pub(super) fn check(
    scope: &Scope,
    runner: Runner,
    paths: &[PathWord],
    allow: &[String],
    variables: &Variables,
) -> Verdict<()> {
    // The settings in the user's home are the user's, as far as HOME says where that is.
    let variable = |name: &str| variables.get(OsStr::new(name)).map(PathBuf::from);
    let home = variable("CARGO_HOME").or_else(|| Some(variable("HOME")?.join(".cargo")));
    let home = home.and_then(|home| home.canonicalize().ok());
    let is_home = |dir: &Path| home.is_some() && dir.canonicalize().ok() == home;
    for dir in scope.cwd.ancestors() {
        let own = dir.join(".cargo");
        for file in ["config", "config.toml"].into_iter().filter(|_| !is_home(&own)) {
            check_file(scope, allow, &own.join(file), cargo_key)?;
        }
        check_toolchain(scope, allow, &dir.join("rust-toolchain"))?;
        check_file(scope, allow, &dir.join("rust-toolchain.toml"), toolchain_key)?;
    }
    if runner == Runner::Nextest {
        // It looks in the root of the workspace, which is above the manifest.
        let manifests = paths.iter().filter(|word| word.place == Place::Target);
        let mut packages: Vec<PathBuf> = manifests.map(|word| scope.cwd.join(&word.path)).collect();
        packages.push(scope.cwd.clone());
        for dir in ini::dirs(&packages) {
            check_file(scope, allow, &dir.join(".config/nextest.toml"), nextest_key)?;
        }
    }
    Ok(())
}

/// The first key of the file that names code, if it is outside the scope, is refused.
fn check_file(
    scope: &Scope,
    allow: &[String],
    file: &Path,
    names_code: fn(&[&str], &DeValue<'_>) -> bool,
) -> Verdict<()> {
    if file.canonicalize().is_ok_and(|real| scope.has(&real)) {
        return Ok(());
    }
    let Some(text) = ini::read(file)? else { return Ok(()) };
    let table = DeTable::parse(&text).map_err(|error| ini::unread(file, &error))?;
    let mut keys = Vec::new();
    find_keys(table.get_ref(), &mut Vec::new(), names_code, &mut keys);
    keys.sort();
    let free = |key: &String| allow.iter().any(|pattern| matches(pattern, key));
    match keys.into_iter().find(|key| !free(key)) {
        Some(key) => refuse(file, &key),
        None => Ok(()),
    }
}

/// A file of rustup's that may also be just the name of a toolchain.
fn check_toolchain(scope: &Scope, allow: &[String], file: &Path) -> Verdict<()> {
    let text = ini::read(file)?.unwrap_or_default();
    if DeTable::parse(&text).is_ok() {
        return check_file(scope, allow, file, toolchain_key);
    }
    // No official name has one.
    if !text.contains(['/', '\\']) || file.canonicalize().is_ok_and(|real| scope.has(&real)) {
        return Ok(());
    }
    refuse(file, "toolchain.path")
}

fn refuse(file: &Path, key: &str) -> Verdict<()> {
    let reason = format!(
        "`{key}` in `{}` names a program or code that cargo would use, and that file is outside the scope",
        file.display()
    );
    let hint = format!(
        "take it out, or have a scope that the file is in, or have the policy allow it: guard.test.allow = [\"{key}\"]; {GUIDE}"
    );
    Err(Box::new(Decision::refuse("OPTION_NOT_ALLOWED", "guard.test.allow", reason, hint)))
}

/// All keys that name code, with those of the tables that they are in before them.
fn find_keys<'a>(
    table: &'a DeTable<'_>,
    above: &mut Vec<&'a str>,
    names_code: fn(&[&str], &DeValue<'_>) -> bool,
    found: &mut Vec<String>,
) {
    for (key, value) in table {
        above.push(key.get_ref());
        if names_code(above, value.get_ref()) {
            found.push(above.join("."));
        } else if let Some(table) = value.get_ref().as_table() {
            find_keys(table, above, names_code, found);
        }
        above.pop();
    }
}

fn cargo_key(key: &[&str], value: &DeValue<'_>) -> bool {
    match key {
        // A triple has no slash, and the name of a file that describes a target has a dot.
        ["build", "target"] => value.as_str().is_none_or(|target| target.contains(['/', '.'])),
        ["build", key] => {
            ["rustc", "rustc-wrapper", "rustc-workspace-wrapper", "rustdoc", "rustflags", "rustdocflags"]
                .contains(key)
        }
        // Cargo's own verbs come before aliases, those of others don't.
        ["alias", verb] => *verb == "nextest",
        ["target" | "host", _, _] => true,
        ["env", _] | ["paths" | "patch" | "source" | "include" | "unstable" | "credential-alias"] => true,
        ["profile", .., key] => *key == "rustflags",
        ["registry" | "registries", .., key] => key.contains("credential-provider"),
        _ => false,
    }
}

fn toolchain_key(key: &[&str], _: &DeValue<'_>) -> bool {
    key == ["toolchain", "path"]
}

/// Scripts that run before the tests, and programs that run them.
fn nextest_key(key: &[&str], _: &DeValue<'_>) -> bool {
    matches!(key, ["script" | "scripts"])
}
