//! Files by which cargo, rustup and nextest run other programs, or take code from elsewhere. They look for them in the working
//! directory and in all directories above it, whatever package is tested.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::{above, parse, read, refuse_setting};
use crate::check::{Rules, Variables, Verdict};
use crate::runners::Runner;

/// Whether a key names code. The keys of the tables that it is in come first.
type NamesCode = fn(&[&str], &DeValue<'_>) -> bool;

/// Refuses settings outside the scope that name programs or code.
pub(super) fn check(
    runner: Runner,
    paths: &[PathBuf],
    variables: &Variables,
    rules: &Rules<'_>,
) -> Verdict<()> {
    // The settings in the user's home belong to the user, as far as HOME says where that is.
    let variable = |name: &str| variables.get(OsStr::new(name)).map(PathBuf::from);
    let home = variable("CARGO_HOME").or_else(|| Some(variable("HOME")?.join(".cargo")));
    let home = home.and_then(|home| home.canonicalize().ok());
    for dir in rules.scope.cwd.ancestors() {
        let own = dir.join(".cargo");
        if home.is_none() || own.canonicalize().ok() != home {
            check_file(&own.join("config"), cargo_key, rules)?;
            check_file(&own.join("config.toml"), cargo_key, rules)?;
        }
        check_file(&dir.join("rust-toolchain"), toolchain_key, rules)?;
        check_file(&dir.join("rust-toolchain.toml"), toolchain_key, rules)?;
    }
    if runner == Runner::Nextest {
        // It looks in the root of the workspace, which is above the manifest.
        for dir in above(paths) {
            check_file(&dir.join(".config/nextest.toml"), nextest_key, rules)?;
        }
    }
    Ok(())
}

fn check_file(file: &Path, names_code: NamesCode, rules: &Rules<'_>) -> Verdict<()> {
    let why = "names a program or code that cargo would use";
    if rules.scope.has_file(file) {
        return Ok(());
    }
    let Some(text) = read(file)? else { return Ok(()) };
    // It may be just the name of a toolchain, which has no slash in it if it is an official one.
    if file.ends_with("rust-toolchain") && DeTable::parse(&text).is_err() {
        let is_path = text.contains(['/', '\\']);
        return if is_path { refuse_setting(file, "toolchain.path", why, rules) } else { Ok(()) };
    }
    let table = parse(file, &text)?;
    let mut keys = Vec::new();
    find_keys(table.get_ref(), &mut Vec::new(), names_code, &mut keys);
    keys.sort();
    keys.iter().try_for_each(|key| refuse_setting(file, key, why, rules))
}

/// All keys that name code, with those of the tables that they are in before them.
fn find_keys<'a>(
    table: &'a DeTable<'_>,
    above: &mut Vec<&'a str>,
    names_code: NamesCode,
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
        // An alias can't replace a verb of cargo's own, but that of another program.
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
