//! The members that the walks of one stop have found. A later walk does not read them again.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use quell_core::{ProcId, Signal};
use quell_sys::{PidFd, Polled, Sent, Stat};

use super::walk::{Below, Pinned, ProcessRef, pin, pin_hidden_child};

/// The largest number of pins that are kept. Members beyond that are pinned again when they are needed.
const PINS: usize = 16 * 1024;
/// How many descriptors the keeper itself may need, with its clients. If there are hardly more, no pins are kept.
const FOR_OURSELVES: usize = 256;
/// From this many lists of children on, it may be cheaper to read the parent of every process on the host.
const MANY: usize = 64;

/// Members that were found. Each is pinned or can be pinned again, so that a reused PID is noticed.
#[derive(Debug, Default)]
pub struct MemberSet {
    known: BTreeMap<u32, Known>,
    pins: usize,
    room: Option<usize>,
    /// A member exited before its children were listed.
    lost: bool,
    /// Why the children of some members can't be listed.
    unlisted: Option<io::Error>,
}

#[derive(Debug)]
struct Known {
    id: ProcId,
    threads: u32,
    pin_state: PinState,
    below: Below,
    /// Whether its children were listed.
    listed: bool,
    /// It got a KILL, so it makes no more children.
    killed: bool,
}

#[derive(Debug)]
enum PinState {
    Held(Rc<PidFd>),
    Reopen(ProcessRef),
}

impl Known {
    fn new(id: ProcId, threads: u32, pin_state: PinState, below: Below) -> Self {
        Self { id, threads, pin_state, below, listed: false, killed: false }
    }

    /// Its pin. None if it has to be pinned again and is dead.
    fn pin(&self) -> Option<Rc<PidFd>> {
        match &self.pin_state {
            PinState::Held(pin) => Some(pin.clone()),
            PinState::Reopen(proven) => proven.pin_again().map(Rc::new),
        }
    }
}

impl MemberSet {
    /// Calls `visit` for every living descendant of this process that was not shown before, parents first. Children that are
    /// not `mine` and their descendants are left out.
    ///
    /// A process is shown only if its pin was alive after /proc had named a parent that is proven itself: this process, or a
    /// member that was still alive then. So neither a PID that was reused between two reads nor a foreign process is shown. The
    /// walk races with forks: the next walk finds what starts meanwhile.
    pub fn walk(&mut self, mine: impl Fn(u32) -> bool, mut visit: impl FnMut(&Pinned) -> Below) {
        self.drop_exited();
        self.lost = false;
        let me = quell_sys::pid();
        // Known members are our descendants, wherever they are in the tree by now.
        let unlisted = self.known.iter().filter(|(_, known)| !known.listed && known.below == Below::Visit);
        let mut queue: VecDeque<u32> = unlisted.map(|(pid, _)| *pid).collect();
        for pid in quell_sys::own_children().unwrap_or_default() {
            if self.knows(pid) {
                continue;
            }
            match pin(pid, |stat| stat.ppid == me).or_else(|| pin_hidden_child(pid)) {
                Some(seen) if mine(pid) => self.add(seen, &mut visit, &mut queue),
                Some(_) => {}
                None => self.lost = true,
            }
        }
        self.descend(queue, Some(me), visit);
    }

    /// The same for the descendants of processes that the caller has proven. Fails if some of them can't be listed.
    pub fn walk_below(
        &mut self,
        from: impl IntoIterator<Item = ProcessRef>,
        visit: impl FnMut(&Pinned) -> Below,
    ) -> io::Result<()> {
        let mut queue = VecDeque::new();
        for proven in from {
            let (id, threads) = (proven.id, proven.threads);
            queue.push_back(id.pid);
            self.known.insert(id.pid, Known::new(id, threads, PinState::Reopen(proven), Below::Visit));
        }
        self.descend(queue, None, visit);
        self.unlisted.take().map_or(Ok(()), Err)
    }

    /// Whether a member has exited since the last walk began: then its children may have been missed. Forgets exited members.
    pub fn has_lost(&mut self) -> bool {
        self.drop_exited();
        self.lost
    }

    /// Makes the next walk list the children of all members again, except those that got a KILL.
    pub fn list_again(&mut self) {
        self.known.values_mut().filter(|known| !known.killed).for_each(|known| known.listed = false);
    }

    /// Whether `pid` is a member that was alive at the last [`MemberSet::drop_exited`].
    pub fn knows(&self, pid: u32) -> bool {
        self.known.contains_key(&pid)
    }

    /// Members that did not get a KILL yet.
    pub fn not_killed(&self) -> Vec<ProcId> {
        self.known.values().filter(|known| !known.killed).map(|known| known.id).collect()
    }

