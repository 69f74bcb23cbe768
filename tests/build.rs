//! Builds the bad actors and the wall clock that can be set, with the system's C compiler, and tells the harness where they
//! are.

use std::{env, path::PathBuf, process::Command};

const SOURCES: [&str; 3] = ["actor.c", "escapes.c", "probes.c"];

fn main() {
    println!("cargo:rerun-if-changed=actors");
    // The harness is empty elsewhere, so that a cross check needs no C compiler.
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let actors = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("actors");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let build = |name: &str, options: &[&str], sources: &[&str]| {
        let status = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra"])
            .args(options)
            .arg("-o")
            .arg(out.join(name))
            .args(sources.iter().map(|source| actors.join(source)))
            .status()
            .expect("the tests need a C compiler named cc");
        assert!(status.success(), "cc could not build {name}");
        out.join(name)
    };
    let actor = build("actor", &["-pthread"], &SOURCES);
    println!("cargo:rustc-env=QUELL_ACTOR={}", actor.display());
    let clock = build("clock.so", &["-shared", "-fPIC"], &["clock.c"]);
    println!("cargo:rustc-env=QUELL_CLOCK_LIBRARY={}", clock.display());
}
