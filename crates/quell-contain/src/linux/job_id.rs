//! The id of a new job, and the time at which a job began according to its id. Processes that are older are not members,
//! whatever the record says.

use std::io;

use quell_core::{JobId, ProcId};

/// How much earlier than the time in its id a job can have begun, in seconds: the wall clock and the kernel's clock differ.
const SLACK: u64 = 1;
/// How long after that its first root starts at the latest, in seconds.
const ROOT_DELAY: u64 = 3;

/// An id for a new job.
pub fn new_job_id() -> io::Result<JobId> {
    let random = quell_sys::random_u128()?;
    let (now, ticks) = (quell_sys::unix_ms(), quell_sys::ticks_since_boot());
    Ok(match boot_bits() {
        Some(boot) => JobId::born(now, boot, ticks, random),
        None => JobId::new(now, random),
    })
}

/// The bits of an id that identify the boot: the first bits of the random boot id.
fn boot_bits() -> Option<u16> {
    u16::from_str_radix(quell_sys::boot_id().get(..4)?, 16).ok()
}

/// The earliest start time that a process of job `id` can have, or 0 if the id is older than this boot. A job can rewrite its
/// record, but not its id.
///
/// An id of this boot contains the kernel's clock, which can't be set. Other ids have only the wall clock. The result is 0 if
/// that is in the future.
pub fn earliest_start(id: JobId) -> u64 {
    let of_this_boot = boot_bits().and_then(|boot| id.ticks_since(boot));
    if let Some(ticks) = of_this_boot.filter(|ticks| *ticks <= quell_sys::ticks_since_boot()) {
        return ticks;
    }
    let Some(age) = quell_sys::unix_ms().checked_sub(id.unix_ms()) else { return 0 };
    let per_second = quell_sys::ticks_per_second();
    let age = (age / 1000 + SLACK).saturating_mul(per_second);
    quell_sys::ticks_since_boot().saturating_sub(age)
}

/// The start time of job `id`: that of its first root if the id agrees, else the earliest that the id allows.
pub(super) fn start_of(id: JobId, root: Option<ProcId>) -> u64 {
    let by_id = earliest_start(id);
    let fits = |start: &u64| by_id == 0 || (by_id..latest_root_start(by_id)).contains(start);
    root.map(|root| root.start).filter(fits).unwrap_or(by_id)
}

/// When the first root of a job that began at `earliest` has started for certain.
pub(super) fn latest_root_start(earliest: u64) -> u64 {
    earliest + ROOT_DELAY * quell_sys::ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_does_not_change_when_a_job_was_born() {
        let before = quell_sys::ticks_since_boot();
        let id = new_job_id().unwrap();
        assert!((before..=quell_sys::ticks_since_boot()).contains(&earliest_start(id)));
        // The same job, if the clock had been set in the meantime.
        for unix_ms in [id.unix_ms() - 3_600_000, id.unix_ms() + 500, id.unix_ms() + 3_600_000] {
            let ticks = id.ticks_since(boot_bits().unwrap()).unwrap();
            let other = JobId::born(unix_ms, boot_bits().unwrap(), ticks, 0);
            assert_eq!(earliest_start(other), earliest_start(id));
        }
    }

    #[test]
    fn the_id_of_a_job_says_when_it_can_have_begun() {
        let now = quell_sys::ticks_since_boot();
        let started = earliest_start(JobId::new(quell_sys::unix_ms(), 1));
        assert!(started <= now && now - started <= 3 * quell_sys::ticks_per_second());
        assert!(started < now, "the clocks may differ by a second");
        let older = earliest_start(JobId::new(quell_sys::unix_ms() - 2500, 1));
        let age = quell_sys::ticks_since_boot() - older;
        assert!((3..=6).contains(&(age / quell_sys::ticks_per_second())), "{age} ticks");
        assert_eq!(earliest_start(JobId::new(1000, 1)), 0, "before this boot");
        assert_eq!(earliest_start(JobId::new(quell_sys::unix_ms() + 60_000, 1)), 0, "in the future");
    }

    #[test]
    fn the_boot_is_known_by_the_first_digits_of_its_id() {
        assert_eq!(format!("{:04x}", boot_bits().unwrap()), quell_sys::boot_id()[..4]);
    }

    #[test]
    fn the_start_of_the_first_root_counts_only_if_the_id_allows_it() {
        let id = new_job_id().unwrap();
        let by_id = earliest_start(id);
        let last = by_id + 3 * quell_sys::ticks_per_second() - 1;
        let start = |start| start_of(id, Some(ProcId { pid: 1, start }));
        assert_eq!((start_of(id, None), start(by_id - 1), start(last + 1)), (by_id, by_id, by_id));
        assert_eq!((start(by_id + 1), start(last)), (by_id + 1, last));
        // The id is older than this boot and says nothing about it.
        assert_eq!(start_of(JobId::new(1000, 1), Some(ProcId { pid: 1, start: 5 })), 5);
    }
}