    /// Notes that `pid` got a KILL. It makes no more children.
    pub fn mark_killed(&mut self, pid: u32) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.killed = true;
        }
    }

    /// Signals a member.
    pub fn signal(&self, pid: u32, signal: Signal) -> Sent {
        let pin = self.known.get(&pid).and_then(Known::pin);
        pin.map_or(Sent::Gone, |pin| pin.signal(signal))
    }

    /// Forgets exited members, as their PIDs can be reused.
    pub fn drop_exited(&mut self) {
        let kept = |known: &Known| match &known.pin_state {
            PinState::Held(pin) => Some(pin.clone()),
            PinState::Reopen(_) => None,
        };
        let pins: Vec<Rc<PidFd>> = self.known.values().filter_map(kept).collect();
        let polled: Vec<Polled<'_>> = pins.iter().map(|pin| Polled::Read(pin.as_fd())).collect();
        let now = Some(Instant::now());
        // A pidfd is readable when all threads have exited. If there is no memory for the poll, each pin is checked alone.
        let ended = if polled.is_empty() { Ok(vec![]) } else { quell_sys::poll_until(&polled, now) };
        let mut ended = ended.ok().map(Vec::into_iter);
        let before = self.known.len();
        self.known.retain(|_, known| match (&known.pin_state, &mut ended) {
            (PinState::Held(_), Some(ended)) => !ended.next().unwrap_or(true),
            (PinState::Held(pin), None) => pin.is_alive(),
            (PinState::Reopen(proven), _) => proven.pin_again().is_some(),
        });
        self.lost |= self.known.len() < before;
        self.pins = self.known.values().filter(|known| matches!(known.pin_state, PinState::Held(_))).count();
    }

    /// `reaper` adopts the children of members that die meanwhile, if it is known.
    fn descend(
        &mut self,
        mut queue: VecDeque<u32>,
        reaper: Option<u32>,
        mut visit: impl FnMut(&Pinned) -> Below,
    ) {
        while !queue.is_empty() {
            if self.is_cheaper_by_scan(queue.len()) {
                // Read after all of these were shown, like their own lists would be: a member that `visit` has kept from
                // forking has no other children.
                let children = self.children_by_scan();
                for parent in std::mem::take(&mut queue) {
                    let of_this = children.get(&parent).map(Vec::as_slice).unwrap_or_default();
                    self.add_children(parent, Some(of_this), reaper, &mut visit, &mut queue);
                }
            } else if let Some(parent) = queue.pop_front() {
                self.add_children(parent, None, reaper, &mut visit, &mut queue);
            }
        }
    }

    fn add_children(
        &mut self,
        parent: u32,
        children: Option<&[u32]>,
        reaper: Option<u32>,
        visit: &mut impl FnMut(&Pinned) -> Below,
        queue: &mut VecDeque<u32>,
    ) {
        let Some(known) = self.known.get_mut(&parent) else { return };
        known.listed = true;
        let threads = known.threads;
        let Some(pinned) = known.pin() else {
            self.lost = true;
            return;
        };
        let children = match children {
            Some(children) => children.to_vec(),
            None => quell_sys::children(parent, threads).unwrap_or_else(|error| self.note_unlisted(error)),
        };
        for pid in children {
            if self.knows(pid) {
                continue;
            }
            let ours = |stat: &Stat| reaper == Some(stat.ppid) || (stat.ppid == parent && pinned.is_alive());
            match pin(pid, ours) {
                Some(seen) => self.add(seen, visit, queue),
                None => self.lost = true,
            }
        }
    }

    fn add(&mut self, seen: Pinned, visit: &mut impl FnMut(&Pinned) -> Below, queue: &mut VecDeque<u32>) {
        let below = visit(&seen);
        let (id, threads) = (seen.stat.id(), seen.stat.threads);
        if below == Below::Visit {
            queue.push_back(id.pid);
        }
        let room = *self.room.get_or_insert_with(|| {
            let allowed = usize::try_from(quell_sys::open_files_allowed()).unwrap_or(usize::MAX);
            (allowed / 2).saturating_sub(FOR_OURSELVES).min(PINS)
        });
        let pin_state = if self.pins < room {
            self.pins += 1;
            PinState::Held(seen.pidfd)
        } else {
            PinState::Reopen(ProcessRef::of(&seen))
        };
        self.known.insert(id.pid, Known::new(id, threads, pin_state, below));
    }

    fn note_unlisted(&mut self, error: io::Error) -> Vec<u32> {
        if !quell_sys::is_gone(&error) {
            self.unlisted = Some(error);
        }
        Vec::new()
    }

    /// Whether so many lists of children cost more than reading every process that is not known yet.
    fn is_cheaper_by_scan(&self, lists: usize) -> bool {
        lists >= MANY
            && quell_sys::threads_on_host().is_some_and(|all| lists > all.saturating_sub(self.known.len()))
    }

    /// The unknown children of known members. Each is a hint, like everything in /proc.
    fn children_by_scan(&mut self) -> BTreeMap<u32, Vec<u32>> {
        let mut children = BTreeMap::<u32, Vec<u32>>::new();
        for pid in quell_sys::pids().unwrap_or_else(|error| self.note_unlisted(error)) {
            if !self.knows(pid)
                && let Ok(stat) = quell_sys::stat(pid)
                && self.knows(stat.ppid)
            {
                children.entry(stat.ppid).or_default().push(pid);
            }
        }
        children
    }
}
