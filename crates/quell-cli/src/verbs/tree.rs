//! `quell tree`: the processes that are in a job, or were.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use quell::binary::{account, tree_answer};
use quell::{Error, JobId, LiveMember, ProcessTree, Quell};

use super::{Admitted, envelope, fail, job_selection};
use crate::args::TreeArgs;
use crate::errors::{self, exit};
use crate::output;
use crate::render::{self, Cell, Reader, Style, Table};

/// How deep the drawing is indented.
const DEPTH: usize = 24;

/// Draws each, and returns the highest exit code.
pub fn tree(admitted: Admitted, args: &TreeArgs) -> ExitCode {
    let quell = match admitted.quell {
        Ok(quell) => quell,
        Err(error) => return fail("tree", args.json, &error),
    };
    let mut worst = 0;
    for (number, text) in args.jobs.iter().enumerate() {
        let code = match one(&quell, text) {
            Ok((id, tree)) => {
                let gap = if number > 0 { "\n" } else { "" };
                let said = if args.json {
                    envelope("tree", &tree_answer(&tree, id))
                } else {
                    format!("{gap}{}", describe(id, &tree, Reader::of_stdout()))
                };
                if output::painted_to_stdout(&said).is_some() { exit::FAILED } else { 0 }
            }
            Err(error) => {
                fail("tree", args.json, &error);
                errors::exit_code(&error)
            }
        };
        worst = worst.max(code);
    }
    ExitCode::from(worst)
}

fn one(quell: &Quell, text: &str) -> Result<(JobId, ProcessTree), Error> {
    let job = job_selection::meet(quell, text)?;
    job.tree().map(|tree| (job.id(), tree))
}

fn describe(id: JobId, tree: &ProcessTree, reader: Reader) -> String {
    match tree {
        ProcessTree::Alive(state, members) => {
            let count = render::count(members.len() as u64, "process", "processes");
            let head = Style::Bold.paint(&id.to_string(), reader.colours);
            format!("{head}  {state}, {count}\n{}", draw(members, reader))
        }
        ProcessTree::Ended(receipt) => {
            let head = Style::Bold.paint(&id.to_string(), reader.colours);
            let seen = receipt.members.len() as u64 + receipt.members_omitted;
            let was = if seen == 1 { "was" } else { "were" };
            let count = render::count(seen, "process", "processes");
            format!("{head}  ended, {count} {was} seen\n{}", account::tree(receipt, reader.columns))
        }
    }
}

/// One process a line, children below their parent.
fn draw(members: &[LiveMember], reader: Reader) -> String {
    let pids: BTreeSet<u32> = members.iter().map(|member| member.id.pid).collect();
    let mut below: BTreeMap<u32, Vec<&LiveMember>> = BTreeMap::new();
    let mut tops = Vec::new();
    for member in members {
        if pids.contains(&member.ppid) && member.ppid != member.id.pid {
            below.entry(member.ppid).or_default().push(member);
        } else {
            tops.push(member);
        }
    }
    let mut rows = Vec::new();
    for top in tops {
        branch(top, String::new(), String::new(), &mut below, &mut rows);
    }
    // Processes that are forked and reparented during the walk may point in a circle.
    for member in below.into_values().flatten() {
        rows.push((String::new(), member));
    }
    let mut table = Table::new(["PID", "STATE", "CPU", "MEMORY", "COMMAND"], &[0, 2, 3]);
    for (indent, member) in rows {
        table.row([
            member.id.pid.to_string().into(),
            Cell::from(state(member.state)),
            render::seconds(member.cpu).into(),
            render::bytes(member.memory).into(),
            format!("{indent}{}", member.command).into(),
        ]);
    }
    table.lines(reader)
}

fn branch<'m>(
    member: &'m LiveMember,
    own: String,
    indent: String,
    below: &mut BTreeMap<u32, Vec<&'m LiveMember>>,
    rows: &mut Vec<(String, &'m LiveMember)>,
) {
    rows.push((own, member));
    // Taken out, so that each process is drawn once.
    let children = below.remove(&member.id.pid).unwrap_or_default();
    let deeper = indent.chars().count() < 3 * DEPTH;
    for (number, child) in children.iter().enumerate() {
        let last = number + 1 == children.len();
        let (mark, line) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let next = if deeper { format!("{indent}{line}") } else { indent.clone() };
        branch(child, format!("{indent}{mark}"), next, below, rows);
    }
}

/// A state of /proc in a word.
fn state(letter: char) -> String {
    match letter {
        'R' => "running".into(),
        'S' => "sleeping".into(),
        'D' => "blocked".into(),
        'T' | 't' => "stopped".into(),
        'Z' => "zombie".into(),
        'I' => "idle".into(),
        'X' => "dead".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quell::ProcId;

    fn member(pid: u32, ppid: u32, command: &str) -> LiveMember {
        let id = ProcId { pid, start: 1 };
        let command = command.to_owned();
        LiveMember {
            id,
            ppid,
            pgid: pid,
            sid: pid,
            uid: 0,
            state: 'S',
            cpu: 0.0,
            memory: 2048,
            command,
            ignores_term: false,
        }
    }

    #[test]
    fn children_are_drawn_below_their_parent() {
        let members = [member(1, 0, "a"), member(2, 1, "b"), member(4, 2, "d"), member(3, 1, "c\x1b[2J")];
        let lines = draw(&members, Reader { columns: None, colours: false });
        assert_eq!(lines.lines().nth(2), Some("  2  sleeping  0ms   2 KiB  ├─ b"), "{lines}");
        assert!(lines.contains("│  └─ d\n") && lines.contains("└─ c\\x1b[2J\n"), "{lines}");
    }

    #[test]
    fn a_circle_is_drawn_once() {
        let members = [member(1, 2, "a"), member(2, 1, "b")];
        assert_eq!(draw(&members, Reader { columns: None, colours: false }).lines().count(), 3);
    }
}
