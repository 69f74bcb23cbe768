//! What only the first instructions of a process can see: the standard library opens /dev/null on closed standard
//! descriptors before `main`. After that, nothing shows that the caller had closed them. Only the quell program looks (feature
//! `binary`): a program that links the library gets no code before its `main`.

use std::sync::atomic::{AtomicU8, Ordering};

static CLOSED: AtomicU8 = AtomicU8::new(0);

#[cfg(feature = "binary")]
extern "C" fn look() {
    for fd in 0..3 {
        // SAFETY: F_GETFD only reads the descriptor table.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
        }
    }
}

// SAFETY: the section holds pointers to C functions that the C runtime calls before main; `look` is one, and it
// touches nothing but descriptors and an atomic.
#[cfg(feature = "binary")]
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

/// Which of the descriptors 0 to 2 the caller had closed; none without the feature `binary`.
pub fn closed_at_start() -> [bool; 3] {
    let bits = CLOSED.load(Ordering::Relaxed);
    [0, 1, 2].map(|fd| bits & (1 << fd) != 0)
}
