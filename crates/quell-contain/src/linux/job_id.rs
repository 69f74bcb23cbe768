//! The id of a new job, which says when the job was born: what is older is not its process, whatever its record says.

use std::io;

use quell_core::JobId;

/// An id for a job that is about to be made.
pub fn new_job_id() -> io::Result<JobId> {
    let random = quell_sys::random_u128()?;
    let (now, ticks) = (quell_sys::unix_ms(), quell_sys::ticks_since_boot());
    Ok(match boot_bits() {
        Some(boot) => JobId::born(now, boot, ticks, random),
        None => JobId::new(now, random),
    })
}

/// What an id tells of the boot in which it was made: the first bits of the boot's own id, which is random.
pub(super) fn boot_bits() -> Option<u16> {
    u16::from_str_radix(quell_sys::boot_id().get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::possible_members::earliest_start;
    use super::*;

    #[test]
    fn the_wall_clock_does_not_change_when_a_job_was_born() {
        let before = quell_sys::ticks_since_boot();
        let id = new_job_id().unwrap();
        assert!((before..=quell_sys::ticks_since_boot()).contains(&earliest_start(id)));
        // The same job, had the clock been set by an hour since, or before.
        for unix_ms in [id.unix_ms() - 3_600_000, id.unix_ms() + 500, id.unix_ms() + 3_600_000] {
            let ticks = id.ticks_since(boot_bits().unwrap()).unwrap();
            let other = JobId::born(unix_ms, boot_bits().unwrap(), ticks, 0);
            assert_eq!(earliest_start(other), earliest_start(id));
        }
    }
}
