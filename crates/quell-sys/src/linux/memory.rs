//! The memory of a process that waits for a long time.

use std::sync::atomic::{AtomicBool, Ordering};

static DUE: AtomicBool = AtomicBool::new(false);

/// Lets the next wait ([`poll_until`](super::poll_until)) begin with [`drop_code_pages`]. Not now: the code between here and
/// the wait would be mapped again.
pub fn drop_code_pages_in_wait() {
    DUE.store(true, Ordering::Relaxed);
}

/// Lets go of the pages of the program's own file that this process has looked at, if that is due: its code and its constants.
/// They stay in the kernel's cache, and those that are needed again are mapped again.
///
/// The result is to be dropped after the wait: that needs code too.
#[must_use]
pub(super) fn drop_code_pages() -> Vec<(usize, usize)> {
    if !DUE.swap(false, Ordering::Relaxed) {
        return Vec::new();
    }
    let segments = segments();
    for (start, length) in &segments {
        // SAFETY: these are private mappings of a file that nothing has written to: what is read there later is the same.
        unsafe { libc::madvise(*start as *mut libc::c_void, *length, libc::MADV_DONTNEED) };
    }
    segments
}

/// The headers of other programs are not read.
#[cfg(not(target_pointer_width = "64"))]
fn segments() -> Vec<(usize, usize)> {
    Vec::new()
}

/// The parts of the program that are mapped from its file and never written, page by page.
#[cfg(target_pointer_width = "64")]
fn segments() -> Vec<(usize, usize)> {
    const PAGE: u64 = 4096;
    // SAFETY: reads words that the kernel gave to this process at its exec.
    let (at, count, page) = unsafe {
        (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM), libc::getauxval(libc::AT_PAGESZ))
    };
    if at == 0 || page != PAGE {
        return Vec::new();
    }
    // SAFETY: the kernel says that so many headers of the program are there, and they never change.
    let headers = unsafe { std::slice::from_raw_parts(at as *const libc::Elf64_Phdr, count as usize) };
    // They stand behind the first header of the file, in the first page of it. Where that was put, beside where the file says:
    let start = at & !(PAGE - 1);
    // SAFETY: the page is mapped, as the headers are in it, and an Elf64_Ehdr fits into what is left of it from its beginning.
    let first = unsafe { &*(start as *const libc::Elf64_Ehdr) };
    let is_start = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_offset == 0;
    let own = headers.iter().find(is_start);
    let Some(own) = own.filter(|_| first.e_ident.starts_with(b"\x7fELF") && first.e_phoff == at - start)
    else {
        return Vec::new();
    };
    let base = start.wrapping_sub(own.p_vaddr);
    let read_only = |header: &&libc::Elf64_Phdr| {
        // What is made read-only after its relocation is in a part that is writable by its header.
        header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0
    };
    let pages = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr) & !(PAGE - 1);
        let end = (base.wrapping_add(header.p_vaddr) + header.p_filesz).next_multiple_of(PAGE);
        (start as usize, (end - start) as usize)
    };
    headers.iter().filter(read_only).map(pages).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_code() -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let exe = std::env::current_exe().unwrap().display().to_string();
        let mut counts = false;
        let mut sum = 0;
        for line in maps.lines() {
            if line.contains('-') && !line.contains("kB") {
                counts = line.contains(" r-xp ") && line.ends_with(&exe);
            } else if counts && let Some(kib) = line.strip_prefix("Rss:") {
                sum += kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        sum
    }

    #[test]
    fn a_process_goes_on_without_the_code_that_it_let_go_of() {
        // In a process of its own: the other tests' threads would have it mapped again.
        if std::env::var_os("QUELL_TEST_ALONE").is_none() {
            let test = "linux::memory::tests::a_process_goes_on_without_the_code_that_it_let_go_of";
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            let done = alone.args(["--exact", test]).env("QUELL_TEST_ALONE", "1").output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            return;
        }
        let before = resident_code();
        let text = format!("{:?}", segments());
        drop_code_pages_in_wait();
        let dropped = drop_code_pages();
        let after = resident_code();
        assert!(after < before * 3 / 4, "{before} KiB, then {after} KiB");
        assert_eq!(text, format!("{dropped:?}"));
        assert!(drop_code_pages().is_empty());
    }
}
