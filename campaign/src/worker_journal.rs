//! What the jobs run, and the journals that they keep about themselves: the truth that quell's words are compared with.

use std::{fs, path::Path};

use crate::rng::Rng;

/// What one job's program is to do.
#[derive(Clone, Debug, Default)]
pub struct Work {
    pub lines: usize,
    pace: usize,
    pub kids: String,
    /// With which code it exits by itself.
    pub exit: Option<u8>,
    after: usize,
    deaf: bool,
}

impl Work {
    /// Something to do.
    pub fn draw(rng: &mut Rng) -> Work {
        let kids = (0..rng.below(4)).map(|_| *rng.one(&['p', 's', 'd', 'i']).unwrap_or(&'p')).collect();
        Work {
            lines: *rng.one(&[0, 1, 10, 100, 100, 2000]).unwrap_or(&0),
            pace: *rng.one(&[0, 0, 50, 500]).unwrap_or(&0),
            kids,
            exit: rng.percent(45).then(|| *rng.one(&[0, 0, 1, 7, 42]).unwrap_or(&0)),
            after: rng.below(60),
            deaf: rng.percent(25),
        }
    }

    /// How many ways to escape its processes try: sessions of their own, orphans, deaf ears.
    pub fn escapes(&self) -> usize {
        self.kids.matches(['s', 'd', 'i']).count() + usize::from(self.deaf)
    }

    /// The arguments for the worker.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("lines={}", self.lines),
            format!("pace={}", self.pace),
            format!("kids={}", self.kids),
            format!("after={}", self.after),
            format!("deaf={}", u8::from(self.deaf)),
        ];
        words.extend(self.exit.map(|code| format!("exit={code}")));
        words
    }
}

/// What one run of a worker wrote down.
#[derive(Clone, Copy, Debug)]
pub struct WorkerJournal {
    pub out: u64,
    pub err: u64,
    pub terms: u64,
    pub others: u64,
    /// The code with which it was about to exit.
    pub leaving: Option<i64>,
    /// A process of another run that was alive when this one began.
    pub met: Option<u64>,
}

impl WorkerJournal {
    /// Reads one; nothing if it is not complete.
    pub fn read(path: &Path) -> Option<WorkerJournal> {
        let bytes = fs::read(path).ok()?;
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at * 8..at * 8 + 8)?.try_into().ok()?));
        let (leaving, met) = (word(4)?, word(5)?);
        Some(WorkerJournal {
            out: word(0)?,
            err: word(1)?,
            terms: word(2)?,
            others: word(3)?,
            leaving: (leaving > 0).then(|| leaving as i64 - 1),
            met: (met > 0).then(|| met - 1),
        })
    }

    /// Those of one job's runs, in their order.
    pub fn of_job(dir: &Path, job: &str) -> Vec<WorkerJournal> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with(&format!("w-{job}-")))
            .collect();
        names.sort();
        names.iter().filter_map(|name| WorkerJournal::read(&dir.join(name))).collect()
    }
}
