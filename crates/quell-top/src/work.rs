//! The threads that read, wait and stop. Each of them may block; none of them draws.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use quell::binary::{
    JobInternals, Polled, QuellInternals, SignalFd, Watch, account::account, poll_until, thread,
};
use quell::{
    AttentionRules, Cursor, EventWatch, Filter, Interrupt, Job, JobId, JobState, JobView, ProcessTree, Quell,
    StopOptions, VitalsSampler, attention, attention_order,
};

use crate::app::{ScreenMessage, Work};
use crate::keys::SIGNALS;
use crate::page::{LINES, PageMessage};
use crate::row::JobRow;
use crate::stops::{StopMessage, StopWanted};

/// How many finished jobs are shown.
const FINISHED: usize = 20;
/// The time between two samples.
const SAMPLE: Duration = Duration::from_secs(1);
/// How long a terminal without focus is still kept up to date.
const UNFOCUSED: Duration = Duration::from_secs(60);
/// The part of the time that reading may take: after a reading that took 10 ms, the next one is 100 ms later at the earliest.
const SHARE: u32 = 10;
/// The shortest time between two readings of the list.
const RELIST: Duration = Duration::from_millis(100);
/// How often the tree of an open page is asked for.
const TREE: Duration = Duration::from_secs(2);
/// How long the sampling for one table takes.
const ONE_TABLE: Duration = Duration::from_millis(250);
/// How long a thread waits after an error, such as a home that can't be read.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// What the sampler is told.
enum ToSampler {
    Jobs(Vec<JobView>),
    Focus(bool),
}

/// All threads.
pub(crate) struct Workers {
    quell: Quell,
    send: Sender<ScreenMessage>,
    sampler: Sender<ToSampler>,
    /// Ends the threads of the open page.
    page: Option<Interrupt>,
}

impl Workers {
    /// Starts those that always run. Before: this process has one thread, so that the signals are blocked in all of them.
    pub fn start(quell: &Quell, rules: AttentionRules, send: Sender<ScreenMessage>) -> io::Result<Self> {
        let signals = SignalFd::new(&SIGNALS)?;
        let (sampler, to_sampler) = channel();
        let (to, sampled, of) = (send.clone(), quell.clone(), quell.clone());
        spawn("top-vitals", move || sample(&sampled, &to_sampler, &to))?;
        let (to, changed) = (send.clone(), sampler.clone());
        spawn("top-watch", move || watch(&of, rules, &to, &changed))?;
        let to = send.clone();
        spawn("top-signals", move || {
            while poll_until(&[Polled::Read(signals.as_fd())], None).is_ok() {
                while let Some(info) = signals.next() {
                    let _ = to.send(ScreenMessage::Signal(info.signal));
                }
            }
        })?;
        let to = send.clone();
        spawn("top-input", move || {
            while let Ok(event) = ratatui::crossterm::event::read() {
                let _ = to.send(ScreenMessage::Input(event));
            }
            let _ = to.send(ScreenMessage::NoInput);
        })?;
        Ok(Self { quell: quell.clone(), send, sampler, page: None })
    }

    pub fn carry_out(&mut self, work: Work) {
        match work {
            Work::Stop(id, wanted) => {
                let (job, send) = (self.quell.job_with(id), self.send.clone());
                let to = send.clone();
                let stopping =
                    spawn("top-stop", move || drop(to.send(ScreenMessage::Stop(id, stop(&job, wanted)))));
                if let Err(error) = stopping {
                    let _ = send.send(ScreenMessage::Stop(id, StopMessage::Failed(error.to_string())));
                }
            }
            Work::OpenPage(id) => {
                self.close_page();
                if let Err(error) = self.open_page(id) {
                    let _ = self.send.send(ScreenMessage::Page(id, PageMessage::NoOutput(error.to_string())));
                }
            }
            Work::ClosePage => self.close_page(),
            Work::Focus(has) => drop(self.sampler.send(ToSampler::Focus(has))),
        }
    }

    fn close_page(&mut self) {
        if let Some(page) = self.page.take() {
            page.raise();
        }
    }

