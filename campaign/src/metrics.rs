//! What a campaign did, in numbers.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};

/// A number that many add to.
#[derive(Debug, Default)]
pub struct Count(AtomicUsize);

impl Count {
    pub fn add(&self, more: usize) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    pub scenarios: Count,
    pub jobs: Count,
    pub calls: Count,
    pub escapes: Count,
    /// How often a word was held against the processes.
    pub checks: Count,
    pub violations: Count,
    faults: Mutex<BTreeMap<String, usize>>,
}

impl Metrics {
    pub fn fault(&self, kind: &str) {
        *self.lock().entry(kind.to_owned()).or_default() += 1;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, usize>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For another process to add up.
    pub fn to_json(&self) -> Value {
        json!({
            "scenarios": self.scenarios.get(), "jobs": self.jobs.get(), "calls": self.calls.get(),
            "escapes": self.escapes.get(), "checks": self.checks.get(), "violations": self.violations.get(),
            "faults": *self.lock(),
        })
    }

    /// Adds what another process counted.
    pub fn add(&self, other: &Value) {
        let number = |name: &str| other[name].as_u64().unwrap_or_default() as usize;
        self.scenarios.add(number("scenarios"));
        self.jobs.add(number("jobs"));
        self.calls.add(number("calls"));
        self.escapes.add(number("escapes"));
        self.checks.add(number("checks"));
        self.violations.add(number("violations"));
        for (kind, count) in other["faults"].as_object().into_iter().flatten() {
            *self.lock().entry(kind.clone()).or_default() += count.as_u64().unwrap_or_default() as usize;
        }
    }

    /// For people.
    pub fn print(&self) {
        let faults = self.lock();
        println!("scenarios          {:>8}", self.scenarios.get());
        println!("jobs started       {:>8}", self.jobs.get());
        println!("commands           {:>8}", self.calls.get());
        println!("faults injected    {:>8}", faults.values().sum::<usize>());
        for (kind, count) in faults.iter() {
            println!("  {kind:<24} {count:>6}");
        }
        println!("escapes tried      {:>8}", self.escapes.get());
        println!("words checked      {:>8}", self.checks.get());
        println!("violations         {:>8}", self.violations.get());
    }
}

/// What this process and the machine hold: what grows from the start of a campaign to its end is a leak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub descriptors: usize,
    pub processes: usize,
    pub cgroups: usize,
    pub temporary: usize,
    pub mounts: usize,
}

impl Holdings {
    /// What has quell's name now.
    pub fn now() -> Holdings {
        let count = |dir: &str| fs::read_dir(dir).map_or(0, |entries| entries.flatten().count());
        let quells = |pid: &str| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            comm.starts_with("quell-")
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let named = |dir: &std::path::Path, with: &str| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter(|entry| entry.file_name().to_string_lossy().contains(with)).count()
        };
        Holdings {
            descriptors: count("/proc/self/fd"),
            processes: processes.filter(|entry| entry.file_name().to_str().is_some_and(quells)).count(),
            cgroups: quell_tests::host::cgroup_mount()
                .map_or(0, |mount| named(&mount, "quell-0") + named(&mount, "qt")),
            temporary: named(&std::env::temp_dir(), "quell-qt"),
            mounts: fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines().count(),
        }
    }
}
