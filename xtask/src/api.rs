//! `cargo xtask api`: the public API of the crate `quell`, item by item, beside the list in `docs/api.txt`.
//!
//! rustdoc describes the crate as JSON, which is not stable yet: RUSTC_BOOTSTRAP lets the stable toolchain do it.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

/// Compares the API with the list, or writes the list with `--bless`.
pub fn main(words: &[String]) -> Result<ExitCode, String> {
    let bless = match words {
        [] => false,
        [word] if word == "--bless" => true,
        _ => return Err("api takes --bless and nothing else".into()),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["rustdoc", "--quiet", "-p", "quell", "--lib", "--features", "tokio", "--"])
        .args(["-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .current_dir(root)
        .env("RUSTC_BOOTSTRAP", "1")
        .status()
        .map_err(|error| format!("cargo rustdoc: {error}"))?;
    if !status.success() {
        return Err("rustdoc failed".into());
    }
    let api = public_api::Builder::from_rustdoc_json(target.join("doc/quell.json"))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .map_err(|error| error.to_string())?
        .to_string();
    let list = root.join("docs/api.txt");
    if bless {
        fs::write(&list, api).map_err(|error| format!("{}: {error}", list.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let old = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    for line in old.lines().filter(|line| !api.lines().any(|now| now == *line)) {
        eprintln!("- {line}");
    }
    for line in api.lines().filter(|line| !old.lines().any(|then| then == *line)) {
        eprintln!("+ {line}");
    }
    if api != old {
        return Err("the public API has changed: if that is meant, run `cargo xtask api --bless`".into());
    }
    Ok(ExitCode::SUCCESS)
}