    fn open_page(&mut self, id: JobId) -> quell::Result<()> {
        let interrupt = Interrupt::new()?;
        self.page = Some(interrupt.clone());
        let failed = |error: io::Error| quell::Error::BadValue(format!("can't start a thread: {error}"));
        let (job, to, until) = (self.quell.job_with(id), self.send.clone(), interrupt.clone());
        spawn("top-log", move || {
            if let Err(error) = follow(&job, &until, &to) {
                let _ = to.send(ScreenMessage::Page(id, PageMessage::NoOutput(error.to_string())));
            }
        })
        .map_err(failed)?;
        let (job, to) = (self.quell.job_with(id), self.send.clone());
        spawn("top-tree", move || tree(&job, &interrupt, &to)).map_err(failed)
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread().name(name.to_owned()).spawn(work).map(drop)
}

/// The jobs, with what decides whether they need attention. The vitals are missing.
fn read_rows(quell: &Quell, rules: &AttentionRules) -> quell::Result<Vec<JobRow>> {
    let filter = Filter { limit: Some(FINISHED), ..Filter::default() };
    let jobs = quell.list(&filter)?.jobs;
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let short_ids = quell::binary::short_ids(quell.home(), &ids)?;
    let row = |(view, short_id): (JobView, String)| {
        // Facts that can't be read are missing: the job may have been removed.
        let facts = quell.attention_facts(&view, rules).unwrap_or_default();
        JobRow { view, short_id, vitals: None, facts, attention: None }
    };
    Ok(jobs.into_iter().zip(short_ids).map(row).collect())
}

/// The rows for one table.
pub(crate) fn rows_once(quell: &Quell, rules: &AttentionRules) -> quell::Result<Vec<JobRow>> {
    let mut rows = read_rows(quell, rules)?;
    let views: Vec<JobView> = rows.iter().map(|row| row.view.clone()).collect();
    let mut sampler = VitalsSampler::new(quell);
    let mut vitals = sampler.sample(&views)?;
    if !vitals.is_empty() {
        // A rate is over some time: nothing can be waited for.
        std::thread::sleep(ONE_TABLE);
        vitals = sampler.sample(&views)?;
    }
    let now = quell::binary::now();
    for row in &mut rows {
        row.vitals = vitals.remove(&row.view.id);
        row.attention = attention(&row.view, row.vitals.as_ref(), &row.facts, rules, now);
    }
    rows.sort_by_cached_key(|row| attention_order(&row.view, row.attention.as_ref()));
    Ok(rows)
}

/// Reads the jobs after each change of one of them.
fn watch(quell: &Quell, rules: AttentionRules, to: &Sender<ScreenMessage>, sampler: &Sender<ToSampler>) {
    let mut events: Option<EventWatch> = None;
    loop {
        let began = Instant::now();
        let read = events.take().map_or_else(|| EventWatch::of_all(quell), Ok).and_then(|mut watch| {
            // What has happened until now is in the list.
            while watch.next_until(Some(began), None)?.is_some_and(|events| !events.is_empty()) {}
            Ok((watch, read_rows(quell, &rules)?))
        });
        let mut watch = match read {
            Ok((watch, rows)) => {
                let live =
                    rows.iter().map(|row| row.view.clone()).filter(|view| view.state != JobState::Ended);
                let _ = sampler.send(ToSampler::Jobs(live.collect()));
                if to.send(ScreenMessage::Jobs(rows, rules)).is_err() {
                    return;
                }
                watch
            }
            Err(error) => {
                let _ = to.send(ScreenMessage::Problem(error.to_string()));
                std::thread::sleep(AFTER_ERROR);
                continue;
            }
        };
        // Changes come in bursts, and reading must not take the whole CPU from those that cause them.
        std::thread::sleep((began.elapsed() * SHARE).max(RELIST));
        if watch.next_until(None, None).is_ok() {
            events = Some(watch);
        }
    }
}

/// Samples the live jobs once a second while there are any and the terminal has the focus, or had it a minute ago.
fn sample(quell: &Quell, from: &Receiver<ToSampler>, to: &Sender<ScreenMessage>) {
    let (mut sampler, mut jobs, mut unfocused) = (VitalsSampler::new(quell), Vec::new(), None::<Instant>);
    let mut next = Instant::now();
    loop {
        let is_off = unfocused.is_some_and(|since| since.elapsed() >= UNFOCUSED);
        let told = match jobs.is_empty() || is_off {
            true => from.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => from.recv_timeout(next.saturating_duration_since(Instant::now())),
        };
        match told {
            Ok(ToSampler::Jobs(live)) => {
                // A new job is sampled at once, and its rate is known a second later.
                let is_new = |view: &JobView| jobs.iter().all(|old: &JobView| old.id != view.id);
                if live.iter().any(is_new) {
                    next = Instant::now();
                }
                jobs = live;
            }
            Ok(ToSampler::Focus(has)) => unfocused = (!has).then(Instant::now),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let began = Instant::now();
                // A policy that does not allow it leaves the columns empty.
                let vitals = sampler.sample(&jobs).unwrap_or_else(|_| BTreeMap::new());
                if to.send(ScreenMessage::Vitals(vitals)).is_err() {
                    return;
                }
                next = Instant::now() + (began.elapsed() * SHARE).max(SAMPLE);
            }
        }
    }
}

