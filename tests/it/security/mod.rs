//! Hostile users and jobs: the control socket, quell's files, secrets, terminal escape sequences.

pub mod hostile_clients;
pub mod hostile_files;
pub mod secrets;
pub mod terminal_escapes;
