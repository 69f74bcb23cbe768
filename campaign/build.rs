//! Builds the worker that the campaign's jobs run, with the system's C compiler.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=programs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let sources = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("programs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let worker = out.join("worker");
    let status = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-o"])
        .arg(&worker)
        .arg(sources.join("worker.c"))
        .status()
        .expect("the campaign needs a C compiler named cc");
    assert!(status.success(), "cc could not build worker.c");
    println!("cargo:rustc-env=CAMPAIGN_WORKER={}", worker.display());
}
