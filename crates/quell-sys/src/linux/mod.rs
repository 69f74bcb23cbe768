//! Linux.
#![allow(unsafe_code)]

mod closed_stdio;
mod fifo;
mod files;
mod host;
mod launch;
mod memory;
mod pidfd;
mod pidns;
mod process;
mod procfs;
mod signals;
mod sources;
mod stream;
mod terminal;
mod wait;

pub use closed_stdio::closed_at_start;
pub use fifo::FifoHold;
pub use files::{
    OPEN_NONBLOCK, OpenMode, check_room, connect_within, create_private, is_link_loop, is_out_of_descriptors,
    is_trusted, names_in, names_of, open_dir, open_private, open_private_found, raised_rights, read_private,
    read_text,
};
pub use host::{
    Polled, UserNamespaces, boot_id, check_open_files, collected_ticks, free_space, host_name, is_user,
    kernel_release, open_files_allowed, own_home, page_size, poll_until, raise_open_files, random_u128,
    restore_open_files, rusage_children, seconds_since, ticks_per_second, ticks_since_boot, unix_ms,
    user_name, user_namespaces,
};
pub use launch::{
    ChildRules, ChildStdio, Launch, LaunchError, Launched, Program, Stage, launch, read_status,
};
pub use memory::drop_code_pages_in_wait;
pub use pidfd::{PidFd, Sent, pidfd_has_exit_info, pidfd_inode, pidfd_signals_groups};
pub use pidns::{PidnsChild, Report, launch_pidns, read_report};
pub use process::{
    Forked, RaisedPriority, close_inherited, exit_by_signal, fork, fork_into, inherited_descriptors,
    is_keeper_or_kernel_thread, is_stopped, is_writable, keep_open_only, leave_session, mark_as_keeper,
    may_execute, parent, pgid, pid, raise_priority, redirect_to_null, remember_user, replace_stdin, set_name,
    set_subreaper, signal_group, stack_limit, stop_self, take_descriptor, uid,
};
pub use procfs::{
    Disposition, Stat, blocks, cgroups, children, cmdline, disposition, environment, executed,
    first_own_children, holds_socket, ignores_term, in_first_pid_namespace, in_first_time_namespace,
    inner_pid, is_gone, is_locked_here, is_mounted_over, is_quell, listeners, living_thread, mount_namespace,
    mount_over_process, newest_pid, open_files, own_children, own_pid_namespace, pid_max, pid_namespace,
    pids, proc_hides_processes, proc_is_ours, same_executable, same_executable_file, stat, threads_on_host,
    uid_of, users_of, variable_lists, variable_of, whole_cmdline,
};
pub use signals::{SignalFd, SignalInfo, ignore, ignored_at_start, restore_default, unblock};
pub use sources::{Ready, Sources};
pub use stream::{
    columns, duplicate, null, open_to_read, open_to_write, peer, pipe, read, receive_at_once, resize,
    send_at_once, set_nonblocking, splice, terminal, unread_bytes, write,
};
pub use terminal::TerminalModes;
pub use wait::{Exit, has_child, peek, reap, reap_pinned, take_stop, wait_exit};

/// Never made here; other platforms say with it that they can't run jobs yet.
#[derive(Debug, thiserror::Error)]
#[error("quell can't run jobs on this platform yet")]
pub struct Unsupported;

/// Whether jobs can be run here at all.
pub fn supported() -> Result<(), Unsupported> {
    Ok(())
}

/// What the fuzzer calls; no part of the interface.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    pub use super::procfs::{listener, numbers};
}
