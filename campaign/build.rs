//! Builds the campaign's own programs with the system's C compiler: the worker that jobs run, and the clock that can jump.

use std::{env, path::PathBuf, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=programs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let sources = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("programs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    for (name, source, options) in
        [("worker", "worker.c", &[][..]), ("clock.so", "clock.c", &["-shared", "-fPIC"])]
    {
        let status = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra"])
            .args(options)
            .arg("-o")
            .arg(out.join(name))
            .arg(sources.join(source))
            .status()
            .expect("the campaign needs a C compiler named cc");
        assert!(status.success(), "cc could not build {source}");
    }
    println!("cargo:rustc-env=CAMPAIGN_WORKER={}", out.join("worker").display());
    println!("cargo:rustc-env=CAMPAIGN_CLOCK={}", out.join("clock.so").display());
}