fn stop(job: &Job, wanted: StopWanted) -> StopMessage {
    let options = match wanted {
        StopWanted::Stop => StopOptions::default(),
        StopWanted::Kill => StopOptions::kill(),
    };
    match job.stop_with(&options) {
        Ok(stopped) => {
            let account = account(stopped.receipt(), None);
            StopMessage::Ended(
                account.lines().next().unwrap_or_default().trim_start_matches("quell: ").to_owned(),
            )
        }
        Err(error) => StopMessage::Failed(error.to_string()),
    }
}

/// Sends the end of the output, and all that follows, until `until` is raised or the job has ended.
fn follow(job: &Job, until: &Interrupt, to: &Sender<ScreenMessage>) -> quell::Result<()> {
    job.check_has_logs()?;
    let failed = |error: io::Error| quell::Error::Io { path: job.dir().dir().to_owned(), error };
    let mut watch = Watch::new().map_err(failed)?;
    // What can't be watched is gone, which the first look finds out.
    let _ = watch.add(job.dir().dir()).and_then(|()| watch.add_quietly(&job.dir().live_path()));
    let mut cursor: Option<Cursor> = None;
    loop {
        // Before reading: a job that had ended then writes no more.
        let ended = job.has_ended_now()?;
        let mut request = job.logs().last(LINES);
        request = match cursor {
            Some(cursor) => request.since(cursor),
            None => request,
        };
        let read = request.read()?;
        cursor = Some(read.cursor);
        if !read.lines.is_empty() {
            let lines = read.lines.into_iter().map(|line| line.text).collect();
            if to.send(ScreenMessage::Page(job.id(), PageMessage::Output(lines))).is_err() {
                return Ok(());
            }
        }
        if ended || until.is_raised() {
            return Ok(());
        }
        watch.wait_or(None, Some(until.as_fd())).map_err(failed)?;
        // A job that writes without a pause would keep this thread and the screen busy.
        poll_until(&[Polled::Read(until.as_fd())], Some(Instant::now() + RELIST)).map_err(failed)?;
    }
}

/// Sends the processes of the job every two seconds, and its receipt after the end.
fn tree(job: &Job, until: &Interrupt, to: &Sender<ScreenMessage>) {
    while !until.is_raised() {
        let (message, is_over) = match job.tree() {
            Ok(ProcessTree::Alive(_, members)) => (Some(PageMessage::Members(members)), false),
            Ok(ProcessTree::Ended(receipt)) => (Some(PageMessage::Receipt(receipt)), true),
            // It is between two runs, or its keeper is stopped by a signal.
            Err(_) => (None, false),
        };
        if message.is_some_and(|message| to.send(ScreenMessage::Page(job.id(), message)).is_err()) || is_over
        {
            return;
        }
        let _ = poll_until(&[Polled::Read(until.as_fd())], Some(Instant::now() + TREE));
    }
}
