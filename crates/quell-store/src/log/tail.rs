//! The last lines of a stream of lines, as many as there is room for.

use std::collections::VecDeque;

use super::{Cursor, Cut, Line, LineOrCut, MAX_LINE, Omitted};

/// How much may still be kept.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub lines: usize,
    pub bytes: u64,
}

/// How much memory the lines may take. Beyond that only their positions are kept, and they are read again.
const HELD: u64 = 4 * 1024 * 1024;

/// The memory of a line without its text.
const OVERHEAD: u64 = 128;

/// The last lines so far.
pub(super) struct Tail {
    pub room: Room,
    kept: VecDeque<TailItem>,
    lines: usize,
    bytes: u64,
    /// Whether the texts of the lines were dropped: they are read again, from the end of what is left out.
    spilled: bool,
    pub omitted: Omitted,
    /// For each stream, whether what is left out ends inside a line.
    pub within: [bool; 2],
    /// The gaps in what is left out.
    pub cuts: Vec<Cut>,
}

enum TailItem {
    /// A line, and how many bytes of the stream it covers. The text is empty if the texts were dropped.
    Line(Line, u64),
    Cut(Cut),
}

impl TailItem {
    fn spill(&mut self) {
        if let Self::Line(line, _) = self {
            line.bytes = Vec::new();
        }
    }
}

impl Tail {
    pub fn new(from: Cursor, room: Room) -> Self {
        let omitted = Omitted { lines: 0, bytes: 0, from, to: from };
        let (kept, cuts, within) = (VecDeque::new(), Vec::new(), [false; 2]);
        Self { room, kept, lines: 0, bytes: 0, spilled: false, omitted, within, cuts }
    }

    /// Adds a gap.
    pub fn push_cut(&mut self, cut: Cut) {
        self.kept.push_back(TailItem::Cut(cut));
    }

    /// Adds a line, and leaves out what does not fit any more.
    pub fn push(&mut self, line: Line) {
        let size = line.size();
        self.lines += usize::from(!line.split);
        self.bytes += size;
        self.kept.push_back(TailItem::Line(line, size));
        self.fit();
        if self.spilled {
            self.kept.back_mut().map(TailItem::spill);
        } else if self.bytes + OVERHEAD * self.kept.len() as u64 > HELD {
            self.kept.iter_mut().for_each(TailItem::spill);
            self.spilled = true;
        }
    }

    /// Leaves room for this many lines that come from elsewhere.
    pub fn leave_room(&mut self, lines: usize) {
        self.room.lines = self.room.lines.saturating_sub(lines);
        self.fit();
    }

    /// Leaves out what does not fit.
    fn fit(&mut self) {
        while self.lines > self.room.lines || self.bytes > self.room.bytes {
            let over = self.bytes.saturating_sub(self.room.bytes);
            let alone = self.kept.len() == 1;
            match self.kept.pop_front() {
                None => return,
                Some(TailItem::Cut(cut)) => {
                    *self.omitted.to.of_mut(cut.stream) = cut.to;
                    self.cuts.push(cut);
                }
                Some(TailItem::Line(line, size)) => {
                    let whole = self.lines > self.room.lines || over >= size;
                    if whole || (!alone && !line.split) {
                        self.leave_out(&line, size, line.ended);
                        self.within[line.stream as usize] = line.split;
                        self.lines -= usize::from(!line.split);
                    } else {
                        self.leave_out(&line, over, false);
                        self.within[line.stream as usize] = true;
                        let rest = if self.spilled {
                            Line { offset: line.offset.saturating_add(over), ..line }
                        } else {
                            divide(line, over).1
                        };
                        self.kept.push_front(TailItem::Line(rest, size - over));
                    }
                }
            }
        }
    }

    /// Puts `front` before the first line if it is the beginning of that line. Otherwise returns it.
    pub fn join(&mut self, mut front: Line) -> Option<Line> {
        match self.kept.front_mut() {
            Some(TailItem::Line(line, size))
                if !self.spilled
                    && (line.stream, line.offset) == (front.stream, front.end())
                    && line.bytes.len() + front.bytes.len() <= MAX_LINE =>
            {
                *size += front.size();
                front.bytes.append(&mut line.bytes);
                *line = Line { ended: line.ended, split: line.split, ..front };
                None
            }
            Some(TailItem::Line(..) | TailItem::Cut(_)) | None => Some(front),
        }
    }

    /// The lines and gaps. None if they have to be read again, from the end of what is left out.
    pub fn into_kept(self) -> Option<impl Iterator<Item = LineOrCut>> {
        let kept = self.kept.into_iter().map(|kept| match kept {
            TailItem::Line(line, _) => LineOrCut::Line(line),
            TailItem::Cut(cut) => LineOrCut::Cut(cut),
        });
        (!self.spilled).then_some(kept)
    }

    fn leave_out(&mut self, line: &Line, size: u64, ended: bool) {
        self.bytes -= size;
        self.omitted.bytes = self.omitted.bytes.saturating_add(size);
        self.omitted.lines = self.omitted.lines.saturating_add(u64::from(ended));
        *self.omitted.to.of_mut(line.stream) = line.offset.saturating_add(size);
    }
}

/// A line in two parts. The first has `length` bytes, which is fewer than the line covers.
pub(super) fn divide(mut line: Line, length: u64) -> (Line, Line) {
    let at = usize::try_from(length).map_or(line.bytes.len(), |length| length.min(line.bytes.len()));
    let bytes = line.bytes.split_off(at);
    let rest = Line { offset: line.offset.saturating_add(at as u64), bytes, ..line };
    (Line { ended: false, split: true, ..line }, rest)
}
