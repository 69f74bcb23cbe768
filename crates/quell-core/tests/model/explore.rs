//! Breadth-first search over all reachable states. It finds a broken promise with the shortest path to it, a dead end, a
//! state from which no end can be reached, and a cycle that a fair world does not leave.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

/// The largest number of states: a test must not fill the memory of its machine.
const TOO_MANY: usize = 2_000_000;

/// One thing that can happen next.
pub struct Move<State> {
    /// What it is, for the reader of a trace.
    pub name: &'static str,
    /// Whether it happens eventually in a fair world if it stays possible: a timer fires, a process is scheduled. A move that
    /// is not fair (a request of a user, a SIGKILL) may never come.
    pub fair: bool,
    /// Where it leads.
    pub to: State,
}

/// A world that can be explored.
pub trait Model {
    type State: Clone + Eq + Hash + Debug;

    /// Where it begins.
    fn starts(&self) -> Vec<Self::State>;

    /// What can happen.
    fn moves(&self, state: &Self::State) -> Vec<Move<Self::State>>;

    /// A broken promise.
    fn broken(&self, state: &Self::State) -> Option<String>;

    /// Whether all is over: no move is needed.
    fn is_end(&self, state: &Self::State) -> bool;

    /// Whether the world may stay here for ever: a program that is never stopped.
    fn may_rest(&self, state: &Self::State) -> bool;
}

/// What was explored.
#[derive(Debug)]
pub struct Explored {
    pub states: usize,
    pub moves: usize,
    pub ends: usize,
}

