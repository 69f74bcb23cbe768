//! Settings by which cargo, rustup and nextest run other programs or use code from elsewhere. cargo reads them from the working directory
//! and all directories above it, whatever package is tested.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::{parse, read, refuse_setting, with_parents};
use crate::check::{Checked, Rules, Variables};
use crate::runners::Runner;

/// Whether a setting names a program or code. The key is the path of its table, then its name.
type NamesCode = fn(&[&str], &DeValue<'_>) -> bool;

/// Refuses settings outside the scope that name programs or code.
pub(super) fn check(
    runner: Runner,
    paths: &[PathBuf],
    variables: &Variables,
    rules: &Rules<'_>,
) -> Checked<()> {
    // The file in CARGO_HOME is the user's own and is not checked.
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
        for dir in with_parents(paths) {
            check_file(&dir.join(".config/nextest.toml"), nextest_key, rules)?;
        }
    }
    Ok(())
}

fn check_file(file: &Path, names_code: NamesCode, rules: &Rules<'_>) -> Checked<()> {
    let why = "names a program or code that cargo would use";
    if rules.scope.contains_file(file) {
        return Ok(());
    }
    let Some(text) = read(file)? else { return Ok(()) };
    // The old format has only the name of a toolchain. An official name has no slash.
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

/// Collects all keys that name code, as dotted paths.
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
        // A target triple has no slash or dot; the name of a target file has a dot.
        ["build", "target"] => value.as_str().is_none_or(|target| target.contains(['/', '.'])),
        ["build", key] => {
            ["rustc", "rustc-wrapper", "rustc-workspace-wrapper", "rustdoc", "rustflags", "rustdocflags"]
                .contains(key)
        }
        // An alias can't replace a built-in command of cargo, but it can replace that of another program.
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

/// Setup scripts and wrapper scripts.
fn nextest_key(key: &[&str], _: &DeValue<'_>) -> bool {
    matches!(key, ["script" | "scripts"])
}
