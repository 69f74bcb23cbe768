//! The last lines of what goes by, as many as there is room for.

use std::collections::VecDeque;

use super::{Cursor, Cut, Line, LineOrCut, MAX_LINE, Omitted};

/// How much may still be kept.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub lines: usize,
    pub bytes: u64,
}

/// The last lines so far.
pub(super) struct Tail {
    pub room: Room,
    pub kept: VecDeque<LineOrCut>,
    lines: usize,
    bytes: u64,
    pub omitted: Omitted,
    /// The gaps within what is left out.
    pub cuts: Vec<Cut>,
}

impl Tail {
    pub fn new(from: Cursor, room: Room) -> Self {
        let omitted = Omitted { lines: 0, bytes: 0, from, to: from };
        Self { room, kept: VecDeque::new(), lines: 0, bytes: 0, omitted, cuts: Vec::new() }
    }

    /// Adds a line, and leaves out what does not fit any more.
    pub fn push(&mut self, line: Line) {
        self.lines += usize::from(!line.split);
        self.bytes += line.size();
        self.kept.push_back(LineOrCut::Line(line));
        while self.lines > self.room.lines || self.bytes > self.room.bytes {
            let over = self.bytes.saturating_sub(self.room.bytes);
            let alone = self.kept.len() == 1;
            match self.kept.pop_front() {
                None => return,
                Some(LineOrCut::Cut(cut)) => {
                    *self.omitted.to.of_mut(cut.stream) = cut.to;
                    self.cuts.push(cut);
                }
                Some(LineOrCut::Line(line)) => {
                    let whole = self.lines > self.room.lines || over >= line.size();
                    if whole || (!alone && !line.split) {
                        self.leave_out(&line);
                        self.lines -= usize::from(!line.split);
                    } else {
                        let (gone, line) = divide(line, over);
                        self.leave_out(&gone);
                        self.kept.push_front(LineOrCut::Line(line));
                    }
                }
            }
        }
    }

    /// Puts `front` before the first line, if it is the beginning of that one; else gives it back.
    pub fn join(&mut self, mut front: Line) -> Option<Line> {
        match self.kept.front_mut() {
            Some(LineOrCut::Line(line))
                if (line.stream, line.offset) == (front.stream, front.end())
                    && line.bytes.len() + front.bytes.len() <= MAX_LINE =>
            {
                front.bytes.append(&mut line.bytes);
                *line = Line { ended: line.ended, split: line.split, ..front };
                None
            }
            Some(LineOrCut::Line(_) | LineOrCut::Cut(_)) | None => Some(front),
        }
    }

    fn leave_out(&mut self, line: &Line) {
        self.bytes -= line.size();
        self.omitted.bytes = self.omitted.bytes.saturating_add(line.size());
        self.omitted.lines = self.omitted.lines.saturating_add(u64::from(line.ended));
        *self.omitted.to.of_mut(line.stream) = line.end();
    }
}

/// A line in two parts, the first of `length` bytes, which is fewer than it stands for.
pub(super) fn divide(mut line: Line, length: u64) -> (Line, Line) {
    let at = usize::try_from(length).map_or(line.bytes.len(), |length| length.min(line.bytes.len()));
    let bytes = line.bytes.split_off(at);
    let rest = Line { offset: line.offset.saturating_add(at as u64), bytes, ..line };
    (Line { ended: false, split: true, ..line }, rest)
}