struct Graph<'a, M: Model> {
    model: &'a M,
    states: Vec<M::State>,
    came: Vec<Option<(usize, &'static str)>>,
    edges: Vec<Vec<(usize, &'static str, bool)>>,
}

/// Explores all of it. The error says what is wrong, and the shortest path there.
pub fn explore<M: Model>(model: &M) -> Result<Explored, String> {
    let mut known: HashMap<M::State, usize> = HashMap::new();
    let mut graph = Graph { model, states: vec![], came: vec![], edges: vec![] };
    let mut queue = VecDeque::new();
    for start in model.starts() {
        if let Some(why) = model.broken(&start) {
            return Err(format!("{why}, at the start: {start:?}"));
        }
        if !known.contains_key(&start) {
            known.insert(start.clone(), graph.add(start, None));
            queue.push_back(graph.states.len() - 1);
        }
    }
    while let Some(at) = queue.pop_front() {
        assert!(graph.states.len() < TOO_MANY, "the world is too large to be explored");
        let from = graph.states[at].clone();
        for Move { name, fair, to } in model.moves(&from) {
            let mut why = None;
            let next = match known.get(&to) {
                Some(next) => *next,
                None => {
                    why = model.broken(&to);
                    let next = graph.add(to.clone(), Some((at, name)));
                    known.insert(to, next);
                    queue.push_back(next);
                    next
                }
            };
            graph.edges[at].push((next, name, fair));
            if let Some(why) = why {
                return Err(format!("{why}: {}, then {name} to {:?}", graph.way(at), graph.states[next]));
            }
        }
    }
    graph.check_ends()?;
    graph.check_cycles()?;
    Ok(Explored {
        states: graph.states.len(),
        moves: graph.edges.iter().map(Vec::len).sum(),
        ends: graph.states.iter().filter(|state| model.is_end(state)).count(),
    })
}

impl<M: Model> Graph<'_, M> {
    fn add(&mut self, state: M::State, came: Option<(usize, &'static str)>) -> usize {
        self.states.push(state);
        self.came.push(came);
        self.edges.push(vec![]);
        self.states.len() - 1
    }

    fn way(&self, mut at: usize) -> String {
        let end = at;
        let mut names = vec![];
        while let Some((before, name)) = self.came[at] {
            names.push(name);
            at = before;
        }
        names.reverse();
        format!("from {:?} by {} at {:?}", self.states[at], names.join(", "), self.states[end])
    }

    /// From each state an end can be reached, and a state without moves is an end.
    fn check_ends(&self) -> Result<(), String> {
        let mut before = vec![vec![]; self.states.len()];
        let mut reaches = vec![false; self.states.len()];
        let mut queue = VecDeque::new();
        for (at, edges) in self.edges.iter().enumerate() {
            if edges.is_empty() && !self.model.is_end(&self.states[at]) {
                return Err(format!("a dead end: {}", self.way(at)));
            }
            edges.iter().for_each(|(next, ..)| before[*next].push(at));
            if self.model.is_end(&self.states[at]) {
                reaches[at] = true;
                queue.push_back(at);
            }
        }
        while let Some(at) = queue.pop_front() {
            for &earlier in &before[at] {
                if !std::mem::replace(&mut reaches[earlier], true) {
                    queue.push_back(earlier);
                }
            }
        }
        match reaches.iter().position(|reaches| !reaches) {
            Some(at) => Err(format!("no end can be reached: {}", self.way(at))),
            None => Ok(()),
        }
    }

    /// Every path of a fair world ends: each strongly connected component that is not an end and must not rest has a fair
    /// move that is possible in all of its states and leaves it. A fair world takes that move eventually, and the components
    /// are ordered.
    fn check_cycles(&self) -> Result<(), String> {
        let parts = self.parts();
        let mut members: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, part) in parts.iter().enumerate() {
            members.entry(*part).or_default().push(at);
        }
        for (part, members) in members {
            let first = members[0];
            let inside = |at: usize| self.edges[at].iter().any(|(next, ..)| parts[*next] == part);
            let resting = members
                .iter()
                .any(|at| self.model.may_rest(&self.states[*at]) || self.model.is_end(&self.states[*at]));
            let stays = members.iter().any(|at| inside(*at));
            // A single state without a cycle is left by any fair move.
            let leaves = |name: &&'static str| {
                members.iter().all(|at| {
                    self.edges[*at]
                        .iter()
                        .any(|(next, other, fair)| *fair && other == name && parts[*next] != part)
                })
            };
            let left = if stays {
                self.edges[first].iter().map(|(_, name, _)| name).any(leaves)
            } else {
                self.edges[first].iter().any(|(.., fair)| *fair)
            };
            if !resting && !left {
                return Err(format!("a path without an end ({} states): {}", members.len(), self.way(first)));
            }
        }
        Ok(())
    }

    /// The strongly connected component that each state is in (Tarjan's, without recursion).
    fn parts(&self) -> Vec<usize> {
        let count = self.states.len();
        let (mut index, mut low) = (vec![usize::MAX; count], vec![0; count]);
        let (mut part, mut stack, mut on_stack) = (vec![usize::MAX; count], vec![], vec![false; count]);
        let (mut next_index, mut next_part) = (0, 0);
        for root in 0..count {
            if index[root] != usize::MAX {
                continue;
            }
            let mut work = vec![(root, 0)];
            while let Some((at, edge)) = work.pop() {
                if edge == 0 {
                    (index[at], low[at]) = (next_index, next_index);
                    next_index += 1;
                    stack.push(at);
                    on_stack[at] = true;
                }
                if let Some((next, ..)) = self.edges[at].get(edge) {
                    work.push((at, edge + 1));
                    if index[*next] == usize::MAX {
                        work.push((*next, 0));
                    } else if on_stack[*next] {
                        low[at] = low[at].min(index[*next]);
                    }
                    continue;
                }
                if low[at] == index[at] {
                    while let Some(member) = stack.pop() {
                        on_stack[member] = false;
                        part[member] = next_part;
                        if member == at {
                            break;
                        }
                    }
                    next_part += 1;
                }
                if let Some((above, _)) = work.last() {
                    low[*above] = low[*above].min(low[at]);
                }
            }
        }
        part
    }
}
