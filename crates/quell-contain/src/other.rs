//! Platforms on which quell can't contain a tree yet.

use crate::Doctor;

/// Reports that jobs can't be run here, and why.
pub fn doctor() -> Doctor {
    let why = quell_sys::supported().err().map(|error| error.to_string()).unwrap_or_default();
    Doctor {
        system: std::env::consts::OS.to_owned(),
        abilities: vec![crate::Ability { name: "jobs".into(), ok: false, detail: why }],
        containments: Vec::new(),
        auto: None,
        defeated_by: Vec::new(),
    }
}
